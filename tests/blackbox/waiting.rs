//! Waiting: for as long as the caller says, whatever the server is busy with,
//! and at little cost. Rows that are locked by others are in blocked.rs.

use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use dlease::{AcquireOptions, Cancel, Status};

use crate::support::{
    Own, at_once, each_kind_at_once, each_server, each_server_at_once, ms, status, take, take_for,
    timed, try_it, unique,
};

fn wait(limit_ms: u64) -> AcquireOptions {
    AcquireOptions::new().wait(ms(limit_ms))
}

#[test]
fn no_wait_is_one_try_and_a_wait_for_ever_lasts_until_the_release() {
    each_server_at_once(|server| {
        let (one, two) = (server.client(), server.client());
        let key = unique("for-ever");
        let held = take(&one, &key);
        let (tried, took) = timed(|| two.try_acquire(&key, &AcquireOptions::new()));
        assert!(tried.unwrap().is_none());
        assert!(took < ms(2_000), "{took:?}");
        // A wait of zero is a try, and so is told apart from a time-out.
        let (tried, took) = timed(|| two.acquire(&key, &wait(0)));
        assert_eq!(status(tried), Status::NotAcquired);
        assert!(took < ms(2_000), "{took:?}");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let lock = two.acquire(&key, &AcquireOptions::new()).unwrap();
                (lock.token(), Instant::now())
            });
            thread::sleep(ms(1_000));
            assert!(!waiting.is_finished());
            let (released, token) = (Instant::now(), held.token());
            held.release().unwrap();
            let (next, got) = waiting.join().unwrap();
            assert!(next > token);
            assert!(got > released && got - released < ms(2_000), "{:?}", got - released);
        });
    });
}

#[test]
fn a_wait_ends_at_its_deadline_and_is_not_rounded() {
    each_server_at_once(|server| {
        let (one, two) = (server.client(), server.client());
        let key = unique("deadline");
        let _held = take(&one, &key);
        two.ping(ms(5_000)).unwrap();
        at_once(&[100, 400, 600, 1_500, 2_000], |&limit_ms| {
            let (result, took) = timed(|| two.acquire(&key, &wait(limit_ms)));
            assert_eq!(status(result), Status::TimedOut, "{limit_ms} ms");
            assert!(took >= ms(limit_ms), "{took:?} of {limit_ms} ms");
            assert!(took < ms(limit_ms + 1_000), "{took:?} of {limit_ms} ms");
        });
    });
}

#[test]
fn a_wait_ends_at_its_deadline_while_the_server_stands_still() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "stopped", &[]);
        let (one, two) = (own.server.client(), own.server.client());
        let tries = own.server.client_with(|builder| builder.io_timeout(ms(500)));
        let key = unique("stopped");
        let _held = take(&one, &key);
        for client in [&two, &tries] {
            client.ping(ms(5_000)).unwrap();
        }
        let begun = Instant::now();
        let paused = thread::scope(|scope| {
            // Seen held before the stop, and not seen at all.
            let waits = [(0, 2_000, Status::TimedOut), (800, 700, Status::Unavailable)];
            let waits = waits.map(|(after, limit_ms, expected)| {
                let (two, key) = (&two, &key);
                scope.spawn(move || {
                    thread::sleep(ms(after));
                    let (result, took) = timed(|| two.acquire(key, &wait(limit_ms)));
                    assert_eq!(status(result), expected);
                    assert!(took >= ms(limit_ms), "{took:?} of {limit_ms} ms");
                    assert!(took < ms(limit_ms + 1_000), "{took:?} of {limit_ms} ms");
                })
            });
            thread::sleep(ms(500));
            let paused = own.pause();
            let (result, took) = timed(|| tries.try_acquire(&key, &AcquireOptions::new()));
            assert_eq!(status(result), Status::Unavailable);
            assert!(took >= ms(500) && took < ms(1_500), "{took:?}");
            for wait in waits {
                wait.join().unwrap();
            }
            paused
        });
        assert!(begun.elapsed() < ms(5_000));
        // What was sent meanwhile is granted to nobody who has given up.
        drop(paused);
        _held.release().unwrap();
        assert!(take(&own.server.client(), &key).is_held());
    });
}

