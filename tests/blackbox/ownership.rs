//! Whose a lock is: the handle's, and nobody else's for being on the same host,
//! in the same process or thread. Owner texts are in owners.rs.

use std::thread;

use dlease::AcquireOptions;

use crate::support::c::{self, CClient, CLock};
use crate::support::child::Child;
use crate::support::{each_server, each_server_at_once, ms, take, take_for, try_it, unique};

#[test]
fn two_containers_with_the_same_host_name_and_process_id_are_two() {
    each_server_at_once(|server| {
        let start = || Child::start_in_container(&server.url, "app");
        let (mut one, mut two) = (start(), start());
        let key = unique("containers");
        let first = one.acquire(&key, ms(0), ms(30_000)).unwrap();
        let text = format!("SELECT holder FROM dl_locks WHERE lock_key = '{key}'");
        let holder = || server.other().row::<String>(&text).unwrap();
        assert!(holder().ends_with("@app:1"), "{}", holder());
        assert_eq!(two.acquire(&key, ms(0), ms(30_000)), Err("NOT_ACQUIRED".into()));
        assert_eq!(one.renew(&key), "OK");
        assert_eq!(one.release(&key), "OK");
        let second = two.acquire(&key, ms(0), ms(30_000)).unwrap();
        assert!(second > first);
        assert!(holder().ends_with("@app:1"), "{}", holder());
        assert_eq!(one.acquire(&key, ms(0), ms(30_000)), Err("NOT_ACQUIRED".into()));
    });
}

#[test]
fn any_thread_may_renew_and_release() {
    each_server(|server| {
        let (client, stranger) = (server.client(), server.client());
        let key = unique("threads");
        let lock = thread::spawn({
            let (client, key) = (client.clone(), key.clone());
            move || take(&client, &key)
        });
        let lock = lock.join().unwrap();
        thread::scope(|scope| {
            let renewals: Vec<_> = (0..8).map(|_| scope.spawn(|| lock.renew().unwrap())).collect();
            renewals.into_iter().for_each(|renewal| renewal.join().unwrap());
        });
        assert!(try_it(&stranger, &key).is_none());
        thread::spawn(move || lock.release().unwrap()).join().unwrap();
        assert!(try_it(&stranger, &key).is_some());
    });
}

#[test]
fn a_waiter_that_gave_up_releases_nothing() {
    each_server_at_once(|server| {
        let (holder, third) = (server.client(), server.client());
        let (waiter, mut other) = (CClient::open(&server.url), server.other());
        let key = unique("gave-up");
        let lock = take(&holder, &key);
        let before = other.whole(&key);
        assert_eq!(waiter.acquire(&key, None, 500, 0).err(), Some(c::TIMED_OUT));
        assert_eq!(waiter.acquire(&key, None, 0, 0).err(), Some(c::NOT_ACQUIRED));
        // Its `finally: release`, and its free.
        let nothing = CLock::null();
        assert_eq!(nothing.release(), c::INVALID_ARGUMENT);
        assert_eq!(nothing.state(), c::NOT_HELD);
        drop(nothing);
        drop(waiter);
        assert!(try_it(&third, &key).is_none());
        assert_eq!(other.whole(&key), before);
        lock.renew().unwrap();
    });
}

#[test]
fn key_holder_and_note_are_there_for_people_to_read() {
    each_server(|server| {
        let client = server.client_with(|builder| builder.application("näme"));
        let mut other = server.other();
        let key = unique("schlüssel");
        let options = AcquireOptions::new().owner("who").note("why €").ttl(ms(60_000));
        let lock = client.try_acquire(&key, &options).unwrap().expect("it is free");
        let text = format!(
            "SELECT kind, state, holder, note, token, holds, held_s, remaining_s \
             FROM dl_locks WHERE lock_key = '{key}' AND namespace = ''"
        );
        type Line = (String, String, Option<String>, String, u64, u64, Option<f64>, Option<f64>);
        let line: Line = other.row(&text).unwrap();
        assert_eq!((&*line.0, &*line.1, &*line.3), ("lease", "held", "why €"));
        let holder = line.2.unwrap();
        assert!(holder.starts_with("näme@"), "{holder}");
        assert!(holder.ends_with(&format!(":{}", std::process::id())), "{holder}");
        assert_eq!((line.4, line.5), (lock.token(), 1));
        assert!((0.0..2.0).contains(&line.6.unwrap()) && (58.0..=60.0).contains(&line.7.unwrap()));
        let owner =
            format!("SELECT CONVERT(owner USING utf8mb4) FROM dl_lock WHERE token = {}", line.4);
        assert_eq!(other.row::<String>(&owner).unwrap(), "who");

        lock.release().unwrap();
        let line: Line = other.row(&text).unwrap();
        assert_eq!((&*line.1, line.2, line.5, line.7), ("free", None, 0, None));
        let _lock = take_for(&client, &key, ms(10));
        thread::sleep(ms(20));
        let line: Line = other.row(&text).unwrap();
        assert_eq!((&*line.1, line.2, line.5, line.7), ("expired", None, 0, None));
    });
}

#[test]
fn a_token_near_2_to_the_63_survives() {
    each_server(|server| {
        let (client, mut other) = (server.client(), server.other());
        for most in [1_u64 << 53, (1 << 62) - 1, i64::MAX as u64] {
            let key = unique("token");
            take(&client, &key).release().unwrap();
            other.set(&key, &format!("token = {}", most - 2));
            for expected in [most - 1, most] {
                let lock = take(&client, &key);
                assert_eq!(lock.token(), expected);
                assert_eq!(other.token(&key), Some(expected));
                lock.renew().unwrap();
                lock.release().unwrap();
            }
        }
    });
}
