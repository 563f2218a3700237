//! Servers that have no place left for one more session, or statement.

use std::thread;

use dlease::{AcquireOptions, Client, Error};

use crate::support::{Other, Own, each_kind_at_once, ms, take, timed, unique};

/// Opens sessions until the server refuses one more.
fn fill(own: &Own) -> Vec<Other> {
    let mut others = Vec::new();
    while let Ok(other) = Other::try_open(&own.server.url) {
        others.push(other);
        assert!(others.len() < 50, "it is never full");
    }
    others
}

/// Acquires with a second's time, in vain.
fn refused(client: &Client) -> Error {
    let options = AcquireOptions::new().wait(ms(1_000));
    let (result, took) = timed(|| client.acquire(unique("crowded"), &options));
    assert!(took >= ms(1_000) && took < ms(2_000), "{took:?}");
    result.expect_err("it cannot be done")
}

/// Waiting for a place ends well once there is one.
fn succeeds_when_there_is_room(client: &Client, others: Vec<Other>) {
    let emptying = thread::spawn(move || {
        thread::sleep(ms(500));
        drop(others);
    });
    let (lock, took) = timed(|| take(client, unique("crowded")));
    assert!(took >= ms(400) && took < ms(2_500), "{took:?}");
    lock.release().expect("release");
    emptying.join().expect("no panic");
}

#[test]
fn a_full_server_is_waited_for_and_named_and_holders_do_not_suffer() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "full", &["--max-connections=15"]);
        let holder = own.server.client();
        let locks: Vec<_> = (0..5).map(|_| take(&holder, unique("full"))).collect();
        let others = fill(&own);
        let newcomer = own.server.client();
        let error = refused(&newcomer);
        assert_eq!(error.status(), dlease::Status::Unavailable);
        assert_eq!(error.server_errno(), 1040, "{error:?}");
        assert!(error.is_retriable());
        for lock in &locks {
            lock.renew().unwrap();
            assert!(lock.is_held());
        }
        succeeds_when_there_is_room(&newcomer, others);
        for lock in locks {
            lock.release().unwrap();
        }
    });
}

#[test]
fn an_accounts_own_limit_is_waited_for_and_shared_by_all_threads() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "limited", &[]);
        own.server.client().ping(ms(5_000)).unwrap();
        for host in ["%", "localhost"] {
            own.root().run(&format!("ALTER USER 'dl'@'{host}' WITH MAX_USER_CONNECTIONS 3"));
        }
        let holder = own.server.client();
        let lock = take(&holder, unique("limited"));
        let others = fill(&own);
        assert_eq!(others.len(), 2);
        let newcomer = own.server.client();
        let error = refused(&newcomer);
        assert_eq!(error.status(), dlease::Status::Unavailable);
        assert!(matches!(error.server_errno(), 1226 | 1203), "{error:?}");
        lock.renew().unwrap();
        succeeds_when_there_is_room(&newcomer, others);
        lock.release().unwrap();
        // One that has no connection left to wait with: its row is looked at.
        for host in ["%", "localhost"] {
            own.root().run(&format!("ALTER USER 'dl'@'{host}' WITH MAX_USER_CONNECTIONS 4"));
        }
        let (waiter, key) = (own.server.client(), unique("no-place"));
        waiter.ping(ms(5_000)).unwrap();
        let held = take(&holder, &key);
        let others = fill(&own);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| take(&waiter, &key));
            thread::sleep(ms(2_500));
            let ((), took) = timed(|| {
                held.release().unwrap();
                waiting.join().unwrap().release().unwrap();
            });
            assert!(took < ms(2_000), "{took:?}");
        });
        assert!(waiter.stats().looks > 3, "{:?}", waiter.stats());
        drop(others);
        for host in ["%", "localhost"] {
            own.root().run(&format!("ALTER USER 'dl'@'{host}' WITH MAX_USER_CONNECTIONS 3"));
        }
        waiter.close();
        // Eight connections are allowed to the client, two more to it by the
        // server: ten threads go by what they get.
        thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        take(&newcomer, unique("limited")).release().unwrap();
                    }
                });
            }
        });
    });
}

#[test]
fn no_prepared_statements_pile_up() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "prepared", &["--max-prepared-stmt-count=20"]);
        let client = own.server.client();
        let mut root = own.root();
        thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        take(&client, unique("prepared")).release().unwrap();
                    }
                });
            }
        });
        let status = "SHOW GLOBAL STATUS LIKE 'Prepared_stmt_count'";
        assert_eq!(root.row::<(String, u64)>(status).unwrap().1, 0);
        let status = "SHOW GLOBAL STATUS LIKE 'Com_stmt_prepare'";
        assert_eq!(root.row::<(String, u64)>(status).unwrap().1, 0);
        let rows: Option<u64> = root.row("SELECT COUNT(*) FROM dl_lock");
        assert_eq!(rows, Some(2_000));
    });
}
