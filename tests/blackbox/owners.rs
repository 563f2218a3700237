//! The owner text: everybody who gives the same one for a key shares one grant,
//! in any number of handles, clients and processes.

use std::thread;

use dlease::{AcquireOptions, Client, Lock, LostCause, Status};

use crate::support::c::{self, CClient};
use crate::support::proxy::Proxy;
use crate::support::{each_server, each_server_at_once, ms, status, take, timed, try_it, unique};

/// One try as an owner, for a lease of `ttl_ms`.
fn try_as(client: &Client, key: &str, owner: &str, ttl_ms: u64) -> Option<Lock> {
    let options = AcquireOptions::new().owner(owner).ttl(ms(ttl_ms)).manual_renew();
    client.try_acquire(key, &options).expect("try_acquire")
}

/// One try as an owner, which must succeed.
fn take_as(client: &Client, key: &str, owner: &str, ttl_ms: u64) -> Lock {
    try_as(client, key, owner, ttl_ms).expect("it is free, or this owner's")
}

#[test]
fn nesting_within_a_client_needs_no_sql_and_the_last_release_frees() {
    each_server(|server| {
        let proxy = Proxy::start(server.port());
        let client = server.behind(&proxy).client();
        let (stranger, key) = (server.client(), unique("nested"));
        let first = take_as(&client, &key, "o", 30_000);
        // Silent, so that anything sent would hang.
        proxy.silence(true);
        proxy.forget_statements();
        let ((second, third), took) =
            timed(|| (take_as(&client, &key, "o", 25_000), take_as(&client, &key, "o", 25_000)));
        assert!(took < ms(100), "{took:?}");
        for nested in [&second, &third] {
            assert!(nested.is_held());
            assert_eq!(nested.token(), first.token());
        }
        let ((), took) = timed(|| first.release().unwrap());
        assert!(took < ms(100), "{took:?}");
        assert!(try_it(&stranger, &key).is_none());
        assert!(second.is_held() && second.remaining() > ms(20_000));
        drop(second);
        thread::sleep(ms(50));
        assert_eq!(proxy.statements(), [""; 0]);
        proxy.silence(false);
        assert!(try_it(&stranger, &key).is_none());
        third.renew().unwrap();
        third.release().unwrap();
        assert!(try_it(&stranger, &key).is_some());
    });
}

#[test]
fn each_handle_is_released_once() {
    each_server(|server| {
        let client = CClient::open(&server.url);
        let (stranger, key) = (server.client(), unique("once"));
        let take = || client.acquire(&key, Some("o"), 0, 0).unwrap();
        let locks = [take(), take(), take()];
        for (number, lock) in locks.iter().enumerate() {
            assert!(try_it(&stranger, &key).is_none(), "{number} released");
            assert_eq!(lock.state(), c::OK);
            assert_eq!(lock.release(), c::OK);
            // A second release of one is not the first of another.
            assert_eq!(lock.release(), c::NOT_HELD);
            assert_eq!(lock.state(), c::NOT_HELD);
            assert_eq!(lock.renew(0), c::NOT_HELD);
        }
        let next = try_it(&stranger, &key).expect("it is free");
        for lock in &locks {
            assert_eq!(lock.release(), c::NOT_HELD);
            assert!(next.token() > lock.token());
        }
        next.renew().unwrap();
    });
}

#[test]
fn another_owner_waits_and_so_does_one_without_a_name() {
    each_server(|server| {
        let (one, two) = (server.client(), server.client());
        let key = unique("owners");
        let lock = take_as(&one, &key, "o", 30_000);
        for client in [&one, &two] {
            for owner in ["p", "O", "o ", "oo"] {
                assert!(try_as(client, &key, owner, 30_000).is_none(), "{owner:?}");
            }
            assert!(try_it(client, &key).is_none());
        }
        let options = AcquireOptions::new().owner("p").wait(ms(300));
        assert_eq!(status(two.acquire(&key, &options)), Status::TimedOut);
        lock.release().unwrap();
        let unnamed = take(&one, &key);
        assert!(try_as(&one, &key, "o", 30_000).is_none());
        unnamed.release().unwrap();
        for owner in ["", &"x".repeat(256)] {
            let options = AcquireOptions::new().owner(owner);
            assert_eq!(status(one.try_acquire(&key, &options)), Status::InvalidArgument);
        }
    });
}

#[test]
fn the_holder_who_asks_again_is_told_apart_from_a_stranger() {
    each_server(|server| {
        let client = server.client_with(|builder| builder.application("asks-again"));
        let (mine, theirs) = (unique("mine"), unique("theirs"));
        let first = take_as(&client, &mine, "o", 30_000);
        let second = take_as(&client, &mine, "o", 30_000);
        assert_eq!(second.token(), first.token(), "already mine");
        // Without an owner text every acquire is one of its own: busy, and
        // whose it is can be seen.
        let _held = take(&client, &theirs);
        assert!(try_it(&client, &theirs).is_none());
        let text = format!("SELECT holder FROM dl_locks WHERE lock_key = '{theirs}'");
        let holder: String = server.other().row(&text).unwrap();
        let process = format!(":{}", std::process::id());
        assert!(holder.starts_with("asks-again@") && holder.ends_with(&process), "{holder}");
    });
}

