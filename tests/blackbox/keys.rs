//! What a key is: 1 to 255 bytes, any byte but NUL, compared byte for byte,
//! whatever the server's collation, charset and sql_mode.

use dlease::{AcquireOptions, Client, Error, Lock, Status};

use crate::support::place::Database;
use crate::support::{Own, Server, each_kind_at_once, each_server, status, take, try_it, unique};

/// Takes all of these keys in a namespace of their own, and proves that each
/// is a lock by itself, stored byte for byte, and freed alone.
fn assert_independent<K: AsRef<[u8]>>(server: &Server, keys: &[K]) {
    let namespace = unique("keys");
    let client = || server.client_with(|builder| builder.namespace(&namespace));
    let (one, two) = (client(), client());
    let take_one = |key: &K| try_it(&one, key).unwrap_or_else(|| panic!("{:?}", text(key)));
    let mut locks: Vec<Lock> = keys.iter().map(take_one).collect();

    let stored = format!("SELECT HEX(lock_key) FROM dl_lock WHERE namespace = '{namespace}'");
    let mut stored: Vec<String> = server.other().rows(&stored);
    let mut wanted: Vec<String> = keys.iter().map(hex).collect();
    stored.sort();
    wanted.sort();
    assert_eq!(stored, wanted);

    for key in keys {
        let lock = locks.remove(0);
        assert_eq!(lock.key(), key.as_ref());
        assert!(try_it(&two, key).is_none(), "{:?}", text(key));
        // It succeeds for a lock that is still held: none of the releases
        // before has freed this one too.
        lock.release().expect("it is still held");
        assert!(try_it(&two, key).is_some(), "{:?}", text(key));
    }
}

fn text(key: &impl AsRef<[u8]>) -> String {
    String::from_utf8_lossy(key.as_ref()).into_owned()
}

fn hex(key: &impl AsRef<[u8]>) -> String {
    key.as_ref().iter().map(|byte| format!("{byte:02X}")).collect()
}

/// A client whose server is not there: what it refuses, it refuses before any
/// SQL.
fn without_server() -> Client {
    Client::open("mysql://u:p@127.0.0.1:1/d").expect("open")
}

fn refusal(key: impl AsRef<[u8]>) -> Error {
    let error = without_server().acquire(key, &AcquireOptions::new()).expect_err("refused");
    assert_eq!(error.status(), Status::InvalidArgument, "{error:?}");
    assert!(error.message().starts_with("invalid key"), "{error:?}");
    assert_eq!(error.server_errno(), 0);
    assert!(!error.is_retriable());
    error
}

#[test]
fn keys_that_differ_in_their_last_byte_are_two_up_to_255_bytes() {
    each_server(|server| {
        let lengths = [1, 63, 64, 65, 191, 192, 193, 254, 255];
        let key = |length: usize, last: char| format!("{}{last}", "x".repeat(length - 1));
        let keys = lengths.iter().flat_map(|length| [key(*length, 'a'), key(*length, 'b')]);
        assert_independent(server, &keys.collect::<Vec<_>>());
    });
}

#[test]
fn a_longer_key_is_refused_before_any_sql_and_never_cut() {
    for length in [256, 300, 1_000, 1 << 20] {
        refusal("x".repeat(length));
    }
}

#[test]
fn the_length_of_a_key_is_counted_in_bytes() {
    let right: [(char, usize); 9] = [
        ('é', 64),
        ('é', 65),
        ('é', 127),
        ('😀', 48),
        ('😀', 49),
        ('😀', 63),
        ('漢', 64),
        ('漢', 85),
        ('x', 255),
    ];
    let repeated = |&(char, count): &(char, usize)| char.to_string().repeat(count);
    each_server(|server| {
        assert_independent(server, &right.iter().map(repeated).collect::<Vec<_>>());
    });
    for wrong in [('é', 128), ('😀', 64), ('漢', 86), ('x', 256)] {
        refusal(repeated(&wrong));
    }
}

