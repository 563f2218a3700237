//! A process of its own that takes one lock in turns with others: this binary,
//! started once more. Each turn is told on standard output, as the token, when
//! the lock was held and when its release was called, in nanoseconds.

use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use dlease::{AcquireOptions, Client};
use mysql::prelude::Queryable;
use mysql::{Conn, Opts, OptsBuilder};

const ROLE: &str = "DLEASE_BENCH_CHILD";

/// How a child takes the lock.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum How {
    /// By the library.
    Library,
    /// By a bare loop: GET_LOCK and a small row's update in one packet, and back.
    Bare,
    /// By the same loop, with a row like a lease's, and what is written there.
    BareLease,
    /// As every rival does: a try, and 100 ms of sleep.
    Polling,
}

/// One time that somebody had the lock.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) token: u64,
    pub(crate) held_ns: u64,
    pub(crate) released_ns: u64,
}

/// The turns of each of `count` processes that take the lock `key` for `time`.
pub(crate) fn contend(
    url: &str,
    key: &str,
    how: How,
    count: usize,
    time: Duration,
) -> Vec<Vec<Turn>> {
    let role = match how {
        How::Library => "library",
        How::Bare => "bare",
        How::BareLease => "bare-lease",
        How::Polling => "polling",
    };
    let start = now_ns() + 400_000_000 + 15_000_000 * count as u64;
    let end = start + time.as_nanos() as u64;
    let children: Vec<_> = (0..count)
        .map(|_| {
            let mut command = Command::new(std::env::current_exe().expect("this binary"));
            command.env(ROLE, format!("{role} {key} {start} {end} {url}"));
            command.stdout(Stdio::piped()).spawn().expect("a child")
        })
        .collect();
    let turns = |child: std::process::Child| {
        let output = child.wait_with_output().expect("a child");
        assert!(output.status.success(), "a child failed");
        String::from_utf8_lossy(&output.stdout).lines().map(turn).collect()
    };
    children.into_iter().map(turns).collect()
}

fn turn(line: &str) -> Turn {
    let mut numbers = line.split(' ').map(|number| number.parse().expect("a number"));
    let mut next = || numbers.next().expect("three numbers");
    Turn { token: next(), held_ns: next(), released_ns: next() }
}

pub(crate) fn is_one() -> bool {
    std::env::var_os(ROLE).is_some()
}

pub(crate) fn now_ns() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos() as u64
}

/// What a child does.
pub(crate) fn run() {
    let role = std::env::var(ROLE).expect("it is set");
    let mut words = role.splitn(5, ' ');
    let mut next = || words.next().expect("five words");
    let (how, key, start, end, url) = (next(), next(), next(), next(), next());
    let (start, end): (u64, u64) = (start.parse().expect("ns"), end.parse().expect("ns"));
    let turns = match how {
        "library" => library(url, key, start, end),
        "bare" => bare(url, key, start, end),
        "bare-lease" => bare_lease(url, key, start, end),
        _ => polling(url, start, end),
    };
    let lines: Vec<String> = turns
        .iter()
        .map(|turn| format!("{} {} {}", turn.token, turn.held_ns, turn.released_ns))
        .collect();
    println!("{}", lines.join("\n"));
}

fn until(start: u64) {
    std::thread::sleep(Duration::from_nanos(start.saturating_sub(now_ns())));
}

fn library(url: &str, key: &str, start: u64, end: u64) -> Vec<Turn> {
    let client = Client::open(url).expect("open");
    client.ping(Duration::from_secs(5)).expect("ping");
    let options = AcquireOptions::new().wait(Duration::from_secs(60));
    until(start);
    let mut turns = Vec::new();
    while now_ns() < end {
        let lock = client.acquire(key, &options).expect("acquire");
        let (token, held_ns) = (lock.token(), now_ns());
        let released_ns = now_ns();
        lock.release().expect("release");
        turns.push(Turn { token, held_ns, released_ns });
    }
    turns
}

