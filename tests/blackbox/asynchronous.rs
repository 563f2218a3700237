//! Acquires that take no thread: begun, and their outcomes taken as events.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use dlease::{AcquireOptions, Cancel, Client, Event, Lock, Outcome, Status};

use crate::support::{
    each_server, each_server_at_once, eventually, ms, take, timed, try_it, unique,
};

fn wait(limit_ms: u64) -> AcquireOptions {
    AcquireOptions::new().wait(ms(limit_ms))
}

fn next(client: &Client) -> Event {
    client.next_event(ms(10_000)).unwrap().expect("an event")
}

fn acquired(event: Event) -> (u64, Lock) {
    match event.outcome {
        Outcome::Acquired(lock) => (event.tag, lock),
        other => panic!("{}: {other:?}", event.tag),
    }
}

fn failed(event: Event) -> (u64, Status) {
    match event.outcome {
        Outcome::Failed(error) => (event.tag, error.status()),
        other => panic!("{}: {other:?}", event.tag),
    }
}

fn is_readable(client: &Client) -> bool {
    let mut poll = libc::pollfd { fd: client.event_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid structure.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 }
}

#[test]
fn each_acquire_that_was_begun_has_one_event() {
    each_server(|server| {
        let client = server.client();
        let keys: Vec<String> = (0..200).map(|_| unique("event")).collect();
        for (tag, key) in keys.iter().enumerate() {
            let ((), took) =
                timed(|| client.acquire_async(key, &wait(20_000), tag as u64).unwrap());
            assert!(took < ms(1_000), "{took:?}");
        }
        let mut locks: HashMap<u64, Lock> = HashMap::new();
        for _ in 0..keys.len() {
            let (tag, lock) = acquired(next(&client));
            assert_eq!(lock.key(), keys[tag as usize].as_bytes());
            assert!(locks.insert(tag, lock).is_none());
        }
        assert!(client.next_event(Duration::ZERO).unwrap().is_none());
        for (_, lock) in locks {
            lock.release().unwrap();
        }
    });
}

#[test]
fn those_who_wait_without_a_thread_are_served_in_order() {
    each_server_at_once(|server| {
        let client = server.client();
        let key = unique("in-order");
        let held = take(&client, &key);
        for tag in 0..100 {
            client.acquire_async(&key, &wait(60_000), tag).unwrap();
        }
        eventually("they wait", || client.stats().waiting == 100);
        held.release().unwrap();
        for expected in 0..100 {
            let (tag, lock) = acquired(next(&client));
            assert_eq!(tag, expected);
            lock.release().unwrap();
        }
    });
}

#[test]
fn a_try_a_deadline_and_a_cancel_end_in_events_of_their_own() {
    each_server_at_once(|server| {
        let (client, other) = (server.client(), server.client());
        let key = unique("ends");
        let held = take(&other, &key);
        client.acquire_async(&key, &wait(0), 1).unwrap();
        assert_eq!(failed(next(&client)), (1, Status::NotAcquired));

        let start = Instant::now();
        client.acquire_async(&key, &wait(400), 2).unwrap();
        assert_eq!(failed(next(&client)), (2, Status::TimedOut));
        assert!(start.elapsed() >= ms(400) && start.elapsed() < ms(1_500), "{:?}", start.elapsed());

        let cancel = Cancel::new();
        client.acquire_async(&key, &wait(30_000).cancel(&cancel), 3).unwrap();
        assert!(client.next_event(ms(200)).unwrap().is_none());
        cancel.fire();
        // It is there as soon as the token was fired.
        let event = client.next_event(Duration::ZERO).unwrap().expect("an event");
        assert_eq!(failed(event), (3, Status::Cancelled));
        // A fired token ends the next one, too.
        client.acquire_async(&key, &wait(30_000).cancel(&cancel), 4).unwrap();
        assert_eq!(failed(next(&client)), (4, Status::Cancelled));

        held.release().unwrap();
        assert!(try_it(&other, &key).is_some(), "nothing was taken");
        eventually("nobody waits", || client.stats().waiting == 0);
    });
}

#[test]
fn one_owner_shares_its_grant_also_without_threads() {
    each_server_at_once(|server| {
        let client = server.client();
        let key = unique("owner");
        let options = wait(10_000).owner("one");
        client.acquire_async(&key, &options, 1).unwrap();
        let (_, first) = acquired(next(&client));
        client.acquire_async(&key, &options, 2).unwrap();
        let (_, second) = acquired(next(&client));
        assert_eq!(first.token(), second.token());
        first.release().unwrap();
        second.release().unwrap();
    });
}

#[test]
fn the_descriptor_is_readable_while_events_wait() {
    each_server_at_once(|server| {
        let client = server.client();
        let key = unique("fd");
        assert!(client.event_fd() >= 0);
        assert_eq!(client.event_fd(), client.event_fd());
        assert!(!is_readable(&client));
        for tag in 0..2 {
            client.acquire_async(unique("fd"), &wait(10_000), tag).unwrap();
        }
        eventually("it is readable", || is_readable(&client));
        thread::sleep(ms(200));
        drop(acquired(next(&client)));
        assert!(is_readable(&client));
        drop(acquired(next(&client)));
        assert!(!is_readable(&client));
        client.acquire_async(&key, &wait(10_000), 3).unwrap();
        eventually("it is readable again", || is_readable(&client));
        drop(acquired(next(&client)));
    });
}

