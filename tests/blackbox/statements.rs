//! The statements that a client sends: how they find their row, what they
//! lock, what they cost, and that none depends on what a session might be set to.

use dlease::{AcquireOptions, Client, Lock};

use crate::support::proxy::Proxy;
use crate::support::{Other, Own, each_kind_at_once, eventually, ms, take, unique};

/// The sorts of statements, and what each is told by.
const SORTS: &[(&str, &str)] = &[
    ("take", "SET token ="),
    ("insert", "INSERT INTO"),
    ("join", "CONCAT(holds"),
    ("renew", "attempt IN ("),
    ("renew_shared", "SET ttl_us ="),
    ("release", "SET owner ="),
    ("release_shared", "SET holds ="),
    ("look", "SELECT token"),
    ("left", "SELECT IF(expires_us"),
    ("hand_over", "AND holds = x'"),
];

/// One that a client has sent. Its key's row is as it was before, so that it
/// can be run once more, and do the same.
#[derive(Debug)]
struct Statement {
    name: &'static str,
    text: String,
    key: String,
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// A server of the test's own, with a client behind a proxy.
struct Scene {
    own: Own,
    proxy: Proxy,
    client: Client,
    other: Client,
    root: Other,
    /// Held for as long as statements need them.
    locks: Vec<Lock>,
}

impl Scene {
    fn new(kind: &str, test: &str, options: &[&str]) -> Scene {
        let own = Own::start(kind, test, options);
        let proxy = Proxy::start(own.server.port());
        let behind = own.server.behind(&proxy);
        let client = behind.client_with(|options| options.io_timeout(ms(60_000)));
        client.ping(ms(5_000)).expect("ping");
        let mut root = own.root();
        root.run("CREATE TABLE saved LIKE dl_lock");
        let other = own.server.client();
        Scene { own, proxy, client, other, root, locks: Vec::new() }
    }

    /// The last statement of a sort that `work` sends.
    fn sent(
        &mut self,
        name: &'static str,
        key: &str,
        work: impl FnOnce() -> Option<Lock>,
    ) -> Statement {
        let it = format!("WHERE lock_key = '{key}'");
        self.root.run(&format!("REPLACE INTO saved SELECT * FROM dl_lock {it}"));
        if name != "left" {
            self.proxy.forget_statements();
        }
        self.locks.extend(work());
        self.root.run(&format!("DELETE FROM dl_lock {it}"));
        self.root.run(&format!("INSERT INTO dl_lock SELECT * FROM saved {it}"));
        let mark = SORTS.iter().find(|(sort, _)| *sort == name).expect("a sort").1;
        let mut statements = self.proxy.statements().into_iter().rev();
        let text = statements.find(|text| text.contains(mark));
        let text = text.unwrap_or_else(|| panic!("no {name} was sent"));
        if name != "insert" {
            return Statement { name, text, key: key.to_owned() };
        }
        // Not where a row was a moment ago, but where there never was one.
        let other = unique("statement");
        let text = text.replace(&hex(key), &hex(&other));
        assert!(text.contains(&hex(&other)));
        Statement { name, text, key: other }
    }