#[test]
fn an_empty_key_is_refused_and_one_of_spaces_is_not() {
    refusal("");
    each_server(|server| assert_independent(server, &[" ", "  ", "\t", "0", "NULL"]));
}

#[test]
fn a_key_with_a_nul_byte_is_refused_and_never_cut() {
    for key in ["a\0b", "a\0c", "\0", "a\0", "\0a"] {
        refusal(key);
    }
}

#[test]
fn bytes_that_are_no_utf8_are_a_key_like_any_other() {
    each_server(|server| {
        // Half a character, what Python makes of a lone surrogate, overlong.
        let keys: [&[u8]; 6] =
            [b"\xff\xfe", b"\xff\xff", b"\xed\xa0\x80", b"\xc3", b"\xc0\xaf", b"/"];
        assert_independent(server, &keys);
    });
}

#[test]
fn a_key_may_hold_every_byte_but_nul() {
    each_server(|server| {
        let all: Vec<u8> = (1..=255).collect();
        let backwards: Vec<u8> = (1..=255).rev().collect();
        assert_independent(server, &[all, backwards]);
    });
}

#[test]
fn letter_case_and_accents_make_another_key() {
    each_server(|server| {
        let keys =
            ["Job-A", "job-a", "JOB-A", "é", "e\u{301}", "e", "ß", "ss", "ﬁ", "fi", "İ", "i"];
        assert_independent(server, &keys);
    });
}

#[test]
fn a_space_more_makes_another_key() {
    each_server(|server| {
        assert_independent(server, &["k ", "k", "k  ", " k", "k\t", "k\n", "k\r\n"]);
    });
}

#[test]
fn long_names_of_database_and_namespace_leave_keys_their_length() {
    each_server(|server| {
        let name = format!("{:_<64}", unique("dlease_long"));
        let database = Database::make(server, &name);
        let namespaces = ["n".repeat(64), format!("{}m", "n".repeat(63))];
        let keys: Vec<String> = [1, 40, 64, 255].iter().map(|n| "k".repeat(*n)).collect();
        let mut held = Vec::new();
        for namespace in &namespaces {
            let client = database.server.client_with(|builder| builder.namespace(namespace));
            for key in &keys {
                held.push(try_it(&client, key).expect("a lock of its own"));
                assert!(try_it(&client, key).is_none());
            }
        }
        let rows = database.server.other().row("SELECT COUNT(*) FROM dl_lock");
        assert_eq!(rows, Some(8));
    });
}

#[test]
fn databases_on_one_server_do_not_share_locks() {
    each_server(|server| {
        let [one, two] = ["app1", "app2"]
            .map(|name| Database::make(server, &unique(&format!("dlease_{name}"))))
            .map(|database| (database.server.client(), database));
        let first = take(&one.0, "same");
        let second = try_it(&two.0, "same").expect("another database, another lock");
        first.release().unwrap();
        assert!(try_it(&one.0, "same").is_some());
        assert!(try_it(&two.0, "same").is_none());
        assert!(second.is_held());
    });
}

#[test]
fn namespaces_do_not_share_locks_and_are_compared_byte_for_byte() {
    each_server(|server| {
        let (name, key) = (unique("n"), unique("namespaces"));
        let long = format!("{name:-<64}");
        let names = [String::new(), name.clone(), name.to_uppercase(), format!("{name} "), long];
        let held = names.map(|name| {
            let client = server.client_with(|builder| builder.namespace(&name));
            let lock = try_it(&client, &key).unwrap_or_else(|| panic!("{name:?}"));
            (client, lock)
        });
        for (client, lock) in &held {
            assert!(try_it(client, &key).is_none());
            assert!(lock.is_held());
        }
        // The URL's namespace is the same, and the builder's wins over it.
        let named = Server { url: server.url_with(&format!("namespace={name}")) };
        assert!(try_it(&named.client(), &key).is_none());
        let other = named.client_with(|builder| builder.namespace(unique("other")));
        assert!(try_it(&other, &key).is_some());
    });
    let long = Client::builder().namespace("n".repeat(65)).open("mysql://u:p@127.0.0.1:1/d");
    assert_eq!(status(long), Status::InvalidArgument);
}