#[test]
fn closing_ends_all_that_wait_with_closed() {
    each_server_at_once(|server| {
        let (client, holder) = (server.client(), server.client());
        let key = unique("closing");
        let held = take(&holder, &key);
        for tag in 0..500 {
            client.acquire_async(&key, &wait(60_000), tag).unwrap();
        }
        thread::scope(|scope| {
            let client = &client;
            let taking = scope.spawn(move || {
                let mut ended = 0;
                loop {
                    match client.next_event(ms(10_000)) {
                        Ok(event) => {
                            assert_eq!(failed(event.expect("one of them")).1, Status::Closed);
                            ended += 1;
                        }
                        Err(error) => {
                            assert_eq!(error.status(), Status::Closed);
                            return ended;
                        }
                    }
                }
            });
            thread::sleep(ms(200));
            let ((), took) = timed(|| client.close());
            assert!(took < ms(3_000), "{took:?}");
            assert_eq!(taking.join().unwrap(), 500);
        });
        let refused = client.acquire_async(&key, &wait(10), 1).expect_err("it is closed");
        assert_eq!(refused.status(), Status::Closed);
        held.release().unwrap();
        assert!(try_it(&holder, &key).is_some());
    });
}

#[test]
fn an_event_that_nobody_takes_leaves_nothing_held() {
    each_server_at_once(|server| {
        let (client, other) = (server.client(), server.client());
        let key = unique("untaken");
        client.acquire_async(&key, &wait(10_000), 1).unwrap();
        eventually("it is held", || try_it(&other, &key).is_none());
        drop(client);
        eventually("it is released", || try_it(&other, &key).is_some());
    });
}

#[test]
fn thousands_wait_on_as_many_keys_with_few_threads() {
    each_server(|server| {
        let (client, holder) = (server.client(), server.client());
        let keys: Vec<String> = (0..2_000).map(|_| unique("keys")).collect();
        let held: Vec<Lock> = keys.iter().map(|key| take(&holder, key)).collect();
        for (tag, key) in keys.iter().enumerate() {
            client.acquire_async(key, &wait(120_000), tag as u64).unwrap();
        }
        eventually("they wait", || client.stats().waiting == 2_000);
        thread::sleep(ms(1_000));
        let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
        assert!(threads < 150, "{threads} threads, with those of other tests");
        let (_, took) = timed(|| {
            for lock in held {
                lock.release().unwrap();
            }
            for _ in 0..keys.len() {
                drop(acquired(next(&client)));
            }
        });
        println!("2000 keys passed on in {took:?}");
        assert!(took < ms(30_000), "{took:?}");
    });
}

#[test]
fn owners_that_were_begun_without_threads_are_served_in_their_order() {
    each_server(|server| {
        let (holder, client) = (server.client(), server.client());
        for _ in 0..5 {
            let key = unique("owners");
            let held = take(&holder, &key);
            for tag in 0..8 {
                let options = wait(20_000);
                let options = if tag < 6 { options.owner(format!("o{tag}")) } else { options };
                client.acquire_async(&key, &options, tag).unwrap();
            }
            thread::sleep(ms(200));
            held.release().unwrap();
            for tag in 0..8 {
                let (which, lock) = acquired(next(&client));
                assert_eq!(which, tag);
                lock.release().unwrap();
            }
        }
    });
}

#[test]
fn an_unfair_acquire_without_a_thread_takes_a_free_lock_at_once() {
    each_server_at_once(|server| {
        let (holder, client) = (server.client(), server.client());
        let (mut foreign, key) = (server.other(), unique("unfair"));
        let held = take(&holder, &key);
        let gate = server.gate_of(&key);
        // Free, and yet nobody of the queue has it: a foreign session is at the gate.
        let ask = format!("SELECT GET_LOCK('{gate}', 1)");
        eventually("it is at the gate", || foreign.row::<Option<u64>>(&ask) == Some(Some(1)));
        held.release().unwrap();
        client.acquire_async(&key, &wait(20_000), 1).unwrap();
        thread::sleep(ms(200));
        let begun = Instant::now();
        client.acquire_async(&key, &wait(20_000).unfair(), 2).unwrap();
        let (tag, lock) = acquired(next(&client));
        assert_eq!(tag, 2);
        assert!(begun.elapsed() < ms(1_500), "{:?}", begun.elapsed());
        lock.release().unwrap();
        foreign.run("DO RELEASE_ALL_LOCKS()");
        acquired(next(&client)).1.release().unwrap();
    });
}

#[test]
fn owners_whose_row_is_locked_hold_up_no_other_key() {
    each_server_at_once(|server| {
        let (client, mut blocker) = (server.client(), server.other());
        let key = unique("joined");
        let options = |ttl_ms| AcquireOptions::new().owner("o").ttl(ms(ttl_ms)).wait(ms(20_000));
        let held = client.acquire(&key, &options(30_000)).unwrap();
        blocker.run("BEGIN");
        assert_eq!(blocker.lock_row(&key), 0);
        for tag in 0..8 {
            client.acquire_async(&key, &options(60_000), tag).unwrap();
        }
        thread::sleep(ms(100));
        let begun = Instant::now();
        client.acquire_async(unique("free"), &wait(10_000), 100).unwrap();
        client.acquire_async(unique("free"), &wait(0), 101).unwrap();
        for _ in 0..2 {
            let (tag, lock) = acquired(next(&client));
            assert!(tag >= 100, "{tag}");
            lock.release().unwrap();
        }
        assert!(begun.elapsed() < ms(2_000), "{:?}", begun.elapsed());
        blocker.run("COMMIT");
        for _ in 0..8 {
            let (_, lock) = acquired(next(&client));
            assert_eq!(lock.token(), held.token());
            lock.release().unwrap();
        }
        held.release().unwrap();
    });
}
