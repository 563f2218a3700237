//! Statements that outlive their callers, and sessions that are killed in
//! mid-call: nothing is granted to nobody, and no innocent session suffers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use dlease::{AcquireOptions, Client, Lock, Status};

use crate::support::place::Tables;
use crate::support::proxy::Proxy;
use crate::support::sql::Session;
use crate::support::{
    Other, Own, Server, each_kind_at_once, each_server, each_server_at_once, eventually, ms,
    status, take, timed, try_it, unique,
};
use crate::unknown::Scene;

#[test]
fn a_statement_that_a_stopped_server_runs_after_its_caller_left_grants_nothing() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "ghost", &[]);
        // Two connected clients, a free key, and one that has no row.
        let clients = [own.server.client(), own.server.client()];
        let keys = [unique("ghost"), unique("ghost")];
        take(&clients[0], &keys[0]).release().unwrap();
        clients[1].ping(ms(5_000)).unwrap();
        let mut sql = own.server.other();
        let tokens = [sql.token(&keys[0]), sql.token(&keys[1])];
        assert!(tokens[0].is_some() && tokens[1].is_none());

        let paused = own.pause();
        thread::scope(|scope| {
            for (client, key) in clients.iter().zip(&keys) {
                scope.spawn(move || {
                    let options = AcquireOptions::new().wait(ms(500));
                    let (result, took) = timed(|| client.acquire(key, &options));
                    assert_eq!(status(result), Status::Unavailable);
                    assert!(took >= ms(500) && took < ms(1_500), "{took:?}");
                });
            }
        });
        drop(paused);
        // The statements are in the server's sockets; it runs them now.
        for _ in 0..15 {
            thread::sleep(ms(100));
            assert_eq!([sql.token(&keys[0]), sql.token(&keys[1])], tokens);
        }
        assert!(keys.iter().all(|key| try_it(&clients[0], key).is_some()));
    });
}

#[test]
fn a_server_that_wakes_up_within_the_callers_time_grants_once() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "wakes", &[]);
        let client = own.server.client_with(|options| options.io_timeout(ms(700)));
        let key = unique("wakes");
        take(&client, &key).release().unwrap();
        // Shorter than one reply is waited for, and longer.
        for pause in [400, 1_500] {
            let paused = own.pause();
            let waking = thread::spawn(move || {
                thread::sleep(ms(pause));
                drop(paused);
            });
            let (lock, took) = timed(|| take(&client, &key));
            waking.join().unwrap();
            assert!(took >= ms(pause - 50) && took < ms(pause + 2_000), "{took:?}");
            assert!(lock.is_held());
            assert_eq!(own.server.other().token(&key), Some(lock.token()));
            lock.release().unwrap();
        }
    });
}

#[test]
fn an_acquire_that_gave_up_at_a_locked_row_is_never_granted_later() {
    each_server_at_once(|server| {
        let mut scene = Scene::new(server);
        // The row is freed when the statement has been ended, or in the same
        // moment that its caller leaves: then a grant is undone.
        for at_once in [false, true] {
            let key = scene.free_key("blocked");
            let token = scene.sql.token(&key);
            let mut blocker = server.other();
            blocker.run("BEGIN");
            assert_eq!(blocker.lock_row(&key), 0);
            let options = AcquireOptions::new().wait(ms(300));
            let (result, took) = timed(|| scene.client.acquire(&key, &options));
            assert!(matches!(status(result), Status::Unavailable | Status::TimedOut));
            assert!(took >= ms(300) && took < ms(1_300), "{took:?}");
            if at_once {
                blocker.run("COMMIT");
                let (_, took) = timed(|| take(&scene.other, &key));
                assert!(took < ms(3_000), "{took:?}");
                continue;
            }
            eventually("the statement has left the server", || {
                let sessions = scene.sql.sessions_of(&scene.proxy);
                sessions.iter().all(|session| !session.statement.starts_with("UPDATE"))
            });
            blocker.run("COMMIT");
            for _ in 0..10 {
                thread::sleep(ms(100));
                assert_eq!(scene.sql.token(&key), token);
            }
            assert!(try_it(&scene.client, &key).is_some());
        }
    });
}

#[test]
fn a_locked_row_is_waited_for_no_longer_than_the_caller_says_and_then_taken() {
    each_server_at_once(|server| {
        let mut scene = Scene::new(server);
        let key = scene.free_key("blocked-then-free");
        let mut blocker = server.other();
        blocker.run("BEGIN");
        assert_eq!(blocker.lock_row(&key), 0);
        let (tried, took) = timed(|| try_it(&scene.client, &key));
        assert!(tried.is_none());
        assert!(took < ms(3_000), "{took:?}");
        let freeing = thread::spawn(move || {
            thread::sleep(ms(1_500));
            blocker.run("COMMIT");
        });
        let (lock, took) = timed(|| take(&scene.client, &key));
        assert!(took >= ms(1_500) && took < ms(3_500), "{took:?}");
        assert_eq!(scene.sql.token(&key), Some(lock.token()));
        freeing.join().unwrap();
    });
}

