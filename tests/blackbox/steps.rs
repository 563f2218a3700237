//! Clocks that are wrong or are set while leases are out: the server's is the
//! only one that counts, and when that one is set nobody is locked out for
//! long and no handle is fooled for ever.

use std::thread;
use std::time::{Duration, Instant};

use dlease::{AcquireOptions, Client, LostCause, Status};

use crate::support::child::Child;
use crate::support::clock::Clock;
use crate::support::proxy::Proxy;
use crate::support::{
    Own, Server, each_kind_at_once, each_server_at_once, ms, status, take, take_for, timed, try_it,
    unique,
};

const HOUR: f64 = 3_600.0;

/// A child whose clock is this one.
fn child_with(server: &Server, clock: &Clock) -> Child {
    let variables = clock.variables();
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, &**value)).collect();
    Child::start(&server.url, &variables)
}

/// A server whose clock is this one.
fn server_with(kind: &str, test: &str, clock: &Clock) -> Own {
    Own::start_in(kind, test, &[], &clock.environment())
}

#[test]
fn a_client_whose_clock_is_wrong_neither_steals_nor_holds_on() {
    each_server_at_once(|server| {
        let (ahead, behind) = (Clock::ahead(HOUR), Clock::ahead(-HOUR));
        let mut fast = child_with(server, &ahead);
        let mut slow = child_with(server, &behind);
        assert!((fast.ahead_s() - HOUR).abs() < 60.0 && (slow.ahead_s() + HOUR).abs() < 60.0);
        let right = server.client();
        let ttl = ms(800);
        holds_and_expires(&mut fast, &mut slow, &right, ttl);
        holds_and_expires(&mut slow, &mut fast, &right, ttl);
    });
}

fn holds_and_expires(holder: &mut Child, taker: &mut Child, right: &Client, ttl: Duration) {
    let key = unique("wrong-clock");
    let sent = Instant::now();
    let first = holder.acquire(&key, ms(0), ttl).unwrap();
    assert_eq!(taker.acquire(&key, ms(0), ttl), Err("NOT_ACQUIRED".into()));
    assert!(try_it(right, &key).is_none());
    let remaining = holder.remaining(&key);
    assert!(remaining <= ttl && !remaining.is_zero(), "{remaining:?}");
    let second = taker.acquire(&key, ms(10_000), ttl).unwrap();
    assert!(sent.elapsed() >= ttl && sent.elapsed() < ttl + ms(2_000), "{:?}", sent.elapsed());
    assert_eq!(holder.remaining(&key), Duration::ZERO);
    assert_eq!(holder.renew(&key), "NOT_HELD");
    assert_eq!(taker.renew(&key), "OK");
    assert!(second > first);
    assert_eq!(taker.release(&key), "OK");
}

#[test]
fn setting_the_clients_clock_changes_nothing_for_it() {
    each_server_at_once(|server| {
        let clock = Clock::ahead(0.0);
        let mut child = child_with(server, &clock);
        let right = server.client();
        let key = unique("client-step");
        let token = child.acquire(&key, ms(0), ms(30_000)).unwrap();
        for ahead in [HOUR, -HOUR, 0.0] {
            clock.set(ahead);
            assert!((child.ahead_s() - ahead).abs() < 60.0);
            let remaining = child.remaining(&key);
            assert!(remaining > ms(20_000) && remaining <= ms(30_000), "{remaining:?}");
            assert_eq!(child.renew(&key), "OK");
            assert!(try_it(&right, &key).is_none());
            // Waits are as long as they should be.
            let busy = unique("busy");
            let _held = take(&right, &busy);
            let (waited, took) = timed(|| child.acquire(&busy, ms(300), ms(1_000)));
            assert_eq!(waited, Err("TIMED_OUT".into()));
            assert!(took >= ms(300) && took < ms(2_300), "{took:?}");
        }
        assert_eq!(server.other().token(&key), Some(token));
        assert_eq!(child.release(&key), "OK");
        assert!(try_it(&right, &key).is_some());
    });
}

/// Free keys, old and new, are granted in one try and can be renewed.
fn works(client: &Client, old: &str) {
    for key in [old, &unique("new")] {
        let lock = try_it(client, key).expect("it is free");
        lock.renew().unwrap();
        assert!(lock.remaining() > ms(20_000) && lock.remaining() <= ms(30_000));
        lock.release().unwrap();
    }
}

#[test]
fn a_server_clock_set_forward_gives_the_key_to_the_next_with_a_higher_token() {
    each_kind_at_once(|kind| {
        let clock = Clock::ahead(0.0);
        let own = server_with(kind, "forward", &clock);
        let (one, two) = (own.server.client(), own.server.client());
        let (key, idle) = (unique("forward"), unique("idle"));
        let lock = take(&one, &key);
        let alone = take(&one, &idle);
        let (next, stepped) = thread::scope(|scope| {
            let waiter = scope.spawn(|| (take(&two, &key), Instant::now()));
            thread::sleep(ms(500));
            assert!(!waiter.is_finished());
            let stepped = Instant::now();
            clock.set(HOUR);
            let (next, got) = waiter.join().unwrap();
            (next, got - stepped)
        });
        assert!(stepped < ms(2_000), "{stepped:?}");
        assert!(next.token() > lock.token());
        // The old holder is told by its next renewal, and frees nothing.
        assert_eq!(status(lock.renew()), Status::NotHeld);
        assert_eq!(lock.lost_cause(), Some(LostCause::Taken));
        assert_eq!(status(lock.release()), Status::NotHeld);
        next.renew().unwrap();
        assert!(try_it(&one, &key).is_none());
        // Where nobody took it the lease is over all the same.
        assert_eq!(status(alone.renew()), Status::NotHeld);
        assert_eq!(alone.lost_cause(), Some(LostCause::Expired));
        assert!(try_it(&two, &idle).expect("it is free").token() > alone.token());
    });
}

