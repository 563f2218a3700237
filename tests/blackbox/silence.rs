//! A network that has gone silent: the handle knows by itself when its lock is
//! over, calls return in time, and what arrives late changes nothing.

use std::thread;
use std::time::{Duration, Instant};

use dlease::{AcquireOptions, Client, Lock, LostCause, Status};

use crate::support::c::{self, CClient};
use crate::support::proxy::Proxy;
use crate::support::{
    Server, each_server_at_once, eventually, ms, status, take, take_for, timed, try_it, unique,
};

const IO_TIMEOUT: Duration = Duration::from_millis(500);

/// A client behind a proxy, connected.
fn cut_off(server: &Server) -> (Proxy, Client) {
    let proxy = Proxy::start(server.port());
    let client = server.behind(&proxy).client_with(|builder| builder.io_timeout(IO_TIMEOUT));
    client.ping(ms(5_000)).unwrap();
    (proxy, client)
}

/// Returns at its deadline: polls the handle, as a holder would.
fn lost_at(lock: &Lock) -> Instant {
    while lock.is_held() {
        assert!(!lock.remaining().is_zero() || !lock.is_held());
        thread::sleep(ms(1));
    }
    Instant::now()
}

#[test]
fn a_holder_that_is_cut_off_knows_by_its_deadline_that_its_lock_is_over() {
    each_server_at_once(|server| {
        let (proxy, client) = cut_off(server);
        let next = server.client();
        let key = unique("cut-off");
        let ttl = ms(1_000);
        let sent = Instant::now();
        let lock = take_for(&client, &key, ttl);
        proxy.silence(true);
        thread::scope(|scope| {
            let taking = scope.spawn(|| (take(&next, &key), Instant::now()));
            let lost = lost_at(&lock);
            assert_eq!(lock.lost_cause(), Some(LostCause::Expired));
            let (next, taken) = taking.join().unwrap();
            // Told before anybody else could have it.
            assert!(lost < taken);
            assert!(lost - sent > ttl * 8 / 10, "{:?}", lost - sent);
            assert!(taken - sent >= ttl);
            // Needs no network: the lock is known to be lost.
            let (renewed, took) = timed(|| lock.renew());
            assert_eq!(status(renewed), Status::NotHeld);
            assert!(took < ms(100), "{took:?}");
            proxy.silence(false);
            assert_eq!(status(lock.release()), Status::NotHeld);
            next.renew().unwrap();
        });
    });
}

#[test]
fn a_renewal_into_the_silence_returns_in_time_and_leaves_the_lease_as_it_was() {
    each_server_at_once(|server| {
        let (proxy, client) = cut_off(server);
        let lock = take_for(&client, unique("silent-renewal"), ms(4_000));
        proxy.silence(true);
        let (renewed, took) = timed(|| lock.renew());
        let error = renewed.unwrap_err();
        assert_eq!(error.status(), Status::Unavailable);
        assert!(error.is_retriable());
        assert!(took >= IO_TIMEOUT - ms(5) && took < IO_TIMEOUT + ms(1_000), "{took:?}");
        assert!(lock.is_held());
        proxy.silence(false);
        lock.renew().unwrap();
        assert!(lock.remaining() > ms(3_000));

        // Not past the end of the lease either, and then it is lost.
        proxy.silence(true);
        let lost = thread::scope(|scope| {
            let renewing = scope.spawn(|| {
                while lock.renew().is_err_and(|error| error.status() == Status::Unavailable) {}
                Instant::now()
            });
            let lost = lost_at(&lock);
            let returned = renewing.join().unwrap();
            assert!(returned < lost + ms(1_000), "{:?}", returned - lost);
            lock.lost_cause()
        });
        assert_eq!(lost, Some(LostCause::Unreachable));
        assert_eq!(status(lock.renew()), Status::NotHeld);
        proxy.silence(false);
    });
}

#[test]
fn a_renewal_that_arrives_after_the_lease_has_ended_revives_nothing() {
    each_server_at_once(|server| {
        for is_taken in [false, true] {
            let (proxy, client) = cut_off(server);
            let (next, mut other) = (server.client(), server.other());
            let key = unique("late");
            let lock = take_for(&client, &key, ms(700));
            proxy.silence(true);
            proxy.forget_statements();
            let renewed = status(lock.renew_for(ms(60_000)));
            assert!(matches!(renewed, Status::Unavailable | Status::NotHeld), "{renewed:?}");
            eventually("it has ended", || other.left(&key).is_zero());
            let next = is_taken.then(|| take(&next, &key));
            let before = other.whole(&key);
            // Now the renewal reaches the server.
            proxy.silence(false);
            let late = |text: &String| text.contains("renewed_us =");
            eventually("it has arrived", || proxy.statements().iter().any(late));
            thread::sleep(ms(300));
            assert_eq!(other.whole(&key), before);
            assert!(!lock.is_held());
            assert_eq!(status(lock.release()), Status::NotHeld);
            assert_eq!(other.whole(&key), before);
            if let Some(next) = next {
                next.renew().unwrap();
            }
        }
    });
}

