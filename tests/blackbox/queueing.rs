//! Waiting in order, woken by the event: within a process, between processes
//! (each client here stands for one; where a process has to be stopped or
//! killed it is one), and whatever becomes of those in front.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dlease::{AcquireOptions, Cancel, Client, Status};

use crate::support::child::Child;
use crate::support::proxy::Proxy;
use crate::support::{
    Own, Server, at_once, each_kind_at_once, each_server, each_server_at_once, eventually, long,
    ms, status, take, take_for, timed, try_it, unique,
};

fn wait(limit_ms: u64) -> AcquireOptions {
    AcquireOptions::new().wait(ms(limit_ms)).ttl(ms(20_000))
}

/// Waits until `count` callers of `client` wait.
fn waiting(client: &Client, count: u64) {
    eventually("they wait", || client.stats().waiting == count);
    thread::sleep(ms(30)); // and have come to the gate
}

/// In which order the waiters of `clients` get the key, who line up one after
/// the other.
fn order(clients: &[&Client], key: &str, hold: Duration) -> Vec<usize> {
    let served = Mutex::new(Vec::new());
    let held = take(clients[0], key);
    thread::scope(|scope| {
        for (number, &client) in clients.iter().enumerate() {
            let before = client.stats().waiting;
            let served = &served;
            scope.spawn(move || {
                let lock = client.acquire(key, &wait(30_000)).unwrap();
                served.lock().unwrap().push(number);
                thread::sleep(hold);
                lock.release().unwrap();
            });
            eventually("it waits", || client.stats().waiting == before + 1);
            thread::sleep(ms(40));
        }
        held.release().unwrap();
    });
    served.into_inner().unwrap()
}

#[test]
fn processes_are_served_in_the_order_in_which_they_came() {
    each_server_at_once(|server| {
        let clients: Vec<Client> = (0..9).map(|_| server.client()).collect();
        let others: Vec<&Client> = clients.iter().collect();
        for _ in 0..3 {
            assert_eq!(order(&others, &unique("order"), ms(2)), (0..9).collect::<Vec<_>>());
        }
    });
}

#[test]
fn callers_of_one_process_are_served_in_the_order_in_which_they_came() {
    each_server_at_once(|server| {
        let client = server.client();
        let callers: Vec<&Client> = (0..20).map(|_| &client).collect();
        assert_eq!(order(&callers, &unique("order"), ms(2)), (0..20).collect::<Vec<_>>());
        // Handed over in one commit, but for those whose process's turn was over.
        let stats = client.stats();
        assert!(stats.hand_overs >= 10, "{stats:?}");
    });
}

#[test]
fn a_process_serves_its_own_no_longer_than_its_turn() {
    each_server_at_once(|server| {
        let (busy, other) = (server.client(), server.client());
        let key = unique("turn");
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        take(&busy, &key).release().unwrap();
                    }
                });
            }
            thread::sleep(ms(300));
            for _ in 0..10 {
                let (lock, took) = timed(|| take(&other, &key));
                assert!(took < ms(2_000), "{took:?}");
                lock.release().unwrap();
            }
            over.store(true, Ordering::Relaxed);
        });
        assert!(busy.stats().hand_overs > 50, "{:?}", busy.stats());
    });
}

#[test]
fn a_process_has_no_second_turn_while_another_waits() {
    each_server_at_once(|server| {
        let turn = ms(2_000);
        let client = || server.client_with(|builder| builder.fairness(turn));
        let (busy, other) = (client(), client());
        let key = unique("one-turn");
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let lock = take(&busy, &key);
                        thread::sleep(ms(2));
                        lock.release().unwrap();
                    }
                });
            }
            // The busy one stands at the gate, for its own, before the other comes.
            let waits: Vec<Duration> = (0..3)
                .map(|_| {
                    thread::sleep(ms(100));
                    let (lock, took) = timed(|| take(&other, &key));
                    lock.release().unwrap();
                    took
                })
                .collect();
            over.store(true, Ordering::Relaxed);
            assert!(waits.iter().all(|took| *took < turn * 3 / 2), "{waits:?}");
        });
    });
}