    /// One of each sort.
    fn one_of_each(&mut self) -> Vec<Statement> {
        let (client, other) = (self.client.clone(), self.other.clone());
        let options = AcquireOptions::new().wait(ms(60_000)).ttl(ms(60_000));
        let owned = options.clone().owner("o");
        let acquire = |key: &str| client.acquire(key, &options).expect("acquire");
        let share = |client: &Client, key: &str| client.acquire(key, &owned).expect("acquire");
        let next = || unique("statement");
        let mut all = Vec::new();

        let key = next();
        all.push(self.sent("insert", &key, || Some(acquire(&key))));
        let key = next();
        take(&client, &key).release().expect("release");
        all.push(self.sent("take", &key, || Some(acquire(&key))));
        let key = next();
        let lock = acquire(&key);
        all.push(self.sent("renew", &key, || {
            lock.renew().expect("renew");
            Some(lock)
        }));
        let key = next();
        let lock = acquire(&key);
        all.push(self.sent("release", &key, || {
            lock.release().expect("release");
            None
        }));
        let key = next();
        self.locks.push(share(&other, &key));
        all.push(self.sent("join", &key, || Some(share(&client, &key))));
        let key = next();
        self.locks.push(share(&other, &key));
        let lock = share(&client, &key);
        all.push(self.sent("renew_shared", &key, || {
            lock.renew().expect("renew");
            Some(lock)
        }));
        let key = next();
        self.locks.push(share(&other, &key));
        let lock = share(&client, &key);
        all.push(self.sent("release_shared", &key, || {
            lock.release().expect("release");
            None
        }));
        // A renewal that finds another's token asks why.
        let key = next();
        let lock = acquire(&key);
        self.root.run(&format!("UPDATE dl_lock SET token = token + 1 WHERE lock_key = '{key}'"));
        all.push(self.sent("look", &key, || {
            lock.renew().expect_err("lost");
            Some(lock)
        }));
        // A caller of the same process waits: a session stands for it, and the
        // release hands the lease over.
        let key = next();
        let (waiter, waits) = (client.clone(), options.clone());
        let lock = acquire(&key);
        let (asked, mine) = (key.clone(), &mut self.locks);
        let waiting = std::thread::spawn(move || waiter.acquire(&asked, &waits).expect("acquire"));
        eventually("it waits", || client.stats().waiting == 1);
        let proxy = self.proxy.clone();
        eventually("it stands at the gate", || {
            proxy.statements().iter().any(|text| text.contains("GET_LOCK('dl_b_"))
        });
        mine.push(lock);
        all.push(self.sent("left", &key, || None));
        let lock = self.locks.pop().expect("it was pushed");
        all.push(self.sent("hand_over", &key, || {
            lock.release().expect("release");
            Some(waiting.join().expect("no panic"))
        }));
        assert!(SORTS.iter().all(|(sort, _)| all.iter().any(|s| s.name == *sort)));
        all
    }
}

#[test]
fn every_statement_goes_by_the_primary_key_says_so_and_reads_one_row() {
    each_kind_at_once(|kind| {
        let mut scene = Scene::new(kind, "plans", &[]);
        // Others around it, so that a scan would show.
        for _ in 0..50 {
            take(&scene.client, unique("statement")).release().unwrap();
        }
        scene.root.run("ANALYZE TABLE dl_lock");
        let all = scene.one_of_each();
        let mut sql = scene.own.root();
        for Statement { name, text, .. } in &all {
            let plan: Vec<mysql::Row> = sql.rows(&format!("EXPLAIN FORMAT=TRADITIONAL {text}"));
            println!("{kind}: {name}: {plan:?}");
            let cell = |row: &mysql::Row, name: &str| {
                row.get::<Option<String>, _>(name).expect("a column").unwrap_or_default()
            };
            if *name == "insert" {
                // It reads no table. MySQL has a line for the one it writes.
                let reads = plan.iter().filter(|row| cell(row, "rows").parse::<u64>().is_ok());
                assert_eq!(reads.count(), 0, "{plan:?}");
                continue;
            }
            assert_eq!(plan.len(), 1, "{plan:?}");
            assert_eq!(cell(&plan[0], "key"), "PRIMARY", "{plan:?}");
            assert_eq!(cell(&plan[0], "rows"), "1", "{plan:?}");
            assert!(matches!(&*cell(&plan[0], "type"), "range" | "const"), "{plan:?}");
            assert!(text.contains("FORCE INDEX (PRIMARY)"), "{text}");
        }
        for Statement { name, text, .. } in &all {
            sql.run("FLUSH STATUS");
            sql.run(text);
            let read: Vec<(String, u64)> = sql.rows("SHOW SESSION STATUS LIKE 'Handler_read%'");
            let read: u64 = read.iter().map(|(_, count)| count).sum();
            // `insert` looks up nothing; the server itself has the row at hand.
            assert_eq!(read, u64::from(*name != "insert"), "{kind}: {name}");
        }
    });
}

/// The record locks of the session's open transaction: index, mode, how many.
fn locks(kind: &str, root: &mut Other, session: u64) -> Vec<(String, String, usize)> {
    if kind == "mysql" {
        return root.rows(&format!(
            "SELECT index_name, lock_mode, COUNT(*) FROM performance_schema.data_locks \
             JOIN performance_schema.threads USING (thread_id) \
             WHERE lock_type = 'RECORD' AND processlist_id = {session} \
             GROUP BY index_name, lock_mode ORDER BY index_name"
        ));
    }
    // The only open transaction is the one in question.
    let (_, _, status): (String, String, String) =
        root.row("SHOW ENGINE INNODB STATUS").expect("a row");
    let mut found: Vec<(String, String, usize)> = Vec::new();
    for line in status.lines() {
        if let Some((_, line)) = line.split_once("RECORD LOCKS ") {
            let index = line.split(" index ").nth(1).and_then(|text| text.split(' ').next());
            let mode = line.split(" trx id ").nth(1).and_then(|text| text.split_once(' '));
            let mode = match mode.expect("a mode").1 {
                "lock_mode X locks rec but not gap" => "X,REC_NOT_GAP",
                other => other,
            };
            found.push((index.expect("an index").to_owned(), mode.to_owned(), 0));
        } else if line.starts_with("Record lock, heap no") {
            found.last_mut().expect("a header before").2 += 1;
        }
    }
    found
}

#[test]
fn every_statement_locks_its_one_row_and_nothing_beside_it() {
    each_kind_at_once(|kind| {
        let mut scene = Scene::new(kind, "locks", &[]);
        let mut all = scene.one_of_each();
        // And one that finds no row.
        let key = unique("statement");
        take(&scene.client, &key).release().unwrap();
        let client = scene.client.clone();
        let mut absent = scene.sent("take", &key, || Some(take(&client, &key)));
        scene.root.run(&format!("DELETE FROM dl_lock WHERE lock_key = '{key}'"));
        absent.name = "take of a key that has no row";
        all.push(absent);
        scene.root.run("SET GLOBAL innodb_status_output_locks = ON");
        let mut sql = scene.own.server.other();
        sql.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED");
        let session = sql.id();
        for Statement { name, text, key } in &all {
            sql.run("BEGIN");
            let changed = sql.changed(text);
            let idle = matches!(*name, "look" | "left") || name.ends_with("no row");
            assert_eq!(changed, u64::from(!idle), "{kind}: {text}");
            let found = locks(kind, &mut scene.root, session);
            println!("{kind}: {name}: {found:?}");
            let the_row = ("PRIMARY".to_owned(), "X,REC_NOT_GAP".to_owned(), 1);
            let its_fence = ("fence".to_owned(), "X,REC_NOT_GAP".to_owned(), 1);
            match *name {
                "look" | "left" | "take of a key that has no row" => assert_eq!(found, []),
                // A new row is locked by being there; a grant writes `fence`.
                "insert" => assert!(found.iter().all(|lock| *lock == the_row), "{found:?}"),
                "take" | "hand_over" => assert!(
                    found.contains(&the_row)
                        && found.iter().all(|lock| *lock == the_row || *lock == its_fence),
                    "{found:?}"
                ),
                _ => assert_eq!(found, [the_row]),
            }
            // Neighbours on both sides come and go meanwhile.
            let mut neighbour = scene.own.server.other();
            neighbour.run("SET SESSION innodb_lock_wait_timeout = 1");
            for other in [format!("{}!", &key[..key.len() - 1]), format!("{key}!")] {
                neighbour.run(&format!(
                    "INSERT INTO dl_lock (lock_key, namespace, kind, attempt, holds, token, \
                     ttl_us, acquired_us, renewed_us, expires_us, application, host, pid, note) \
                     VALUES ('{other}', '', 0, '', '', 1, 1, 1, 1, 1, '', '', 1, '')"
                ));
                let it = format!("namespace = '' AND kind = 0 AND lock_key = '{other}'");
                neighbour.run(&format!("DELETE FROM dl_lock WHERE {it}"));
            }
            sql.run("ROLLBACK");
        }
    });
}

#[test]
fn a_look_at_many_rows_fetches_each_by_the_primary_key_and_locks_none() {
    each_kind_at_once(|kind| {
        let own = Own::start(kind, "looks", &[]);
        let proxy = Proxy::start(own.server.port());
        let (holder, waiter) = (own.server.client(), own.server.behind(&proxy).client());
        for _ in 0..200 {
            take(&holder, unique("around")).release().unwrap();
        }
        own.root().run("ANALYZE TABLE dl_lock");
        let keys: Vec<String> = (0..20).map(|_| unique("look")).collect();
        let held: Vec<Lock> = keys.iter().map(|key| take(&holder, key)).collect();
        let options = AcquireOptions::new().wait(ms(30_000));
        for (tag, key) in (0..).zip(&keys) {
            waiter.acquire_async(key, &options, tag).unwrap();
        }
        let mut text = None;
        eventually("all are looked at together", || {
            let all =
                |text: &String| text.contains("JSON_TABLE") && text.matches("\",\"").count() >= 11;
            text = proxy.statements().into_iter().rev().find(all);
            text.is_some()
        });
        let text = text.unwrap();
        let mut sql = own.root();
        let plan: Vec<mysql::Row> = sql.rows(&format!("EXPLAIN FORMAT=TRADITIONAL {text}"));
        println!("{kind}: {plan:?}");
        let cell = |row: &mysql::Row, name: &str| {
            row.get::<Option<String>, _>(name).expect("a column").unwrap_or_default()
        };
        let of_the_table = plan.iter().find(|row| cell(row, "table") == "l").expect("the table");
        assert_eq!(cell(of_the_table, "key"), "PRIMARY");
        assert_eq!(cell(of_the_table, "type"), "eq_ref");
        let listed = text.matches("\",\"").count() as u64 + 1;
        sql.run("FLUSH STATUS");
        let found: Vec<(u64, u64)> = sql.rows(&text);
        assert_eq!(found.len() as u64, listed);
        let looked_up: (String, u64) =
            sql.row("SHOW SESSION STATUS LIKE 'Handler_read_key'").unwrap();
        assert!(looked_up.1 <= listed + 1, "{} for {listed} keys", looked_up.1);
        sql.run("BEGIN");
        let _: Vec<(u64, u64)> = sql.rows(&text);
        let session = sql.id();
        if kind == "mysql" {
            assert_eq!(locks(kind, &mut own.root(), session), []);
        }
        drop(held);
    });
}
