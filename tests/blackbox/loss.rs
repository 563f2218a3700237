//! Locks that are lost: to time, to another, to a hand in the table. The
//! holder is told, with the cause, and what comes late changes nothing.
//! Losses by a silent network are in silence.rs.

use std::thread;

use dlease::{AcquireOptions, LostCause, Status};

use crate::support::place::Tables;
use crate::support::{
    each_server, each_server_at_once, ms, status, take, take_for, timed, try_it, unique,
};

#[test]
fn a_late_release_frees_nobody_elses_lock() {
    each_server_at_once(|server| {
        let [a, b, c] = [server.client(), server.client(), server.client()];
        let mut other = server.other();
        let key = unique("late-release");
        let late = take_for(&a, &key, ms(300));
        thread::sleep(ms(600));
        let next = take(&b, &key);
        let before = other.whole(&key);
        assert_eq!(status(late.release()), Status::NotHeld);
        assert!(try_it(&c, &key).is_none());
        assert_eq!(other.whole(&key), before);
        assert!(next.is_held());
        next.release().unwrap();
    });
}

#[test]
fn a_late_renewal_renews_nobody_elses_lock() {
    each_server_at_once(|server| {
        let (a, b, mut other) = (server.client(), server.client(), server.other());
        let key = unique("late-renewal");
        let late = take_for(&a, &key, ms(300));
        thread::sleep(ms(600));
        let next = take(&b, &key);
        let before = other.whole(&key);
        assert_eq!(status(late.renew()), Status::NotHeld);
        assert_eq!(status(late.renew_for(ms(60_000))), Status::NotHeld);
        assert_eq!(other.whole(&key), before);
        assert!(!late.is_held() && next.is_held());
    });
}

#[test]
fn a_release_after_the_lease_has_lapsed_says_so_and_leaves_the_key_free() {
    each_server_at_once(|server| {
        let (one, two) = (server.client(), server.client());
        let key = unique("lapsed");
        let lock = take_for(&one, &key, ms(300));
        thread::sleep(ms(600));
        assert_eq!(lock.lost_cause(), Some(LostCause::Expired));
        let token = lock.token();
        assert_eq!(status(lock.release()), Status::NotHeld);
        assert!(try_it(&two, &key).expect("it is free").token() > token);
    });
}

#[test]
fn emptying_or_making_the_table_anew_stops_nobody() {
    each_server_at_once(|server| {
        let tables = Tables::new(server);
        let client = tables.client();
        let key = unique("truncated");
        let mut last = 0;
        let mut works_at_once = || {
            let (lock, took) = timed(|| take(&client, &key));
            assert!(took < ms(2_000), "{took:?}");
            assert!(lock.token() > last, "tokens grow although the row is gone");
            last = lock.token();
            lock.renew().unwrap();
            lock.release().unwrap();
        };
        works_at_once();
        let text = tables.named("SHOW CREATE TABLE {lock}");
        let (_, definition): (String, String) = server.other().row(&text).unwrap();
        tables.run(&["TRUNCATE TABLE {lock}"]);
        works_at_once();
        tables.run(&["DROP TABLE {lock}", &definition]);
        works_at_once();
        tables.run(&["DROP TABLE {lock}"]);
        works_at_once();
        tables.run(&["DELETE FROM {lock}"]);
        works_at_once();
    });
}

#[test]
fn a_holder_whose_table_was_emptied_is_told_that_its_row_is_gone() {
    each_server_at_once(|server| {
        for statement in ["TRUNCATE TABLE {lock}", "DELETE FROM {lock}"] {
            let tables = Tables::new(server);
            let client = tables.client();
            let key = unique("row-gone");
            let lock = take(&client, &key);
            tables.run(&[statement]);
            // Until a renewal shows it, the handle cannot know.
            assert!(lock.is_held());
            assert_eq!(status(lock.renew()), Status::NotHeld);
            assert_eq!(lock.lost_cause(), Some(LostCause::RowGone));
            assert!(!lock.is_held() && lock.remaining().is_zero());
            let next = take(&client, &key);
            assert!(next.token() > lock.token());
            assert_eq!(status(lock.release()), Status::NotHeld);
            next.renew().unwrap();
        }
    });
}

#[test]
fn after_a_hand_deletion_the_next_hold_is_good_and_the_first_stays_lost() {
    each_server(|server| {
        let (one, two, mut other) = (server.client(), server.client(), server.other());
        let key = unique("deleted");
        let first = take(&one, &key);
        other.delete(&key);
        let second = take(&one, &key);
        assert!(second.token() > first.token());
        assert_eq!(status(first.renew()), Status::NotHeld);
        assert_eq!(first.lost_cause(), Some(LostCause::Taken));
        second.renew().unwrap();
        assert_eq!(first.lost_cause(), Some(LostCause::Taken));
        assert!(try_it(&two, &key).is_none());
        assert_eq!(status(first.release()), Status::NotHeld);
        assert!(try_it(&two, &key).is_none());
        second.release().unwrap();
        assert!(try_it(&two, &key).is_some());
    });
}