#[test]
fn a_renewal_that_is_done_after_the_holder_was_told_keeps_the_key_from_nobody() {
    each_server_at_once(|server| {
        let (proxy, client) = cut_off(server);
        let next = server.client();
        // The server's lease outlasts the handle by 0.1 s of 2 s: it gets the
        // renewal in between, for a minute, and nobody waits for the answer.
        for _ in 0..3 {
            let key = unique("done-late");
            let lock = take_for(&client, &key, ms(2_000));
            proxy.silence_after("renewed_us =");
            thread::scope(|scope| {
                scope.spawn(|| {
                    while lock.remaining() > ms(60) {
                        thread::sleep(ms(1));
                    }
                    let _ = lock.renew_for(ms(60_000));
                });
                lost_at(&lock);
                proxy.silence(false);
            });
            assert_eq!(status(lock.release()), Status::NotHeld);
            let (_, waited) = timed(|| take(&next, &key));
            assert!(waited < ms(5_000), "{waited:?}");
        }
    });
}

#[test]
fn a_release_that_failed_can_be_tried_again_and_then_frees() {
    each_server_at_once(|server| {
        let proxy = Proxy::start(server.port());
        let url = server.behind(&proxy).url_with("io_timeout_ms=500");
        let client = CClient::open(&url);
        let other = server.client();
        let key = unique("failed-release");
        let lock = client.acquire(&key, None, 5_000, 0).unwrap();
        proxy.silence(true);
        let (released, took) = timed(|| lock.release());
        assert_eq!(released, c::UNAVAILABLE);
        assert!(took >= ms(490) && took < ms(1_500), "{took:?}");
        // Not to be relied on any more, nor to be renewed.
        assert_eq!(lock.state(), c::NOT_HELD);
        assert_eq!(lock.renew(0), c::NOT_HELD);
        assert!(try_it(&other, &key).is_none());
        assert_eq!(lock.release(), c::UNAVAILABLE);
        proxy.silence(false);
        assert_eq!(lock.release(), c::OK);
        assert!(try_it(&other, &key).is_some());
        assert_eq!(lock.release(), c::NOT_HELD);
    });
}

#[test]
fn a_release_that_never_arrived_can_be_tried_again_and_then_frees() {
    each_server_at_once(|server| {
        let proxy = Proxy::start(server.port());
        let url = server.behind(&proxy).url_with("io_timeout_ms=500");
        let client = CClient::open(&url);
        let other = server.client();
        let key = unique("lost-release");
        let lock = client.acquire(&key, None, 5_000, 0).unwrap();
        proxy.refuse(true);
        proxy.cut();
        assert_eq!(lock.release(), c::UNAVAILABLE);
        assert_eq!(lock.state(), c::NOT_HELD);
        assert!(try_it(&other, &key).is_none());
        proxy.refuse(false);
        assert_eq!(lock.release(), c::OK);
        assert!(try_it(&other, &key).is_some());
        assert_eq!(lock.release(), c::NOT_HELD);
    });
}

#[test]
fn a_release_that_is_tried_again_when_the_key_is_anothers_frees_nobody() {
    each_server_at_once(|server| {
        let proxy = Proxy::start(server.port());
        let url = server.behind(&proxy).url_with("io_timeout_ms=500");
        let client = CClient::open(&url);
        let (next, mut other) = (server.client(), server.other());
        // The first was done, and its reply is lost; the second was not.
        for (ttl_ms, done, again) in [(30_000, true, c::OK), (800, false, c::NOT_HELD)] {
            let key = unique("released-again");
            let lock = client.acquire(&key, None, 5_000, ttl_ms).unwrap();
            if done {
                proxy.silence_after("expires_us = 0");
            } else {
                proxy.silence(true);
                proxy.cut();
            }
            assert_eq!(lock.release(), c::UNAVAILABLE);
            let next = take(&next, &key);
            assert_eq!(lock.state(), c::NOT_HELD);
            let before = other.whole(&key);
            proxy.silence(false);
            assert_eq!(lock.release(), again);
            assert_eq!(lock.release(), c::NOT_HELD);
            assert_eq!(other.whole(&key), before);
            next.renew().unwrap();
        }
    });
}

#[test]
fn a_failed_release_is_done_by_the_client_once_the_network_is_back() {
    each_server_at_once(|server| {
        let (proxy, client) = cut_off(server);
        let other = server.client();
        let key = unique("unfinished");
        let lock = take(&client, &key);
        proxy.refuse(true);
        proxy.cut();
        let error = lock.release().unwrap_err();
        assert_eq!(error.status(), Status::Unavailable);
        assert!(try_it(&other, &key).is_none());
        proxy.refuse(false);
        // Its TTL is 30 s.
        let (_, waited) = timed(|| take(&other, &key));
        assert!(waited < ms(5_000), "{waited:?}");
    });
}

#[test]
fn dropping_and_closing_in_the_silence_do_not_hang() {
    each_server_at_once(|server| {
        let (proxy, client) = cut_off(server);
        let other = server.client();
        let (dropped, closed) = (unique("dropped"), unique("closed"));
        let lock = take(&client, &dropped);
        proxy.silence(true);
        let ((), took) = timed(|| drop(lock));
        assert!(took < ms(100), "{took:?}");
        proxy.silence(false);
        let (_, waited) = timed(|| take(&other, &dropped));
        assert!(waited < ms(5_000), "{waited:?}");

        let lock = take_for(&client, &closed, ms(3_000));
        proxy.silence(true);
        let ((), took) = timed(|| client.close());
        assert!(took < ms(2_500), "{took:?}");
        assert_eq!(lock.lost_cause(), Some(LostCause::Closed));
        assert_eq!(status(client.acquire(&closed, &AcquireOptions::new())), Status::Closed);
        // Free by its TTL at the latest.
        let (_, waited) = timed(|| take(&other, &closed));
        assert!(waited < ms(5_000), "{waited:?}");
        proxy.silence(false);
    });
}