#[test]
fn waiters_ask_the_server_next_to_nothing_and_are_there_at_the_release() {
    const WAITERS: u64 = 20;
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "polling", &[]);
        let clients: Vec<_> = (0..4).map(|_| own.server.client()).collect();
        for client in &clients {
            client.ping(ms(5_000)).unwrap();
        }
        let mut other = own.server.other();
        let mut questions = || {
            let (_, count): (String, u64) =
                other.row("SHOW GLOBAL STATUS LIKE 'Questions'").unwrap();
            count
        };
        let key = unique("polled");
        let held = take(&clients[0], &key);
        let barrier = Barrier::new(WAITERS as usize + 1);
        let (released, first) = thread::scope(|scope| {
            let waiters: Vec<_> = (0..WAITERS as usize)
                .map(|number| {
                    let (client, key, barrier) = (&clients[number % 4], &key, &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        let lock = client.acquire(key, &wait(20_000)).unwrap();
                        let got = Instant::now();
                        lock.release().unwrap();
                        got
                    })
                })
                .collect();
            barrier.wait();
            thread::sleep(ms(1_000)); // their connections are there
            let (before, begun) = (questions(), Instant::now());
            thread::sleep(ms(3_000));
            let asked = (questions() - before) as f64;
            let each = asked / begun.elapsed().as_secs_f64();
            assert!(each <= 50.0, "{each} statements a second for {WAITERS} waiters");
            let released = Instant::now();
            held.release().unwrap();
            let got = waiters.into_iter().map(|waiter| waiter.join().unwrap());
            (released, got.min().unwrap())
        });
        assert!(first - released < ms(1_000), "{:?}", first - released);
    });
}

#[test]
fn a_key_handed_to_and_fro_is_never_left_lying() {
    each_server_at_once(|server| {
        let clients = [server.client(), server.client()];
        let key = unique("to-and-fro");
        let mut held = take(&clients[0], &key);
        for round in 0..300 {
            let (client, key) = (&clients[(round + 1) % 2], &key);
            let (next, took) = thread::scope(|scope| {
                let (asking, asks) = channel();
                let waiter = scope.spawn(move || {
                    asking.send(()).unwrap();
                    (client.acquire(key, &wait(30_000)).unwrap(), Instant::now())
                });
                asks.recv().unwrap();
                thread::sleep(ms(1));
                let released = Instant::now();
                held.release().unwrap();
                let (next, got) = waiter.join().unwrap();
                (next, got - released)
            });
            assert!(took < ms(1_000), "round {round}: {took:?}");
            held = next;
        }
    });
}

#[test]
fn a_cancelled_acquire_leaves_nothing_behind() {
    each_server_at_once(|server| {
        let (one, two) = (server.client(), server.client());
        let mut other = server.other();
        let (key, mut cancelled, mut granted) = (unique("cancelled"), 0, 0);
        let random = |round: u64| Duration::from_micros(round * 2_654_435_761 % 5_000);
        for round in 0..300 {
            let cancel = Cancel::new();
            let options = wait(20_000).cancel(&cancel);
            thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(random(round));
                    cancel.fire();
                });
                let (result, took) = timed(|| one.acquire(&key, &options));
                assert!(took < ms(2_000), "{took:?}");
                match result {
                    Ok(lock) => {
                        granted += 1;
                        lock.release().unwrap();
                    }
                    Err(error) => {
                        cancelled += 1;
                        assert_eq!(error.status(), Status::Cancelled);
                    }
                }
            });
            // Its TTL is 30 s.
            let (lock, waited) = timed(|| take(&two, &key));
            assert!(waited < ms(2_000), "{waited:?}");
            lock.release().unwrap();
        }
        assert!(cancelled > 20 && granted > 20, "{cancelled} cancelled, {granted} granted");
        assert!(!other.is_held(&key));
        // Its connections are as good as new.
        for _ in 0..50 {
            one.ping(ms(5_000)).unwrap();
            try_it(&one, &key).expect("it is free").release().unwrap();
        }
    });
}

#[test]
fn closing_a_client_ends_its_waits() {
    each_server(|server| {
        let (one, two) = (server.client(), server.client());
        let key = unique("closed");
        let _held = take(&one, &key);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| status(two.acquire(&key, &AcquireOptions::new())));
            thread::sleep(ms(200));
            assert!(!waiting.is_finished());
            let ((), took) = timed(|| two.close());
            assert!(took < ms(2_500), "{took:?}");
            assert_eq!(waiting.join().unwrap(), Status::Closed);
        });
    });
}

#[test]
fn a_waiter_is_awake_when_the_lease_ends() {
    each_server_at_once(|server| {
        let (one, two) = (server.client(), server.client());
        let key = unique("awake");
        let sent = Instant::now();
        let held = take_for(&one, &key, ms(1_000));
        let next = take(&two, &key);
        let took = sent.elapsed();
        assert!(took >= ms(1_000) && took < ms(3_000), "{took:?}");
        assert!(next.token() > held.token());
    });
}
