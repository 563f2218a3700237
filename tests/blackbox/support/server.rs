//! The servers under test. Those of DLEASE_TEST_URLS are shared by all tests
//! and left as they are; one that a test stops, pauses or misconfigures is its
//! own, started by tests/server.

use std::path::PathBuf;
use std::process::Command;

use dlease::{AcquireOptions, Builder, Cancel, Client, Outcome, Status};

use super::{eventually, ms};

/// A server to test against.
#[derive(Clone, Debug)]
pub struct Server {
    pub url: String,
}

impl Server {
    /// A client with the defaults.
    pub fn client(&self) -> Client {
        Client::open(&self.url).expect("open")
    }

    /// A client with options.
    pub fn client_with(&self, options: impl FnOnce(Builder) -> Builder) -> Client {
        options(Client::builder()).open(&self.url).expect("open")
    }

    /// The URL with one more option.
    pub fn url_with(&self, option: &str) -> String {
        let separator = if self.url.contains('?') { '&' } else { '?' };
        format!("{}{separator}{option}", self.url)
    }

    /// Another session, with plain SQL.
    pub fn other(&self) -> super::Other {
        super::Other::open(&self.url)
    }

    /// The port in the URL.
    pub fn port(&self) -> u16 {
        let after = self.url.rsplit_once('@').expect("login").1;
        let host = after.split('/').next().expect("host");
        host.rsplit_once(':').expect("port").1.parse().expect("a number")
    }

    /// This server behind a proxy, which can read what is sent.
    pub fn behind(&self, proxy: &super::proxy::Proxy) -> Server {
        let at = Server { url: self.url_at(&proxy.address()) };
        Server { url: at.url_with("tls=off") }
    }

    /// The same server with another database.
    pub fn in_database(&self, name: &str) -> Server {
        let (before, _) = self.url.rsplit_once('/').expect("a database");
        Server { url: format!("{before}/{}", percent_encoded(name)) }
    }

    /// The same server and database with another account.
    pub fn logged_in_as(&self, user: &str, password: &str) -> Server {
        let after = self.url.rsplit_once('@').expect("login").1;
        let (user, password) = (percent_encoded(user), percent_encoded(password));
        Server { url: format!("mysql://{user}:{password}@{after}") }
    }

    /// The name of a key's gate, as a client that waits for the held key says it.
    pub fn gate_of(&self, key: &str) -> String {
        let proxy = super::proxy::Proxy::start(self.port());
        let (client, cancel) = (self.behind(&proxy).client(), Cancel::new());
        let options = AcquireOptions::new().wait(ms(30_000)).cancel(&cancel);
        client.acquire_async(key, &options, 1).expect("begun");
        let mut name = None;
        eventually("it stands at the gate", || {
            let sent = proxy.statements();
            let digits = sent.iter().find_map(|text| text.split("GET_LOCK('dl_g_").nth(1));
            name = digits.map(|digits| format!("dl_g_{}", &digits[..32]));
            name.is_some()
        });
        cancel.fire();
        match client.next_event(ms(20_000)).expect("open").expect("an event").outcome {
            Outcome::Failed(error) => assert_eq!(error.status(), Status::Cancelled),
            other => panic!("{other:?}"),
        }
        name.expect("it is there")
    }

    /// The URL with another host and port.
    pub fn url_at(&self, host_and_port: &str) -> String {
        let (login, after) = self.url.rsplit_once('@').expect("login");
        let path = after.split_once('/').expect("database").1;
        format!("{login}@{host_and_port}/{path}")
    }
}

/// Runs `test` against every server of DLEASE_TEST_URLS.
pub fn each_server(test: impl Fn(&Server)) {
    let urls = std::env::var("DLEASE_TEST_URLS")
        .expect("DLEASE_TEST_URLS names no server: run `make test`");
    let urls: Vec<&str> = urls.split_whitespace().collect();
    assert!(!urls.is_empty(), "DLEASE_TEST_URLS is empty");
    for url in urls {
        println!("on {}", url.rsplit_once('@').map_or("?", |(_, host)| host));
        test(&Server { url: url.to_owned() });
    }
}

/// Runs `test` with every kind of server (mariadb, mysql) that is tested, for
/// tests that start their own.
pub fn each_kind(test: impl Fn(&str)) {
    let kinds = std::env::var("DLEASE_TEST_SERVERS").unwrap_or_else(|_| "mariadb mysql".into());
    for kind in kinds.split_whitespace() {
        println!("on {kind}");
        test(kind);
    }
}

