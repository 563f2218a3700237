//! Storms, deadlocks and locked rows: one holder at a time all the same, and
//! callers hear of none of it.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use dlease::{AcquireOptions, Client, Status};

use crate::support::proxy::Proxy;
use crate::support::{
    Other, Own, each_kind_at_once, each_server_at_once, eventually, long, ms, take, timed, unique,
};

/// When a lock said of itself that it was held: between these at least.
#[derive(Debug)]
struct Held {
    key: usize,
    token: u64,
    from: Instant,
    until: Instant,
}

/// Acquires and releases, each of `clients` by ten threads, and checks that
/// there was one holder at a time. Leases of 20 ms often lapse in use.
fn storm(clients: &[Client], ttl: u64, threads: usize, time: Duration) {
    let keys: Vec<String> = (0..6).map(|_| unique("storm")).collect();
    let seen = Mutex::new(Vec::new());
    let stop = Instant::now() + time;
    thread::scope(|scope| {
        for seed in 0..threads {
            let (client, keys, seen) = (&clients[seed % clients.len()], &keys, &seen);
            scope.spawn(move || contend(client, ttl, keys, seed, stop, seen));
        }
    });
    let mut seen = seen.into_inner().expect("not poisoned");
    println!("held {} times", seen.len());
    assert!(seen.len() > 20, "{}", seen.len());
    seen.sort_by_key(|held| (held.key, held.from));
    for pair in seen.windows(2).filter(|pair| pair[0].key == pair[1].key) {
        assert!(pair[0].until <= pair[1].from, "two held it: {pair:?}");
        assert!(pair[0].token < pair[1].token, "{pair:?}");
    }
}

fn contend(
    client: &Client,
    ttl: u64,
    keys: &[String],
    seed: usize,
    stop: Instant,
    seen: &Mutex<Vec<Held>>,
) {
    let options = AcquireOptions::new().wait(ms(500)).ttl(ms(ttl)).manual_renew();
    let mut key = seed;
    while Instant::now() < stop {
        key = (key * 5 + 1) % keys.len();
        match client.acquire(&keys[key], &options) {
            Ok(lock) => {
                if lock.is_held() {
                    let from = Instant::now();
                    let mut until = from;
                    for _ in 0..2 {
                        thread::sleep(ms(1));
                        let before = Instant::now();
                        if lock.is_held() {
                            until = before;
                        }
                    }
                    let held = Held { key, token: lock.token(), from, until };
                    seen.lock().expect("not poisoned").push(held);
                }
                if let Err(error) = lock.release() {
                    assert_eq!(error.status(), Status::NotHeld, "{error:?}");
                }
            }
            Err(error) => {
                // 20 ms may be too short a lease for a busy machine.
                assert!(matches!(error.status(), Status::TimedOut | Status::Unavailable));
                assert_eq!(error.server_errno(), 0, "{error:?}");
            }
        }
    }
}

#[test]
fn storms_of_short_leases_give_a_key_one_holder_at_a_time_and_nobody_a_deadlock() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "storm", &[]);
        for level in ["REPEATABLE READ", "READ COMMITTED"] {
            own.root().run(&format!("SET GLOBAL TRANSACTION ISOLATION LEVEL {level}"));
            let clients: Vec<Client> = (0..4).map(|_| own.server.client()).collect();
            let (threads, time) = if long() { (100, ms(30_000)) } else { (40, ms(2_000)) };
            println!("{kind}, {level}");
            storm(&clients, 20, threads, time);
        }
    });
}

#[test]
fn a_storm_of_lost_connections_gives_a_key_one_holder_at_a_time() {
    each_server_at_once(|server| {
        let proxy = Proxy::start(server.port());
        let behind = server.behind(&proxy);
        let clients: Vec<Client> = (0..3).map(|_| behind.client()).collect();
        let time = if long() { ms(30_000) } else { ms(3_000) };
        thread::scope(|scope| {
            scope.spawn(|| {
                let start = Instant::now();
                while start.elapsed() < time {
                    thread::sleep(ms(60));
                    proxy.cut();
                }
            });
            storm(&clients, 500, 12, time);
        });
    });
}

/// Locks the rows of two keys after each other, over and over.
fn lock_rows(other: &mut Other, keys: &[String], mut number: usize, stop: Instant) {
    while Instant::now() < stop {
        number += 1;
        other.run("BEGIN");
        for key in [number, number * 7 + 3] {
            // 1213, 1205: its own bad luck.
            if other.lock_row(&keys[key % keys.len()]) != 0 {
                break;
            }
            thread::sleep(ms(20));
        }
        other.run("ROLLBACK");
    }
}

