//! Servers that die, restart, stop taking writes, or lock everything: calls
//! end by their deadlines, and go on as if nothing had been when it is over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dlease::{AcquireOptions, Client, Error, Lock, Status};

use crate::support::place::Tables;
use crate::support::proxy::Proxy;
use crate::support::{
    Other, Own, each_kind_at_once, each_server_at_once, eventually, ms, take, take_for, timed,
    try_it, unique,
};

fn wait(limit: u64) -> AcquireOptions {
    AcquireOptions::new().wait(ms(limit))
}

/// An acquire that cannot be done now ends by its own deadline.
fn ends_in_time(client: &Client) -> Error {
    let (result, took) = timed(|| client.acquire(unique("in-time"), &wait(1_000)));
    assert!(took >= ms(1_000) && took < ms(2_000), "{took:?}");
    result.expect_err("it cannot be done now")
}

#[test]
fn a_server_that_dies_twice_costs_holders_and_waiters_nothing_but_the_time() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "dies", &[]);
        let (holders, waiters) = (own.server.client(), own.server.client());
        let keys: Vec<String> = (0..5).map(|_| unique("dies")).collect();
        let locks: Vec<_> = keys.iter().map(|k| take_for(&holders, k, ms(20_000))).collect();
        let tokens: Vec<u64> = locks.iter().map(|lock| lock.token()).collect();
        let over = AtomicBool::new(false);
        let keep = |lock: Lock| {
            while !over.load(Ordering::SeqCst) {
                if let Err(error) = lock.renew() {
                    assert_eq!(error.status(), Status::Unavailable, "{error:?}");
                }
                thread::sleep(ms(300));
            }
            lock
        };
        thread::scope(|scope| {
            let (waiters, keep) = (&waiters, &keep);
            let waiting = |key| scope.spawn(move || waiters.acquire(key, &wait(90_000)));
            let waiting: Vec<_> = keys.iter().map(waiting).collect();
            let renewing = |lock| scope.spawn(move || keep(lock));
            let renewing: Vec<_> = locks.into_iter().map(renewing).collect();
            thread::sleep(ms(500));
            for _ in 0..2 {
                own.kill();
                thread::sleep(ms(2_000));
                own.restart();
                thread::sleep(ms(500));
            }
            over.store(true, Ordering::SeqCst);
            for thread in renewing {
                let lock = thread.join().unwrap();
                assert!(lock.is_held());
                lock.renew().unwrap();
                lock.release().unwrap();
            }
            for (thread, token) in waiting.into_iter().zip(tokens) {
                let lock = thread.join().unwrap().unwrap();
                assert!(lock.token() > token);
                lock.release().unwrap();
            }
        });
        for client in [holders, waiters] {
            try_it(&client, unique("dies")).expect("free").release().unwrap();
        }
    });
}

#[test]
fn a_restart_under_the_same_address_is_noticed_before_a_connection_is_used() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "restart", &[]);
        let (client, key) = (own.server.client(), unique("restart"));
        let lock = take(&client, &key);
        own.restart();
        assert!(try_it(&client, unique("restart")).is_some());
        lock.renew().unwrap();
        lock.release().unwrap();
    });
}

#[test]
fn a_grant_whose_reply_died_with_the_server_is_adopted_and_no_namesake_is_killed() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "reply", &[]);
        // One start of a server is told from the next by its uptime, which has
        // whole seconds: this server must not be back in less than two.
        thread::sleep(ms(3_000));
        let proxy = Proxy::start(own.server.port());
        let client = own.server.behind(&proxy).client();
        let key = unique("reply");
        take(&client, &key).release().unwrap();
        let mut other = own.server.other();
        let number = other.sessions_of(&proxy).iter().map(|session| session.id).max().unwrap();
        let token = other.token(&key);
        proxy.forget_statements();
        proxy.silence_after("UPDATE");
        thread::scope(|scope| {
            let acquiring = scope.spawn(|| client.acquire(&key, &wait(20_000)));
            eventually("it is granted", || other.token(&key) != token);
            own.kill();
            proxy.cut();
            own.restart();
            // Sessions of others with the same numbers as those before.
            let mut namesakes: Vec<Other> = Vec::new();
            while namesakes.last_mut().is_none_or(|other| other.id() <= number) {
                namesakes.push(own.server.other());
                assert!(namesakes.len() < 100);
            }
            proxy.silence(false);
            let lock = acquiring.join().unwrap().unwrap();
            assert!(lock.is_held());
            assert_eq!(own.server.other().token(&key), Some(lock.token()));
            let sent = proxy.statements();
            assert_eq!(sent.iter().filter(|text| text.contains("SET token")).count(), 1);
            for mut other in namesakes {
                assert_eq!(other.row("SELECT 1"), Some(1));
            }
            lock.release().unwrap();
        });
    });
}

