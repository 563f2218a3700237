//! Calls that end while their outcome is not known: a grant that nobody was
//! told of is undone long before its time.

use std::thread;
use std::time::Duration;

use dlease::{AcquireOptions, Cancel, Client, Status};

use crate::support::{Server, each_server, eventually, ms, status, take, timed, try_it, unique};
use crate::unknown::{Scene, wait};

/// Acquires behind a proxy that falls silent when the statement has passed it,
/// and checks that the grant nobody was told of is undone before its time.
fn undone(server: &Server, key: &str, scene: &mut Scene, acquire: impl FnOnce(&Client) -> Status) {
    let text = if scene.sql.token(key).is_some() { "UPDATE" } else { "INSERT INTO" };
    scene.proxy.silence_after(text);
    let (ended, took) = timed(|| acquire(&scene.client));
    assert!(matches!(ended, Status::Unavailable | Status::Cancelled), "{ended:?}");
    assert!(took >= ms(500) && took < ms(1_500), "{took:?}");
    // It was granted, to nobody.
    eventually("the server has done it", || scene.sql.is_held(key));
    thread::sleep(ms(200));
    assert!(try_it(&scene.other, key).is_none());
    scene.proxy.silence(false);
    let (lock, waited) = timed(|| take(&scene.other, key));
    assert!(waited < ms(3_000), "{waited:?}");
    lock.release().expect("release");
    // And the client goes on as if nothing had been.
    assert!(try_it(&scene.client, key).is_some());
    assert!(try_it(&server.behind(&scene.proxy).client(), unique("after")).is_some());
}

#[test]
fn a_grant_that_comes_after_its_callers_deadline_is_undone() {
    each_server(|server| {
        let mut scene = Scene::new(server);
        let key = scene.free_key("late");
        undone(server, &key, &mut scene, |client| status(client.acquire(&key, &wait(500))));
        let key = unique("late-insert");
        undone(server, &key, &mut scene, |client| status(client.acquire(&key, &wait(500))));
    });
}

#[test]
fn a_single_try_that_gets_no_answer_ends_by_the_io_timeout_and_is_undone() {
    each_server(|server| {
        let mut scene = Scene::new(server);
        let behind = server.behind(&scene.proxy);
        scene.client = behind.client_with(|options| options.io_timeout(ms(500)));
        scene.client.ping(ms(5_000)).unwrap();
        let key = scene.free_key("late-try");
        undone(server, &key, &mut scene, |client| {
            status(client.try_acquire(&key, &AcquireOptions::new()))
        });
    });
}

#[test]
fn a_cancelled_acquire_that_was_granted_unseen_is_undone() {
    each_server(|server| {
        let mut scene = Scene::new(server);
        let key = scene.free_key("cancelled");
        undone(server, &key, &mut scene, |client| {
            let cancel = Cancel::new();
            let firing = cancel.clone();
            let firing = thread::spawn(move || {
                thread::sleep(ms(500));
                firing.fire();
            });
            let ended = status(client.acquire(&key, &wait(20_000).cancel(&cancel)));
            firing.join().unwrap();
            assert_eq!(ended, Status::Cancelled);
            ended
        });
    });
}

#[test]
fn closing_a_client_with_a_call_in_doubt_is_bounded_and_ends_the_call() {
    each_server(|server| {
        let scene = Scene::new(server);
        let key = scene.free_key("closing");
        scene.proxy.silence_after("UPDATE");
        thread::scope(|scope| {
            let acquiring = scope.spawn(|| timed(|| scene.client.acquire(&key, &wait(20_000))));
            eventually("it is under way", || scene.proxy.is_silent());
            thread::sleep(ms(200));
            let ((), took) = timed(|| scene.client.close());
            assert!(took < ms(2_500), "{took:?}");
            let (result, took) = acquiring.join().unwrap();
            assert_eq!(status(result), Status::Closed);
            assert!(took < ms(2_500), "{took:?}");
        });
        scene.proxy.silence(false);
    });
}

#[test]
fn cancelling_at_any_moment_leaves_nothing_held_and_nothing_running() {
    each_server(|server| {
        let mut scene = Scene::new(server);
        let key = scene.free_key("cancel-any-time");
        let rounds = if crate::support::long() { 1_000 } else { 200 };
        let mut cancelled = 0;
        for round in 0..rounds {
            let cancel = Cancel::new();
            let firing = cancel.clone();
            // An acquire takes about half a millisecond on a quiet machine.
            let moment = Duration::from_micros(1_000 * round / rounds);
            let firing = thread::spawn(move || {
                thread::sleep(moment);
                firing.fire();
            });
            match scene.client.acquire(&key, &wait(5_000).cancel(&cancel)) {
                Ok(lock) => lock.release().unwrap(),
                Err(error) => {
                    assert_eq!(error.status(), Status::Cancelled, "{error}");
                    cancelled += 1;
                }
            }
            firing.join().unwrap();
            let next = scene.other.acquire(&key, &wait(2_000)).expect("free within 2 s");
            next.release().unwrap();
        }
        println!("{cancelled} of {rounds} cancelled");
        assert!(cancelled > rounds / 10);
        eventually("no session is at work", || {
            scene.sql.sessions_of(&scene.proxy).iter().all(|session| session.command == "Sleep")
        });
        assert!(!scene.sql.is_held(&key));
    });
}