#[test]
fn releases_succeed_while_others_lock_rows_in_any_order() {
    each_server_at_once(|server| {
        let client = server.client();
        let keys: Vec<String> = (0..6).map(|_| unique("rows")).collect();
        for key in &keys {
            take(&client, key).release().unwrap();
        }
        let stop = Instant::now() + Duration::from_secs(if long() { 30 } else { 3 });
        thread::scope(|scope| {
            for number in 0..3 {
                let keys = &keys;
                scope.spawn(move || {
                    let mut other = server.other();
                    other.run("SET SESSION innodb_lock_wait_timeout = 1");
                    lock_rows(&mut other, keys, number, stop);
                });
            }
            for key in &keys {
                let client = &client;
                scope.spawn(move || {
                    let mut last = 0;
                    while Instant::now() < stop {
                        let lock = take(client, key);
                        assert!(lock.token() > last);
                        last = lock.token();
                        lock.release().unwrap();
                    }
                });
            }
        });
        let mut other = server.other();
        assert!(keys.iter().all(|key| !other.is_held(key)));
    });
}

#[test]
fn a_release_goes_on_until_the_locked_row_is_free() {
    each_server_at_once(|server| {
        let (client, key) = (server.client(), unique("release"));
        let lock = take(&client, &key);
        let mut blocker = server.other();
        blocker.run("BEGIN");
        assert_eq!(blocker.lock_row(&key), 0);
        let freeing = thread::spawn(move || {
            thread::sleep(ms(2_500));
            blocker.run("COMMIT");
        });
        let (released, took) = timed(|| lock.release());
        released.unwrap();
        assert!(took >= ms(2_400) && took < ms(4_500), "{took:?}");
        assert!(!server.other().is_held(&key));
        freeing.join().unwrap();
    });
}

#[test]
fn an_acquire_that_is_the_victim_of_a_deadlock_is_tried_again() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "victim", &[]);
        let (client, key) = (own.server.client(), unique("victim"));
        take(&client, &key).release().unwrap();
        let deadlocks = |other: &mut Other| -> u64 {
            let text = if kind == "mysql" {
                "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'"
            } else {
                "SELECT variable_value FROM information_schema.global_status \
                 WHERE variable_name = 'innodb_deadlocks'"
            };
            other.row(text).expect("a row")
        };
        let mut root = own.root();
        let before = deadlocks(&mut root);
        // A transaction that has done more than an acquire, so that the server
        // sacrifices the latter; it locks the row's two records, the wrong way
        // round.
        let mut heavy = own.server.other();
        heavy.run("CREATE TABLE heavy (n INT PRIMARY KEY AUTO_INCREMENT) ENGINE=InnoDB");
        heavy.run("BEGIN");
        heavy.run(&format!("INSERT INTO heavy VALUES (1){}", ", (NULL)".repeat(200)));
        let of_key = format!("namespace = '' AND kind = 0 AND lock_key = '{key}'");
        let fence = "SELECT token FROM dl_lock FORCE INDEX (fence) WHERE";
        heavy.run(&format!("{fence} {of_key} LOCK IN SHARE MODE"));
        thread::scope(|scope| {
            let acquiring = scope.spawn(|| take(&client, &key));
            if kind == "mysql" {
                eventually("the acquire waits for the second record", || {
                    let sessions = root.sessions();
                    sessions.iter().any(|session| session.statement.starts_with("UPDATE"))
                });
            }
            thread::sleep(ms(200));
            let primary = "SELECT * FROM dl_lock FORCE INDEX (PRIMARY) WHERE";
            heavy.run(&format!("{primary} {of_key} FOR UPDATE"));
            assert!(!acquiring.is_finished());
            heavy.run("COMMIT");
            let lock = acquiring.join().unwrap();
            assert!(lock.is_held());
            lock.release().unwrap();
        });
        // MariaDB is told not to wait for records at all, so there is none.
        assert_eq!(deadlocks(&mut root) - before, u64::from(kind == "mysql"));
    });
}

#[test]
fn plain_contention_writes_nothing_into_the_servers_log_and_counts_as_no_error() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "log", &[]);
        let mut root = own.root();
        let keys: Vec<String> = (0..3).map(|_| unique("log")).collect();
        let clients: Vec<Client> = (0..10).map(|_| own.server.client()).collect();
        // Rows and connections first: of several first inserts all but one fail.
        for client in &clients {
            for key in &keys {
                take(client, key).release().unwrap();
            }
        }
        let log = || std::fs::read_to_string(own.directory().join("log")).expect("its log");
        let mut errors = || -> Vec<(u32, u64)> {
            if kind != "mysql" {
                return Vec::new();
            }
            root.rows(
                "SELECT error_number, sum_error_raised \
                 FROM performance_schema.events_errors_summary_global_by_error \
                 WHERE error_number IN (1062, 1205, 1213, 1022, 1020)",
            )
        };
        let (log_before, errors_before) = (log(), errors());
        let stop = Instant::now() + Duration::from_secs(if long() { 60 } else { 5 });
        thread::scope(|scope| {
            for (number, client) in clients.iter().enumerate() {
                let keys = &keys;
                scope.spawn(move || {
                    for turn in number.. {
                        if Instant::now() >= stop {
                            break;
                        }
                        let lock = take(client, &keys[turn % keys.len()]);
                        thread::sleep(ms(1));
                        lock.release().unwrap();
                    }
                });
            }
        });
        assert_eq!(log(), log_before);
        assert_eq!(errors(), errors_before);
    });
}
