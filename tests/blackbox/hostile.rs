//! Server defaults that would change what a statement means: none matters.

use std::thread;

use dlease::{AcquireOptions, Status};

use crate::support::{
    Own, Server, each_kind_at_once, eventually, ms, status, take, take_for, timed, try_it,
};

/// Everything a lease can do, from the making of its tables on, by two clients.
fn everything_works(server: &Server, prefix: &str) {
    let client = || server.client_with(|options| options.table_prefix(prefix));
    let (one, two, key) = (client(), client(), "a key");
    let first = take(&one, key);
    assert!(try_it(&two, key).is_none());
    first.renew().expect("renew");
    assert!(first.remaining() > ms(25_000) && first.remaining() <= ms(30_000));
    let token = first.token();
    first.release().expect("release");
    let second = take(&two, key);
    assert!(second.token() > token);
    let result = one.acquire(key, &AcquireOptions::new().wait(ms(50)));
    assert_eq!(status(result), Status::TimedOut);
    second.release().expect("release");
    // Shared by an owner.
    let options = AcquireOptions::new().wait(ms(5_000)).owner("an owner");
    let (a, b) = (
        one.acquire(key, &options).expect("acquire"),
        two.acquire(key, &options).expect("acquire"),
    );
    assert_eq!(a.token(), b.token());
    a.release().expect("release");
    b.renew().expect("renew");
    assert!(try_it(&one, key).is_none());
    b.release().expect("release");
    // Lapsed, and taken over.
    let short = take_for(&one, key, ms(60));
    let next = take(&two, key);
    assert!(next.token() > short.token());
    assert_eq!(status(short.release()), Status::NotHeld);
    // Dropped, and released by the client.
    drop(next);
    eventually("it is free", || try_it(&one, key).is_some());
}

/// What anybody may set for all sessions to come, on either server.
const BOTH: &[&str] = &[
    "autocommit = 0",
    "completion_type = 'CHAIN'",
    "completion_type = 'RELEASE'",
    "transaction_isolation = 'SERIALIZABLE'",
    "transaction_isolation = 'READ-UNCOMMITTED'",
    "sql_select_limit = 0",
    "sql_select_limit = 1",
    "max_join_size = 1",
    "sql_safe_updates = 1",
    "unique_checks = 0",
    "sql_auto_is_null = 1",
    "sql_quote_show_create = 0",
    "big_tables = 1",
    "max_error_count = 0",
    "innodb_lock_wait_timeout = 1",
    "lock_wait_timeout = 1",
    "wait_timeout = 1",
    "default_storage_engine = 'MyISAM'",
    "character_set_server = 'ucs2'",
    "character_set_client = 'latin1'",
    "collation_connection = 'latin1_german1_ci'",
    "time_zone = '+05:45'",
    "div_precision_increment = 0",
    "sql_mode = ''",
    "sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,NO_UNSIGNED_SUBTRACTION'",
    "sql_mode = 'TRADITIONAL,PAD_CHAR_TO_FULL_LENGTH,HIGH_NOT_PRECEDENCE,IGNORE_SPACE'",
    "init_connect = 'SET autocommit = 0, timestamp = 1000, time_zone = ''-08:00'''",
    "init_connect = 'SET sql_select_limit = 0, sql_safe_updates = 1, sql_big_selects = 0'",
    "init_connect = 'SET SESSION TRANSACTION READ ONLY'",
    "init_connect = 'BEGIN'",
    "init_connect = 'START TRANSACTION READ ONLY'",
    "init_connect = 'SET insert_id = 7, last_insert_id = 9'",
];

const MYSQL: &[&str] = &[
    "max_execution_time = 1000",
    "sql_generate_invisible_primary_key = 1",
    "sql_require_primary_key = 1",
    "default_collation_for_utf8mb4 = 'utf8mb4_general_ci'",
    "explicit_defaults_for_timestamp = 0",
    "transaction_read_only = 1",
    "innodb_default_row_format = 'compact'",
];

const MARIADB: &[&str] = &[
    "max_statement_time = 1",
    "innodb_snapshot_isolation = ON",
    "idle_transaction_timeout = 1",
    "idle_write_transaction_timeout = 1",
    "sql_mode = 'ORACLE'",
    "sql_mode = 'SIMULTANEOUS_ASSIGNMENT,EMPTY_STRING_IS_NULL,TIME_ROUND_FRACTIONAL'",
    "old_mode = 'NO_DUP_KEY_WARNINGS_WITH_IGNORE,ZERO_DATE_TIME_CAST'",
    "tx_read_only = 1",
    "innodb_default_row_format = 'redundant'",
    "default_tmp_storage_engine = 'MyISAM'",
];

#[test]
fn hostile_defaults_change_nothing() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "hostile", &[]);
        // One session for all: what it sets holds for those to come.
        let mut root = own.root();
        let extra = if kind == "mysql" { MYSQL } else { MARIADB };
        let mut mattered = Vec::new();
        for (number, setting) in BOTH.iter().chain(extra).enumerate() {
            println!("{kind}: {setting}");
            let name = setting.split(' ').next().expect("a name");
            // MariaDB has an older name for it.
            let named = |text: &str| match kind {
                "mariadb" => text.replace("transaction_isolation", "tx_isolation"),
                _ => text.to_owned(),
            };
            let variable = named(name);
            let text = format!("SELECT @@GLOBAL.{variable}");
            let before: mysql::Value = root.row(&text).expect("a value");
            root.run(&format!("SET GLOBAL {}", named(setting)));
            // All of them are tried, so that one run names all that matter.
            let work = || everything_works(&own.server, &format!("h{number}_"));
            if std::panic::catch_unwind(work).is_err() {
                mattered.push(*setting);
            }
            let before = match before {
                mysql::Value::NULL => "DEFAULT".to_owned(),
                value => match String::from_utf8(mysql::from_value(value)).expect("text") {
                    text if text.parse::<f64>().is_ok() => text,
                    text => format!("'{text}'"),
                },
            };
            root.run(&format!("SET GLOBAL {variable} = {before}"));
        }
        assert!(mattered.is_empty(), "on {kind} these matter: {mattered:#?}");
    });
}

#[test]
fn a_limit_on_statements_does_not_cut_a_wait() {
    each_kind_at_once(|kind| {
        let limit = match kind {
            "mysql" => "--max-execution-time=1000",
            _ => "--max-statement-time=1",
        };
        let own = Own::start(kind, "limit", &[limit]);
        let (one, two) = (own.server.client(), own.server.client());
        let lock = take(&one, "k");
        let releasing = thread::spawn(move || {
            thread::sleep(ms(2_000));
            lock.release().unwrap();
        });
        let options = AcquireOptions::new().wait(ms(3_000));
        let (result, took) = timed(|| two.acquire("k", &options));
        result.unwrap().release().unwrap();
        assert!(took >= ms(1_900) && took < ms(3_000), "{took:?}");
        releasing.join().unwrap();
    });
}

#[test]
fn a_binary_log_of_statements_is_written_to_all_the_same() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "statements", &["--log-bin", "--binlog-format=STATEMENT"]);
        let format: Option<String> = own.root().row("SELECT @@GLOBAL.binlog_format");
        assert_eq!(format.as_deref(), Some("STATEMENT"));
        everything_works(&own.server, "dl_");
        // Nothing that would be different on a replica.
        let log = std::fs::read_to_string(own.directory().join("log")).expect("its log");
        assert!(!log.contains("Unsafe statement"), "{log}");
    });
}
