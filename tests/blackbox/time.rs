//! The length of a lease: what may be asked for, how long it lasts, and what
//! its handle says of it. Zones and clocks are in zones.rs and steps.rs.

use std::time::{Duration, Instant};
use std::{iter, thread};

use dlease::{AcquireOptions, Client, Lock, LostCause, Status};

use crate::support::c::{self, CClient};
use crate::support::proxy::Proxy;
use crate::support::{
    Other, at_once, each_server, each_server_at_once, long, ms, status, take, take_for, timed,
    try_it, unique,
};

const DAY: Duration = Duration::from_secs(86_400);

/// Acquires a lease of `ttl` in one try.
fn try_for(client: &Client, key: &str, ttl: Duration) -> dlease::Result<Option<Lock>> {
    client.try_acquire(key, &AcquireOptions::new().ttl(ttl).manual_renew())
}

/// What the handle claims, which may never be more than the row gives it.
fn honest(lock: &Lock, other: &mut Other, key: &str) -> Duration {
    let asked = Instant::now();
    let claimed = lock.remaining();
    let truth = other.left(key) + asked.elapsed();
    assert!(claimed <= truth, "claimed {claimed:?} of {truth:?}");
    claimed
}

#[test]
fn a_lease_lasts_its_ttl_at_any_phase_of_the_second() {
    let phases = if long() { 20 } else { 6 };
    each_server_at_once(|server| {
        let (one, two) = (server.client(), server.client());
        let last = |ttl_ms: u64, phase: u64| {
            thread::sleep(ms(1_000 * phase / phases));
            let key = unique("phase");
            let sent = Instant::now();
            let lock = take_for(&one, &key, ms(ttl_ms));
            let next = take(&two, &key);
            let took = sent.elapsed();
            assert!(took >= ms(ttl_ms), "{took:?} of {ttl_ms} ms");
            assert!(took < ms(ttl_ms + 2_000), "{took:?} of {ttl_ms} ms");
            assert!(!lock.is_held());
            assert!(next.token() > lock.token());
            took - ms(ttl_ms)
        };
        at_once(&[50, 200, 999, 1_001, 1_500], |&ttl_ms| {
            let last = &last;
            let late = thread::scope(|scope| {
                let start = |phase| scope.spawn(move || last(ttl_ms, phase));
                let threads: Vec<_> = (0..phases).map(start).collect();
                let mut late: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
                late.sort();
                late
            });
            // A clock of whole seconds would show in the middle.
            assert!(late[late.len() / 2] < ms(500), "{ttl_ms} ms: late by {late:?}");
        });
    });
}

#[test]
fn a_lease_is_stored_to_the_microsecond() {
    each_server(|server| {
        let (client, mut other) = (server.client(), server.other());
        for ttl_us in [50_000, 999_001, 1_500_999, 86_400_000_001] {
            let key = unique("micro");
            let _lock = take_for(&client, &key, Duration::from_micros(ttl_us));
            assert_eq!(other.cell(&key, "expires_us - acquired_us"), ttl_us);
            assert_eq!(other.cell(&key, "ttl_us"), ttl_us);
        }
    });
}

#[test]
fn a_ttl_out_of_bounds_is_refused_before_any_sql() {
    let nowhere = "mysql://nobody:none@127.0.0.1:1/nothing";
    let client = Client::open(nowhere).unwrap();
    let most = DAY * 366;
    let bad = [Duration::ZERO, ms(1), ms(9), Duration::from_nanos(9_999_999)];
    let bad = bad.into_iter().chain([most + Duration::from_nanos(1), DAY * 367, Duration::MAX]);
    for ttl in bad {
        let (result, took) = timed(|| {
            client.acquire("k", &AcquireOptions::new().wait(ms(20_000)).ttl(ttl)).map(|_| ())
        });
        assert_eq!(status(result), Status::InvalidArgument, "{ttl:?}");
        assert!(took < ms(100), "{ttl:?}: {took:?}");
        let opened = Client::builder().default_ttl(ttl).open(nowhere);
        assert_eq!(status(opened), Status::InvalidArgument, "{ttl:?}");
    }
    let client = CClient::open(nowhere);
    for ttl_ms in [1, 9, 1 << 53, i64::MAX as u64, 1 << 63, u64::MAX] {
        assert_eq!(client.acquire("k", None, 0, ttl_ms).err(), Some(c::INVALID_ARGUMENT));
    }
}

