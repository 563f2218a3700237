//! Statements that are done late or unseen, and rows that nobody would release:
//! none of them keeps a key from others, or takes it from its holder.

use std::thread;

use dlease::{AcquireOptions, Client, Lock, Status};

use crate::support::proxy::Proxy;
use crate::support::{
    Server, each_server, eventually, ms, status, take, take_for, timed, try_it, unique,
};

/// A client whose network can be broken, and one whose network is well.
struct Two {
    proxy: Proxy,
    behind: Client,
    other: Client,
}

impl Two {
    fn meet(server: &Server) -> Two {
        let proxy = Proxy::start(server.port());
        let url = format!("{}?tls=off&io_timeout_ms=300", server.url_at(&proxy.address()));
        Two { proxy, behind: Client::open(&url).unwrap(), other: server.client() }
    }

    fn is_free(&self, key: &str) -> bool {
        try_it(&self.other, key).map(Lock::release).is_some()
    }
}

#[test]
fn a_wait_without_end_goes_on_after_an_outage_longer_than_its_lease() {
    each_server(|server| {
        let two = Two::meet(server);
        let key = unique("outage");
        take(&two.behind, &key).release().unwrap();
        two.proxy.silence_after("UPDATE");
        let options = AcquireOptions::new().ttl(ms(200));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| two.behind.acquire(&key, &options));
            thread::sleep(ms(1_500));
            two.proxy.silence(false);
            let (lock, took) = timed(|| waiting.join().unwrap());
            assert!(took < ms(4_000), "{took:?}");
            lock.unwrap().release().unwrap();
        });
    });
}

#[test]
fn a_renewal_that_arrives_after_a_later_one_shortens_nothing() {
    each_server(|server| {
        let two = Two::meet(server);
        let key = unique("overtaken");
        let lock = take_for(&two.behind, &key, ms(30_000));
        two.proxy.hold_back(true);
        assert_eq!(status(lock.renew_for(ms(1_500))), Status::Unavailable);
        lock.renew_for(ms(30_000)).unwrap();
        // Now the first one reaches the server.
        two.proxy.hold_back(false);
        thread::sleep(ms(2_500));
        assert!(lock.is_held());
        assert!(!two.is_free(&key), "granted while another handle is valid");
        lock.release().unwrap();
    });
}

#[test]
fn a_renewal_that_was_done_unseen_keeps_the_key_from_nobody() {
    each_server(|server| {
        let two = Two::meet(server);
        let key = unique("unseen");
        let lock = take_for(&two.behind, &key, ms(1_000));
        two.proxy.silence_after("UPDATE");
        assert_eq!(status(lock.renew_for(ms(600_000))), Status::Unavailable);
        eventually("the handle is lost", || !lock.is_held());
        two.proxy.silence(false);
        assert_eq!(status(lock.release()), Status::NotHeld);
        eventually("the key is free", || two.is_free(&key));
    });
}

#[test]
fn a_lock_dropped_in_an_outage_is_released_though_it_was_renewed_for_long() {
    each_server(|server| {
        let two = Two::meet(server);
        let key = unique("renewed");
        let lock = take_for(&two.behind, &key, ms(1_000));
        lock.renew_for(ms(600_000)).unwrap();
        two.proxy.silence(true);
        drop(lock);
        thread::sleep(ms(2_000));
        two.proxy.silence(false);
        eventually("the key is free", || two.is_free(&key));
    });
}

#[test]
fn an_acquire_that_races_with_closing_leaves_nothing_held() {
    each_server(|server| {
        let other = server.client();
        for _ in 0..5 {
            let client = server.client();
            let keys: Vec<String> = (0..30).map(|_| unique("race")).collect();
            take(&client, unique("warm")).release().unwrap();
            thread::scope(|scope| {
                for key in &keys {
                    let client = &client;
                    scope.spawn(move || {
                        match client.acquire(key, &AcquireOptions::new().wait(ms(5_000))) {
                            // Granted before: lost by closing, and released.
                            Ok(lock) => drop(lock),
                            Err(error) => assert_eq!(error.status(), Status::Closed, "{error}"),
                        }
                    });
                }
                thread::sleep(ms(3));
                client.close();
            });
            for key in &keys {
                eventually("every key is free", || try_it(&other, key).is_some());
            }
        }
    });
}

#[test]
fn closing_releases_a_thousand_locks_in_its_two_seconds() {
    each_server(|server| {
        let (client, other) = (server.client(), server.client());
        let keys: Vec<String> = (0..1_000).map(|_| unique("many")).collect();
        let locks: Vec<Lock> = keys.iter().map(|key| take(&client, key)).collect();
        let ((), took) = timed(|| client.close());
        assert!(took < ms(2_500), "{took:?}");
        let held = keys.iter().filter(|key| try_it(&other, key).is_none()).count();
        assert_eq!(held, 0);
        drop(locks);
    });
}

#[test]
fn threads_of_one_owner_all_get_its_lock_however_many_they_are() {
    each_server(|server| {
        let client = server.client();
        let key = unique("owner");
        let options = AcquireOptions::new().wait(ms(20_000)).owner("one");
        let locks: Vec<Lock> = thread::scope(|scope| {
            let acquire = || client.acquire(&key, &options).unwrap();
            let threads: Vec<_> = (0..40).map(|_| scope.spawn(acquire)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(locks.iter().all(|lock| lock.is_held() && lock.token() == locks[0].token()));
        for lock in locks {
            lock.release().unwrap();
        }
        assert!(try_it(&server.client(), &key).is_some());
    });
}

#[test]
fn a_reply_that_never_comes_is_no_sign_that_someone_has_the_lock() {
    each_server(|server| {
        let two = Two::meet(server);
        let key = unique("swallowed");
        take(&two.behind, &key).release().unwrap();
        two.proxy.silence_after("UPDATE");
        let options = AcquireOptions::new().wait(ms(700));
        assert_eq!(status(two.behind.acquire(&key, &options)), Status::Unavailable);
        two.proxy.silence(false);
        eventually("nothing stays held", || two.is_free(&key));
    });
}

#[test]
fn a_reply_that_drips_in_is_left_at_the_deadline() {
    each_server(|server| {
        let two = Two::meet(server);
        let url = format!("{}?tls=off", server.url_at(&two.proxy.address()));
        let client = Client::open(&url).unwrap();
        let key = unique("drip");
        take(&client, &key).release().unwrap();
        two.proxy.drip(true);
        let options = AcquireOptions::new().wait(ms(400));
        let (result, took) = timed(|| client.acquire(&key, &options));
        assert!(result.is_err());
        assert!(took >= ms(400) && took < ms(2_400), "{took:?}");
        two.proxy.drip(false);
        eventually("nothing stays held", || two.is_free(&key));
    });
}
