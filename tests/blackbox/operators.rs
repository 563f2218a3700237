//! What an operator asks for: who holds a lock, and its end by force.

use std::thread;

use dlease::{AcquireOptions, Kind, LostCause, Status};

use crate::support::{
    each_server, each_server_at_once, eventually, ms, status, take, timed, try_it, unique,
};

#[test]
fn a_peek_tells_who_holds_a_lock_and_changes_nothing() {
    each_server(|server| {
        let client = server.client_with(|builder| builder.application("night-job"));
        let (looker, mut other) = (server.client(), server.other());
        let key = unique("peeked");
        assert_eq!(looker.peek(&key, Kind::Lease).unwrap(), None);
        let options = AcquireOptions::new().ttl(ms(20_000)).note("page Ada").owner("worker 7");
        let lock = client.acquire(&key, &options).unwrap();
        let before = other.whole(&key);
        thread::sleep(ms(30));
        let holder = looker.peek(&key, Kind::Lease).unwrap().unwrap();
        assert_eq!(holder.token, lock.token());
        assert_eq!((holder.owner, holder.note), (b"worker 7".to_vec(), b"page Ada".to_vec()));
        assert_eq!((holder.application, holder.pid), (b"night-job".to_vec(), std::process::id()));
        assert!(!holder.host.is_empty());
        assert_eq!((holder.holds, holder.ttl), (1, ms(20_000)));
        assert!(holder.held >= ms(30) && holder.held < ms(5_000), "{:?}", holder.held);
        assert!(holder.remaining > ms(15_000) && holder.remaining < ms(20_000));
        assert_eq!(other.whole(&key), before);
        lock.release().unwrap();
        assert_eq!(looker.peek(&key, Kind::Lease).unwrap(), None);
        let plain = take(&client, &key);
        let holder = looker.peek(&key, Kind::Lease).unwrap().unwrap();
        assert_eq!((holder.token, holder.owner), (plain.token(), Vec::new()));
        assert_eq!(status(looker.peek(&key, Kind::Row)), Status::Unsupported);
        assert_eq!(status(looker.peek("", Kind::Lease)), Status::InvalidArgument);
    });
}

#[test]
fn a_forced_release_raises_the_token_and_the_holder_is_told() {
    each_server_at_once(|server| {
        let (client, operator, mut other) = (server.client(), server.client(), server.other());
        let key = unique("forced");
        assert!(!operator.force_release(&key, Kind::Lease).unwrap(), "there is no row");
        let options = AcquireOptions::new().ttl(ms(3_000));
        let lock = client.acquire(&key, &options).unwrap();
        assert!(operator.force_release(&key, Kind::Lease).unwrap());
        assert!(!operator.force_release(&key, Kind::Lease).unwrap(), "nobody holds it");
        assert!(other.token(&key).unwrap() > lock.token());
        let (is_lost, took) = timed(|| lock.wait_lost(ms(10_000)).unwrap());
        assert!(is_lost && took < ms(1_900), "{took:?}");
        assert_eq!(lock.lost_cause(), Some(LostCause::Forced));
        let next = try_it(&operator, &key).expect("it is free");
        assert!(next.token() > lock.token());
        assert_eq!(status(lock.release()), Status::NotHeld);
        assert!(next.is_held() && other.is_held(&key));
        // One that renews by hand learns of it by that.
        assert!(client.force_release(&key, Kind::Lease).unwrap());
        assert_eq!(status(next.renew()), Status::NotHeld);
        assert_eq!(next.lost_cause(), Some(LostCause::Forced));
    });
}

#[test]
fn whoever_waits_for_a_lock_that_is_released_by_force_has_it_soon() {
    each_server_at_once(|server| {
        let (holder, before, waiter) = (server.client(), server.client(), server.client());
        let key = unique("forced-on");
        // One that came by the fast path, and one that came by the queue and has
        // its bell.
        let mut lock = take(&holder, &key);
        for round in 0..2 {
            let next = thread::scope(|scope| {
                let next = scope.spawn(|| take(if round == 0 { &before } else { &waiter }, &key));
                thread::sleep(ms(1_500));
                let (forced, took) = timed(|| {
                    let forced = holder.force_release(&key, Kind::Lease).unwrap();
                    (forced, next.join().unwrap())
                });
                assert!(forced.0);
                assert!(took < ms(2_000), "round {round}: {took:?}");
                forced.1
            });
            assert!(next.token() > lock.token());
            lock = next;
        }
    });
}

#[test]
fn a_force_whose_reply_is_lost_does_not_end_the_next_ones_grant() {
    use crate::support::proxy::Proxy;
    each_server(|server| {
        let proxy = Proxy::start(server.port());
        let behind = server.behind(&proxy);
        let operator = dlease::Client::open(&behind.url_with("tls=off")).unwrap();
        let (one, two) = (server.client(), server.client());
        let key = unique("forced-once");
        let first = take(&one, &key);
        operator.ping(ms(5_000)).unwrap();
        let next = thread::scope(|scope| {
            let next = scope.spawn(|| take(&two, &key));
            thread::sleep(ms(300));
            proxy.cut_replies("holds = x''", 1);
            assert!(operator.force_release(&key, Kind::Lease).unwrap());
            assert_eq!(proxy.cuts_left(), 0);
            next.join().unwrap()
        });
        assert!(next.token() > first.token());
        next.renew().unwrap();
        eventually("the first is told", || first.renew().is_err());
    });
}
