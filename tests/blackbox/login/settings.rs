//! What a server does to every session that logs in, and the language it
//! answers in: nothing of it changes an answer.

use std::sync::Barrier;
use std::thread;

use dlease::{AcquireOptions, Status};

use crate::support::{
    Own, each_kind_at_once, ms, refused_at_once, status, take, take_for, timed, try_it,
};

#[test]
fn read_only_transactions_and_init_connect_change_nothing() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "login-sessions", &[]);
        let read_only = if kind == "mariadb" { "tx_read_only" } else { "transaction_read_only" };
        for setting in [
            "init_connect = 'SET time_zone = ''-08:00'', timestamp = 1000, autocommit = 0'".into(),
            "init_connect = 'SET sql_mode = ''ANSI'', NAMES latin1, sql_safe_updates = 1'".into(),
            "init_connect = 'START TRANSACTION READ ONLY'".into(),
            "init_connect = 'SET TRANSACTION READ ONLY'".into(),
            "init_connect = 'START TRANSACTION'".into(),
            format!("{read_only} = 1"),
        ] {
            println!("{setting}");
            own.root().run(&format!("SET GLOBAL {setting}"));
            let (one, two) = (own.server.client(), own.server.client());
            let lock = take_for(&one, "k 😀", ms(60_000));
            assert!(lock.token() > 1_700_000_000_000_000);
            assert!(try_it(&two, "k 😀").is_none());
            let text = "SELECT COUNT(*) FROM dl_lock WHERE lock_key = 'k 😀' AND expires_us - \
                        TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) \
                        BETWEEN 1 AND 60000000";
            assert_eq!(own.root().row(text), Some(1));
            lock.renew().unwrap();
            lock.release().unwrap();
            // Everything was committed: others see it, and a lapsed one too.
            let lapsing = take_for(&two, "k 😀", ms(100));
            let (next, waited) = timed(|| take(&one, "k 😀"));
            assert!(waited < ms(2_000), "{waited:?}");
            assert!(next.token() > lapsing.token());
        }
    });
}

/// What the library answers where the server answers 1205, 1062, 1406, 1045
/// and 1146, and whether the server's words are English.
fn answers(own: &Own, language: &str) -> (Vec<(Status, u16)>, bool) {
    own.root().run(&format!("SET GLOBAL lc_messages = '{language}'"));
    let (server, mut found) = (&own.server, Vec::new());
    let fresh = || server.client_with(|builder| builder.create_schema(false));
    take(&server.client(), "k").release().expect("release");
    own.root().run("DELETE FROM dl_lock WHERE lock_key <> 'k'");

    // A row that a transaction has locked, and lets go.
    let client = fresh();
    let mut locker = own.root();
    locker.run("BEGIN");
    locker.run("UPDATE dl_lock SET note = 'mine' WHERE lock_key = 'k'");
    found.push((status(client.acquire("k", &AcquireOptions::new().wait(ms(0)))), 0));
    // Longer than MySQL's least wait for a row.
    found.push((status(client.acquire("k", &AcquireOptions::new().wait(ms(1_200)))), 0));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| take(&client, "k").release().expect("release"));
        thread::sleep(ms(300));
        locker.run("ROLLBACK");
        waiting.join().expect("granted");
    });

    // Newcomers of one key: one inserts it, the others meet its row.
    let start = Barrier::new(8);
    let won = thread::scope(|scope| {
        let newcomer = || {
            let client = fresh();
            client.ping(ms(5_000)).expect("ping");
            start.wait();
            let lock = try_it(&client, "new");
            start.wait();
            lock.is_some()
        };
        let all: Vec<_> = (0..8).map(|_| scope.spawn(newcomer)).collect();
        all.into_iter().map(|one| u32::from(one.join().expect("tried"))).sum::<u32>()
    });
    assert_eq!(won, 1);

    own.root().run("ALTER TABLE dl_lock MODIFY owner varbinary(10) NULL");
    let error = refused_at_once(&client, "k");
    found.push((error.status(), error.server_errno()));
    let error = refused_at_once(&server.logged_in_as("dl", "wrong").client(), "k");
    let english = error.message().contains("Access denied");
    found.push((error.status(), error.server_errno()));
    own.root().run("DROP TABLE dl_lock");
    found.push((refused_at_once(&client, "k").status(), 0));
    // It is made again by who may.
    take(&server.client(), "k").release().expect("release");
    take(&client, "k").release().expect("release");
    (found, english)
}

#[test]
fn the_language_of_the_servers_messages_changes_no_answer() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "login-language", &[]);
        let expected = vec![
            (Status::NotAcquired, 0),
            (Status::TimedOut, 0),
            // Looked at anew, the table itself is told.
            (Status::Config, 0),
            (Status::Config, 1045),
            (Status::Config, 0),
        ];
        for language in ["en_US", "de_DE", "fr_FR"] {
            let (found, english) = answers(&own, language);
            assert_eq!(found, expected, "{language}");
            assert_eq!(english, language == "en_US", "the server speaks {language}");
        }
    });
}
