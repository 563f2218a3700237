//! Waiting: how fast a lock changes hands between processes and within one, how
//! soon after a release the next one has it, and what waiters cost the server.
//! What the library is compared to runs in turns with it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dlease::{AcquireOptions, Cancel, Client};
use mysql::Conn;
use mysql::prelude::Queryable;

use crate::child::{self, How, Turn, now_ns};
use crate::pair::{median, meet};
use crate::{Figure, Target};

const ROUNDS: usize = 3;
const TIME: Duration = Duration::from_millis(2_000);

/// Measures one server.
pub(crate) fn measure(url: &str, figures: &mut Vec<Figure>) {
    let plain = url.split('?').next().unwrap_or(url);
    // Like what it is compared to.
    let url = &format!("{plain}?tls=off");
    let (mut sql, server) = meet(url);
    let mut all = Figures { server, figures };
    sql.query_drop(
        "CREATE TABLE IF NOT EXISTS bench_gate (id INT PRIMARY KEY, n BIGINT, holder BIGINT)",
    )
    .expect("a table of our own");
    sql.query_drop("REPLACE INTO bench_gate VALUES (1, 0, 0), (2, 0, 0)").expect("rows");
    // Which makes the library's tables.
    Client::open(url).expect("open").ping(Duration::from_secs(5)).expect("ping");
    sql.query_drop("CREATE TABLE IF NOT EXISTS bench_lease LIKE dl_lock").expect("a table");
    sql.query_drop(
        "REPLACE INTO bench_lease (namespace, kind, lock_key, attempt, holds, token, ttl_us, \
         acquired_us, renewed_us, expires_us, application, host, pid, note) \
         VALUES (x'', 0, x'62656e6368', x'', x'', 1, 1, 1, 1, 0, x'', x'', 1, x'')",
    )
    .expect("a row");
    let bare = between_processes(url, &mut all);
    within_a_process(url, bare, &mut all);
    polling(url, &mut all);
    waiters(url, &mut sql, &mut all);
    first_hand_over(url, Duration::from_millis(200), 60, (15.0, 40.0), &mut all);
    first_hand_over(url, Duration::from_secs(20), 24, (250.0, 250.0), &mut all);
    sql.query_drop("DROP TABLE bench_gate, bench_lease").expect("dropped");
}

struct Figures<'a> {
    server: String,
    figures: &'a mut Vec<Figure>,
}

impl Figures<'_> {
    fn add(&mut self, what: String, value: f64, unit: &'static str, target: Option<Target>) {
        self.figures.push(Figure { server: self.server.clone(), what, value, unit, target });
    }
}

/// Gives the rate of the bare loop with 8 sessions.
fn between_processes(url: &str, all: &mut Figures<'_>) -> f64 {
    let mut bare_of_8 = 0.0;
    for count in [2, 8, 32] {
        let (mut ratios, mut rates, mut bares) = (Vec::new(), Vec::new(), Vec::new());
        let mut lease_ratios = Vec::new();
        let (mut latencies, mut spreads, mut longest) = (Vec::new(), Vec::new(), 0.0_f64);
        for round in 0..ROUNDS {
            let key = format!("bench-{count}-{round}");
            let bare = rate(&child::contend(url, &key, How::Bare, count, TIME));
            let turns = child::contend(url, &key, How::Library, count, TIME);
            let bare_lease = rate(&child::contend(url, &key, How::BareLease, count, TIME));
            ratios.push(rate(&turns) / bare);
            lease_ratios.push(rate(&turns) / bare_lease);
            rates.push(rate(&turns));
            bares.push(bare);
            spreads.push(spread(&turns));
            longest = longest.max(longest_wait(&turns));
            latencies.append(&mut hand_overs(turns));
        }
        let name = |what: &str| format!("{what}, {count} processes");
        if count == 8 {
            bare_of_8 = median(bares.clone());
        }
        all.add(name("bare gate loop"), median(bares), "/s", None);
        all.add(name("hand-overs"), median(rates), "/s", None);
        all.add(name("hand-overs / bare"), median(ratios), "times", Some(Target::AtLeast(0.9)));
        let lease_ratio = median(lease_ratios);
        all.add(name("the same with a lease's row in the loop"), lease_ratio, "times", None);
        all.add(name("release to next, p50"), percentile(&mut latencies, 50), "ms", None);
        all.add(name("release to next, p99"), percentile(&mut latencies, 99), "ms", None);
        let target = Some(Target::AtMost(1.1));
        all.add(name("busiest / idlest"), median(spreads), "times", target);
        all.add(name("longest wait"), longest, "ms", None);
    }
    bare_of_8
}

fn within_a_process(url: &str, bare: f64, all: &mut Figures<'_>) {
    let client = Client::open(url).expect("open");
    let options = AcquireOptions::new().wait(Duration::from_secs(60));
    let (over, turns) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut rates = Vec::new();
    let mut bares = vec![bare];
    for _ in 0..ROUNDS {
        over.store(false, Ordering::Relaxed);
        turns.store(0, Ordering::Relaxed);
        let start = Instant::now();
        thread::scope(|scope| {
            for _ in 0..32 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        client
                            .acquire("bench-in", &options)
                            .expect("acquire")
                            .release()
                            .expect("ok");
                        turns.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            thread::sleep(TIME);
            over.store(true, Ordering::Relaxed);
        });
        rates.push(turns.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64());
        bares.push(rate(&child::contend(url, "bench-in", How::Bare, 8, TIME)));
    }
    let rate = median(rates);
    all.add("hand-overs, 32 threads of one process".to_owned(), rate, "/s", None);
    let target = Some(Target::AtLeast(1.4));
    all.add("that / bare gate loop of 8".to_owned(), rate / median(bares), "times", target);
}

