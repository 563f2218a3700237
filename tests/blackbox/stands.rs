//! Whoever stands at the server for others: what becomes of it, its gate and its
//! bell when those it stands for are served, leave, share, or never were there.

use std::thread;
use std::time::{Duration, Instant};

use dlease::{AcquireOptions, Cancel, Client, Lock, Outcome, Status};

use crate::support::proxy::Proxy;
use crate::support::{
    Own, each_kind_at_once, each_server_at_once, eventually, ms, status, take, take_for, timed,
    try_it, unique,
};

fn wait(limit_ms: u64) -> AcquireOptions {
    AcquireOptions::new().wait(ms(limit_ms)).ttl(ms(20_000))
}

fn outcome(client: &Client) -> Outcome {
    client.next_event(ms(20_000)).unwrap().expect("an event").outcome
}

fn failed(client: &Client) -> Status {
    match outcome(client) {
        Outcome::Failed(error) => error.status(),
        other => panic!("{other:?}"),
    }
}

/// Releases, and how long after that `waiter` has the lock.
fn passed_on(held: Lock, waiter: &Client, key: &str) -> Duration {
    let released = thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let lock = waiter.acquire(key, &wait(40_000)).unwrap();
            (lock, Instant::now())
        });
        thread::sleep(ms(500));
        held.release().unwrap();
        let released = Instant::now();
        let (lock, at) = waits.join().unwrap();
        lock.release().unwrap();
        at.saturating_duration_since(released)
    });
    println!("passed on in {released:?}");
    released
}

#[test]
fn nobody_stands_for_those_who_were_served_by_a_hand_over() {
    each_server_at_once(|server| {
        let (here, other) = (server.client(), server.client());
        let key = unique("served");
        let held = take_for(&here, &key, ms(15_000));
        here.acquire_async(&key, &wait(30_000), 1).unwrap();
        thread::sleep(ms(100)); // it stands, and watches the row
        held.release().unwrap();
        let Outcome::Acquired(lock) = outcome(&here) else { panic!("not acquired") };
        assert!(passed_on(lock, &other, &key) < ms(2_000));
    });
}

#[test]
fn an_owners_second_acquire_waits_for_nobody_behind_others() {
    each_server_at_once(|server| {
        let (one, two) = (server.client(), server.client());
        let (key, cancel) = (unique("owner"), Cancel::new());
        let held = one.acquire(&key, &wait(1_000).owner("o")).unwrap();
        let stranger = wait(30_000).cancel(&cancel);
        thread::scope(|scope| {
            let waits = scope.spawn(|| two.acquire(&key, &stranger).map(drop));
            eventually("it waits", || two.stats().waiting == 1);
            let (again, took) = timed(|| two.acquire(&key, &wait(3_000).owner("o")).unwrap());
            assert_eq!(again.token(), held.token());
            assert!(took < ms(1_000), "{took:?}");
            two.acquire_async(&key, &wait(3_000).owner("o"), 1).unwrap();
            let Outcome::Acquired(third) = outcome(&two) else { panic!("not acquired") };
            assert_eq!(third.token(), held.token());
            cancel.fire();
            assert_eq!(status(waits.join().unwrap()), Status::Cancelled);
        });
    });
}

#[test]
fn who_joins_its_owners_lease_at_the_gate_leaves_the_gate() {
    each_server_at_once(|server| {
        let clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
        let (key, other) = (unique("joins"), unique("other"));
        let cancel = Cancel::new();
        let busy = wait(30_000).cancel(&cancel);
        let _other = take_for(&clients[0], &other, ms(60_000));
        let held = clients[0].acquire(&key, &wait(1_000).owner("x")).unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| clients[1].acquire(&key, &wait(20_000).owner("o")).unwrap());
            eventually("it waits", || clients[1].stats().waiting == 1);
            thread::sleep(ms(200));
            held.release().unwrap();
            let own = AcquireOptions::new().owner("o").ttl(ms(20_000));
            let first = clients[2].try_acquire(&key, &own).unwrap();
            let joined = waits.join().unwrap();
            if let Some(lock) = first {
                lock.release().unwrap();
            }
            joined.release().unwrap();
            // Its session serves another key now, with nothing of the first.
            let busy = scope.spawn(|| clients[1].acquire(&other, &busy).map(drop));
            thread::sleep(ms(300));
            for _ in 0..3 {
                let held = take_for(&clients[0], &key, ms(20_000));
                assert!(passed_on(held, &clients[3], &key) < ms(2_000));
            }
            cancel.fire();
            assert_eq!(status(busy.join().unwrap()), Status::Cancelled);
        });
    });
}

#[test]
fn a_table_dropped_under_those_who_wait_ends_no_wait() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "dropped-table", &[]);
        let (holder, waiter) = (own.server.client(), own.server.client());
        let key = unique("dropped");
        let _held = take_for(&holder, &key, ms(30_000));
        waiter.acquire_async(&key, &wait(20_000), 1).unwrap();
        eventually("it waits", || waiter.stats().waiting == 1);
        thread::sleep(ms(500));
        own.root().run("DROP TABLE dlease.dl_lock");
        // The table is made anew, and the key is free in it.
        assert!(matches!(outcome(&waiter), Outcome::Acquired(_)));
    });
}