#[test]
fn a_holder_is_told_whether_its_lock_was_taken_or_only_ended() {
    each_server(|server| {
        let (one, two, mut other) = (server.client(), server.client(), server.other());
        let (taken, ended) = (unique("taken"), unique("ended"));
        let (first, second) = (take(&one, &taken), take(&one, &ended));
        for key in [&taken, &ended] {
            other.set(key, "expires_us = expires_us - ttl_us");
        }
        let next = try_it(&two, &taken).expect("it has lapsed");
        assert_eq!(status(first.renew()), Status::NotHeld);
        assert_eq!(first.lost_cause(), Some(LostCause::Taken));
        assert_eq!(status(second.renew()), Status::NotHeld);
        assert_eq!(second.lost_cause(), Some(LostCause::Expired));
        for lost in [first, second] {
            assert!(!lost.is_held());
            assert_eq!(status(lost.renew()), Status::NotHeld);
            assert_eq!(status(lost.release()), Status::NotHeld);
        }
        assert!(next.is_held());
        assert_eq!(other.token(&taken), Some(next.token()));
    });
}

#[test]
fn a_release_that_finds_the_lock_gone_says_so() {
    each_server(|server| {
        let (one, two, mut other) = (server.client(), server.client(), server.other());
        let [deleted, taken, ended] = [unique("deleted"), unique("taken"), unique("ended")];
        let locks = [&deleted, &taken, &ended].map(|key| take(&one, key));
        other.delete(&deleted);
        other.set(&taken, "expires_us = 1");
        other.set(&ended, "expires_us = 1");
        let next = take(&two, &taken);
        for lock in locks {
            assert_eq!(status(lock.release()), Status::NotHeld);
        }
        next.renew().unwrap();
    });
}

#[test]
fn one_handle_renewed_over_and_over_is_never_lost_and_always_near_its_ttl() {
    each_server_at_once(|server| {
        let (one, two) = (server.client(), server.client());
        let ttl = ms(600);
        let key = unique("renewed");
        let lock = take_for(&one, &key, ttl);
        for _ in 0..20 {
            thread::sleep(ttl / 2);
            let ((), took) = timed(|| lock.renew().unwrap());
            let remaining = lock.remaining();
            assert!(remaining <= ttl && remaining >= ttl * 9 / 10 - took, "{remaining:?}");
        }
        assert!(try_it(&two, &key).is_none());
        assert_eq!(lock.lost_cause(), None);
        lock.release().unwrap();
        assert!(try_it(&two, &key).is_some());
    });
}

#[test]
fn a_renewal_may_change_the_ttl_and_is_counted_from_then() {
    each_server(|server| {
        let (one, two, mut other) = (server.client(), server.client(), server.other());
        let key = unique("other-ttl");
        let lock = take_for(&one, &key, ms(60_000));
        // Shorter, as it was asked for.
        let (next, waited) = timed(|| {
            lock.renew_for(ms(300)).unwrap();
            assert!(lock.remaining() <= ms(300));
            take(&two, &key)
        });
        assert!(waited >= ms(300) && waited < ms(2_300), "{waited:?}");
        assert_eq!(lock.lost_cause(), Some(LostCause::Expired));
        next.renew_for(ms(90_000)).unwrap();
        assert!(next.remaining() > ms(80_000));
        assert!(other.left(&key) > ms(80_000));
        // And its own again.
        next.renew().unwrap();
        assert!(next.remaining() <= ms(30_000));
        assert!(other.left(&key) <= ms(30_000));
    });
}

#[test]
fn closing_a_client_loses_its_locks_and_frees_them_at_once() {
    each_server(|server| {
        let (one, two) = (server.client(), server.client());
        let key = unique("closed");
        let options = AcquireOptions::new().owner("o").wait(ms(5_000));
        let (first, second) = (one.acquire(&key, &options).unwrap(), one.acquire(&key, &options));
        one.close();
        for lock in [first, second.unwrap()] {
            assert!(!lock.is_held() && lock.remaining().is_zero());
            assert_eq!(lock.lost_cause(), Some(LostCause::Closed));
            assert_eq!(status(lock.renew()), Status::Closed);
            drop(lock);
        }
        let next = try_it(&two, &key).expect("it is free");
        // What is dropped after the close touches nothing either.
        thread::sleep(ms(50));
        next.renew().unwrap();
    });
}
