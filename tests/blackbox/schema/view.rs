//! The view `dl_locks`: who holds what, for people with any SQL client.

use dlease::AcquireOptions;

use crate::support::place::Tables;
use crate::support::{Own, each_kind_at_once, each_server, eventually, ms, take, take_for, unique};

const COLUMNS: [&str; 10] = [
    "namespace",
    "kind",
    "lock_key",
    "state",
    "holder",
    "note",
    "token",
    "holds",
    "held_s",
    "remaining_s",
];

/// A line of the view, times apart.
type Line = (String, String, String, String, Option<String>, String, u64, u32);

fn line(tables: &Tables, key: &str) -> Line {
    let columns = COLUMNS[..8].join(", ");
    let text = format!("SELECT {columns} FROM {{locks}} WHERE lock_key = '{key}'");
    tables.server.other().row(&tables.named(&text)).unwrap_or_else(|| panic!("{key}"))
}

fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").expect("/proc").trim().to_owned()
}

#[test]
fn the_view_has_a_line_for_each_key_with_its_holder() {
    each_server(|server| {
        let tables = Tables::new(server);
        let client = |name| {
            tables.client_with(|b| b.application(name).namespace("shop").default_ttl(ms(90_000)))
        };
        let (one, two) = (client("billing"), client("audit"));
        let shared = AcquireOptions::new().owner("o").note("nightly run 漢😀");
        let lock = one.acquire("held 😀", &shared).unwrap();
        let found = line(&tables, "held 😀");
        let holder = format!("billing@{}:{}", host(), std::process::id());
        let expected = ["shop", "lease", "held 😀", "held"].map(str::to_owned);
        assert_eq!([found.0, found.1, found.2, found.3], expected);
        assert_eq!(found.4, Some(holder));
        assert_eq!((found.5.as_str(), found.6, found.7), ("nightly run 漢😀", lock.token(), 1));

        let second = two.acquire("held 😀", &shared).unwrap();
        assert_eq!(line(&tables, "held 😀").7, 2);
        second.release().unwrap();
        assert_eq!(line(&tables, "held 😀").7, 1);

        let text = tables.named("SELECT * FROM {locks}");
        let row: mysql::Row = server.other().row(&text).unwrap();
        let names: Vec<_> = row.columns_ref().iter().map(|c| c.name_str().into_owned()).collect();
        assert_eq!(names, COLUMNS);
    });
}

#[test]
fn the_view_tells_held_from_expired_and_free() {
    each_server(|server| {
        let tables = Tables::new(server);
        let client = tables.client();
        let held = take_for(&client, "held", ms(60_000));
        let expired = take_for(&client, "expired", ms(10));
        let free = take(&client, "free");
        let token = free.token();
        free.release().unwrap();
        eventually("it has expired", || line(&tables, "expired").3 == "expired");
        for (key, state, holds, token) in [
            ("held", "held", 1, held.token()),
            ("expired", "expired", 0, expired.token()),
            ("free", "free", 0, token),
        ] {
            let found = line(&tables, key);
            assert_eq!((found.3.as_str(), found.6, found.7), (state, token, holds));
            assert_eq!(found.4.is_some(), state == "held", "{key}: {:?}", found.4);
        }
        let text = tables.named("SELECT state FROM {locks} ORDER BY lock_key");
        let states: Vec<String> = server.other().rows(&text);
        assert_eq!(states, ["expired", "free", "held"]);
    });
}

#[test]
fn the_view_counts_seconds_whatever_the_session_that_looks() {
    each_server(|server| {
        let tables = Tables::new(server);
        let client = tables.client();
        let lock = take_for(&client, "k", ms(60_000));
        std::thread::sleep(ms(300));
        for setting in [
            "time_zone = '+05:45'",
            "time_zone = '-11:00'",
            "sql_mode = 'ANSI'",
            "sql_mode = ''",
            "sql_mode = 'NO_UNSIGNED_SUBTRACTION,NO_BACKSLASH_ESCAPES'",
        ] {
            let mut other = server.other();
            other.run(&format!("SET SESSION {setting}"));
            let text = tables.named("SELECT held_s + 0e0, remaining_s + 0e0 FROM {locks}");
            let (held, remaining): (f64, f64) = other.row(&text).unwrap();
            assert!((0.3..10.0).contains(&held), "{setting}: {held}");
            assert!((50.0..=60.0).contains(&remaining), "{setting}: {remaining}");
            assert!(remaining >= lock.remaining().as_secs_f64(), "{setting}");
        }
        lock.release().unwrap();
        let text = tables.named("SELECT held_s, remaining_s FROM {locks}");
        let times: (Option<f64>, Option<f64>) = server.other().row(&text).unwrap();
        assert_eq!(times, (None, None));
    });
}

#[test]
fn bytes_that_are_no_text_are_shown_as_hex() {
    each_server(|server| {
        let tables = Tables::new(server);
        let client = tables.client_with(|b| b.namespace(b"n\xff").application(b"a\x80"));
        let options = AcquireOptions::new().note(b"\xf0\x9f\x98");
        let _lock = client.acquire(b"k\xff\xfe", &options).unwrap();
        let found = line(&tables, "0x6BFFFE");
        assert_eq!((found.0.as_str(), found.5.as_str()), ("0x6EFF", "0xF09F98"));
        let holder = format!("0x6180@{}:{}", host(), std::process::id());
        assert_eq!(found.4, Some(holder));
        // Neither refuses other texts, with any charset of the session.
        let key = unique("ключ-鍵-🔑");
        let _other = take(&client, &key);
        assert_eq!(line(&tables, &key).2, key);
        let mut latin = server.other();
        latin.run("SET NAMES latin1");
        let text = tables.named("SELECT COUNT(*) FROM {locks} WHERE state = 'held'");
        assert_eq!(latin.row(&text), Some(2));
    });
}

#[test]
fn the_library_works_where_it_may_not_make_the_view() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "schema-view", &[]);
        let limited = own.account("dl_noview", "SELECT, INSERT, UPDATE, DELETE, CREATE");
        take(&limited.client(), "k").release().unwrap();
        let tables: Vec<String> = limited.other().rows("SHOW TABLES");
        assert_eq!(tables, ["dl_lock", "dl_schema"]);
        // Who may make it, does; and it works with the rights of whoever looks.
        own.root().run("DROP TABLE dl_schema");
        take(&own.server.client(), "k").release().unwrap();
        let text = "SELECT state FROM dl_locks WHERE lock_key = 'k'";
        assert_eq!(limited.other().row::<String>(text).as_deref(), Some("free"));
        let curious = own.account("dl_curious", "CREATE");
        own.root().run("GRANT SELECT ON dl_locks TO dl_curious@'%', dl_curious@localhost");
        assert_ne!(curious.other().errno(text), 0, "the view gives away the table");
    });
}