/// What is done to a server, and undone; calls meanwhile are bounded. How an
/// acquire ended for a client that was there before, and for a new one.
fn bounded_while(own: &Own, begin: &str, end: &str) -> [Error; 2] {
    let client = own.server.client_with(|options| options.io_timeout(ms(1_000)));
    let lock = take(&client, unique("bounded"));
    let mut root = own.root();
    root.run(begin);
    let error = ends_in_time(&client);
    let (renewed, took) = timed(|| lock.renew());
    assert_eq!(renewed.expect_err("it cannot be done").status(), Status::Unavailable);
    assert!(took >= ms(1_000) && took < ms(2_000), "{took:?}");
    assert!(lock.is_held());
    let error_of_new_client = ends_in_time(&own.server.client());
    thread::scope(|scope| {
        let acquiring = scope.spawn(|| take(&client, unique("bounded")));
        thread::sleep(ms(500));
        assert!(!acquiring.is_finished());
        root.run(end);
        let (lock, took) = timed(|| acquiring.join().expect("no panic"));
        assert!(took < ms(2_500), "{took:?}");
        lock.release().expect("release");
    });
    lock.renew().expect("renew");
    lock.release().expect("release");
    [error, error_of_new_client]
}

#[test]
fn a_global_read_lock_stops_nobody_longer_than_their_deadlines() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "global", &[]);
        for error in bounded_while(&own, "FLUSH TABLES WITH READ LOCK", "UNLOCK TABLES") {
            assert!(matches!(error.status(), Status::Unavailable | Status::TimedOut), "{error:?}");
        }
    });
}

#[test]
fn a_server_that_becomes_read_only_is_unavailable_until_it_takes_writes_again() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "read-only", &[]);
        let ended = bounded_while(&own, "SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0");
        for error in ended {
            assert_eq!(error.status(), Status::Unavailable, "{error:?}");
            assert!(error.is_retriable());
        }
    });
}

#[test]
fn a_pending_change_of_the_table_stops_nobody_longer_than_their_deadlines() {
    each_server_at_once(|server| {
        let tables = Tables::new(server);
        let client = tables.client_with(|options| options.io_timeout(ms(1_000)));
        let (key, lock) = (unique("pending"), take(&client, unique("pending")));
        take(&client, &key).release().unwrap();
        let mut reader = server.other();
        reader.run("BEGIN");
        reader.run(&tables.named("SELECT COUNT(*) FROM {lock}"));
        thread::scope(|scope| {
            let mut other = server.other();
            let alter = tables.named("ALTER TABLE {lock} COMMENT = 'changed'");
            let altering = scope.spawn(move || other.run(&alter));
            let mut other = server.other();
            eventually("the change waits for the reader", || {
                let is_it = |text: &str| text.starts_with("ALTER") && text.contains(&tables.prefix);
                other.sessions().iter().any(|session| is_it(&session.statement))
            });
            thread::sleep(ms(100));
            let error = ends_in_time(&client);
            assert!(matches!(error.status(), Status::Unavailable | Status::TimedOut), "{error:?}");
            let (renewed, took) = timed(|| lock.renew());
            assert_eq!(renewed.unwrap_err().status(), Status::Unavailable);
            assert!(took >= ms(1_000) && took < ms(2_000), "{took:?}");
            reader.run("COMMIT");
            altering.join().unwrap();
        });
        let (taken, took) = timed(|| take(&client, &key));
        assert!(took < ms(2_000), "{took:?}");
        taken.release().unwrap();
        lock.renew().unwrap();
        lock.release().unwrap();
    });
}

#[test]
fn a_table_that_is_away_for_a_while_is_a_config_error_and_no_contention() {
    each_server_at_once(|server| {
        let tables = Tables::new(server);
        tables.client().ping(ms(5_000)).unwrap();
        let options = |options: dlease::Builder| options.create_schema(false);
        let client = tables.client_with(|o| options(o).io_timeout(ms(500)));
        let lock = take(&client, "held");
        let away = format!("`{}away`", tables.prefix);
        tables.run(&[&format!("RENAME TABLE {{lock}} TO {away}")]);
        let (result, took) = timed(|| client.acquire("k", &wait(3_000)));
        assert_eq!(result.unwrap_err().status(), Status::Config);
        assert!(took < ms(2_000), "{took:?}");
        let (renewed, took) = timed(|| lock.renew());
        assert_eq!(renewed.unwrap_err().status(), Status::Config);
        assert!(took < ms(2_000), "{took:?}");
        assert!(lock.is_held());
        tables.run(&[&format!("RENAME TABLE {away} TO {{lock}}")]);
        take(&client, "k").release().unwrap();
        lock.renew().unwrap();
        lock.release().unwrap();
    });
}