#[test]
fn a_lock_that_is_held_all_the_time_is_never_unavailable() {
    each_server_at_once(|server| {
        let (before, holder, waiter) = (server.client(), server.client(), server.client());
        let key = unique("status");
        let first = take(&before, &key);
        thread::scope(|scope| {
            // By the queue, so that it keeps the bell and nobody looks at the row.
            let by_queue = scope.spawn(|| take_for(&holder, &key, ms(60_000)));
            eventually("it waits", || holder.stats().waiting == 1);
            thread::sleep(ms(200));
            first.release().unwrap();
            let _held = by_queue.join().unwrap();
            for limit_ms in [400, 100, 1_300, 100, 1_300] {
                let ended = status(waiter.acquire(&key, &wait(limit_ms)));
                assert_eq!(ended, Status::TimedOut, "{limit_ms} ms");
            }
        });
    });
}

#[test]
fn what_concerns_all_who_wait_is_told_to_all_at_once() {
    each_server_at_once(|server| {
        let client = server.logged_in_as("nobody", "wrong").client();
        let key = unique("config");
        let begun = Instant::now();
        for tag in 0..200 {
            client.acquire_async(&key, &wait(60_000), tag).unwrap();
        }
        for _ in 0..200 {
            assert_eq!(failed(&client), Status::Config);
        }
        assert!(begun.elapsed() < ms(3_000), "{:?}", begun.elapsed());
    });
}

#[test]
fn a_foreign_gate_delays_a_free_lock_five_seconds_however_long_the_lease_was() {
    each_server_at_once(|server| {
        let (holder, waiter) = (server.client(), server.client());
        let key = unique("foreign");
        let held = take_for(&holder, &key, ms(600_000));
        let (mut sql, gate) = (server.other(), server.gate_of(&key));
        let ask = format!("SELECT GET_LOCK('{gate}', 1)");
        eventually("the gate is ours", || sql.row::<Option<u64>>(&ask) == Some(Some(1)));
        assert!(passed_on(held, &waiter, &key) < ms(7_000));
    });
}

#[test]
fn a_take_whose_packet_fails_behind_it_is_a_grant_to_its_waiter() {
    each_server_at_once(|server| {
        let proxy = Proxy::start(server.port());
        let (holder, waiter) = (server.client(), server.behind(&proxy).client());
        let key = unique("packet");
        let held = take(&holder, &key);
        thread::scope(|scope| {
            let waits =
                scope.spawn(|| waiter.acquire(&key, &wait(10_000)).map(|lock| lock.token()));
            eventually("it waits", || waiter.stats().waiting == 1);
            thread::sleep(ms(300));
            proxy.replace("DO IF(ROW_COUNT()", "DO IF(R0W_COUNT()");
            held.release().unwrap();
            waits.join().unwrap().unwrap();
        });
        eventually("it is released", || try_it(&holder, &key).is_some());
    });
}

#[test]
fn a_single_try_without_an_answer_is_unavailable_though_others_wait() {
    each_server_at_once(|server| {
        let proxy = Proxy::start(server.port());
        let (holder, client) = (server.client(), server.behind(&proxy).client());
        let key = unique("try");
        let _held = take(&holder, &key);
        client.acquire_async(&key, &wait(30_000), 1).unwrap();
        eventually("it waits", || client.stats().waiting == 1);
        thread::sleep(ms(200));
        proxy.silence(true);
        client.acquire_async(&key, &wait(0).ttl(ms(150)), 2).unwrap();
        assert_eq!(failed(&client), Status::Unavailable);
        proxy.silence(false);
    });
}

#[test]
fn thousands_of_keys_are_left_in_time() {
    each_server_at_once(|server| {
        let proxy = Proxy::start(server.port());
        proxy.refuse(true);
        let client = server.behind(&proxy).client();
        let (count, prefix) = (3_000, unique("keys"));
        let until = Instant::now() + ms(8_000);
        for tag in 0..count {
            let left = until.saturating_duration_since(Instant::now());
            let options = AcquireOptions::new().wait(left);
            client.acquire_async(format!("{prefix}-{tag}"), &options, tag).unwrap();
        }
        for _ in 0..count {
            assert_eq!(failed(&client), Status::Unavailable);
        }
        let late = Instant::now().saturating_duration_since(until);
        println!("the last of {count} was told {late:?} after the deadline");
        assert!(late < ms(2_000), "{late:?}");
    });
}

#[test]
fn connections_that_wait_for_nobody_are_closed() {
    each_server_at_once(|server| {
        let (holder, waiter) = (server.client(), server.client());
        let key = unique("idle");
        assert!(passed_on(take(&holder, &key), &waiter, &key) < ms(2_000));
        eventually("none is left", || waiter.stats().waiting_connections == 0);
    });
}

#[test]
fn rows_that_a_transaction_has_locked_hold_up_no_other_key() {
    each_server_at_once(|server| {
        let (client, holder) = (server.client(), server.client());
        let keys: Vec<String> = (0..40).map(|_| unique("blocked")).collect();
        for key in &keys {
            take(&holder, key).release().unwrap();
        }
        take(&client, unique("warm")).release().unwrap();
        let mut sql = server.other();
        sql.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED");
        sql.run("BEGIN");
        for key in &keys {
            assert_eq!(sql.lock_row(key), 0);
        }
        for (tag, key) in (0..).zip(&keys) {
            client.acquire_async(key, &wait(20_000), tag).unwrap();
        }
        let begun = Instant::now();
        client.acquire_async(unique("free"), &wait(20_000), 99).unwrap();
        assert!(matches!(outcome(&client), Outcome::Acquired(_)));
        println!("a free key among them after {:?}", begun.elapsed());
        assert!(begun.elapsed() < ms(1_000), "{:?}", begun.elapsed());
        let (lock, took) = timed(|| take(&client, unique("free")));
        assert!(took < ms(1_000), "{took:?}");
        lock.release().unwrap();
        sql.run("ROLLBACK");
        for _ in &keys {
            assert!(matches!(outcome(&client), Outcome::Acquired(_)));
        }
    });
}