fn polling(url: &str, all: &mut Figures<'_>) {
    let turns = child::contend(url, "bench-poll", How::Polling, 8, TIME * 2);
    all.add("a 100 ms polling lock, 8 processes".to_owned(), rate(&turns) / 2.0, "/s", None);
    let name = |what: &str| format!("a 100 ms polling lock: {what}");
    all.add(name("busiest / idlest"), spread(&turns), "times", None);
    all.add(name("longest wait"), longest_wait(&turns), "ms", None);
    let mut latencies = hand_overs(turns);
    all.add(name("release to next, p50"), percentile(&mut latencies, 50), "ms", None);
}

fn waiters(url: &str, sql: &mut Conn, all: &mut Figures<'_>) {
    let holder = Client::open(url).expect("open");
    let long = AcquireOptions::new().ttl(Duration::from_secs(120));
    let held = holder.try_acquire("bench-wait", &long).expect("acquire").expect("free");
    for count in [10, 100, 1_000] {
        let clients: Vec<Client> =
            (0..count / 20 + 1).map(|_| Client::open(url).expect("open")).collect();
        let cancel = Cancel::new();
        let options = AcquireOptions::new().cancel(&cancel);
        thread::scope(|scope| {
            for number in 0..count {
                let client = &clients[number % clients.len()];
                scope.spawn(|| client.acquire("bench-wait", &options).expect_err("cancelled"));
            }
            let waiting = || clients.iter().map(|c| c.stats().waiting).sum::<u64>();
            while waiting() < count as u64 {
                thread::sleep(Duration::from_millis(10));
            }
            thread::sleep(Duration::from_millis(2_500));
            let before = questions(sql);
            thread::sleep(Duration::from_secs(4));
            let each = (questions(sql) - before - 1) as f64 / 4.0;
            let target = (count == 1_000).then_some(Target::AtMost(50.0));
            all.add(format!("statements for {count} waiters on one key"), each, "/s", target);
            cancel.fire();
        });
    }
    held.release().expect("release");
}

/// How many statements the server was asked so far.
pub(crate) fn questions(sql: &mut Conn) -> u64 {
    let row = sql.query_first::<(String, u64), _>("SHOW GLOBAL STATUS LIKE 'Questions'");
    row.expect("status").expect("a row").1
}

/// A holder that came by the fast path keeps no bell: how soon is it noticed
/// that it has released?
fn first_hand_over(
    url: &str,
    hold: Duration,
    samples: usize,
    (p50, p99): (f64, f64),
    all: &mut Figures<'_>,
) {
    let holder = Client::open(url).expect("open");
    let waiters: Vec<Client> = (0..4).map(|_| Client::open(url).expect("open")).collect();
    let at_once = if hold > Duration::from_secs(1) { samples } else { 4 };
    let options = AcquireOptions::new().ttl(Duration::from_secs(60));
    let mut latencies = Vec::new();
    for round in 0..samples / at_once {
        thread::scope(|scope| {
            let waits: Vec<_> = (0..at_once)
                .map(|number| {
                    let key = format!("bench-first-{}-{round}-{number}", hold.as_millis());
                    let (holder, client) = (&holder, &waiters[number % waiters.len()]);
                    let options = &options;
                    scope.spawn(move || {
                        let held = holder.try_acquire(&key, options).expect("ok").expect("free");
                        thread::scope(|scope| {
                            let waits = scope.spawn(|| {
                                let lock = client.acquire(&key, options).expect("acquire");
                                let at = now_ns();
                                lock.release().expect("release");
                                at
                            });
                            thread::sleep(hold);
                            let released = now_ns();
                            held.release().expect("release");
                            (waits.join().expect("no panic") - released) as f64 / 1e6
                        })
                    })
                })
                .collect();
            latencies.extend(waits.into_iter().map(|wait| wait.join().expect("no panic")));
        });
    }
    let name = |p: &str| format!("first hand-over after {} ms, {p}", hold.as_millis());
    let target = |limit| Some(Target::AtMost(limit));
    all.add(name("p50"), percentile(&mut latencies, 50), "ms", target(p50));
    all.add(name("p99"), percentile(&mut latencies, 99), "ms", target(p99));
}

fn rate(turns: &[Vec<Turn>]) -> f64 {
    turns.iter().map(Vec::len).sum::<usize>() as f64 / TIME.as_secs_f64()
}

/// How many more turns the busiest had than the idlest.
fn spread(turns: &[Vec<Turn>]) -> f64 {
    let counts = || turns.iter().map(|turns| turns.len() as f64);
    counts().fold(0.0, f64::max) / counts().fold(f64::INFINITY, f64::min).max(1.0)
}

/// The longest that one of them waited between two of its turns, in milliseconds.
fn longest_wait(turns: &[Vec<Turn>]) -> f64 {
    let wait = |pair: &[Turn]| pair[1].held_ns.saturating_sub(pair[0].released_ns) as f64 / 1e6;
    turns.iter().flat_map(|turns| turns.windows(2).map(wait)).fold(0.0, f64::max)
}

/// From each release call to when the next one had the lock, in milliseconds.
fn hand_overs(turns: Vec<Vec<Turn>>) -> Vec<f64> {
    let mut all: Vec<Turn> = turns.into_iter().flatten().collect();
    all.sort_unstable_by_key(|turn| turn.token);
    let after = |pair: &[Turn]| pair[1].held_ns.saturating_sub(pair[0].released_ns) as f64 / 1e6;
    all.windows(2).map(after).collect()
}

fn percentile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values
        .get((values.len() * percent / 100).min(values.len().saturating_sub(1)))
        .copied()
        .unwrap_or(0.0)
}
