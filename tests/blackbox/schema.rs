//! The tables: who makes them and with what rights, and that no default of the
//! server's changes them or what statements answer.

mod names;
mod view;
mod wrong;

use std::process::{Command, Stdio};
use std::sync::Barrier;

use dlease::{AcquireOptions, Client, Status};

use crate::support::place::{Database, Tables};
use crate::support::{
    Own, Server, each_kind_at_once, each_server, long, ms, refused_at_once, status, take, take_for,
    try_it, unique,
};

/// The tables' names, for a test that is run as a child process.
const PREFIX: &str = "DLEASE_TEST_PREFIX";

#[test]
fn the_first_client_makes_the_tables_and_the_next_finds_them() {
    each_server(|server| {
        let own = Tables::new(server);
        let prefix = std::env::var(PREFIX).unwrap_or_else(|_| own.prefix.clone());
        let client = || server.client_with(|builder| builder.table_prefix(&prefix));
        let (one, two, key) = (client(), client(), unique("made"));
        let lock = take(&one, &key);
        assert!(try_it(&two, &key).is_none());
        lock.release().unwrap();
        assert!(try_it(&two, &key).is_some());
    });
}

#[test]
fn twenty_processes_that_start_at_once_make_one_set_of_tables() {
    each_server(|server| {
        let tables = Tables::new(server);
        let child = || {
            Command::new("/proc/self/exe")
                .args([
                    "--exact",
                    "schema::the_first_client_makes_the_tables_and_the_next_finds_them",
                ])
                .env(PREFIX, &tables.prefix)
                .env("DLEASE_TEST_URLS", &server.url)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("a process")
        };
        let children: Vec<_> = (0..20).map(|_| child()).collect();
        for child in children {
            let output = child.wait_with_output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{text}");
            assert!(text.contains("1 passed"), "{text}");
        }
        let names = ["lock", "locks", "schema"].map(|name| format!("{}{name}", tables.prefix));
        assert_eq!(tables.found(), names);
        let text = tables.named("SELECT COUNT(*), MAX(version) FROM {schema}");
        assert_eq!(server.other().row(&text), Some((1, 1)));
        let text = tables.named("SELECT COUNT(*) FROM {lock}");
        assert_eq!(server.other().row(&text), Some(20));
    });
}

#[test]
fn twenty_clients_without_tables_and_one_key_have_one_winner() {
    each_server(|server| {
        let tables = Tables::new(server);
        let start = Barrier::new(20);
        let one = || {
            let client = tables.client();
            start.wait();
            let lock = try_it(&client, "contended");
            // Nobody lets go before all have tried.
            start.wait();
            lock.is_some()
        };
        let winners = std::thread::scope(|scope| {
            let all: Vec<_> = (0..20).map(|_| scope.spawn(one)).collect();
            all.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum::<usize>()
        });
        assert_eq!(winners, 1);
    });
}

/// The statements that an error prints.
fn ddl(message: &str) -> &str {
    &message[message.find("CREATE TABLE").expect("DDL in the message")..]
}

#[test]
fn without_the_right_to_create_the_ddl_is_told_and_helps_without_a_restart() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "schema-rights", &[]);
        let url = own.min_url();
        let client = Client::open(&url).unwrap();
        let error = refused_at_once(&client, "k");
        assert_eq!(error.status(), Status::Config);
        assert!(error.message().contains("schema missing"), "{error}");
        assert_eq!((error.server_errno(), error.sqlstate()), (1142, "42000"));
        assert!(!error.is_retriable());
        // Also where twenty come at once.
        let refused = || refused_at_once(&Client::open(&url).unwrap(), "k").status();
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..20).map(|_| scope.spawn(refused)).collect();
            assert!(all.into_iter().all(|thread| thread.join().unwrap() == Status::Config));
        });
        // As it is printed, typed in by root without a default database.
        own.sql(ddl(error.message()));
        let lock = take(&client, "k");
        lock.renew().unwrap();
        lock.release().unwrap();
        client.ping(ms(5_000)).unwrap();
        // Once more under an open session; and half of them, which the same
        // text completes.
        own.root().run("DROP TABLE dl_lock, dl_schema");
        let error = refused_at_once(&client, "k");
        assert_eq!(error.status(), Status::Config);
        let statements: Vec<&str> = ddl(error.message()).trim_end().split_terminator(';').collect();
        assert_eq!(statements.len(), 4);
        own.root().run(statements[0]);
        assert_eq!(refused_at_once(&client, "k").status(), Status::Config);
        for statement in statements {
            own.root().run(statement);
        }
        take(&client, "k").release().unwrap();
    });
}

#[test]
fn tables_that_were_emptied_or_made_anew_work_at_once_and_tokens_go_on() {
    each_server(|server| {
        let tables = Tables::new(server);
        let careful = tables.client_with(|builder| builder.create_schema(false));
        let clients = [tables.client(), careful];
        let mut last = 0;
        let mut acquire_with_both = |what: &str| {
            for client in &clients {
                let lock = client.acquire("k", &AcquireOptions::new().wait(ms(2_000))).unwrap();
                assert!(lock.token() > last, "{what}");
                last = lock.token();
                lock.release().unwrap();
            }
        };
        acquire_with_both("new");
        let shown = tables.named("SHOW CREATE TABLE {lock}");
        let (_, ddl): (String, String) = server.other().row(&shown).unwrap();
        for (what, statements) in [
            ("emptied", vec!["TRUNCATE TABLE {lock}"]),
            ("deleted", vec!["DELETE FROM {lock}"]),
            ("made anew by hand", vec!["DROP TABLE {lock}", &ddl]),
            ("dropped", vec!["DROP TABLE {lock}"]),
            ("all dropped", vec!["DROP TABLE {lock}, {schema}", "DROP VIEW {locks}"]),
        ] {
            tables.run(&statements);
            acquire_with_both(what);
        }
    });
}