#[test]
fn a_longer_nested_lease_extends_and_a_shorter_one_does_not_shorten() {
    each_server(|server| {
        let (client, mut other) = (server.client(), server.other());
        let key = unique("extends");
        let first = take_as(&client, &key, "o", 30_000);
        let expiry = other.cell(&key, "expires_us");
        let shorter = take_as(&client, &key, "o", 10_000);
        shorter.renew_for(ms(5_000)).unwrap();
        assert!(other.cell(&key, "expires_us") >= expiry);
        assert!(first.remaining() > ms(25_000));
        let longer = take_as(&client, &key, "o", 60_000);
        assert!(other.left(&key) > ms(55_000));
        for lock in [&first, &shorter, &longer] {
            assert!(lock.remaining() > ms(55_000) && lock.remaining() <= other.left(&key) + ms(1));
        }
        // Releasing the longer one leaves the others what they have.
        longer.release().unwrap();
        assert!(first.is_held() && other.left(&key) > ms(20_000));
    });
}

#[test]
fn clients_of_the_same_owner_share_one_grant() {
    each_server(|server| {
        let (one, two, stranger) = (server.client(), server.client(), server.client());
        let (mut other, key) = (server.other(), unique("shared"));
        let first = take_as(&one, &key, "o", 30_000);
        let expiry = other.cell(&key, "expires_us");
        assert_eq!(other.cell(&key, "LENGTH(holds)"), 16);
        let second = take_as(&two, &key, "o", 10_000);
        assert_eq!(second.token(), first.token());
        assert_eq!(other.token(&key), Some(first.token()));
        assert_eq!(other.cell(&key, "LENGTH(holds)"), 32);
        // The later of both.
        assert_eq!(other.cell(&key, "expires_us"), expiry);
        assert!(second.remaining() <= ms(10_000));
        second.renew_for(ms(60_000)).unwrap();
        assert!(other.left(&key) > ms(55_000));
        first.renew().unwrap();
        assert!(other.left(&key) > ms(55_000));

        first.release().unwrap();
        assert_eq!(other.cell(&key, "LENGTH(holds)"), 16);
        assert!(try_it(&stranger, &key).is_none());
        assert!(try_as(&stranger, &key, "p", 30_000).is_none());
        second.renew().unwrap();
        assert!(other.left(&key) > ms(55_000));
        second.release().unwrap();
        let next = try_it(&stranger, &key).expect("it is free");
        assert!(next.token() > other.token(&key).unwrap() - 1);
    });
}

#[test]
fn a_key_has_sixteen_holds_at_most_and_released_ones_can_be_had_again() {
    each_server(|server| {
        let clients: Vec<Client> = (0..17).map(|_| server.client()).collect();
        let (mut other, key) = (server.other(), unique("sixteen"));
        let mut locks: Vec<Lock> =
            clients[..16].iter().map(|client| take_as(client, &key, "o", 30_000)).collect();
        assert!(locks.iter().all(|lock| lock.token() == locks[0].token()));
        assert_eq!(other.cell(&key, "LENGTH(holds)"), 256);
        let options = AcquireOptions::new().owner("o").wait(ms(5_000));
        let (refused, took) = timed(|| clients[16].acquire(&key, &options));
        assert_eq!(status(refused), Status::Unsupported);
        assert!(took < ms(2_000), "{took:?}");
        // Not for one more handle of a client that has a hold.
        take_as(&clients[3], &key, "o", 25_000).release().unwrap();

        locks.remove(7).release().unwrap();
        assert_eq!(other.cell(&key, "LENGTH(holds)"), 240);
        locks.push(take_as(&clients[16], &key, "o", 30_000));
        assert_eq!(other.cell(&key, "LENGTH(holds)"), 256);
        assert!(locks.iter().all(|lock| lock.renew().is_ok()));
        for lock in locks {
            assert!(other.is_held(&key));
            lock.release().unwrap();
        }
        assert!(!other.is_held(&key));
        assert!(try_it(&clients[0], &key).is_some());
    });
}

#[test]
fn loss_ends_all_handles_and_the_next_acquire_is_a_new_grant() {
    each_server(|server| {
        let (one, two, mut other) = (server.client(), server.client(), server.other());
        let key = unique("all-lost");
        let (first, nested) = (take_as(&one, &key, "o", 30_000), take_as(&one, &key, "o", 30_000));
        let shared = take_as(&two, &key, "o", 30_000);
        other.delete(&key);
        assert_eq!(status(nested.renew()), Status::NotHeld);
        for lock in [&first, &nested] {
            assert!(!lock.is_held());
            assert_eq!(lock.lost_cause(), Some(LostCause::RowGone));
        }
        let next = take_as(&one, &key, "o", 30_000);
        assert!(next.token() > first.token());
        // The same owner's older hold is lost all the same.
        assert_eq!(status(shared.renew()), Status::NotHeld);
        assert_eq!(shared.lost_cause(), Some(LostCause::Taken));
        for lock in [first, nested, shared] {
            assert_eq!(status(lock.release()), Status::NotHeld);
        }
        next.renew().unwrap();
        assert!(other.is_held(&key));
    });
}

#[test]
fn a_shared_lease_that_is_not_renewed_ends_for_all() {
    each_server_at_once(|server| {
        let (one, two, stranger) = (server.client(), server.client(), server.client());
        let key = unique("shared-end");
        let first = take_as(&one, &key, "o", 400);
        let second = take_as(&two, &key, "o", 800);
        let nested = take_as(&two, &key, "o", 300);
        let (next, waited) = timed(|| take(&stranger, &key));
        assert!(waited > ms(600) && waited < ms(2_800), "{waited:?}");
        for lock in [first, second, nested] {
            assert_eq!(lock.lost_cause(), Some(LostCause::Expired));
            assert!(next.token() > lock.token());
            assert_eq!(status(lock.release()), Status::NotHeld);
        }
        assert!(next.is_held());
    });
}
