//! Leases that the library renews by itself: for as long as they are held and not
//! longer, each for itself, with one statement for all.

use std::thread;
use std::time::{Duration, Instant};

use dlease::{AcquireOptions, Client, Lock, LostCause, Status};

use crate::support::place::Tables;
use crate::support::proxy::Proxy;
use crate::support::{
    each_server, each_server_at_once, eventually, ms, status, take, timed, try_it, unique,
};

fn options(ttl_ms: u64) -> AcquireOptions {
    AcquireOptions::new().ttl(ms(ttl_ms)).wait(ms(10_000))
}

fn hold(client: &Client, key: &str, ttl_ms: u64) -> Lock {
    client.acquire(key, &options(ttl_ms)).unwrap()
}

/// Until it is lost: how long that took, 10 s at most, and why.
fn lost(lock: &Lock) -> (Duration, LostCause) {
    let (is_lost, took) = timed(|| lock.wait_lost(ms(10_000)).unwrap());
    assert!(is_lost, "it is still held");
    (took, lock.lost_cause().unwrap())
}

#[test]
fn a_lease_is_renewed_for_as_long_as_it_is_held_and_no_longer() {
    each_server_at_once(|server| {
        let (one, two, mut other) = (server.client(), server.client(), server.other());
        let key = unique("kept");
        let lock = hold(&one, &key, 400);
        for _ in 0..25 {
            thread::sleep(ms(100));
            assert!(lock.is_held());
            assert!(try_it(&two, &key).is_none());
        }
        assert_eq!(other.token(&key), Some(lock.token()));
        let renewals = one.stats().renewals;
        assert!((15..=40).contains(&renewals), "{renewals}");
        lock.release().unwrap();
        let (row, renewals) = (other.whole(&key), one.stats().renewals);
        thread::sleep(ms(500));
        assert_eq!((other.whole(&key), one.stats().renewals), (row, renewals));
    });
}

#[test]
fn a_dropped_lock_is_renewed_no_more() {
    each_server_at_once(|server| {
        let (one, two) = (server.client(), server.client());
        let key = unique("dropped");
        drop(hold(&one, &key, 10_000));
        eventually("it is free", || try_it(&two, &key).is_some());
    });
}

#[test]
fn a_lease_that_its_holder_renews_itself_is_left_alone() {
    each_server_at_once(|server| {
        let client = server.client();
        let lock = client.acquire(unique("manual"), &options(300).manual_renew()).unwrap();
        let (took, cause) = lost(&lock);
        assert!(took >= ms(200) && took < ms(2_000), "{took:?}");
        assert_eq!((cause, client.stats().renewals), (LostCause::Expired, 0));
        eventually("the loss is counted", || client.stats().lost_expired == 1);
    });
}

#[test]
fn a_lease_is_renewed_no_longer_than_it_may_be_held() {
    each_server_at_once(|server| {
        let (one, two) = (server.client(), server.client());
        for (ttl_ms, limit_ms) in [(300, 1_000), (20_000, 700)] {
            let key = unique("max-hold");
            let lock = one.acquire(&key, &options(ttl_ms).max_hold(ms(limit_ms))).unwrap();
            let asked = Instant::now();
            let (took, cause) = lost(&lock);
            assert!(took >= ms(limit_ms * 8 / 10) && took <= ms(limit_ms), "{took:?}");
            assert_eq!(cause, LostCause::MaxHold);
            take(&two, &key).release().unwrap();
            assert!(asked.elapsed() < ms(limit_ms + 2_000), "{:?}", asked.elapsed());
            assert_eq!(status(lock.release()), Status::NotHeld);
        }
    });
}

#[test]
fn many_leases_are_renewed_with_few_statements() {
    each_server(|server| {
        let proxy = Proxy::start(server.port());
        let server = server.behind(&proxy);
        let client = Client::open(&server.url_with("tls=off")).unwrap();
        let keys: Vec<String> = (0..500).map(|_| unique("many")).collect();
        let mut locks: Vec<Lock> = keys.iter().map(|key| hold(&client, key, 6_000)).collect();
        thread::sleep(ms(5_000));
        proxy.forget_statements();
        thread::sleep(ms(4_000));
        let asked = proxy.statements();
        // A round of all every two seconds, in a packet or two.
        assert!((2..=10).contains(&asked.len()), "{}", asked.len());
        assert!(asked.iter().all(|text| text.starts_with("UPDATE /*+ NO_MERGE")), "{asked:.99?}");
        assert!(locks.iter().all(Lock::is_held));
        assert!(client.stats().renewals >= 1_000, "{}", client.stats().renewals);
        locks.pop().unwrap().release().unwrap();
        assert_eq!(client.stats().lost_expired, 0);
    });
}

