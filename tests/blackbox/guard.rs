//! The guard: a locking read in the caller's own transaction, by which no write of
//! it can be late.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dlease::{AcquireOptions, Kind, LostCause, Status};

use crate::support::{
    Other, Server, each_server, each_server_at_once, ms, status, take, timed, try_it, unique,
};

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

/// A session of a user's own, as drivers open them.
fn user(server: &Server, level: &str) -> Other {
    let mut user = server.other();
    user.run(&format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}"));
    user
}

fn table(server: &Server, name: &str) {
    let mut other = server.other();
    other.run(&format!("DROP TABLE IF EXISTS {name}"));
    other.run(&format!("CREATE TABLE {name} (id INT PRIMARY KEY, by_token BIGINT UNSIGNED)"));
    other.run(&format!("INSERT INTO {name} SELECT seq, 0 FROM (SELECT 1 seq UNION SELECT 2) s"));
}

/// Whether the guard found its row; an error number if it was refused.
fn guarded(user: &mut Other, sql: &str) -> bool {
    user.row::<u64>(sql).is_some()
}

#[test]
fn a_guard_passes_for_the_last_grant_alone() {
    each_server(|server| {
        let (one, two) = (server.client(), server.client());
        for level in LEVELS {
            let key = unique("guarded");
            let mut user = user(server, level);
            let options = AcquireOptions::new().ttl(ms(400)).manual_renew();
            let lock = one.acquire(&key, &options).unwrap();
            let sql = lock.guard_sql().unwrap();
            assert!(sql.contains("LOCK IN SHARE MODE") && sql.contains(&lock.token().to_string()));
            user.run("BEGIN");
            assert!(guarded(&mut user, &sql));
            user.run("COMMIT");
            // Lapsed, and taken by nobody: nobody can be late.
            thread::sleep(ms(500));
            assert_eq!(status(lock.guard_sql()), Status::NotHeld);
            user.run("BEGIN");
            assert!(guarded(&mut user, &sql));
            user.run("COMMIT");
            let next = take(&two, &key);
            user.run("BEGIN");
            assert!(!guarded(&mut user, &sql));
            user.run("ROLLBACK");
            user.run("BEGIN");
            assert!(guarded(&mut user, &next.guard_sql().unwrap()));
            user.run("COMMIT");
            let sql = next.guard_sql().unwrap();
            assert!(one.force_release(&key, Kind::Lease).unwrap());
            user.run("BEGIN");
            assert!(!guarded(&mut user, &sql));
            user.run("ROLLBACK");
        }
    });
}

#[test]
fn an_open_guard_delays_no_renewal_no_release_and_no_try() {
    each_server(|server| {
        let (one, two) = (server.client(), server.client());
        for level in LEVELS {
            let key = unique("undelayed");
            let mut user = user(server, level);
            let lock = one.acquire(&key, &AcquireOptions::new().ttl(ms(900))).unwrap();
            user.run("BEGIN");
            assert!(guarded(&mut user, &lock.guard_sql().unwrap()));
            let (next, took) = timed(|| try_it(&two, &key));
            assert!(next.is_none() && took < ms(900), "{took:?}");
            // Also those of the client's own thread.
            thread::sleep(ms(2_000));
            assert!(lock.is_held());
            let ((), took) = timed(|| lock.renew().unwrap());
            assert!(took < ms(900), "{took:?}");
            let ((), took) = timed(|| lock.release().unwrap());
            assert!(took < ms(900), "{took:?}");
            // The next grant waits for the guarded transaction.
            assert!(try_it(&two, &key).is_none());
            user.run("COMMIT");
            let next = try_it(&two, &key).expect("it is free");
            next.release().unwrap();
        }
    });
}

#[test]
fn a_holder_that_wakes_after_its_lease_cannot_commit() {
    each_server_at_once(|server| {
        let (one, two) = (server.client(), server.client());
        for (number, level) in LEVELS.iter().enumerate() {
            let (key, rows) = (unique("paused"), format!("guarded_{number}"));
            table(server, &rows);
            let mut sleeper = user(server, level);
            let options = AcquireOptions::new().ttl(ms(300)).manual_renew();
            let lock = one.acquire(&key, &options).unwrap();
            let sql = lock.guard_sql().unwrap();
            // It sleeps before its transaction; another takes over and writes.
            thread::sleep(ms(500));
            let next = take(&two, &key);
            let mut writer = user(server, level);
            writer.run("BEGIN");
            assert!(guarded(&mut writer, &next.guard_sql().unwrap()));
            writer.run(&format!("UPDATE {rows} SET by_token = {} WHERE id = 1", next.token()));
            writer.run("COMMIT");
            sleeper.run("BEGIN");
            assert!(!guarded(&mut sleeper, &sql), "its commit would land late");
            sleeper.run("ROLLBACK");
            assert_eq!(lock.lost_cause(), Some(LostCause::Expired));
            let last = writer.row::<u64>(&format!("SELECT by_token FROM {rows} WHERE id = 1"));
            assert_eq!(last, Some(next.token()));
        }
    });
}

#[test]
fn one_that_sleeps_inside_its_guarded_transaction_holds_the_next_back() {
    each_server_at_once(|server| {
        let (one, two) = (server.client(), server.client());
        let (key, rows) = (unique("inside"), "guarded_inside");
        table(server, rows);
        let options = AcquireOptions::new().ttl(ms(300)).manual_renew();
        let lock = one.acquire(&key, &options).unwrap();
        let mut sleeper = user(server, "READ COMMITTED");
        sleeper.run("BEGIN");
        assert!(guarded(&mut sleeper, &lock.guard_sql().unwrap()));
        thread::scope(|scope| {
            let next = scope.spawn(|| timed(|| take(&two, &key)));
            thread::sleep(ms(1_500));
            sleeper.run(&format!("UPDATE {rows} SET by_token = {} WHERE id = 1", lock.token()));
            sleeper.run("COMMIT");
            let (next, waited) = next.join().unwrap();
            assert!(waited >= ms(1_400) && waited < ms(6_000), "{waited:?}");
            assert!(next.token() > lock.token());
        });
    });
}