#[test]
fn a_held_lock_whose_row_is_gone_is_lost_and_its_key_is_free() {
    each_server(|server| {
        let tables = Tables::new(server);
        let client = tables.client();
        let lock = take(&client, "k");
        tables.run(&["TRUNCATE TABLE {lock}"]);
        assert_eq!(status(lock.renew()), Status::NotHeld);
        assert_eq!(lock.lost_cause(), Some(dlease::LostCause::RowGone));
        assert!(try_it(&client, "k").expect("free").token() > lock.token());
    });
}

/// Server-wide settings that would change a table whose DDL does not name them.
const HOSTILE: [&str; 8] = [
    "explicit_defaults_for_timestamp = OFF",
    "default_storage_engine = MyISAM",
    "innodb_default_row_format = compact",
    "character_set_server = latin1",
    "collation_server = latin1_general_ci",
    "sql_mode = ''",
    "sql_quote_show_create = 0",
    "autocommit = 0",
];

/// The tables' definitions.
fn definitions(server: &Server) -> [String; 2] {
    let mut other = server.other();
    other.run("SET SESSION sql_quote_show_create = 1");
    ["dl_lock", "dl_schema"].map(|name| {
        let text = format!("SHOW CREATE TABLE {name}");
        other.row::<(String, String)>(&text).expect("the table").1
    })
}

#[test]
fn no_default_of_the_server_changes_the_tables() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "schema-defaults", &[]);
        take(&own.server.client(), "k").release().unwrap();
        let plain = definitions(&own.server);
        assert!(plain[0].contains("ENGINE=InnoDB"), "{}", plain[0]);
        assert!(!plain[0].to_lowercase().contains("timestamp"), "{}", plain[0]);
        for setting in HOSTILE {
            own.root().run(&format!("SET GLOBAL {setting}"));
        }
        let engines: &[&str] = if kind == "mariadb" { &["MyISAM", "Aria"] } else { &["MyISAM"] };
        for engine in engines {
            own.root().run(&format!("SET GLOBAL default_storage_engine = {engine}"));
            let database = Database::make(&own.server, "dlease_hostile");
            let (one, two) = (database.server.client(), database.server.client());
            let lock = take_for(&one, "k", ms(60_000));
            assert!(try_it(&two, "k").is_none());
            assert_eq!(definitions(&database.server), plain, "{engine}");
            // Nothing but a grant, a renewal or a release moves the expiry.
            let read = "SELECT expires_us FROM dl_lock";
            let expiry = || database.server.other().row::<u64>(read).unwrap();
            let before = expiry();
            let mut other = database.server.other();
            other.run("UPDATE dl_lock SET note = 'bumped'");
            other.run("COMMIT");
            assert_eq!(expiry(), before);
            lock.renew().unwrap();
            assert!(expiry() > before);
            lock.release().unwrap();
            assert_eq!(expiry(), 0);
        }
        if kind == "mariadb" {
            // The one setting that changes an engine although it is named.
            own.root().run("SET GLOBAL enforce_storage_engine = Aria");
            let database = Database::make(&own.server, "dlease_enforced");
            let error = refused_at_once(&database.server.client(), "k");
            assert_eq!(error.status(), Status::Config, "{error}");
        }
    });
}

#[test]
fn answers_do_not_depend_on_how_a_session_counts_rows() {
    for option in ["found_rows=true", "client_found_rows=1", "clientFoundRows=true"] {
        let url = format!("mysql://u:p@127.0.0.1:1/d?{option}");
        assert_eq!(status(Client::open(&url)), Status::InvalidArgument, "{option}");
    }
    each_server(|server| {
        let (one, two) = (server.client(), server.client());
        let (key, new, lapsed) = (unique("held"), unique("new"), unique("lapsed"));
        let options = AcquireOptions::new().owner("o").ttl(ms(60_000));
        let lock = one.acquire(&key, &options).unwrap();
        for _ in 0..if long() { 1_000 } else { 300 } {
            assert!(try_it(&two, &key).is_none());
            lock.renew().unwrap();
        }
        // Another hold of the same owner, whose renewals leave the later expiry
        // as it is.
        let short = options.clone().ttl(ms(10_000));
        let again = two.acquire(&key, &short).unwrap();
        assert_eq!(again.token(), lock.token());
        for _ in 0..50 {
            again.renew().unwrap();
        }
        again.release().unwrap();
        assert!(try_it(&two, &key).is_none());
        lock.release().unwrap();

        assert!(try_it(&one, &new).is_some());
        let first = take_for(&one, &lapsed, ms(10));
        let second = take(&two, &lapsed);
        assert!(second.token() > first.token());
        assert_eq!(status(first.release()), Status::NotHeld);
        assert!(try_it(&one, &lapsed).is_none());
        second.release().unwrap();
    });
}