/// More than one packet takes.
#[test]
fn very_many_leases_of_long_keys_are_all_renewed() {
    each_server_at_once(|server| {
        let client = server.client();
        let prefix = unique("long");
        let locks: Vec<Lock> = (0..1_500)
            .map(|number| hold(&client, &format!("{prefix}{number:0>200}"), 9_000))
            .collect();
        thread::sleep(ms(9_500));
        assert!(locks.iter().all(Lock::is_held));
        assert!(client.stats().renewals >= 1_500);
    });
}

#[test]
fn a_row_that_is_locked_harms_its_own_lease_alone() {
    each_server_at_once(|server| {
        let (client, mut blocker) = (server.client(), server.other());
        let keys: Vec<String> = (0..20).map(|_| unique("blocked")).collect();
        let locks: Vec<Lock> = keys.iter().map(|key| hold(&client, key, 1_200)).collect();
        blocker.run("BEGIN");
        assert_eq!(blocker.lock_row(&keys[7]), 0);
        let (took, cause) = lost(&locks[7]);
        assert!(took <= ms(1_200) && took >= ms(600), "{took:?}");
        assert_eq!(cause, LostCause::Expired);
        thread::sleep(ms(2_000));
        for (number, lock) in locks.iter().enumerate() {
            assert_eq!(lock.is_held(), number != 7, "{number}");
        }
        blocker.run("ROLLBACK");
    });
}

#[test]
fn a_row_that_was_locked_for_a_while_is_renewed_after_that() {
    each_server_at_once(|server| {
        let (client, mut blocker) = (server.client(), server.other());
        let key = unique("blocked-for-a-while");
        let lock = hold(&client, &key, 2_000);
        for _ in 0..3 {
            blocker.run("BEGIN");
            assert_eq!(blocker.lock_row(&key), 0);
            thread::sleep(ms(1_100));
            blocker.run("ROLLBACK");
            thread::sleep(ms(600));
            assert!(lock.is_held());
        }
        lock.release().unwrap();
    });
}

#[test]
fn a_holder_is_told_early_that_its_lease_was_taken_or_its_row_is_gone() {
    each_server_at_once(|server| {
        let (client, mut other) = (server.client(), server.other());
        let [taken, gone, ended] = [unique("taken"), unique("gone"), unique("ended")];
        let locks = [&taken, &gone, &ended].map(|key| hold(&client, key, 3_000));
        other.set(&taken, "token = token + 1");
        other.delete(&gone);
        other.set(&ended, "expires_us = 1");
        for (lock, why) in
            locks.iter().zip([LostCause::Taken, LostCause::RowGone, LostCause::Expired])
        {
            let (took, cause) = lost(lock);
            assert_eq!(cause, why);
            assert!(took < ms(1_900), "{why:?}: {took:?}");
        }
        eventually("all are counted", || {
            let stats = client.stats();
            (stats.lost_taken, stats.lost_row_gone, stats.lost_expired) == (1, 1, 1)
        });
    });
}

#[test]
fn a_holder_whose_table_is_gone_is_told_that_its_row_is() {
    each_server_at_once(|server| {
        let tables = Tables::new(server);
        let client = tables.client();
        let lock = hold(&client, &unique("no-table"), 3_000);
        tables.run(&["DROP TABLE {lock}"]);
        let (took, cause) = lost(&lock);
        assert_eq!(cause, LostCause::RowGone);
        assert!(took < ms(2_900), "{took:?}");
    });
}

#[test]
fn a_cut_off_holder_is_told_by_its_deadline_that_the_server_is_not_reached() {
    each_server_at_once(|server| {
        for cut in [true, false] {
            let proxy = Proxy::start(server.port());
            let client = server.behind(&proxy).client();
            let lock = hold(&client, &unique("cut-off"), 1_500);
            thread::sleep(ms(800));
            assert!(lock.is_held());
            if cut {
                proxy.refuse(true);
                proxy.cut();
            } else {
                proxy.silence(true);
            }
            let left = lock.remaining();
            let (took, cause) = lost(&lock);
            assert_eq!(cause, LostCause::Unreachable);
            // Told at its deadline, by which the lease is not over yet. A renewal
            // may have been under way when the network went.
            assert!(
                took <= ms(1_500) && took + ms(50) >= left.min(ms(400)),
                "{took:?} of {left:?}"
            );
            assert!(!lock.is_held() && lock.remaining().is_zero());
            eventually("the loss is counted", || client.stats().lost_unreachable == 1);
        }
    });
}