#[test]
fn a_renewal_to_a_ttl_out_of_bounds_is_refused_and_changes_nothing() {
    each_server(|server| {
        let (client, mut other) = (server.client(), server.other());
        let key = unique("bounds");
        let lock = take_for(&client, &key, ms(30_000));
        let before = other.whole(&key);
        for ttl in [Duration::ZERO, ms(1), ms(9), DAY * 367, Duration::MAX] {
            assert_eq!(status(lock.renew_for(ttl)), Status::InvalidArgument, "{ttl:?}");
        }
        assert_eq!(other.whole(&key), before);
        assert!(lock.is_held());
        lock.renew_for(DAY * 366).unwrap();
        assert!(honest(&lock, &mut other, &key) > DAY * 365);
        // The least may be over before it has been told of.
        let least = lock.renew_for(ms(10));
        assert!(least.is_ok() || status(least) == Status::NotHeld);
        let (_, waited) = timed(|| take(&client, &key));
        assert!(waited < ms(2_000), "{waited:?}");
        assert_eq!(lock.lost_cause(), Some(LostCause::Expired));
    });
}

#[test]
fn the_longest_lease_is_not_stealable_and_the_shortest_ends() {
    each_server(|server| {
        let (one, two, mut other) = (server.client(), server.client(), server.other());
        // 366 days, and beyond 2^31 ms and 2^31 s worth of microseconds.
        for ttl in [DAY * 366, ms(1 << 31), DAY * 25] {
            let key = unique("longest");
            let lock = try_for(&one, &key, ttl).unwrap().expect("it is free");
            let claimed = honest(&lock, &mut other, &key);
            assert!(claimed > ttl.mul_f64(0.98), "{claimed:?}");
            assert!(other.left(&key) <= ttl);
            assert!(try_it(&two, &key).is_none());
            lock.release().unwrap();
            assert!(try_it(&two, &key).is_some());
        }
        let key = unique("shortest");
        let sent = Instant::now();
        let lock = take_for(&one, &key, ms(10));
        let next = take(&two, &key);
        assert!(sent.elapsed() >= ms(10) && sent.elapsed() < ms(2_000));
        assert!(!lock.is_held());
        assert!(next.is_held());
    });
}

#[test]
fn remaining_is_right_after_a_long_wait_and_over_a_slow_network() {
    let held_for = if long() { ms(8_000) } else { ms(1_200) };
    let ttl = ms(10_000);
    each_server_at_once(|server| {
        let proxy = Proxy::start(server.port());
        let client = server.behind(&proxy).client();
        let (holder, mut other) = (server.client(), server.other());
        client.ping(ms(5_000)).unwrap();
        for delay in [ms(0), ms(500)] {
            proxy.delay(delay);
            let ((), round_trip) = timed(|| client.ping(ms(5_000)).unwrap());
            assert!(round_trip >= delay * 2);
            let key = unique("remaining");
            let _held = take_for(&holder, &key, held_for);
            // Each statement takes a second there, and each connection ten.
            let options = AcquireOptions::new().wait(ms(30_000)).ttl(ttl);
            let (lock, waited) = timed(|| client.acquire(&key, &options).unwrap());
            assert!(waited >= held_for - ms(200), "{waited:?}");
            assert!(waited < held_for + ms(9_000), "{waited:?}");
            // And 400 ms for a server that is busy with other tests.
            let least = ttl - round_trip * 2 - ms(100) - ms(400);
            let claimed = honest(&lock, &mut other, &key);
            assert!(claimed >= least, "{claimed:?}");
            lock.renew().unwrap();
            let claimed = honest(&lock, &mut other, &key);
            assert!(claimed >= least, "renewed: {claimed:?}");
        }
    });
}

#[test]
fn remaining_never_exceeds_the_truth_while_it_runs_down() {
    each_server_at_once(|server| {
        let (client, mut other) = (server.client(), server.other());
        let key = unique("runs-down");
        let lock = take_for(&client, &key, ms(1_200));
        let claims: Vec<Duration> = iter::repeat_with(|| {
            thread::sleep(ms(5));
            honest(&lock, &mut other, &key)
        })
        .take_while(|claimed| !claimed.is_zero())
        .collect();
        assert!(claims.len() > 5, "{claims:?}");
        assert!(claims.windows(2).all(|pair| pair[0] > pair[1]), "{claims:?}");
        assert!(!lock.is_held());
        assert_eq!(lock.lost_cause(), Some(LostCause::Expired));
    });
}
