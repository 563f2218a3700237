//! Connections that idle, die, cannot be had, or are handed back in doubt.

use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use dlease::{AcquireOptions, Cancel, Client, Status};

use crate::support::alone::{alone, descriptors, library_threads};
use crate::support::proxy::Proxy;
use crate::support::{
    Other, Own, each_kind_at_once, each_server, each_server_at_once, eventually, ms, status, take,
    timed, try_it, unique,
};
use crate::unknown::Scene;

fn wait(limit: u64) -> AcquireOptions {
    AcquireOptions::new().wait(ms(limit))
}

/// Kills every session of the account but the one that does it.
fn kill_all(other: &mut Other) -> usize {
    let own = other.id();
    let sessions = other.sessions();
    let others = sessions.iter().filter(|session| session.id != own);
    others.filter(|session| other.errno(&format!("KILL {}", session.id)) == 0).count()
}

#[test]
fn connections_that_idled_or_were_killed_between_uses_are_not_noticed_by_callers() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "idle", &["--wait-timeout=2", "--interactive-timeout=2"]);
        let client = own.server.client();
        let keys: Vec<String> = (0..4).map(|_| unique("idle")).collect();
        // Four at a time, so that four connections are there to die.
        let use_all = || {
            thread::scope(|scope| {
                let client = &client;
                for key in &keys {
                    scope.spawn(move || try_it(client, key).expect("free").release().unwrap());
                }
            });
        };
        use_all();
        thread::sleep(ms(3_000));
        use_all();
        let mut killed = 0;
        for _ in 0..50 {
            let mut other = own.server.other();
            killed += kill_all(&mut other);
            use_all();
        }
        assert!(killed >= 100, "{killed}");
    });
}

#[test]
fn an_idle_connection_that_the_server_closed_is_noticed_before_it_is_used() {
    each_server(|server| {
        let scene = Scene::new(server);
        let key = scene.free_key("closed");
        for _ in 0..20 {
            try_it(&scene.client, &key).expect("free").release().unwrap();
            scene.proxy.cut();
        }
        try_it(&scene.client, &key).expect("free").release().unwrap();
        // No outcome was in doubt: each was sent once, nothing was asked, and
        // no session had to be ended.
        let sent = scene.proxy.statements();
        let count = |text: &str| sent.iter().filter(|statement| statement.contains(text)).count();
        assert_eq!((count("SET token"), count("SET owner")), (21, 21));
        assert_eq!((count("KILL"), count("SELECT token")), (0, 0));
    });
}

/// A client of an address that lets nobody in: bounded, and nothing left.
fn nobody_answers(address: &str) {
    let url = format!("mysql://dl:topsecret@{address}/dlease");
    let options = Client::builder().connect_timeout(ms(2_500)).io_timeout(ms(500));
    let client = options.open(&url).expect("open");
    let (result, took) = timed(|| client.acquire("k", &wait(2_000)));
    let error = result.expect_err("it cannot be done");
    assert_eq!(error.status(), Status::Unavailable);
    assert!(took >= ms(2_000) && took < ms(3_000), "{took:?}");
    assert!(!format!("{error:?}").contains("topsecret"), "{error:?}");
    assert!(!library_threads().is_empty());
    // One try has no deadline of its own: the lesser of I/O time-out and TTL.
    let (result, took) = timed(|| client.try_acquire("k", &AcquireOptions::new()));
    assert_eq!(status(result), Status::Unavailable);
    assert!(took < ms(1_000), "{took:?}");
    let ((), took) = timed(|| client.close());
    assert!(took < ms(2_500), "{took:?}");
    eventually("no thread is left", || library_threads().is_empty());
}

#[test]
fn a_connect_that_never_completes_ends_by_the_callers_deadline() {
    alone("connections::a_connect_that_never_completes_ends_by_the_callers_deadline", || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // SAFETY: no memory is passed; the descriptor is open.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let address = listener.local_addr().unwrap();
        let connect = || std::net::TcpStream::connect_timeout(&address, ms(300));
        let mut queue = Vec::new();
        while let Ok(stream) = connect() {
            queue.push(stream);
            assert!(queue.len() < 10, "the queue is never full");
        }
        nobody_answers(&address.to_string());
        assert!(connect().is_err());
    });
}

#[test]
fn a_server_that_accepts_and_never_speaks_is_left_by_the_callers_deadline() {
    let name =
        "connections::a_server_that_accepts_and_never_speaks_is_left_by_the_callers_deadline";
    alone(name, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let streams: Vec<_> = listener.incoming().collect();
            drop(streams);
        });
        nobody_answers(&address.to_string());
    });
}

