//! Calls whose reply was lost: none is left in doubt. Each loss is tried both
//! ways, since the client cannot tell them apart: the server did it and the
//! reply was cut off, or the request never arrived.

use std::thread;

use dlease::{AcquireOptions, Client, Lock, Status};

use crate::support::proxy::Proxy;
use crate::support::{
    Other, Server, each_server, ms, status, take, take_for, timed, try_it, unique,
};

/// A client whose connections a test breaks, and others that look on.
pub(crate) struct Scene {
    pub(crate) proxy: Proxy,
    /// Behind the proxy, and connected.
    pub(crate) client: Client,
    pub(crate) other: Client,
    pub(crate) sql: Other,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Loss {
    Reply,
    Request,
}

impl Scene {
    pub(crate) fn new(server: &Server) -> Scene {
        let proxy = Proxy::start(server.port());
        let client = server.behind(&proxy).client();
        client.ping(ms(5_000)).expect("ping");
        Scene { proxy, client, other: server.client(), sql: server.other() }
    }

    /// A key whose row is there, free.
    pub(crate) fn free_key(&self, name: &str) -> String {
        let key = unique(name);
        take(&self.other, &key).release().expect("release");
        key
    }

    fn lose(&self, loss: Loss, text: &str) {
        self.proxy.forget_statements();
        match loss {
            Loss::Reply => self.proxy.cut_replies(text, 1),
            Loss::Request => self.proxy.cut_requests(text, 1),
        }
    }

    /// How many of the statements that contain `text` reached the server.
    fn done(&self, loss: Loss, text: &str) -> usize {
        assert_eq!(self.proxy.cuts_left() + self.proxy.requests_left(), 0, "nothing was lost");
        let sent = self.proxy.statements();
        let sent = sent.iter().filter(|statement| statement.contains(text)).count();
        if loss == Loss::Request { sent - 1 } else { sent }
    }

