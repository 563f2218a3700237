//! What goes wrong while the library finds out what became of a call, or lets a
//! key go: the client's own thread has no better luck with the server than its
//! callers, and gets there all the same.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dlease::{AcquireOptions, Status};

use crate::support::proxy::Proxy;
use crate::support::{Own, each_kind_at_once, eventually, ms, status, take, timed, try_it, unique};
use crate::unknown::wait;

#[test]
fn a_storm_of_kills_leaves_neither_a_call_nor_a_key_behind() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "storm", &[]);
        let (client, other) = (own.server.client(), own.server.client_with(|b| b.application("o")));
        let key = unique("storm");
        take(&client, &key).release().unwrap();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut root = own.root();
                while !over.load(Ordering::Relaxed) {
                    for session in root.rows::<mysql::Row>("SHOW PROCESSLIST") {
                        if session.get::<String, _>(1).as_deref() == Some("dl") {
                            let id: u64 = session.get(0).unwrap();
                            root.errno(&format!("KILL {id}"));
                        }
                    }
                    thread::sleep(ms(3));
                }
            });
            for _ in 0..20 {
                let options = AcquireOptions::new().wait(ms(100)).ttl(ms(20_000));
                let (result, took) = timed(|| client.acquire(&key, &options));
                assert!(took < ms(2_000), "{took:?}");
                drop(result);
            }
            over.store(true, Ordering::Relaxed);
        });
        eventually("the key is free", || try_it(&other, &key).is_some());
        take(&client, &key).release().unwrap();
    });
}

#[test]
fn a_lock_is_let_go_though_the_account_has_no_session_left() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "last", &[]);
        own.server.client().ping(ms(5_000)).unwrap();
        let root_looks = |key: &str| own.root().is_held(key);
        for host in ["%", "localhost"] {
            own.root().run(&format!("ALTER USER 'dl'@'{host}' WITH MAX_USER_CONNECTIONS 1"));
        }
        let client = own.server.client();
        let key = unique("last");
        // The pool has the only session that the account may have.
        drop(take(&client, &key));
        eventually("it is released", || !root_looks(&key));
        take(&client, &key).release().unwrap();
    });
}

#[test]
fn a_lost_reply_is_found_out_over_a_slow_network() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "slow", &[]);
        let proxy = Proxy::start(own.server.port());
        let client = own.server.behind(&proxy).client();
        let key = unique("slow");
        take(&client, &key).release().unwrap();
        proxy.delay(ms(250));
        proxy.cut_replies("SET token", 1);
        let options = wait(30_000).ttl(ms(60_000));
        let (lock, took) = timed(|| client.acquire(&key, &options).unwrap());
        assert_eq!(proxy.cuts_left(), 0, "nothing was lost");
        assert!(took < ms(20_000), "{took:?}");
        // It is the grant whose reply was lost: had it been taken for another
        // server's, its lease would have had to end first.
        assert_eq!(own.server.other().token(&key), Some(lock.token()));
        proxy.delay(ms(0));
        lock.release().unwrap();
    });
}

#[test]
fn a_table_that_is_locked_while_a_session_is_opened_is_only_unavailable() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "opening", &[]);
        take(&own.server.client(), unique("opening")).release().unwrap();
        let mut root = own.root();
        root.run("LOCK TABLES dl_lock WRITE");
        let newcomer = own.server.client();
        let options = AcquireOptions::new().wait(ms(1_500));
        let refused = status(newcomer.acquire(unique("opening"), &options));
        assert!(matches!(refused, Status::Unavailable | Status::TimedOut), "{refused:?}");
        root.run("UNLOCK TABLES");
        take(&newcomer, unique("opening")).release().unwrap();
    });
}

#[test]
fn a_server_that_is_offline_for_now_is_only_unavailable() {
    each_kind_at_once(|kind| {
        if kind != "mysql" {
            return; // MariaDB has no such mode.
        }
        let own = Own::start(kind, "offline", &[]);
        own.server.client().ping(ms(5_000)).unwrap();
        own.root().run("SET GLOBAL offline_mode = ON");
        let client = own.server.client();
        let options = AcquireOptions::new().wait(ms(700));
        let error = client.acquire(unique("offline"), &options).expect_err("nobody is let in");
        assert_eq!(error.status(), Status::Unavailable, "{error:?}");
        own.root().run("SET GLOBAL offline_mode = OFF");
        take(&client, unique("offline")).release().unwrap();
    });
}

extern "C" fn nothing(_: libc::c_int) {}

#[test]
fn signals_that_interrupt_every_read_prolong_no_call() {
    // SAFETY: the handler does nothing; all fields of the action are set.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize; // no SA_RESTART
        assert_eq!(libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()), 0);
    }
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "signals", &[]);
        let proxy = Proxy::start(own.server.port());
        let client = own.server.behind(&proxy).client_with(|b| b.io_timeout(ms(300)));
        let key = unique("signals");
        take(&client, &key).release().unwrap();
        proxy.silence(true);
        thread::scope(|scope| {
            let (tell, told) = std::sync::mpsc::channel();
            let (client, key) = (&client, &key);
            let calling = scope.spawn(move || {
                // SAFETY: no memory is passed.
                tell.send(unsafe { libc::pthread_self() }).unwrap();
                timed(|| client.try_acquire(key, &AcquireOptions::new()))
            });
            let thread = told.recv().unwrap();
            while !calling.is_finished() {
                // SAFETY: the thread is joined below, so its number is valid.
                unsafe { libc::pthread_kill(thread, libc::SIGUSR2) };
                thread::sleep(ms(1));
            }
            let (result, took) = calling.join().unwrap();
            assert_eq!(status(result), Status::Unavailable);
            assert!(took >= ms(290) && took < ms(2_000), "{took:?}");
        });
    });
}