#[test]
fn whoever_leaves_delays_nobody_and_gets_nothing_later() {
    each_server_at_once(|server| {
        let clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
        for cancels in [true, false] {
            let key = unique("leaves");
            let held = take(&clients[0], &key);
            let cancel = Cancel::new();
            thread::scope(|scope| {
                // The first in the queue leaves, and so do two behind it.
                let leaving: Vec<_> = clients[1..3]
                    .iter()
                    .map(|client| {
                        let (key, cancel) = (&key, &cancel);
                        let limit = if cancels { 30_000 } else { 500 };
                        let leaving =
                            scope.spawn(move || client.acquire(key, &wait(limit).cancel(cancel)));
                        waiting(client, 1);
                        leaving
                    })
                    .collect();
                let staying = scope.spawn(|| take(&clients[3], &key));
                waiting(&clients[3], 1);
                if cancels {
                    cancel.fire();
                }
                for leaving in leaving {
                    let expected = if cancels { Status::Cancelled } else { Status::TimedOut };
                    assert_eq!(status(leaving.join().unwrap()), expected);
                }
                held.release().unwrap();
                let (next, took) = timed(|| staying.join().unwrap());
                assert!(took < ms(2_000), "{took:?}");
                next.release().unwrap();
            });
            assert!(try_it(&clients[0], &key).is_some());
            let left: Vec<_> = clients.iter().map(|client| client.stats().waiting).collect();
            assert_eq!(left, [0; 4]);
        }
    });
}

#[test]
fn no_statement_waits_in_the_server_for_who_has_left() {
    each_server(|server| {
        let proxy = Proxy::start(server.port());
        let client = server.behind(&proxy).client();
        let key = unique("left");
        let holder = server.client();
        let _held = take(&holder, &key);
        let mut sql = server.other();
        for round in 0..if long() { 200 } else { 40 } {
            let cancel = Cancel::new();
            thread::scope(|scope| {
                let acquiring = scope.spawn(|| client.acquire(&key, &wait(20_000).cancel(&cancel)));
                thread::sleep(ms(round * 7 % 40));
                let ((), took) = timed(|| cancel.fire());
                assert!(took < ms(100), "{took:?}");
                assert_eq!(status(acquiring.join().unwrap()), Status::Cancelled);
            });
        }
        eventually("nobody waits in the server", || {
            let ours = sql.sessions_of(&proxy);
            !ours.iter().any(|session| session.statement.contains("GET_LOCK"))
        });
        // And the connections serve others, without having been lost.
        take(&client, unique("left")).release().unwrap();
    });
}

#[test]
fn a_waiter_that_is_stopped_or_killed_lets_the_next_have_its_turn() {
    each_server_at_once(|server| {
        at_once(&[libc::SIGSTOP, libc::SIGKILL], |&signal| {
            let (holder, next) = (server.client(), server.client());
            let key = unique("stopped");
            let mut first = Child::start(&server.url, &[]);
            first.acquire(&unique("warm"), ms(5_000), ms(5_000)).unwrap();
            let held = take(&holder, &key);
            first.begin_acquire(&key, ms(60_000), ms(2_000));
            thread::sleep(ms(1_000)); // it is the first at the gate
            thread::scope(|scope| {
                let waits = scope.spawn(|| take_for(&next, &key, ms(20_000)));
                waiting(&next, 1);
                first.signal(signal);
                held.release().unwrap();
                let (lock, took) = timed(|| waits.join().unwrap());
                println!("signal {signal}: the next had it {took:?} after the release");
                // What the stopped one was granted, if anything, has ended.
                assert!(took < ms(7_500), "{took:?}");
                lock.release().unwrap();
            });
            if signal == libc::SIGSTOP {
                first.signal(libc::SIGCONT);
                let got = first.acquired().expect("it goes on waiting");
                assert!(got > 0);
            }
        });
    });
}

