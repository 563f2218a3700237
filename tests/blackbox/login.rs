//! Getting in: passwords and the plugins that check them, what is told where
//! a login fails, and that no password is ever shown.

mod hosts;
mod settings;
mod tls;

use std::fmt::Debug;

use dlease::{AcquireOptions, Client, Error, Status};

use crate::support::server::percent_encoded;
use crate::support::{Own, Server, each_kind_at_once, ms, refused_at_once, status, take, try_it};

/// The client's error at once, in which the secret does not stand.
fn refused(client: &Client, secret: &str) -> Error {
    let error = refused_at_once(client, "k");
    assert_eq!(error.status(), Status::Config, "{error:?}");
    assert_hidden(secret, &[&error, &error.message(), client]);
    error
}

fn assert_hidden(secret: &str, shown: &[&dyn Debug]) {
    for shown in shown {
        for text in [format!("{shown:?}"), format!("{shown:#?}")] {
            assert!(!text.contains(secret), "{text}");
            assert!(!text.contains(&percent_encoded(secret)), "{text}");
        }
    }
}

/// A text of SQL's.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// How SQL says which plugin checks which password.
fn identified(kind: &str, plugin: &str, password: &str) -> String {
    let password = quoted(password);
    match kind {
        "mariadb" => format!("IDENTIFIED VIA {plugin} USING PASSWORD({password})"),
        _ => format!("IDENTIFIED WITH {plugin} BY {password}"),
    }
}

/// Runs statements for an account as the server may know it, `{}`.
fn for_account(own: &Own, user: &str, statements: &str) {
    let mut root = own.root();
    for statement in statements.split("; ") {
        for host in ["%", "localhost"] {
            root.run(&statement.replace("{}", &format!("{}@'{host}'", quoted(user))));
        }
    }
}

/// Makes an account with all rights.
fn make_account(own: &Own, user: &str, identified: &str) {
    for_account(own, user, &format!("CREATE USER {{}} {identified}"));
    for_account(own, user, "GRANT ALL ON dlease.* TO {}");
}

/// The plugins that check passwords: all that the server and the driver have.
fn plugins(kind: &str) -> &'static [&'static str] {
    match kind {
        "mariadb" => &["ed25519", "mysql_native_password"],
        _ => &["caching_sha2_password"],
    }
}

#[test]
fn what_a_login_lacks_is_told_at_once_and_once_mended_works() {
    let secret = "t0p $ecret/%";
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "login-refused", &[]);
        let right = identified(kind, plugins(kind)[0], secret);
        let alter = format!("ALTER USER {{}} {right}");
        let create = format!("CREATE USER {{}} {right}; GRANT ALL ON dlease.* TO {{}}");
        let refuses_until = |server: &Server, numbers: &[u16], sqlstate: &str, mend: &dyn Fn()| {
            let client = server.client();
            let error = refused(&client, secret);
            assert!(numbers.contains(&error.server_errno()), "{error:?}");
            let sqlstate = if error.server_errno() == 0 { "" } else { sqlstate };
            assert_eq!(error.sqlstate(), sqlstate, "{error:?}");
            assert!(!error.is_retriable());
            let address = format!("127.0.0.1:{}", server.port());
            assert!(error.message().contains(&address), "{error}");
            // No restart of the client is needed.
            mend();
            take(&client, "k").release().unwrap();
        };
        for (user, spoil, mend, numbers, sqlstate) in [
            ("dl_changed", "ALTER USER {} IDENTIFIED BY 'another'", &*alter, &[1045][..], "28000"),
            // MySQL may ask for a plugin that the driver has not, as if the
            // user were there.
            ("dl_unknown", "DROP USER {}", &create, &[1045, 0], "28000"),
            (
                "dl_rights",
                "REVOKE ALL ON dlease.* FROM {}",
                "GRANT ALL ON dlease.* TO {}",
                &[1044],
                "42000",
            ),
            (
                "dl_locked",
                "ALTER USER {} ACCOUNT LOCK",
                "ALTER USER {} ACCOUNT UNLOCK",
                &[3118, 4151],
                "HY000",
            ),
            // Refused at the door, or let in to change the password alone.
            ("dl_expired", "ALTER USER {} PASSWORD EXPIRE", &alter, &[1862, 1820], "HY000"),
        ] {
            make_account(&own, user, &right);
            for_account(&own, user, spoil);
            let server = own.server.logged_in_as(user, secret);
            refuses_until(&server, numbers, sqlstate, &|| for_account(&own, user, mend));
        }
        let later = own.server.in_database("dlease_later");
        let make = || own.root().run("CREATE DATABASE dlease_later");
        refuses_until(&later, &[1049], "42000", &make);
    });
}

