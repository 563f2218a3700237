//! Calls that fail or are given up: what is told of it, and what the client
//! does about it afterwards.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dlease::{AcquireOptions, Cancel, Client, Status};

use crate::support::{
    Own, each_kind_at_once, each_server_at_once, eventually, ms, status, take, timed, try_it,
    unique,
};
use crate::unknown::Scene;

#[test]
fn a_server_that_is_not_there_is_named_without_the_password() {
    // A port where nobody listens.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = listener.local_addr().unwrap().to_string();
    drop(listener);
    for address in [closed.as_str(), "name.invalid:3306"] {
        let url = format!("mysql://dl:topsecret@{address}/dlease");
        let client = Client::open(&url).unwrap();
        let options = AcquireOptions::new().wait(ms(700));
        let (result, took) = timed(|| client.acquire("k", &options));
        let error = result.unwrap_err();
        assert_eq!(error.status(), Status::Unavailable, "{error:?}");
        assert!(took >= ms(700) && took < ms(2_700), "{took:?}");
        assert!(error.is_retriable());
        assert!(error.message().contains(address), "{error}");
        assert!(!format!("{error:?} {error} {client:?}").contains("topsecret"));
        // One try does not wait for what is not there.
        let (result, took) = timed(|| client.try_acquire("k", &AcquireOptions::new()));
        let error = result.unwrap_err();
        assert_eq!(error.status(), Status::Unavailable, "{error:?}");
        assert!(took < ms(2_000), "{took:?}");
    }
}

#[test]
fn a_client_that_was_there_before_its_server_goes_on_when_it_comes() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "comes", &[]);
        own.kill();
        let client = own.server.client();
        let refused = client.try_acquire("k", &AcquireOptions::new());
        assert_eq!(status(refused), Status::Unavailable);
        let options = AcquireOptions::new().wait(ms(60_000));
        thread::scope(|scope| {
            let acquiring = scope.spawn(|| client.acquire("k", &options));
            thread::sleep(ms(1_000));
            own.restart();
            let (lock, took) = timed(|| acquiring.join().unwrap());
            assert!(took < ms(2_000), "{took:?}");
            lock.unwrap().release().unwrap();
        });
    });
}

#[test]
fn a_release_that_fails_says_so_and_is_made_good_by_the_client() {
    each_server_at_once(|server| {
        let mut scene = Scene::new(server);
        let behind = server.behind(&scene.proxy);
        let client = behind.client_with(|options| options.io_timeout(ms(500)));
        for silent in [true, false] {
            let key = unique("fails");
            let lock = take(&client, &key);
            if silent {
                scene.proxy.silence(true);
            } else {
                // Also what the client's own thread would send at once.
                scene.proxy.cut_requests("UPDATE", 1_000);
                scene.proxy.refuse(true);
            }
            let (result, took) = timed(|| lock.release());
            assert_eq!(status(result), Status::Unavailable);
            assert!(took >= ms(500) && took < ms(1_500), "{took:?}");
            assert!(scene.sql.is_held(&key));
            scene.proxy.silence(false);
            scene.proxy.cut_requests("", 0);
            scene.proxy.refuse(false);
            // Long before the 30 s of its lease.
            let (next, waited) = timed(|| take(&scene.other, &key));
            assert!(waited < ms(3_000), "{waited:?}");
            next.renew().unwrap();
        }
    });
}

#[test]
fn a_release_to_a_stopped_server_ends_in_time_and_is_made_good() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "slow-release", &[]);
        let client = own.server.client_with(|options| options.io_timeout(ms(500)));
        let locks = [take(&client, "one"), take(&client, "two")];
        let paused = own.pause();
        for lock in locks {
            let (result, took) = timed(|| lock.release());
            let error = result.unwrap_err();
            assert_eq!(error.status(), Status::Unavailable, "{error:?}");
            assert!(error.is_retriable());
            assert!(took >= ms(500) && took < ms(1_500), "{took:?}");
        }
        drop(paused);
        let other = own.server.client();
        for key in ["one", "two"] {
            let (_, waited) = timed(|| take(&other, key));
            assert!(waited < ms(3_000), "{waited:?}");
        }
    });
}

#[test]
fn cancelled_waits_end_at_once_and_disturb_no_other_call_of_their_client() {
    each_server_at_once(|server| {
        let mut scene = Scene::new(server);
        let key = unique("waited-for");
        let held = take(&scene.other, &key);
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (client, over, key) = (&scene.client, &over, &key);
            let normal: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(move || {
                        let own = unique("normal");
                        let mut last = 0;
                        while !over.load(Ordering::SeqCst) {
                            let lock = try_it(client, &own).expect("nobody else's");
                            assert!(lock.token() > last);
                            last = lock.token();
                            lock.renew().unwrap();
                            lock.release().unwrap();
                        }
                    })
                })
                .collect();
            let cancelled: Vec<_> = (0..4)
                .map(|number| {
                    scope.spawn(move || {
                        for round in 0..60 {
                            let cancel = Cancel::new();
                            let firing = cancel.clone();
                            let moment = (number * 60 + round) * 7_919 % 30_000;
                            let firing = thread::spawn(move || {
                                thread::sleep(Duration::from_micros(moment));
                                firing.fire();
                                std::time::Instant::now()
                            });
                            let options = AcquireOptions::new().wait(ms(60_000)).cancel(&cancel);
                            let result = client.acquire(key, &options);
                            assert_eq!(status(result), Status::Cancelled);
                            let late = firing.join().unwrap().elapsed();
                            assert!(late < ms(1_000), "{late:?}");
                        }
                    })
                })
                .collect();
            cancelled.into_iter().for_each(|thread| thread.join().unwrap());
            over.store(true, Ordering::SeqCst);
            normal.into_iter().for_each(|thread| thread.join().unwrap());
        });
        held.renew().unwrap();
        held.release().unwrap();
        eventually("no session is at work", || {
            scene.sql.sessions_of(&scene.proxy).iter().all(|session| session.command == "Sleep")
        });
        assert!(!scene.sql.is_held(&key));
        assert!(try_it(&scene.client, &key).is_some());
    });
}
