//! Holding: what renewal costs for very many leases, whether it keeps up on a busy
//! machine, and how soon a loss is told.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dlease::{AcquireOptions, Client, Kind, Lock};
use mysql::Conn;

use crate::pair::{median, meet};
use crate::waiting::questions;
use crate::{Figure, Target};

const MANY: usize = 10_000;

/// Measures one server.
pub(crate) fn measure(url: &str, figures: &mut Vec<Figure>) {
    let (mut sql, server) = meet(url);
    let mut add = |what: &str, value, unit, target| {
        figures.push(Figure { server: server.clone(), what: what.to_owned(), value, unit, target });
    };
    let at_most = |most| Some(Target::AtMost(most));

    let many = many_leases(url, &mut sql);
    add("10 000 leases: statements a round for 1 000", many.statements, "", at_most(2.0));
    add("10 000 leases: share of a core", many.cpu * 100.0, "%", at_most(5.0));
    add("10 000 leases: bytes for one", many.bytes, "bytes", at_most(2_048.0));
    add("10 000 leases: lost", many.lost as f64, "", at_most(0.0));

    let lost = on_a_busy_machine(url);
    add("200 leases of 2 s, both cores busy for 60 s: lost", lost as f64, "", at_most(0.0));

    let mut told = forced(url);
    told.sort_by(f64::total_cmp);
    let most = told.last().copied().unwrap_or(0.0);
    add("forced: told after, of a TTL of 3 s, p50", median(told.clone()), "ms", None);
    add("forced: told after, of a TTL of 3 s, max", most, "ms", at_most(1_100.0));
    let mut late = expired(url);
    late.sort_by(f64::total_cmp);
    let most = late.last().copied().unwrap_or(0.0);
    add("expired: told after its deadline, p50", median(late.clone()), "ms", None);
    add("expired: told after its deadline, max", most, "ms", at_most(50.0));
}

struct Many {
    statements: f64,
    cpu: f64,
    bytes: f64,
    lost: usize,
}

fn many_leases(url: &str, sql: &mut Conn) -> Many {
    let client = Client::open(url).expect("open");
    let hold = |count: usize, name: &str| -> Vec<Lock> {
        let next = AtomicUsize::new(0);
        let options = AcquireOptions::new().ttl(Duration::from_secs(30));
        thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let mut locks = Vec::new();
                        loop {
                            let number = next.fetch_add(1, Ordering::Relaxed);
                            if number >= count {
                                return locks;
                            }
                            let key = format!("bench-{name}-{number}");
                            locks.push(
                                client.try_acquire(&key, &options).expect("ok").expect("free"),
                            );
                        }
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        })
    };
    // What the client and the allocator take once is not a lease's.
    drop(hold(200, "warm"));
    thread::sleep(Duration::from_secs(1));
    let before = resident();
    let locks = hold(MANY, "many");
    // The renewals of all have met by then.
    thread::sleep(Duration::from_secs(15));
    let bytes = resident().saturating_sub(before) as f64 / MANY as f64;
    let (asked, used) = (questions(sql), processor_time());
    let renewed = client.stats().renewals;
    let time = Duration::from_secs(20);
    thread::sleep(time);
    let asked = (questions(sql) - asked - 1) as f64;
    let cpu = (processor_time() - used).as_secs_f64() / time.as_secs_f64();
    let lost = locks.iter().filter(|lock| !lock.is_held()).count();
    let renewed = client.stats().renewals - renewed;
    let statements = asked / (renewed as f64 / 1_000.0);
    Many { statements, cpu, bytes, lost }
}

/// How many of 200 are lost while two threads do nothing but run.
fn on_a_busy_machine(url: &str) -> usize {
    let client = Client::open(url).expect("open");
    let options = AcquireOptions::new().ttl(Duration::from_secs(2));
    let locks: Vec<Lock> = (0..200)
        .map(|number| client.acquire(format!("bench-busy-{number}"), &options).expect("acquire"))
        .collect();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        thread::sleep(Duration::from_secs(60));
        over.store(true, Ordering::Relaxed);
    });
    locks.iter().filter(|lock| !lock.is_held()).count()
}

/// From a release by force to when its holder is told, in milliseconds.
fn forced(url: &str) -> Vec<f64> {
    let (client, operator) = (Client::open(url).expect("open"), Client::open(url).expect("open"));
    let options = AcquireOptions::new().ttl(Duration::from_secs(3));
    (0..20)
        .map(|number| {
            let key = format!("bench-forced-{number}");
            let lock = client.acquire(&key, &options).expect("acquire");
            thread::sleep(Duration::from_millis(number * 50));
            let begun = Instant::now();
            assert!(operator.force_release(&key, Kind::Lease).expect("force"), "it is held");
            assert!(lock.wait_lost(Duration::from_secs(10)).expect("held"), "it is told");
            begun.elapsed().as_secs_f64() * 1e3
        })
        .collect()
}

/// From the handle's deadline to when it is told, in milliseconds.
fn expired(url: &str) -> Vec<f64> {
    let client = Client::open(url).expect("open");
    let options = AcquireOptions::new().ttl(Duration::from_millis(500)).manual_renew();
    (0..20)
        .map(|number| {
            let lock = client.acquire(format!("bench-expired-{number}"), &options).expect("ok");
            // It runs down by 1 % faster than time.
            let left = lock.remaining() * 100 / 101;
            let begun = Instant::now();
            assert!(lock.wait_lost(Duration::from_secs(10)).expect("held"), "it is told");
            begun.elapsed().saturating_sub(left).as_secs_f64() * 1e3
        })
        .collect()
}

/// The bytes of memory that this process has.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize = text.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a number");
    pages * 4_096
}

/// The processor time that this process has used.
fn processor_time() -> Duration {
    // SAFETY: zero is valid for a rusage, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let time = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}