#[test]
fn a_holder_that_is_stopped_costs_the_next_its_lease_and_no_more() {
    each_server_at_once(|server| {
        // By the queue, so that it keeps the bell; and by the fast path.
        at_once(&[true, false], |&by_queue| {
            let (before, next) = (server.client(), server.client());
            let key = unique("paused");
            let mut holder = Child::start(&server.url, &[]);
            holder.acquire(&unique("warm"), ms(5_000), ms(5_000)).unwrap();
            let held = by_queue.then(|| take(&before, &key));
            holder.begin_acquire(&key, ms(30_000), ms(1_500));
            if let Some(held) = held {
                thread::sleep(ms(500));
                held.release().unwrap();
            }
            holder.acquired().unwrap();
            let granted = Instant::now();
            thread::scope(|scope| {
                let waits = scope.spawn(|| take_for(&next, &key, ms(20_000)));
                thread::sleep(ms(200));
                holder.signal(libc::SIGSTOP);
                let lock = waits.join().unwrap();
                let late = granted.elapsed().saturating_sub(ms(1_500));
                println!("by queue {by_queue}: {late:?} after the end of the lease");
                assert!(granted.elapsed() >= ms(1_450), "{:?}", granted.elapsed());
                assert!(late < ms(2_000), "{late:?}");
                lock.release().unwrap();
            });
            holder.signal(libc::SIGCONT);
        });
    });
}

#[test]
fn a_gate_that_a_foreign_session_keeps_delays_a_free_lock_five_seconds_at_most() {
    each_server_at_once(|server| {
        let (one, two) = (server.client(), server.client());
        let key = unique("foreign");
        let held = take(&one, &key);
        let mut sql = server.other();
        let name = server.gate_of(&key);
        eventually("the gate is free", || {
            sql.row::<Option<u64>>(&format!("SELECT GET_LOCK('{name}', 1)")) == Some(Some(1))
        });
        held.release().unwrap();
        // One try, and one who does not queue, take a free lock all the same.
        try_it(&two, &key).expect("free").release().unwrap();
        two.acquire(&key, &wait(5_000).unfair()).unwrap().release().unwrap();
        let (lock, took) = timed(|| two.acquire(&key, &wait(20_000)).unwrap());
        println!("{took:?} behind a foreign session");
        assert!(took >= ms(1_000) && took < ms(7_000), "{took:?}");
        lock.release().unwrap();
    });
}

#[test]
fn a_thousand_waiters_cost_the_server_next_to_nothing() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "thousand", &[]);
        let clients: Vec<Client> = (0..50).map(|_| own.server.client()).collect();
        let (key, cancel) = (unique("thousand"), Cancel::new());
        let holder = own.server.client();
        let held = take_for(&holder, &key, ms(120_000));
        thread::scope(|scope| {
            for client in &clients {
                for _ in 0..20 {
                    scope.spawn(|| {
                        let ended = client.acquire(&key, &wait(90_000).cancel(&cancel));
                        assert_eq!(status(ended), Status::Cancelled);
                    });
                }
            }
            for client in &clients {
                eventually("all wait", || client.stats().waiting == 20);
            }
            thread::sleep(ms(2_500));
            let mut sql = own.root();
            let count = sql.questions_in(ms(4_000)) / 4;
            println!("{kind}: {count} statements a second for 1000 waiters");
            assert!(count <= 50, "{count} a second");
            let (ended, took) = timed(|| cancel.fire());
            assert_eq!(ended, ());
            assert!(took < ms(2_000), "{took:?}");
        });
        held.release().unwrap();
    });
}