#[test]
fn lost_connections_and_replies_cost_no_lease() {
    each_server_at_once(|server| {
        let proxy = Proxy::start(server.port());
        let server = server.behind(&proxy);
        let client = dlease::Client::open(&server.url_with("tls=off")).unwrap();
        let key = unique("cut");
        let lock = hold(&client, &key, 1_500);
        for _ in 0..4 {
            proxy.cut();
            thread::sleep(ms(400));
        }
        // The renewal is done, and its reply is lost.
        for _ in 0..4 {
            proxy.cut_replies("SKIP LOCKED", 1);
            eventually("a reply was cut", || proxy.cuts_left() == 0);
            thread::sleep(ms(100));
            assert!(lock.is_held());
        }
        proxy.cut_requests("SKIP LOCKED", 2);
        eventually("requests were cut", || proxy.requests_left() == 0);
        thread::sleep(ms(1_500));
        assert!(lock.is_held());
        lock.release().unwrap();
        assert_eq!(client.stats().lost_unreachable, 0);
    });
}

#[test]
fn waiting_for_a_loss_ends_by_its_time_and_by_a_release() {
    each_server(|server| {
        let client = server.client();
        let lock = hold(&client, &unique("wait-lost"), 5_000);
        let (is_lost, took) = timed(|| lock.wait_lost(ms(120)).unwrap());
        assert!(!is_lost && took >= ms(120) && took < ms(1_200), "{took:?}");
        assert!(!lock.wait_lost(Duration::ZERO).unwrap());
        client.close();
        assert!(lock.wait_lost(ms(10_000)).unwrap());
        assert_eq!(lock.lost_cause(), Some(LostCause::Closed));
    });
}

#[test]
fn an_owner_that_nests_never_has_its_lease_shortened_or_its_renewal_ended() {
    each_server_at_once(|server| {
        let (one, two, mut other) = (server.client(), server.client(), server.other());
        let key = unique("nested");
        let owner = |ttl_ms| options(ttl_ms).owner("o");
        let outer = one.acquire(&key, &owner(900)).unwrap();
        let inner = one.acquire(&key, &owner(300).manual_renew()).unwrap();
        let elsewhere = two.acquire(&key, &owner(600)).unwrap();
        assert_eq!(inner.token(), outer.token());
        assert_eq!(elsewhere.token(), outer.token());
        thread::sleep(ms(1_500));
        assert!(outer.is_held() && inner.is_held() && elsewhere.is_held());
        inner.release().unwrap();
        thread::sleep(ms(1_500));
        assert!(outer.is_held() && elsewhere.is_held());
        outer.release().unwrap();
        thread::sleep(ms(1_500));
        assert!(elsewhere.is_held() && other.is_held(&key));
        elsewhere.release().unwrap();
        assert!(!other.is_held(&key));
    });
}

#[test]
fn a_longer_renewal_by_hand_is_not_cut_short() {
    each_server_at_once(|server| {
        let (client, mut other) = (server.client(), server.other());
        let key = unique("by-hand");
        let lock = hold(&client, &key, 600);
        lock.renew_for(ms(20_000)).unwrap();
        thread::sleep(ms(1_000));
        assert!(other.left(&key) > ms(18_000));
        assert!(lock.remaining() > ms(18_000));
        // And a shorter one is not the end.
        lock.renew_for(ms(100)).unwrap();
        thread::sleep(ms(1_000));
        assert!(lock.is_held());
    });
}

#[test]
fn a_binary_log_of_statements_takes_renewals_without_a_warning() {
    use crate::support::{Own, server::each_kind};
    each_kind(|kind| {
        let options = ["--log-bin=bin", "--server-id=1", "--binlog-format=STATEMENT"];
        let own = Own::start(kind, "renewed-statements", &options);
        let client = own.server.client();
        let locks: Vec<Lock> = (0..3).map(|_| hold(&client, &unique("logged"), 500)).collect();
        thread::sleep(ms(2_000));
        assert!(locks.iter().all(Lock::is_held));
        assert!(client.stats().renewals >= 9);
    });
}