#[test]
fn every_plugin_lets_in_with_and_without_tls_and_on_the_socket() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "login-plugins", &[]);
        let path: String = own.root().row("SELECT @@socket").unwrap();
        for plugin in plugins(kind) {
            let (user, empty) = (format!("dl_{plugin:.6}"), format!("no_{plugin:.6}"));
            make_account(&own, &user, &identified(kind, plugin, "right"));
            make_account(&own, &empty, &identified(kind, plugin, ""));
            let socket = format!("socket={}", percent_encoded(&path));
            for option in ["tls=off", "tls=preferred", "tls=required", &socket] {
                for (user, password, good) in
                    [(&user, "right", true), (&user, "wrong", false), (&empty, "", true)]
                {
                    // ed25519 refuses an empty one to MariaDB's own client too.
                    if user.starts_with("no_ed") {
                        continue;
                    }
                    let url = own.server.logged_in_as(user, password).url_with(option);
                    // Forgets whom caching_sha2_password has seen: the first
                    // login sends the password itself, the second does not.
                    own.root().run("FLUSH PRIVILEGES");
                    for _ in 0..2 {
                        let client = Client::open(&url).unwrap();
                        if good {
                            client.ping(ms(5_000)).unwrap();
                        } else {
                            assert_eq!(refused(&client, password).server_errno(), 1045);
                        }
                    }
                }
            }
        }
        // No host is needed in the URL of a socket.
        let password = own.server.url.split(['/', ':', '@']).nth(4).unwrap();
        let client = Client::open(&format!("mysql://dl:{password}@/dlease?socket={path}")).unwrap();
        assert!(try_it(&client, "k").is_some());
    });
}

#[test]
fn a_plugin_that_is_not_known_is_told_at_once() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "login-unknown", &[]);
        let mut root = own.root();
        let user = "'dl_other'@'localhost'";
        // Both check the system's account behind a socket, and nothing else.
        if kind == "mysql" {
            root.run("INSTALL PLUGIN auth_socket SONAME 'auth_socket.so'");
            root.run(&format!("CREATE USER {user} IDENTIFIED WITH auth_socket"));
        } else {
            root.run(&format!("CREATE USER {user} IDENTIFIED VIA unix_socket"));
        }
        root.run(&format!("GRANT ALL ON dlease.* TO {user}"));
        let client = own.server.logged_in_as("dl_other", "secret!").client();
        refused(&client, "secret!");
    });
}

#[test]
fn a_password_may_hold_any_character() {
    let long = "é".repeat(60);
    let passwords = [
        "p@ss:w/o#r?d&x=1",
        "100%41 + %",
        " at both ends ",
        "'\"`\\;--",
        "ünï😀漢",
        "[::1]:3306",
        &long,
    ];
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "login-passwords", &[]);
        for (number, password) in passwords.iter().enumerate() {
            for plugin in plugins(kind) {
                let user = format!("u@{number}:/ü {plugin:.6}");
                make_account(&own, &user, &identified(kind, plugin, password));
                let client = own.server.logged_in_as(&user, password).client();
                client.ping(ms(5_000)).unwrap_or_else(|error| panic!("{password}: {error}"));
                assert_hidden(password, &[&client]);
                let nearly = format!("{password}x");
                let client = own.server.logged_in_as(&user, &nearly).client();
                assert_eq!(refused(&client, &nearly).server_errno(), 1045);
            }
        }
    });
}

#[test]
fn a_url_that_cannot_be_shows_no_password() {
    let secret = "topsecret";
    for url in [
        "http://u:topsecret@h/d",
        "u:topsecret@h/d",
        "mysql://u:topsecret@h",
        "mysql://u:topsecret@/d",
        "mysql://u:topsecret@h:99999/d",
        "mysql://u:topsecret@h/d?nonsense=topsecret",
        "mysql://u:topsecret@h/d?tls=topsecret",
        "mysql://u:topsecret@h/d#",
        "mysql://u:topsecret%00@h/d",
        "mysql://u:topsecret%ff@h/d",
        "mysql://u:topsecret@h,,/d",
        // Passwords in which something should have been percent-encoded.
        "mysql://u:12/topsecret@h/d",
        "mysql://u:12?topsecret@h/d",
        "mysql://u:12#topsecret@h/d",
        "mysql://u:12/x?topsecret@h/d",
        "mysql://u:12/x?tls=topsecret@h/d",
        "mysql://u:pa/topsecret@h/d",
        "mysql://u:topsecret%@h/d?x",
    ] {
        let error = Client::open(url).map(|client| format!("{url}: {client:?}")).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument, "{url}");
        assert_hidden(secret, &[&error, &error.message()]);
    }
}

#[test]
fn nothing_that_is_printed_holds_a_password() {
    let secret = "topsecret";
    let builder = Client::builder().application("a");
    let client = builder.clone().open("mysql://u:topsecret@127.0.0.1:1/d").unwrap();
    let options = AcquireOptions::new().owner("o").note("n");
    let error = client.try_acquire("k", &options).unwrap_err();
    assert_eq!(error.status(), Status::Unavailable);
    assert_eq!(status(client.ping(ms(100))), Status::Unavailable);
    assert!(format!("{client:?}").contains("***"), "{client:?}");
    assert_hidden(secret, &[&builder, &client, &options, &error, &error.message()]);
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "login-printed", &[]);
        let server = own.account("dl_printed", "ALL");
        let client = server.client_with(|builder| builder.io_timeout(ms(200)));
        let lock = take(&client, "k");
        assert_hidden("a password", &[&client, &lock]);
        own.kill();
        let error = lock.renew().unwrap_err();
        assert_hidden("a password", &[&client, &lock, &error, &error.message()]);
        let error = lock.release().unwrap_err();
        assert_hidden("a password", &[&error, &error.message()]);
    });
}