#[test]
fn keys_beyond_the_waiting_connections_are_watched_together() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "beyond", &[]);
        let holder = own.server.client();
        let waiter = own.server.client_with(|b| b.max_waiting_connections(2));
        let keys: Vec<String> = (0..100).map(|_| unique("beyond")).collect();
        let mut held: Vec<_> = keys.iter().map(|key| Some(take(&holder, key))).collect();
        let served = AtomicU64::new(0);
        thread::scope(|scope| {
            for key in &keys {
                let (waiter, served) = (&waiter, &served);
                scope.spawn(move || {
                    let lock = waiter.acquire(key, &wait(60_000)).unwrap();
                    served.fetch_add(1, Ordering::Relaxed);
                    lock.release().unwrap();
                });
            }
            waiting(&waiter, 100);
            thread::sleep(ms(2_000));
            let count = own.root().questions_in(ms(3_000)) / 3;
            println!("{kind}: {count} statements a second for 100 keys");
            assert!(count <= 60, "{count} a second");
            assert!(waiter.stats().waiting_connections <= 2);
            // A renewal, a release and a try are not held up.
            let ((), took) = timed(|| take(&waiter, unique("beyond")).release().unwrap());
            assert!(took < ms(1_000), "{took:?}");
            let (_, took) = timed(|| {
                for lock in &mut held {
                    lock.take().unwrap().release().unwrap();
                }
                eventually("all are served", || served.load(Ordering::Relaxed) == 100);
            });
            println!("{kind}: all served in {took:?}");
        });
    });
}

#[test]
fn waiting_goes_on_when_its_connections_are_killed() {
    each_server_at_once(|server| {
        let proxy = Proxy::start(server.port());
        let waiter = server.behind(&proxy).client();
        let (holder, key) = (server.client(), unique("killed"));
        let held = take(&holder, &key);
        let mut sql = server.other();
        let order = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for number in 0..3 {
                let (waiter, key, order) = (&waiter, &key, &order);
                scope.spawn(move || {
                    let lock = waiter.acquire(key, &wait(30_000)).unwrap();
                    order.lock().unwrap().push(number);
                    lock.release().unwrap();
                });
                eventually("it waits", || waiter.stats().waiting == number + 1);
            }
            for _ in 0..5 {
                for session in sql.sessions_of(&proxy) {
                    sql.errno(&format!("KILL {}", session.id));
                }
                thread::sleep(ms(300));
            }
            proxy.cut();
            thread::sleep(ms(300));
            held.release().unwrap();
        });
        assert_eq!(order.into_inner().unwrap(), [0, 1, 2]);
    });
}

#[test]
fn a_wait_that_is_killed_or_limited_in_the_server_goes_on_to_its_deadline() {
    each_kind_at_once(|kind| {
        let limit = match kind {
            "mariadb" => "SET GLOBAL max_statement_time = 1",
            _ => "SET GLOBAL max_execution_time = 1000",
        };
        let own = Own::start(kind, "limits", &[]);
        own.root().run(limit);
        let (holder, waiter) = (own.server.client(), own.server.client());
        let key = unique("limits");
        let held = take(&holder, &key);
        thread::scope(|scope| {
            let waits = scope.spawn(|| timed(|| waiter.acquire(&key, &wait(3_500))));
            waiting(&waiter, 1);
            let (mut root, begun) = (own.root(), Instant::now());
            while begun.elapsed() < ms(2_500) {
                let waits = "SELECT id FROM information_schema.processlist \
                             WHERE info LIKE 'SELECT%GET_LOCK%'";
                for (id,) in root.rows::<(u64,)>(waits) {
                    root.errno(&format!("KILL QUERY {id}"));
                }
                thread::sleep(ms(50));
            }
            let (ended, took) = waits.join().unwrap();
            assert_eq!(status(ended), Status::TimedOut);
            assert!(took >= ms(3_500) && took < ms(4_500), "{took:?}");
            // And one that is not in vain.
            let waits = scope.spawn(|| waiter.acquire(&key, &wait(20_000)).map(drop));
            waiting(&waiter, 1);
            thread::sleep(ms(1_500));
            held.release().unwrap();
            waits.join().unwrap().unwrap();
        });
    });
}

