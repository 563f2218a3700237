//! What a lock is: one holder, tokens that grow, honest times, release once.

use std::time::Duration;

use dlease::{AcquireOptions, Cancel, Client, Kind, LostCause, Status};

use crate::support::{each_server, ms, status, take, take_for, timed, try_it, unique};

#[test]
fn one_holder_and_a_higher_token_for_the_next() {
    each_server(|server| {
        let (one, two) = (server.client(), server.client());
        let key = unique("one-holder");
        let mut last = 0;
        for _ in 0..5 {
            let lock = take(&one, &key);
            assert!(lock.is_held());
            assert!(lock.token() > last);
            last = lock.token();
            assert!(try_it(&two, &key).is_none());
            assert!(try_it(&one, &key).is_none());
            lock.release().unwrap();
        }
        let other = take(&two, &key);
        assert!(other.token() > last);
        assert_eq!(other.key(), key.as_bytes());
    });
}

#[test]
fn a_token_is_at_least_the_clock_and_below_2_to_the_53() {
    each_server(|server| {
        let lock = take(&server.client(), unique("token"));
        assert!(lock.token() > 1_700_000_000_000_000);
        assert!(lock.token() < 1 << 53);
    });
}

#[test]
fn a_lease_that_is_not_renewed_ends_and_not_before_its_time() {
    each_server(|server| {
        let (one, two) = (server.client(), server.client());
        let key = unique("expiry");
        let lock = take_for(&one, &key, ms(300));
        let (next, waited) = timed(|| take(&two, &key));
        // The lease began up to a round trip before `take_for` returned.
        assert!(waited > ms(250), "{waited:?}");
        assert!(waited < ms(2_300), "{waited:?}");
        assert!(!lock.is_held());
        assert_eq!(lock.lost_cause(), Some(LostCause::Expired));
        assert_eq!(lock.remaining(), Duration::ZERO);
        assert!(next.token() > lock.token());
        assert_eq!(status(lock.release()), Status::NotHeld);
        assert!(next.is_held());
        next.renew().unwrap();
    });
}

#[test]
fn a_dropped_lock_is_released_by_the_client() {
    each_server(|server| {
        let (one, two) = (server.client(), server.client());
        let key = unique("drop");
        drop(take(&one, &key));
        let (_, waited) = timed(|| take(&two, &key));
        assert!(waited < ms(2_000), "{waited:?}");
    });
}

#[test]
fn closing_the_client_releases_what_it_holds() {
    each_server(|server| {
        let (one, two) = (server.client(), server.client());
        let keys: Vec<String> = (0..20).map(|_| unique("close")).collect();
        let locks: Vec<_> = keys.iter().map(|key| take(&one, key)).collect();
        let ((), took) = timed(|| one.close());
        assert!(took < ms(2_500), "{took:?}");
        for (key, lock) in keys.iter().zip(locks) {
            assert!(try_it(&two, key).is_some());
            assert_eq!(lock.lost_cause(), Some(LostCause::Closed));
            assert_eq!(status(lock.release()), Status::Closed);
        }
        let refused = one.try_acquire(unique("closed"), &AcquireOptions::new());
        assert_eq!(status(refused), Status::Closed);
    });
}

#[test]
fn a_wait_ends_in_time_out_and_a_fired_token_ends_it_at_once() {
    each_server(|server| {
        let (one, two) = (server.client(), server.client());
        let key = unique("wait");
        let _held = take(&one, &key);
        let options = AcquireOptions::new().wait(ms(400));
        let (result, took) = timed(|| two.acquire(&key, &options));
        assert_eq!(status(result), Status::TimedOut);
        assert!(took >= ms(400) && took < ms(500), "{took:?}");

        let cancel = Cancel::new();
        let firing = cancel.clone();
        let options = AcquireOptions::new().cancel(&cancel);
        let (result, took) = timed(|| {
            std::thread::spawn(move || {
                std::thread::sleep(ms(200));
                firing.fire();
            });
            two.acquire(&key, &options)
        });
        assert_eq!(status(result), Status::Cancelled);
        assert!(took >= ms(200) && took < ms(300), "{took:?}");
        // It stays fired.
        let (result, took) = timed(|| two.acquire(&key, &options));
        assert_eq!(status(result), Status::Cancelled);
        assert!(took < ms(100), "{took:?}");
    });
}

#[test]
fn other_kinds_are_unsupported_for_now() {
    each_server(|server| {
        let client = server.client();
        for kind in [Kind::Row, Kind::Named] {
            let options = AcquireOptions::new().kind(kind);
            let key = unique("kind");
            assert_eq!(status(client.try_acquire(&key, &options)), Status::Unsupported);
        }
    });
}

#[test]
fn a_password_is_in_no_error_and_no_debug_text() {
    each_server(|server| {
        let url = server.url.replacen("mysql://dl:", "mysql://dl:topsecret", 1);
        let client = Client::open(&url).unwrap();
        let (error, took) =
            timed(|| client.acquire("k", &AcquireOptions::new().wait(ms(10_000))).unwrap_err());
        assert_eq!(error.status(), Status::Config);
        assert_eq!(error.server_errno(), 1045);
        assert!(took < ms(1_000), "{took:?}");
        for text in [format!("{error}"), format!("{error:?}"), format!("{client:?}")] {
            assert!(!text.contains("topsecret"), "{text}");
        }
    });
}
