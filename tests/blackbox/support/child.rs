//! A client in a process of its own, for what only another process can have:
//! a time zone, a clock, a process id, a host name.
//!
//! It is this same test binary, started once more with one test alone:
//! [`a_child_is_a_client_of_its_own`]. That one finds DLEASE_CHILD_URL in its
//! environment and does from then on what it reads, a line at a time, until
//! its input ends.

use std::collections::HashMap;
use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime};

use dlease::{AcquireOptions, Client, Error, Lock};

use super::{each_server, ms, try_it, unique};

const ENTRY: &str = "support::child::a_child_is_a_client_of_its_own";
const URL: &str = "DLEASE_CHILD_URL";
/// In front of each answer: the test harness writes to the same output.
const ANSWER: &str = "answer: ";

/// See the module's text. Ends when it is dropped.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    /// There until it is dropped.
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Child {
    /// A child with these variables in its environment.
    pub fn start(url: &str, variables: &[(&str, &str)]) -> Child {
        let mut command = Command::new("/proc/self/exe");
        command.envs(variables.iter().copied());
        Child::run(command, url)
    }

    /// A child that is process 1 of a container, on a host of this name.
    pub fn start_in_container(url: &str, host: &str) -> Child {
        let mut command = Command::new("unshare");
        // SAFETY: reads the user's id.
        if unsafe { libc::geteuid() } != 0 {
            command.arg("--map-root-user");
        }
        command.args(["--uts", "--pid", "--fork", "--mount-proc", "--kill-child", "--"]);
        command.args(["sh", "-c", "hostname \"$0\" && exec \"$@\"", host]);
        command.arg(std::env::current_exe().expect("this binary"));
        Child::run(command, url)
    }

    fn run(mut command: Command, url: &str) -> Child {
        command.args(["--exact", ENTRY, "--nocapture", "--test-threads=1"]).env(URL, url);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let to = process.stdin.take();
        let from = BufReader::new(process.stdout.take().expect("a pipe"));
        Child { process, to, from }
    }

    /// Acquires: the token, or the status.
    pub fn acquire(&mut self, key: &str, wait: Duration, ttl: Duration) -> Result<u64, String> {
        let (wait, ttl) = (wait.as_millis(), ttl.as_millis());
        let answer = self.tell(format_args!("acquire {key} {wait} {ttl}"));
        answer.parse().map_err(|_| answer)
    }

    /// Begins to acquire; [`Child::acquired`] gives the end.
    pub fn begin_acquire(&mut self, key: &str, wait: Duration, ttl: Duration) {
        let (wait, ttl) = (wait.as_millis(), ttl.as_millis());
        self.say(format_args!("acquire {key} {wait} {ttl}"));
    }

    /// The end of the acquire that was begun: the token, or the status.
    pub fn acquired(&mut self) -> Result<u64, String> {
        let answer = self.hear("acquire");
        answer.parse().map_err(|_| answer)
    }

    /// Sends its process a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: no memory is passed; the process is ours, and not waited for.
        assert_eq!(unsafe { libc::kill(self.process.id() as i32, signal) }, 0);
    }

    /// Renews the lock of this key: "OK" or the status.
    pub fn renew(&mut self, key: &str) -> String {
        self.tell(format_args!("renew {key}"))
    }

    /// Releases the lock of this key: "OK" or the status.
    pub fn release(&mut self, key: &str) -> String {
        self.tell(format_args!("release {key}"))
    }

    /// How long the lock of this key is still held; zero if it is not.
    pub fn remaining(&mut self, key: &str) -> Duration {
        let answer = self.tell(format_args!("remaining {key}"));
        Duration::from_micros(answer.parse().expect("microseconds"))
    }

    /// How far its clock is ahead of this process's.
    pub fn ahead_s(&mut self) -> f64 {
        let theirs: f64 = self.tell("clock").parse().expect("seconds");
        theirs - seconds()
    }

    fn tell(&mut self, line: impl Display) -> String {
        self.say(&line);
        self.hear(&line)
    }

    fn say(&mut self, line: impl Display) {
        writeln!(self.to.as_mut().expect("not dropped"), "{line}").expect("the child lives");
    }

    fn hear(&mut self, line: impl Display) -> String {
        loop {
            let mut text = String::new();
            let count = self.from.read_line(&mut text).expect("text");
            assert!(count > 0, "the child has ended at: {line}");
            if let Some((_, answer)) = text.trim_end().split_once(ANSWER) {
                return answer.to_owned();
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        drop(self.to.take());
        let _ = self.process.wait();
    }
}

/// The wall clock.
fn seconds() -> f64 {
    SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs_f64()
}

/// What the child does.
fn serve(url: &str) {
    let client = Client::open(url).expect("open");
    let mut locks: HashMap<String, Lock> = HashMap::new();
    let told = |result: Result<(), Error>| result.map_or_else(|e| e.status().name(), |()| "OK");
    for line in std::io::stdin().lines() {
        let line = line.expect("text");
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match words[..] {
            ["acquire", key, wait, ttl] => {
                let number = |text: &str| ms(text.parse().expect("a number"));
                let options =
                    AcquireOptions::new().wait(number(wait)).ttl(number(ttl)).manual_renew();
                match client.acquire(key, &options) {
                    Ok(lock) => {
                        let token = lock.token().to_string();
                        locks.insert(key.to_owned(), lock);
                        token
                    }
                    Err(error) => error.status().name().to_owned(),
                }
            }
            ["renew", key] => told(locks[key].renew()).to_owned(),
            ["release", key] => {
                told(locks.remove(key).expect("acquired before").release()).to_owned()
            }
            ["remaining", key] => locks[key].remaining().as_micros().to_string(),
            ["clock"] => seconds().to_string(),
            _ => panic!("what is {line:?}?"),
        };
        println!("{ANSWER}{answer}");
    }
}

#[test]
fn a_child_is_a_client_of_its_own() {
    if let Ok(url) = std::env::var(URL) {
        return serve(&url);
    }
    each_server(|server| {
        let mut child = Child::start(&server.url, &[]);
        let client = server.client();
        let key = unique("child");
        let token = child.acquire(&key, ms(5_000), ms(30_000)).expect("it is free");
        assert_eq!(server.other().token(&key), Some(token));
        assert!(try_it(&client, &key).is_none());
        assert_eq!(child.renew(&key), "OK");
        assert!(child.remaining(&key) > ms(20_000));
        assert_eq!(child.release(&key), "OK");
        let _held = try_it(&client, &key).expect("released");
        assert_eq!(child.acquire(&key, ms(0), ms(30_000)), Err("NOT_ACQUIRED".to_owned()));
        assert!(child.ahead_s().abs() < 60.0);
    });
}