#[test]
fn ten_thousand_who_leave_at_once_are_told_in_time() {
    each_server(|server| {
        let (client, holder) = (server.client(), server.client());
        let key = unique("thousands");
        let _held = take_for(&holder, &key, ms(120_000));
        let count = 10_000;
        let begun = Instant::now();
        for tag in 0..count {
            let left = ms(6_000).saturating_sub(begun.elapsed());
            client.acquire_async(&key, &AcquireOptions::new().wait(left), tag).unwrap();
        }
        assert!(begun.elapsed() < ms(5_000), "{:?} to begin", begun.elapsed());
        for _ in 0..count {
            let event = client.next_event(ms(10_000)).unwrap().expect("an event");
            assert!(matches!(event.outcome, dlease::Outcome::Failed(_)));
        }
        let late = begun.elapsed().saturating_sub(ms(6_000));
        println!("{count} told {late:?} after their deadline");
        assert!(begun.elapsed() >= ms(5_990) && late < ms(1_000), "{late:?}");
        assert_eq!(client.stats().waiting, 0);
    });
}

#[test]
fn a_server_without_gates_is_found_out_once_and_waited_at_all_the_same() {
    each_server_at_once(|server| {
        let proxy = Proxy::start(server.port());
        // The server's own refusal: there is no function of that name.
        proxy.replace("GET_LOCK", "GOT_LOCK");
        let client = server.behind(&proxy).client();
        let holder = server.client();
        for round in 0..3 {
            let key = unique("no-gates");
            let held = take(&holder, &key);
            thread::scope(|scope| {
                let waits = scope.spawn(|| client.acquire(&key, &wait(20_000)).unwrap());
                waiting(&client, 1);
                thread::sleep(ms(300));
                held.release().unwrap();
                let (lock, took) = timed(|| waits.join().unwrap());
                assert!(took < ms(2_000), "{took:?} in round {round}");
                lock.release().unwrap();
            });
        }
        assert_eq!(client.stats().gate_fallbacks, 1);
    });
}

fn storm(server: &Server, clients: usize, rounds: u64) {
    let key = unique("storm");
    let clients: Vec<Client> = (0..clients).map(|_| server.client()).collect();
    let (inside, turns) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for number in 0..clients.len() * 4 {
            let client = &clients[number % clients.len()];
            let (key, inside, turns) = (&key, &inside, &turns);
            scope.spawn(move || {
                while turns.fetch_add(1, Ordering::SeqCst) < rounds {
                    let lock = client.acquire(key, &wait(60_000)).unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
                    inside.fetch_sub(1, Ordering::SeqCst);
                    lock.release().unwrap();
                }
            });
        }
    });
    for client in &clients {
        assert_eq!(client.stats().panics, 0);
        assert_eq!(client.stats().waiting, 0);
    }
}

#[test]
fn a_lock_changes_hands_a_thousand_times_while_more_arrive() {
    each_server_at_once(|server| storm(server, 8, if long() { 5_000 } else { 1_000 }));
}

#[test]
fn two_hundred_processes_wait_for_one_key() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "two-hundred", &["--max-connections=900"]);
        let clients: Vec<Client> = (0..200).map(|_| own.server.client()).collect();
        let key = unique("two-hundred");
        let held = take_for(&clients[0], &key, ms(60_000));
        thread::scope(|scope| {
            for client in &clients {
                scope.spawn(|| client.acquire(&key, &wait(60_000)).unwrap().release().unwrap());
            }
            for client in &clients {
                eventually("all wait", || client.stats().waiting == 1);
            }
            held.release().unwrap();
        });
        let rings: u64 = clients.iter().map(|client| client.stats().rings).sum();
        assert!(rings >= 190, "{rings} of 200 were rung for");
    });
}