#[test]
fn acquires_and_renewals_go_on_after_steps_of_the_server_clock() {
    each_kind_at_once(|kind| {
        let clock = Clock::ahead(0.0);
        let own = server_with(kind, "steps", &clock);
        let (one, two, mut other) = (own.server.client(), own.server.client(), own.server.other());
        let old = unique("old");
        works(&one, &old);
        works(&two, &old);
        let mut last = take(&one, &old).token();
        for ahead in [HOUR, 0.0, -HOUR, HOUR, 0.0] {
            let before = other.now_us();
            clock.set(ahead);
            assert!(other.now_us().abs_diff(before) > 3_000_000_000, "the step shows");
            // Each with sessions that knew the clock as it was, one by an old
            // key first and the other by a new one.
            works(&one, &old);
            works(&two, &unique("new"));
            works(&two, &old);
            works(&own.server.client(), &old);
            let lock = take(&one, &old);
            assert!(lock.token() > last, "tokens grow although the clock does not");
            last = lock.token();
            lock.release().unwrap();
        }
    });
}

#[test]
fn an_acquire_that_lost_its_connection_is_cleared_up_although_the_clock_was_set() {
    each_kind_at_once(|kind| {
        let clock = Clock::ahead(0.0);
        let own = server_with(kind, "cleared-up", &clock);
        let (proxy, mut other) = (Proxy::start(own.server.port()), own.server.other());
        let client = own.server.behind(&proxy).client();
        let key = unique("cleared-up");
        for ahead in [HOUR, -HOUR, 0.0] {
            take(&client, &key).release().unwrap();
            clock.set(ahead);
            // Cut while the statement waits in the server (MySQL waits for a
            // row): it must be ended there before anybody goes by the row.
            other.run("BEGIN");
            other.set(&key, "note = x'00'");
            let lock = thread::scope(|scope| {
                let taking = scope.spawn(|| take(&client, &key));
                thread::sleep(ms(300));
                proxy.cut();
                thread::sleep(ms(300));
                other.run("ROLLBACK");
                taking.join().unwrap()
            });
            assert_eq!(other.token(&key), Some(lock.token()));
            lock.release().unwrap();
            // And with the reply lost to a statement that was done.
            proxy.cut_replies("token = LAST_INSERT_ID", 1);
            let (lock, took) = timed(|| take(&client, &key));
            assert_eq!(proxy.cuts_left(), 0);
            assert!(took < ms(2_000), "{took:?}");
            assert_eq!(other.token(&key), Some(lock.token()));
            lock.release().unwrap();
        }
    });
}

#[test]
fn an_abandoned_lease_ends_within_two_ttl_after_the_server_clock_was_set_back() {
    each_kind_at_once(|kind| {
        let clock = Clock::ahead(0.0);
        let own = server_with(kind, "back", &clock);
        let (one, two) = (own.server.client(), own.server.client());
        let ttl = ms(1_200);
        let (key, alive, later) = (unique("dead"), unique("alive"), unique("later"));
        let sent = Instant::now();
        let dead = take_for(&one, &key, ttl);
        let also_dead = take_for(&one, &later, ttl);
        let living = take_for(&one, &alive, ttl);
        let freed = take(&one, unique("freed"));
        clock.set(-HOUR);
        let stepped = Instant::now();

        // A release frees at once.
        let freed_key = String::from_utf8(freed.key().to_vec()).unwrap();
        freed.release().unwrap();
        drop(try_it(&two, &freed_key).expect("it is free"));

        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let options = AcquireOptions::new().wait(ms(30_000));
                let next = two.acquire(&key, &options).unwrap();
                // Not before the lease could have ended, and bounded.
                assert!(sent.elapsed() >= ttl, "{:?}", sent.elapsed());
                assert!(stepped.elapsed() < ttl * 2 + ms(2_000), "{:?}", stepped.elapsed());
                next
            });
            // One who renews is not robbed.
            let robber = scope.spawn(|| {
                let options = AcquireOptions::new().wait(ttl * 3);
                assert_eq!(status(two.acquire(&alive, &options)), Status::TimedOut);
            });
            while !robber.is_finished() {
                living.renew().unwrap();
                assert!(living.remaining() <= ttl);
                thread::sleep(ms(200));
            }
            robber.join().unwrap();
            living.release().unwrap();
            let next = waiter.join().unwrap();
            // The holder's own deadline had ended it long before.
            assert_eq!(dead.lost_cause(), Some(LostCause::Expired));
            assert!(next.token() > dead.token());
            assert_eq!(status(dead.renew()), Status::NotHeld);
            next.renew().unwrap();
        });
        // One who comes later waits for a TTL from then at the most.
        let came = Instant::now();
        let next = two.acquire(&later, &AcquireOptions::new().wait(ms(30_000))).unwrap();
        assert!(came.elapsed() < ttl + ms(2_000), "{:?}", came.elapsed());
        assert!(next.token() > also_dead.token());
    });
}