fn connect(url: &str) -> Conn {
    let plain = url.split('?').next().unwrap_or(url);
    let options = OptsBuilder::from_opts(Opts::from_url(plain).expect("a URL"));
    Conn::new(options.prefer_socket(false)).expect("the server answers")
}

fn bare(url: &str, key: &str, start: u64, end: u64) -> Vec<Turn> {
    let mut conn = connect(url);
    let take = format!(
        "SELECT GET_LOCK('{key}', 60); \
         UPDATE bench_gate SET n = LAST_INSERT_ID(n + 1), holder = CONNECTION_ID() WHERE id = 1"
    );
    let release =
        format!("UPDATE bench_gate SET holder = 0 WHERE id = 1; DO RELEASE_LOCK('{key}')");
    until(start);
    let mut turns = Vec::new();
    while now_ns() < end {
        conn.query_drop(&take).expect("take");
        let token = conn.last_insert_id();
        let (held_ns, released_ns) = (now_ns(), now_ns());
        conn.query_drop(&release).expect("release");
        turns.push(Turn { token, held_ns, released_ns });
    }
    turns
}

/// What of the rate is the price of the row, and not of how it is waited for:
/// the columns, conditions and lengths of the library's own statements.
fn bare_lease(url: &str, key: &str, start: u64, end: u64) -> Vec<Turn> {
    const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))";
    const ROW: &str = "namespace = x'' AND kind = 0 AND lock_key = x'62656e6368'";
    let mut conn = connect(url);
    let pid = std::process::id();
    until(start);
    let mut turns: Vec<Turn> = Vec::new();
    while now_ns() < end {
        let hold = format!("x'{pid:016x}{:016x}'", turns.len());
        let take = format!(
            "SELECT GET_LOCK('{key}', 60); \
             UPDATE bench_lease FORCE INDEX (PRIMARY) SET \
             token = LAST_INSERT_ID(GREATEST(token + 1, {NOW})), owner = {hold}, \
             attempt = {hold}, holds = {hold}, ttl_us = 30000000, acquired_us = {NOW}, \
             renewed_us = {NOW}, expires_us = {NOW} + 30000000, application = x'', \
             host = x'6c6f63616c686f7374', pid = {pid}, note = x'' WHERE {ROW} \
             AND ({NOW} < {end} OR LAST_INSERT_ID({NOW} + 0 * token) = 0) \
             AND (expires_us <= {NOW} OR LAST_INSERT_ID(expires_us - {NOW} \
             + IF(expires_us - {NOW} > ttl_us, 1, 0)) = 0)"
        );
        conn.query_drop(&take).expect("take");
        let token = conn.last_insert_id();
        let (held_ns, released_ns) = (now_ns(), now_ns());
        let release = format!(
            "UPDATE bench_lease FORCE INDEX (PRIMARY) SET owner = NULL, holds = x'', \
             expires_us = 0 WHERE {ROW} AND token = {token} AND holds = {hold} \
             AND expires_us > {NOW}; DO RELEASE_LOCK('{key}')"
        );
        conn.query_drop(&release).expect("release");
        turns.push(Turn { token, held_ns, released_ns });
    }
    turns
}

/// On a row of its own, which is not the bare loop's.
fn polling(url: &str, start: u64, end: u64) -> Vec<Turn> {
    let mut conn = connect(url);
    let take = "UPDATE bench_gate SET n = LAST_INSERT_ID(n + 1), holder = CONNECTION_ID() \
                WHERE id = 2 AND holder = 0";
    let release = "UPDATE bench_gate SET holder = 0 WHERE id = 2";
    until(start);
    let mut turns = Vec::new();
    while now_ns() < end {
        conn.query_drop(take).expect("take");
        if conn.affected_rows() == 0 {
            std::thread::sleep(Duration::from_millis(100));
            continue;
        }
        let token = conn.last_insert_id();
        let (held_ns, released_ns) = (now_ns(), now_ns());
        conn.query_drop(release).expect("release");
        turns.push(Turn { token, held_ns, released_ns });
        std::thread::sleep(Duration::from_millis(1));
    }
    turns
}
