//! What calls cost on the wire and on disk, and what a session is before it is
//! used for any.

use dlease::AcquireOptions;

use crate::support::proxy::Proxy;
use crate::support::{Other, Own, each_kind_at_once, ms, take, try_it, unique};

/// How many transactions the server has written to its binary log.
fn commits(root: &mut Other) -> usize {
    let logs: Vec<mysql::Row> = root.rows("SHOW BINARY LOGS");
    let name: String = logs.last().and_then(|row| row.get(0)).expect("a log");
    let events: Vec<mysql::Row> = root.rows(&format!("SHOW BINLOG EVENTS IN '{name}'"));
    events.iter().filter(|row| row.get::<String, _>("Event_type").as_deref() == Some("Xid")).count()
}

#[test]
fn an_acquire_a_renewal_and_a_release_are_one_statement_and_one_commit_each() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "cost", &["--log-bin"]);
        let proxy = Proxy::start(own.server.port());
        let client = &own.server.behind(&proxy).client();
        let (mut root, key) = (own.root(), unique("cost"));
        let mut cost = |what: &str, statements: usize, written: usize, work: &mut dyn FnMut()| {
            work();
            proxy.forget_statements();
            let before = commits(&mut root);
            for _ in 0..10 {
                work();
            }
            let sent = proxy.statements();
            assert_eq!(sent.len(), 10 * statements, "{what}: {sent:#?}");
            assert_eq!(commits(&mut root) - before, 10 * written, "{what}");
        };
        let mut held = Vec::new();
        take(client, &key).release().unwrap();
        cost("acquire and release", 2, 2, &mut || take(client, &key).release().unwrap());
        cost("first acquire", 2, 1, &mut || {
            held.push(take(client, unique("cost")));
        });
        let lock = take(client, &key);
        cost("renewal", 1, 1, &mut || lock.renew().unwrap());
        cost("failing try", 1, 0, &mut || assert!(try_it(client, &key).is_none()));
        let owned = AcquireOptions::new().owner("o").wait(ms(5_000));
        let outer = client.acquire(unique("cost"), &owned).unwrap();
        let inner = outer.key().to_vec();
        cost("nested acquire and release", 0, 0, &mut || {
            client.acquire(&inner, &owned).unwrap().release().unwrap();
        });
        cost("token, remaining, state", 0, 0, &mut || {
            assert!(lock.is_held() && lock.token() > 0 && lock.remaining() > ms(0));
        });
    });
}

#[test]
fn no_statement_knows_a_clock_but_the_servers_in_utc() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "clocks", &[]);
        let proxy = Proxy::start(own.server.port());
        let client = own.server.behind(&proxy).client();
        let key = unique("clocks");
        for _ in 0..2 {
            let lock = take(&client, &key);
            lock.renew().unwrap();
            lock.release().unwrap();
        }
        let statements = proxy.statements();
        // From the very first one: pins and tables too.
        assert!(statements.iter().any(|text| text.contains("CREATE TABLE")));
        assert!(statements.iter().any(|text| text.contains("UTC_TIMESTAMP(6)")));
        for text in statements {
            let upper = text.to_uppercase().replace("UTC_TIMESTAMP(6)", "");
            for name in [
                "NOW(",
                "SYSDATE",
                "CURRENT_TIME",
                "CURRENT_DATE",
                "LOCALTIME",
                "CURTIME",
                "CURDATE",
                "UNIX_TIMESTAMP",
                "FROM_UNIXTIME",
                "UTC_DATE",
                "UTC_TIME",
                "RAND(",
                "UUID",
            ] {
                assert!(!upper.replace("'SERVER_UUID'", "").contains(name), "{name}: {text}");
            }
        }
    });
}

/// What a session must be set to, whatever it was before.
const PINNED: &[(&str, &str)] = &[
    ("time_zone", "+00:00"),
    ("sql_mode", "STRICT_ALL_TABLES"),
    ("autocommit", "1"),
    ("completion_type", "NO_CHAIN"),
    ("sql_safe_updates", "0"),
    ("sql_select_limit", "18446744073709551615"),
    ("sql_big_selects", "1"),
    ("unique_checks", "1"),
    ("character_set_client", "utf8mb4"),
    ("character_set_connection", "utf8mb4"),
    ("lock_wait_timeout", "1"),
];
const PINNED_MYSQL: &[(&str, &str)] = &[
    ("transaction_isolation", "READ-COMMITTED"),
    ("transaction_read_only", "0"),
    ("max_execution_time", "0"),
    ("innodb_lock_wait_timeout", "1"),
];
const PINNED_MARIADB: &[(&str, &str)] = &[
    ("tx_isolation", "READ-COMMITTED"),
    ("tx_read_only", "0"),
    ("max_statement_time", "0.000000"),
    ("idle_transaction_timeout", "0"),
    ("innodb_snapshot_isolation", "0"),
    ("innodb_lock_wait_timeout", "0"),
];

#[test]
fn every_session_is_pinned_whatever_it_was_before() {
    each_kind_at_once(|kind| {
        let nasty = "--init-connect=SET sql_mode = 'ANSI', autocommit = 0, sql_safe_updates = 1, \
                     completion_type = 1, time_zone = '-08:00', unique_checks = 0, \
                     lock_wait_timeout = 7, innodb_lock_wait_timeout = 7, NAMES latin1";
        let own = Own::start(kind, "pins", &[nasty, "--transaction-isolation=SERIALIZABLE"]);
        let proxy = Proxy::start(own.server.port());
        let client = own.server.behind(&proxy).client();
        take(&client, unique("pins")).release().unwrap();
        let mut root = own.root();
        let session = root.sessions_of(&proxy).first().expect("a session").id;
        let extra = if kind == "mysql" { PINNED_MYSQL } else { PINNED_MARIADB };
        // MySQL shows another session's variables. On MariaDB the client's
        // settings are made once more, in a session that is no better at first.
        let mut same = own.server.other();
        assert_eq!(same.row::<String>("SELECT @@time_zone").as_deref(), Some("-08:00"));
        for text in proxy.statements().iter().filter(|text| text.starts_with("SET ")) {
            same.run(text);
        }
        for (name, expected) in PINNED.iter().chain(extra) {
            let mut found = vec![same.row::<String>(&format!("SELECT @@SESSION.{name}"))];
            if kind == "mysql" {
                let value = root.row(&format!(
                    "SELECT variable_value FROM performance_schema.variables_by_thread \
                     JOIN performance_schema.threads USING (thread_id) \
                     WHERE processlist_id = {session} AND variable_name = '{name}'"
                ));
                found.push(value.map(|value: String| match &*value {
                    "ON" => "1".to_owned(),
                    "OFF" => "0".to_owned(),
                    _ => value,
                }));
            }
            let right = |value: &Option<String>| value.as_deref() == Some(*expected);
            assert!(found.iter().all(right), "{kind}: {name}: {found:?}");
        }
    });
}