#[test]
fn a_caller_waits_for_a_busy_connection_no_longer_than_it_says() {
    alone("connections::a_caller_waits_for_a_busy_connection_no_longer_than_it_says", || {
        each_server(|server| {
            let proxy = Proxy::start(server.port());
            let client = server.behind(&proxy).client_with(|options| options.max_connections(1));
            let keys = [unique("busy"), unique("busy")];
            take(&client, &keys[0]).release().unwrap();
            proxy.silence_after("UPDATE");
            thread::scope(|scope| {
                let stuck = scope.spawn(|| client.acquire(&keys[0], &wait(4_000)));
                eventually("the only connection is in use", || proxy.is_silent());
                let (result, took) = timed(|| client.acquire(&keys[1], &wait(2_000)));
                assert_eq!(status(result), Status::Unavailable);
                assert!(took >= ms(2_000) && took < ms(3_000), "{took:?}");
                proxy.silence(false);
                stuck.join().unwrap().expect("granted, late").release().unwrap();
            });
            take(&client, &keys[1]).release().unwrap();
            client.close();
            eventually("no thread is left", || library_threads().is_empty());
        });
    });
}

#[test]
fn failing_tries_use_up_neither_connections_nor_descriptors() {
    alone("connections::failing_tries_use_up_neither_connections_nor_descriptors", || {
        each_kind_at_once(|kind| {
            let own = Own::start(kind, "failing", &[]);
            let (holder, client) = (own.server.client(), own.server.client());
            let mut other = own.server.other();
            let key = unique("failing");
            let _held = take(&holder, &key);
            let mut round = |count: usize| {
                for _ in 0..count {
                    assert!(try_it(&client, &key).is_none());
                    let (result, took) = timed(|| client.acquire(&key, &wait(10)));
                    assert!(matches!(status(result), Status::TimedOut | Status::Unavailable));
                    assert!(took >= ms(10) && took < ms(500), "{took:?}");
                }
                other.sessions().len()
            };
            let before = round(10);
            let after = round(500);
            // The client's own thread may have one more, for late answers.
            assert!(after <= before + 1, "{before} {after}");
        });
        // With both servers gone, only what the process began with is left.
        eventually("no thread is left", || library_threads().is_empty());
        assert!(descriptors() < 12, "{}", descriptors());
    });
}

#[test]
fn the_bound_on_connections_is_kept_with_any_number_of_callers() {
    each_server_at_once(|server| {
        let proxy = Proxy::start(server.port());
        let client = server.behind(&proxy).client_with(|options| options.max_connections(3));
        thread::scope(|scope| {
            for number in 0..30 {
                let (client, key) = (&client, unique("bound"));
                scope.spawn(move || {
                    for _ in 0..10 {
                        let lock = take(client, &key);
                        assert!(lock.is_held(), "{number}");
                        lock.release().unwrap();
                    }
                });
            }
        });
        assert!(proxy.accepted() >= 2 && proxy.accepted() <= 3, "{}", proxy.accepted());
        assert_eq!(server.other().sessions_of(&proxy).len(), proxy.accepted());
    });
}

#[test]
fn waiters_do_not_storm_a_server_that_is_down_and_go_on_when_it_is_back() {
    each_server_at_once(|server| {
        let proxy = Proxy::start(server.port());
        let client = server.behind(&proxy).client();
        client.ping(ms(5_000)).unwrap();
        proxy.refuse(true);
        proxy.cut();
        let before = proxy.accepted();
        thread::scope(|scope| {
            for _ in 0..50 {
                let client = &client;
                scope.spawn(move || take(client, unique("storm")).release().unwrap());
            }
            thread::sleep(ms(3_000));
            let knocks = proxy.accepted() - before;
            println!("{knocks} connects in 3 s");
            assert!(knocks > 0 && knocks <= 100, "{knocks}");
            proxy.refuse(false);
        });
    });
}

#[test]
fn cancelled_calls_leave_no_connection_that_spoils_the_next() {
    each_server(|server| {
        let mut scene = Scene::new(server);
        let key = scene.free_key("cancelled");
        for round in 0..200 {
            let cancel = Cancel::new();
            let firing = cancel.clone();
            let firing = thread::spawn(move || {
                thread::sleep(Duration::from_micros(round * 10));
                firing.fire();
            });
            match scene.client.acquire(&key, &wait(5_000).cancel(&cancel)) {
                Ok(lock) => drop(lock),
                Err(error) => assert_eq!(error.status(), Status::Cancelled),
            }
            firing.join().unwrap();
        }
        for _ in 0..200 {
            let key = unique("normal");
            let lock = try_it(&scene.client, &key).expect("free");
            assert_eq!(scene.sql.token(&key), Some(lock.token()));
            lock.release().unwrap();
        }
    });
}

#[test]
fn a_lock_is_no_part_of_the_callers_own_transaction() {
    each_server(|server| {
        let (client, key) = (server.client(), unique("transaction"));
        let mut own = server.other();
        own.run("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ");
        own.run("BEGIN");
        assert_eq!(own.token(&key), None);
        let lock = take(&client, &key);
        // Seen by others at once, with nothing of it to be rolled back.
        assert_eq!(server.other().token(&key), Some(lock.token()));
        assert!(try_it(&server.client(), &key).is_none());
        own.run("ROLLBACK");
        assert_eq!(server.other().token(&key), Some(lock.token()));
        assert!(lock.is_held());
        lock.renew().unwrap();
        assert!(try_it(&server.client(), &key).is_none());
        lock.release().unwrap();
    });
}