/// Guards in any order against renewals, takers, releases and forces: no commit is
/// late, and no renewal ends a guarded transaction.
#[test]
fn under_a_storm_no_guarded_commit_is_late() {
    each_server(|server| {
        let keys: Vec<String> = (0..2).map(|_| unique("storm")).collect();
        let rows = "guarded_storm";
        let mut other = server.other();
        other.run(&format!("DROP TABLE IF EXISTS {rows}"));
        other.run(&format!("CREATE TABLE {rows} (id INT PRIMARY KEY, by_token BIGINT UNSIGNED)"));
        for number in 0..keys.len() {
            other.run(&format!("INSERT INTO {rows} VALUES ({number}, 0)"));
        }
        let time = if crate::support::long() { ms(30_000) } else { ms(4_000) };
        let stop = Instant::now() + time;
        let (commits, refused, late) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for worker in 0..6_usize {
                let (keys, commits, refused, late) = (&keys, &commits, &refused, &late);
                let (over, client) = (&over, server.client());
                let mut user = user(server, LEVELS[worker % 3]);
                scope.spawn(move || {
                    let mut turn = worker;
                    // Some of the leases end while they are worked with, before the
                    // guard or behind it.
                    let ends = AcquireOptions::new().ttl(ms(60)).manual_renew();
                    let kept = AcquireOptions::new().ttl(ms(300));
                    let options = if worker % 2 == 0 { ends } else { kept }.wait(ms(500));
                    while !over.load(Ordering::Relaxed) {
                        turn = turn.wrapping_mul(7).wrapping_add(3);
                        let number = turn % keys.len();
                        let Ok(lock) = client.acquire(&keys[number], &options) else { continue };
                        let Ok(sql) = lock.guard_sql() else { continue };
                        let pause = ms(30 + turn as u64 % 120);
                        if turn % 4 == 0 {
                            thread::sleep(pause);
                        }
                        match write(&mut user, rows, number, lock.token(), &sql, pause) {
                            Wrote::Late => late.fetch_add(1, Ordering::Relaxed),
                            Wrote::Yes => commits.fetch_add(1, Ordering::Relaxed),
                            Wrote::No => refused.fetch_add(1, Ordering::Relaxed),
                        };
                        if turn % 5 != 0 {
                            let _ = lock.release();
                        }
                    }
                });
            }
            thread::sleep(stop.saturating_duration_since(Instant::now()));
            over.store(true, Ordering::Relaxed);
        });
        let count = |n: &AtomicU64| n.load(Ordering::Relaxed);
        println!("{} commits, {} refused, {} late", count(&commits), count(&refused), count(&late));
        assert!(count(&commits) > 20);
        assert_eq!(count(&late), 0);
    });
}

enum Wrote {
    Yes,
    No,
    /// A greater token had written before, in a transaction that this one saw.
    Late,
}

/// Writes by a guarded transaction, and looks whether a later grant had written
/// before.
fn write(
    user: &mut Other,
    rows: &str,
    number: usize,
    token: u64,
    sql: &str,
    pause: Duration,
) -> Wrote {
    user.run("BEGIN");
    let passed = user.try_row::<u64>(sql);
    if !matches!(passed, Ok(Some(_))) {
        user.run("ROLLBACK");
        return Wrote::No;
    }
    thread::sleep(pause);
    let before = format!("SELECT by_token FROM {rows} WHERE id = {number} FOR UPDATE");
    let Ok(Some(before)) = user.try_row::<u64>(&before) else {
        user.run("ROLLBACK");
        return Wrote::No;
    };
    let set = format!("UPDATE {rows} SET by_token = {token} WHERE id = {number}");
    if user.errno(&set) != 0 || user.errno("COMMIT") != 0 {
        user.run("ROLLBACK");
        return Wrote::No;
    }
    if before > token { Wrote::Late } else { Wrote::Yes }
}

/// Guards on several keys in any order while the client's own thread renews all of
/// them: the transactions wait for nobody and are ended by nobody.
#[test]
fn no_renewal_ends_a_guarded_transaction() {
    each_server(|server| {
        let client = server.client();
        let keys: Vec<String> = (0..12).map(|_| unique("undisturbed")).collect();
        let options = AcquireOptions::new().ttl(ms(200));
        let locks: Vec<_> = keys.iter().map(|key| client.acquire(key, &options).unwrap()).collect();
        let stop = Instant::now() + ms(3_000);
        thread::scope(|scope| {
            for (worker, level) in LEVELS.iter().enumerate() {
                let (locks, mut user) = (&locks, user(server, level));
                scope.spawn(move || {
                    let mut turn = worker + 1;
                    while Instant::now() < stop {
                        user.run("BEGIN");
                        for _ in 0..3 {
                            turn = turn.wrapping_mul(5).wrapping_add(1);
                            let sql = locks[turn % locks.len()].guard_sql().unwrap();
                            assert!(user.try_row::<u64>(&sql).unwrap().is_some());
                            thread::sleep(Duration::from_micros(turn as u64 % 3_000));
                        }
                        user.run("COMMIT");
                    }
                });
            }
        });
        assert!(locks.iter().all(dlease::Lock::is_held));
        assert!(client.stats().renewals > 200, "{}", client.stats().renewals);
    });
}