    /// The lock is the one in the row.
    fn is_right(&mut self, lock: &Lock, key: &str) {
        assert!(lock.is_held());
        assert_eq!(self.sql.token(key), Some(lock.token()));
        assert!(self.sql.is_held(key));
    }
}

fn each_loss(test: impl Fn(Scene, Loss)) {
    each_server(|server| {
        for loss in [Loss::Reply, Loss::Request] {
            println!("the {loss:?} is lost");
            test(Scene::new(server), loss);
        }
    });
}

pub(crate) fn wait(limit: u64) -> AcquireOptions {
    AcquireOptions::new().wait(ms(limit))
}

#[test]
fn a_grant_whose_reply_is_lost_is_adopted_and_made_once() {
    each_loss(|mut scene, loss| {
        for one_try in [true, false] {
            let key = scene.free_key("take");
            scene.lose(loss, "UPDATE");
            let (lock, took) = timed(|| match one_try {
                true => try_it(&scene.client, &key).expect("it is free"),
                false => take(&scene.client, &key),
            });
            assert!(took < ms(2_000), "{took:?}");
            assert_eq!(scene.done(loss, "SET token"), 1);
            scene.is_right(&lock, &key);
            assert!(try_it(&scene.other, &key).is_none());
            lock.release().unwrap();
            assert!(try_it(&scene.other, &key).is_some());
        }
    });
}

#[test]
fn a_first_grant_whose_reply_is_lost_is_adopted_and_made_once() {
    each_loss(|mut scene, loss| {
        for one_try in [true, false] {
            let key = unique("insert");
            scene.lose(loss, "INSERT INTO");
            let (lock, took) = timed(|| match one_try {
                true => try_it(&scene.client, &key).expect("it is free"),
                false => take(&scene.client, &key),
            });
            assert!(took < ms(2_000), "{took:?}");
            assert_eq!(scene.done(loss, "INSERT INTO"), 1);
            scene.is_right(&lock, &key);
            lock.release().unwrap();
            assert!(try_it(&scene.other, &key).is_some());
        }
    });
}

#[test]
fn a_lost_reply_does_not_make_a_held_key_ours() {
    each_loss(|mut scene, loss| {
        let key = unique("held");
        let held = take(&scene.other, &key);
        scene.lose(loss, "UPDATE");
        let (tried, took) = timed(|| try_it(&scene.client, &key));
        assert!(tried.is_none());
        assert!(took < ms(2_000), "{took:?}");
        scene.done(loss, "UPDATE");
        scene.is_right(&held, &key);

        scene.lose(loss, "UPDATE");
        assert_eq!(status(scene.client.acquire(&key, &wait(500))), Status::TimedOut);
        scene.done(loss, "UPDATE");
        scene.is_right(&held, &key);
        held.renew().unwrap();
        held.release().unwrap();
        let lock = take(&scene.client, &key);
        scene.is_right(&lock, &key);
    });
}

#[test]
fn several_replies_lost_in_a_row_and_those_of_the_questions_after_them() {
    each_server(|server| {
        let mut scene = Scene::new(server);
        for times in [2, 3, 5] {
            let key = scene.free_key("in-a-row");
            scene.proxy.forget_statements();
            // Also the statement that asks what became of the first.
            scene.proxy.cut_replies("lock_key", times);
            let (lock, took) = timed(|| take(&scene.client, &key));
            assert!(took < ms(4_000), "{took:?}");
            assert_eq!(scene.done(Loss::Reply, "SET token"), 1);
            scene.is_right(&lock, &key);
        }
    });
}

#[test]
fn joining_an_owners_lease_counts_once_whatever_is_lost() {
    each_loss(|mut scene, loss| {
        let key = unique("join");
        let options = wait(5_000).owner("o");
        let first = scene.other.acquire(&key, &options).unwrap();
        scene.lose(loss, "CONCAT(holds");
        let second = scene.client.acquire(&key, &options).unwrap();
        assert_eq!(scene.done(loss, "CONCAT(holds"), 1);
        assert_eq!(first.token(), second.token());
        let text = format!("SELECT holds FROM dl_locks WHERE lock_key = '{key}'");
        assert_eq!(scene.sql.row::<u64>(&text), Some(2));

        // The same for one's going.
        scene.lose(loss, "UPDATE");
        second.release().unwrap();
        scene.done(loss, "UPDATE");
        assert_eq!(scene.sql.row::<u64>(&text), Some(1));
        scene.is_right(&first, &key);
        first.release().unwrap();
        assert!(!scene.sql.is_held(&key));
    });
}

#[test]
fn a_renewal_that_is_lost_is_sent_again() {
    each_loss(|mut scene, loss| {
        let key = unique("renew");
        let lock = take_for(&scene.client, &key, ms(10_000));
        let text = format!("SELECT expires_us FROM dl_lock WHERE lock_key = '{key}'");
        let before: u64 = scene.sql.row(&text).unwrap();
        thread::sleep(ms(20));
        scene.lose(loss, "UPDATE");
        let (renewed, took) = timed(|| lock.renew());
        renewed.unwrap();
        assert!(took < ms(2_000), "{took:?}");
        assert!(scene.done(loss, "UPDATE") >= 1);
        let after: u64 = scene.sql.row(&text).unwrap();
        assert!(after >= before + 20_000, "{before} {after}");
        assert!(lock.remaining() > ms(7_000));
        scene.is_right(&lock, &key);
        lock.release().unwrap();
    });
}

#[test]
fn a_release_that_is_lost_is_sent_again_and_done() {
    each_loss(|mut scene, loss| {
        for options in [wait(5_000), wait(5_000).owner("o")] {
            let key = unique("release");
            let lock = scene.client.acquire(&key, &options).unwrap();
            scene.lose(loss, "UPDATE");
            let (released, took) = timed(|| lock.release());
            released.unwrap();
            assert!(took < ms(2_000), "{took:?}");
            scene.done(loss, "UPDATE");
            assert!(!scene.sql.is_held(&key));
            assert!(try_it(&scene.other, &key).is_some());
        }
    });
}

#[test]
fn a_release_done_in_time_says_so_though_the_key_is_anothers_by_then() {
    each_server(|server| {
        for (ttl, expected) in [(30_000, None), (600, Some(Status::NotHeld))] {
            let scene = Scene::new(server);
            let key = unique("anothers");
            let lock = take_for(&scene.client, &key, ms(ttl));
            scene.proxy.cut_replies("UPDATE", 1);
            scene.proxy.refuse(true);
            let releasing = thread::spawn(move || lock.release());
            let next = take(&scene.other, &key);
            // Past the deadline of the shorter one.
            thread::sleep(ms(600));
            scene.proxy.refuse(false);
            let released = releasing.join().unwrap();
            assert_eq!(released.err().map(|error| error.status()), expected);
            next.renew().unwrap();
            assert!(try_it(&scene.client, &key).is_none());
        }
    });
}
