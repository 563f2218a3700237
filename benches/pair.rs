//! One connection: the raw commit, the acquire-release pair, the round trip.

use std::time::{Duration, Instant};

use dlease::{AcquireOptions, Client};
use mysql::prelude::Queryable;
use mysql::{Conn, Opts, OptsBuilder};

use crate::{Figure, Target};

/// Rounds, each of which measures everything once; the medians count.
const ROUNDS: usize = 21;
/// Operations of each sort a round.
const OPERATIONS: u32 = 200;

/// A connection of the measurement's own, and the server's name.
pub(crate) fn meet(url: &str) -> (Conn, String) {
    let plain = url.split('?').next().unwrap_or(url);
    let options = OptsBuilder::from_opts(Opts::from_url(plain).expect("a URL"));
    let mut sql = Conn::new(options.prefer_socket(false)).expect("the server answers");
    let version = sql.query_first::<String, _>("SELECT VERSION()").ok().flatten();
    let name = name_of(&version.unwrap_or_default());
    (sql, name)
}

/// Measures one server.
pub(crate) fn measure(url: &str, figures: &mut Vec<Figure>) {
    let (mut raw, server) = meet(url);

    raw.query_drop(
        "CREATE TABLE IF NOT EXISTS bench_raw (id INT PRIMARY KEY, n BIGINT) ENGINE=InnoDB",
    )
    .expect("a table of our own");
    raw.query_drop("REPLACE INTO bench_raw VALUES (1, 0)").expect("a row");
    let update = raw.prep("UPDATE bench_raw SET n = n + 1 WHERE id = ?").expect("prepared");
    let nothing = raw.prep("DO 1").expect("prepared");

    let client = Client::builder().max_connections(1).open(url).expect("a client");
    let once = AcquireOptions::new();
    let pair = |client: &Client| {
        let lock = client.try_acquire("bench", &once).expect("acquire").expect("it is free");
        lock.release().expect("release");
    };
    pair(&client);

    let (mut updates, mut pairs, mut trips) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        updates.push(timed(|| raw.exec_drop(&update, (1,)).expect("update")));
        pairs.push(timed(|| pair(&client)));
        trips.push(timed(|| raw.exec_drop(&nothing, ()).expect("round trip")));
    }
    raw.query_drop("DROP TABLE bench_raw").expect("dropped");

    let ratios: Vec<f64> = pairs.iter().zip(&updates).map(|(pair, raw)| pair / raw).collect();
    let mut add = |what: &str, value, unit, target| {
        figures.push(Figure { server: server.clone(), what: what.to_owned(), value, unit, target });
    };
    add("round trip alone (prepared DO 1)", median(trips), "us", None);
    add("raw prepared primary-key update", median(updates), "us", None);
    add("acquire-release pair", median(pairs), "us", None);
    add("pair / raw update", median(ratios), "times", Some(Target::AtMost(2.2)));
}

/// Microseconds for one of `work`.
fn timed(mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..OPERATIONS {
        work();
    }
    micros(start.elapsed()) / f64::from(OPERATIONS)
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn name_of(version: &str) -> String {
    let number = version.split('-').next().unwrap_or(version);
    let kind = if version.contains("MariaDB") { "MariaDB" } else { "MySQL" };
    format!("{kind} {number}")
}