/// A server of the test's own: stopped when it is dropped.
#[derive(Debug)]
pub struct Own {
    pub server: Server,
    name: String,
}

impl Own {
    /// Starts a server named after the test, with server options.
    pub fn start(kind: &str, test: &str, options: &[&str]) -> Own {
        Own::start_in(kind, test, options, "")
    }

    /// Starts one with variables in its environment (`NAME=VALUE …`).
    pub fn start_in(kind: &str, test: &str, options: &[&str], environment: &str) -> Own {
        let name = format!("{kind}-{test}");
        let mut arguments = vec!["start", kind, "--name", &name, "--"];
        arguments.extend(options);
        let mut command = Command::new(script());
        command.args(&arguments).env("DLEASE_SERVER_ENV", environment);
        let url = run(&mut command);
        Own { server: Server { url }, name }
    }

    /// Runs SQL as root: rows of tab-separated cells.
    pub fn sql(&self, text: &str) -> String {
        self.control(&["sql", &self.name, text])
    }

    /// A session of root's.
    pub fn root(&self) -> super::Other {
        let state = std::fs::read_to_string(self.directory().join("state.json")).expect("state");
        let cell = |name: &str| {
            let after = state.split(&format!("\"{name}\": \"")).nth(1).expect("it is there");
            after.split('"').next().expect("a string").to_owned()
        };
        super::Other::root(&cell("socket"), &cell("root"))
    }

    /// The server for a new account with these rights on the database.
    pub fn account(&self, user: &str, rights: &str) -> Server {
        let mut root = self.root();
        for host in ["%", "localhost"] {
            root.run(&format!("CREATE USER '{user}'@'{host}' IDENTIFIED BY 'a password'"));
            root.run(&format!("GRANT {rights} ON dlease.* TO '{user}'@'{host}'"));
        }
        self.server.logged_in_as(user, "a password")
    }

    /// SIGKILL.
    pub fn kill(&self) {
        self.control(&["kill", &self.name]);
    }

    /// Stops it if it runs, and starts it again.
    pub fn restart(&self) {
        self.control(&["restart", &self.name]);
    }

    /// The URL of the account without CREATE.
    pub fn min_url(&self) -> String {
        self.control(&["url", &self.name, "--min"])
    }

    /// The directory of its state: log, certificates (`ca.pem`), data.
    pub fn directory(&self) -> PathBuf {
        root().join("target/servers").join(&self.name)
    }

    /// SIGSTOP; the returned value wakes it up again when it is dropped.
    pub fn pause(&self) -> Paused {
        let pid = self.pid();
        signal(pid, libc::SIGSTOP);
        // The signal is on its way; its threads stop one after the other.
        super::eventually("every thread has stopped", || {
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
            tasks.filter_map(Result::ok).all(|task| {
                let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                stat.rsplit_once(')').is_none_or(|(_, after)| after.starts_with(" T"))
            })
        });
        Paused { pid }
    }

    /// The server's process.
    pub fn pid(&self) -> i32 {
        let data = self.directory().join("data");
        let data = format!("--datadir={}", data.display());
        let is_it = |pid: &i32| {
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            command.split(|b| *b == 0).any(|word| word == data.as_bytes())
        };
        let pids = std::fs::read_dir("/proc").expect("/proc");
        let mut pids =
            pids.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).filter(is_it);
        pids.next().expect("the server runs")
    }

    fn control(&self, arguments: &[&str]) -> String {
        run(Command::new(script()).args(arguments))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // Nothing of it is kept, so it need not end well.
        let _ = Command::new(script()).args(["kill", &self.name]).output();
        let _ = std::fs::remove_dir_all(self.directory());
    }
}

/// A server that is stopped by SIGSTOP, until this is dropped.
#[derive(Debug)]
pub struct Paused {
    pid: i32,
}

impl Drop for Paused {
    fn drop(&mut self) {
        signal(self.pid, libc::SIGCONT);
    }
}

/// The text as a part of a URL.
pub fn percent_encoded(text: &str) -> String {
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn signal(pid: i32, number: i32) {
    // SAFETY: kill takes no memory; the pid is that of a server of ours.
    assert_eq!(unsafe { libc::kill(pid, number) }, 0, "signal {number} to {pid}");
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn script() -> PathBuf {
    root().join("tests/server")
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("tests/server can be run");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    text(&output.stdout)
}