#[test]
fn owner_note_and_application_are_kept_whole_or_refused() {
    let bytes: Vec<u8> = (1..=255).collect();
    each_server(|server| {
        let client = server.client_with(|builder| builder.application(&bytes[191..]));
        let key = unique("texts");
        let options = AcquireOptions::new().owner(&bytes).note(&bytes);
        let _lock = client.try_acquire(&key, &options).unwrap().expect("it is free");
        let text = format!("SELECT owner, note, application FROM dl_lock WHERE lock_key = '{key}'");
        let row = server.other().row(&text);
        assert_eq!(row, Some((bytes.clone(), bytes.clone(), bytes[191..].to_vec())));
    });
    let long = vec![b'x'; 256];
    let options = AcquireOptions::new;
    for wrong in [
        options().owner(&long),
        options().note(&long),
        options().owner(""),
        options().owner("a\0b"),
        options().note("a\0b"),
    ] {
        let result = without_server().acquire("k", &wrong);
        assert_eq!(status(result), Status::InvalidArgument, "{wrong:?}");
    }
    for application in [&long[..65], b"a\0b"] {
        let result = Client::builder().application(application).open("mysql://u:p@h/d");
        assert_eq!(status(result), Status::InvalidArgument);
    }
}

/// Settings of sql_mode that change what a text, a quote or a too long value
/// is. MariaDB's own are the last two.
const MODES: [&str; 8] = [
    "",
    "ANSI_QUOTES",
    "NO_BACKSLASH_ESCAPES",
    "ANSI",
    "PIPES_AS_CONCAT",
    "TRADITIONAL,IGNORE_SPACE,PAD_CHAR_TO_FULL_LENGTH,NO_UNSIGNED_SUBTRACTION",
    "ORACLE",
    "EMPTY_STRING_IS_NULL,SIMULTANEOUS_ASSIGNMENT",
];

#[test]
fn no_charset_and_no_sql_mode_of_the_server_changes_a_key() {
    let twin = |last: char| format!("{}{last:->16}", "t".repeat(64));
    let quoting = ["a'b", "a\"b", "a\\", "a\\'; DROP TABLE x;--", "%", "_", "`", "a'||'b", "''"];
    let wide = ["😀", "😁", "漢", "?", "é"];
    let (one, two) = (twin('1'), twin('2'));
    let keys: Vec<&str> = quoting.iter().chain(&wide).copied().chain([&*one, &*two]).collect();
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "keys", &["--character-set-server=latin1"]);
        for mode in MODES.iter().take(if kind == "mariadb" { 8 } else { 6 }) {
            println!("sql_mode {mode:?}");
            own.root().run(&format!("SET GLOBAL sql_mode = '{mode}'"));
            // The tables are made under it too, in a database of that charset.
            let database = Database::make(&own.server, "dlease_modes");
            database.server.other().run("CREATE TABLE x (a int)");
            assert_independent(&database.server, &keys);

            let client = database.server.client_with(|builder| builder.namespace("listed"));
            let _locks: Vec<Lock> = keys.iter().map(|key| take(&client, key)).collect();
            let mut other = database.server.other();
            let mut listed: Vec<String> =
                other.rows("SELECT lock_key FROM dl_locks WHERE namespace = 'listed'");
            let mut wanted = keys.clone();
            listed.sort();
            wanted.sort_unstable();
            assert_eq!(listed, wanted);
            let tables: Vec<String> = other.rows("SHOW TABLES");
            assert_eq!(tables, ["dl_lock", "dl_locks", "dl_schema", "x"]);
        }
    });
}
