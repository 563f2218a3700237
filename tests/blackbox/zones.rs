//! Time zones of servers and clients, which must not matter, and the nights
//! when they change.

use std::thread;
use std::time::{Duration, Instant, SystemTime};

use dlease::{AcquireOptions, Client, Status};

use crate::support::child::Child;
use crate::support::clock::Clock;
use crate::support::{Other, Own, each_kind_at_once, long, ms, status, take_for, try_it, unique};

/// 2024-03-31 01:00 UTC: in Berlin 02:00 becomes 03:00.
const SPRING: u64 = 1_711_846_800;
/// 2024-10-27 01:00 UTC: in Berlin 03:00 becomes 02:00.
const AUTUMN: u64 = 1_729_990_800;

#[test]
fn time_zones_of_server_and_clients_do_not_matter() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "zones", &["--default-time-zone=+05:45"]);
        hold_and_try_between_zones(&own);
        own.sql("SET GLOBAL init_connect = \"SET time_zone = '-08:00'\"");
        let zone: String = own.server.other().row("SELECT @@time_zone").unwrap();
        assert_eq!(zone, "-08:00");
        hold_and_try_between_zones(&own);
    });
}

fn hold_and_try_between_zones(own: &Own) {
    let mut tokyo = Child::start(&own.server.url, &[("TZ", "Asia/Tokyo")]);
    let mut york = Child::start(&own.server.url, &[("TZ", "America/New_York")]);
    let mut other = own.server.other();
    let key = unique("zone");
    let (wait, ttl) = (ms(10_000), ms(10_000));

    let first = tokyo.acquire(&key, wait, ttl).unwrap();
    assert_eq!(york.acquire(&key, ms(0), ttl), Err("NOT_ACQUIRED".into()));
    let remaining = tokyo.remaining(&key);
    assert!(remaining > ms(9_000) && remaining <= ttl, "{remaining:?}");
    // What people are shown is right to a second as well.
    let text = format!("SELECT remaining_s, held_s FROM dl_locks WHERE lock_key = '{key}'");
    let (remaining, held): (f64, f64) = other.row(&text).unwrap();
    assert!((9.0..=10.0).contains(&remaining), "{remaining}");
    assert!((0.0..=1.0).contains(&held), "{held}");
    assert_eq!(tokyo.release(&key), "OK");

    let ttl = ms(700);
    let sent = Instant::now();
    let second = york.acquire(&key, ms(0), ttl).unwrap();
    let third = tokyo.acquire(&key, wait, ttl).unwrap();
    assert!(sent.elapsed() >= ttl && sent.elapsed() < ttl + ms(2_000), "{:?}", sent.elapsed());
    assert_eq!(york.renew(&key), "NOT_HELD");
    assert!(first < second && second < third);
}

#[test]
fn a_change_to_summer_time_or_back_ends_no_lease_early_or_late() {
    each_kind_at_once(|kind| {
        // Started before all that follows.
        let clock = Clock::ahead(until(SPRING) - 3_600.0);
        let environment = format!("TZ=Europe/Berlin {}", clock.environment());
        let own = Own::start_in(kind, "summer-time", &[], &environment);
        for (change, before, after) in [(SPRING, 1, 3), (AUTUMN, 2, 2)] {
            let mut other = own.server.other();
            let clients = [own.server.client(), own.server.client()];
            for client in &clients {
                client.ping(ms(5_000)).unwrap();
            }
            let ttl = if long() { ms(20_000) } else { ms(1_600) };
            clock.set(until(change) - ttl.as_secs_f64() / 2.0);
            assert_eq!(hour(&mut other), before);
            hold_across(&clients, &mut other, change, ttl);
            assert_eq!(hour(&mut other), after);
        }
    });
}

/// Seconds from now to then.
fn until(then: u64) -> f64 {
    then as f64 - SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64()
}

/// The hour in the server's zone.
fn hour(other: &mut Other) -> u32 {
    other.row("SELECT HOUR(NOW())").unwrap()
}

/// Takes leases before the change, one to be renewed until after it and then
/// to run out, the other to run out over it.
fn hold_across([one, two]: &[Client; 2], other: &mut Other, change: u64, ttl: Duration) {
    let (key, short) = (unique("summer"), unique("summer-short"));
    let (change_us, waiting) = (change * 1_000_000, AcquireOptions::new().wait(ttl * 3));
    let lock = take_for(one, &key, ttl);
    let sent = Instant::now();
    let lost = take_for(one, &short, ttl);
    assert!(other.now_us() < change_us && other.cell(&short, "expires_us") > change_us);
    let next = thread::scope(|scope| {
        let taking = scope.spawn(|| {
            let next = two.acquire(&short, &waiting).unwrap();
            (next, sent.elapsed())
        });
        while other.now_us() < change_us + 500_000 {
            thread::sleep(ttl / 5);
            lock.renew().unwrap();
            assert!(lock.remaining() > ttl.mul_f64(0.5) && lock.remaining() <= ttl);
            assert!(try_it(two, &key).is_none());
        }
        let (next, took) = taking.join().unwrap();
        assert!(took >= ttl && took < ttl + ms(2_000), "{took:?}");
        next
    });
    assert!(next.token() > lost.token());
    assert_eq!(status(lost.release()), Status::NotHeld);

    let sent = Instant::now();
    lock.renew().unwrap();
    let next = two.acquire(&key, &waiting).unwrap();
    let took = sent.elapsed();
    assert!(took >= ttl && took < ttl + ms(2_000), "{took:?}");
    assert!(!lock.is_held());
    assert!(next.token() > lock.token());
    next.release().unwrap();
}