/// Another client of the same account, whose session must never change.
struct Innocent {
    proxy: Proxy,
    client: Client,
    lock: Lock,
    sessions: Vec<u64>,
}

impl Innocent {
    fn new(server: &Server) -> Innocent {
        let proxy = Proxy::start(server.port());
        let client = server.behind(&proxy).client();
        let lock = take(&client, unique("innocent"));
        let sessions = ids(&server.other().sessions_of(&proxy));
        assert_eq!(sessions.len(), 1);
        Innocent { proxy, client, lock, sessions }
    }

    fn check(self, server: &Server) {
        self.lock.renew().expect("renew");
        self.client.ping(ms(5_000)).expect("ping");
        assert_eq!(ids(&server.other().sessions_of(&self.proxy)), self.sessions);
        assert_eq!(self.proxy.accepted(), 1);
    }
}

fn ids(sessions: &[Session]) -> Vec<u64> {
    sessions.iter().map(|session| session.id).collect()
}

/// An acquire that waits at a locked table, while `interfere` is given the
/// session that executes it.
fn in_mid_acquire(server: &Server, interfere: impl Fn(&mut Other, u64)) {
    let innocent = Innocent::new(server);
    let tables = Tables::new(server);
    let proxy = Proxy::start(server.port());
    let behind = server.behind(&proxy);
    let client = behind.client_with(|options| options.table_prefix(&tables.prefix));
    take(&client, "k").release().expect("release");
    let mut sql = server.other();
    let mut blocker = server.other();
    blocker.run(&tables.named("LOCK TABLES {lock} WRITE"));
    thread::scope(|scope| {
        let acquiring = scope.spawn(|| take(&client, "k"));
        let mut executing = None;
        eventually("the acquire waits in the server", || {
            let mut sessions = sql.sessions_of(&proxy).into_iter();
            executing = sessions.find(|session| session.statement.starts_with("UPDATE"));
            executing.is_some()
        });
        interfere(&mut sql, executing.expect("found above").id);
        thread::sleep(ms(300));
        assert!(!acquiring.is_finished());
        blocker.run("UNLOCK TABLES");
        let lock = acquiring.join().expect("no panic");
        assert!(lock.is_held());
        let found = sql.row(&tables.named("SELECT token FROM {lock}"));
        assert_eq!(found, Some(lock.token()));
        assert!(try_it(&client, "k").is_none());
        lock.release().expect("release");
    });
    innocent.check(server);
}

#[test]
fn a_session_killed_in_mid_acquire_costs_the_caller_nothing() {
    each_server(|server| in_mid_acquire(server, |sql, id| sql.run(&format!("KILL {id}"))));
}

#[test]
fn a_statement_killed_in_mid_acquire_is_sent_again() {
    each_server(|server| in_mid_acquire(server, |sql, id| sql.run(&format!("KILL QUERY {id}"))));
}

/// Takes, renews and releases while `interfere` is called every few
/// milliseconds, until it has done harm 30 times.
fn at_any_moment(server: &Server, interfere: impl Fn(&Scene, &mut Other) -> usize + Sync) {
    let innocent = Innocent::new(server);
    let scene = Scene::new(server);
    let key = scene.free_key("any-moment");
    let (harm, start) = (AtomicUsize::new(0), Instant::now());
    // An end for the one if the other fails.
    let goes_on = || harm.load(Ordering::SeqCst) < 30 && start.elapsed() < ms(30_000);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut sql = server.other();
            while goes_on() {
                thread::sleep(ms(25));
                harm.fetch_add(interfere(&scene, &mut sql), Ordering::SeqCst);
            }
        });
        let (mut last, mut sql) = (0, server.other());
        while goes_on() {
            let lock = take(&scene.client, &key);
            assert!(lock.is_held());
            assert!(lock.token() > last);
            last = lock.token();
            assert_eq!(sql.token(&key), Some(last));
            lock.renew().expect("renew");
            lock.release().expect("release");
        }
    });
    assert!(harm.into_inner() >= 30);
    assert!(!server.other().is_held(&key));
    innocent.check(server);
}

#[test]
fn sessions_killed_at_any_moment_cost_neither_their_callers_nor_others() {
    each_server(|server| {
        at_any_moment(server, |scene, sql| {
            let sessions = sql.sessions_of(&scene.proxy);
            let killed = |session: &Session| {
                // 1094: it has gone by itself.
                let errno = sql.errno(&format!("KILL {}", session.id));
                assert!(matches!(errno, 0 | 1094), "{errno}");
                usize::from(errno == 0)
            };
            sessions.iter().map(killed).sum()
        });
    });
}

#[test]
fn connections_cut_at_any_moment_cost_neither_their_callers_nor_others() {
    each_server(|server| {
        at_any_moment(server, |scene, _| {
            scene.proxy.cut();
            1
        });
    });
}
