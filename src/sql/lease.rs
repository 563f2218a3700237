//! The lease kind: one row per key, changed by single compare-and-set
//! statements in autocommit, each by the full primary key.
//!
//! Why the clock may be read at a statement's start: one that waited for the
//! row compares with a time that is too early, which can only make it see a
//! lapsed lease as held, and writes an expiry that is too early, which can only
//! make its own lease end sooner. Neither grants a lock twice.

use super::gate::Gate;
use super::{NOW_US, Names, hex, hex_digits};

/// Added to the server's clock where a statement reports that it came too
/// late: no remaining time and no token is ever as large.
pub(crate) const LATE: u64 = 1 << 62;

/// Added to the time that a lease has left where it is more than the lease is
/// long, which can only be if the server's clock was set back.
pub(crate) const STEPPED: u64 = 1 << 61;

/// Reported where the lease is free, and others stand at the gate for it.
pub(crate) const QUEUED: u64 = 1 << 60;

/// What a release by force leaves in `attempt`, until the next grant: by that its
/// holder learns of it.
pub(crate) const FORCED: [u8; 16] = *b"forced by dlease";

/// All that a grant, a renewal or a release changes in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) token: u64,
    pub(crate) renewed_us: u64,
    pub(crate) expires_us: u64,
}

/// The row a statement is about, and who is asking.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) names: &'a Names,
    pub(crate) namespace: &'a [u8],
    pub(crate) key: &'a [u8],
}

/// What an acquire writes into the row.
#[derive(Clone, Debug)]
pub(crate) struct Grant<'a> {
    pub(crate) owner: &'a [u8],
    pub(crate) attempt: &'a [u8; 16],
    pub(crate) ttl_us: u64,
    pub(crate) give_up_us: u64,
    pub(crate) application: &'a [u8],
    pub(crate) host: &'a [u8],
    pub(crate) pid: u32,
    pub(crate) note: &'a [u8],
}

impl Row<'_> {
    fn is_this(&self) -> String {
        let (namespace, key) = (hex(self.namespace), hex(self.key));
        format!("namespace = {namespace} AND kind = 0 AND lock_key = {key}")
    }

    /// `take`: the lease, if nobody holds it.
    ///
    /// The compare-and-set decides under the row's exclusive lock, and its
    /// success is its own commit: of two takers the second sees the first's
    /// expiry. The OK packet carries the outcome, and no second statement has
    /// to look: 1 row and the token; 0 rows and the microseconds that the
    /// holder has left (and `STEPPED`, if that cannot be); 0 rows and `LATE` plus the server's clock, if the
    /// statement ran after its caller had given up; 0 and 0: there is no row.
    /// (`0 * token` keeps MariaDB from evaluating the report as a constant.)
    /// The token grows by at least one, and to the clock if that is ahead, so
    /// that it grows even where rows or commits were lost.
    ///
    /// With a `queue`, a free lease is left to those who stand at its gate:
    /// 0 rows and `QUEUED`. A hint for newcomers who can wait: had it been
    /// wrong, they would only have queued.
    pub(crate) fn take(&self, grant: &Grant<'_>, queue: Option<&Gate>) -> String {
        let (now, give_up_us) = (NOW_US, grant.give_up_us);
        let mut condition = format!(
            "AND ({now} < {give_up_us} OR LAST_INSERT_ID({LATE} + {now} + 0 * token) = 0) \
             AND (expires_us <= {now} OR LAST_INSERT_ID(expires_us - {now} \
             + IF(expires_us - {now} > ttl_us, {STEPPED}, 0)) = 0)"
        );
        if let Some(gate) = queue {
            let is_free = gate.is_free();
            condition
                .push_str(&format!(" AND ({is_free} OR LAST_INSERT_ID({QUEUED} + 0 * token) = 0)"));
        }
        self.grant_where(grant, &condition)
    }

    /// `hand_over`: the lease goes from its only hold to the next caller of the
    /// same process, in one commit instead of a release and a take.
    ///
    /// It demands that the lease has not lapsed and is still this grant's, as a
    /// release does, and does nothing after its give-up, as a take does. 0 rows:
    /// neither was released nor taken.
    pub(crate) fn hand_over(&self, token: u64, hold: &[u8; 16], grant: &Grant<'_>) -> String {
        let (now, give_up_us, hold) = (NOW_US, grant.give_up_us, hex(hold));
        self.grant_where(
            grant,
            &format!(
                "AND token = {token} AND holds = {hold} AND expires_us > {now} \
                 AND {now} < {give_up_us}"
            ),
        )
    }

    /// `take_stepped`: a lease with an impossible expiry, whose row has stood
    /// as it is for its TTL. It compares all that a renewal or another taker
    /// changes, so that of those one wins.
    pub(crate) fn take_stepped(&self, grant: &Grant<'_>, stamp: &Stamp) -> String {
        let (now, give_up_us) = (NOW_US, grant.give_up_us);
        let Stamp { token, renewed_us, expires_us } = stamp;
        self.grant_where(
            grant,
            &format!(
                "AND {now} < {give_up_us} AND token = {token} \
                 AND renewed_us = {renewed_us} AND expires_us = {expires_us}"
            ),
        )
    }

    fn grant_where(&self, grant: &Grant<'_>, condition: &str) -> String {
        let (lock, row, now) = (&self.names.lock, self.is_this(), NOW_US);
        let (owner, attempt) = (hex(grant.owner), hex(grant.attempt));
        let (application, host, note) = (hex(grant.application), hex(grant.host), hex(grant.note));
        let Grant { ttl_us, pid, .. } = grant;
        format!(
            "UPDATE {lock} FORCE INDEX (PRIMARY) SET \
             token = LAST_INSERT_ID(GREATEST(token + 1, {now})), \
             owner = {owner}, attempt = {attempt}, holds = {attempt}, ttl_us = {ttl_us}, \
             acquired_us = {now}, renewed_us = {now}, expires_us = {now} + {ttl_us}, \
             application = {application}, host = {host}, pid = {pid}, note = {note} \
             WHERE {row} {condition}"
        )
    }

    /// `insert`: the row and the lease in it, for a key that has no row yet.
    ///
    /// Of several newcomers one inserts, and the others meet the primary key
    /// (1062) and go back to `take`. 0 rows: it ran too late. The token starts
    /// at the clock, above whatever a row lost before may have reached.
    pub(crate) fn insert(&self, grant: &Grant<'_>) -> String {
        let (lock, now) = (&self.names.lock, NOW_US);
        let (namespace, key) = (hex(self.namespace), hex(self.key));
        let (owner, attempt) = (hex(grant.owner), hex(grant.attempt));
        let (application, host, note) = (hex(grant.application), hex(grant.host), hex(grant.note));
        let Grant { ttl_us, give_up_us, pid, .. } = grant;
        format!(
            "INSERT INTO {lock} (namespace, kind, lock_key, owner, attempt, holds, token, \
             ttl_us, acquired_us, renewed_us, expires_us, application, host, pid, note) \
             SELECT {namespace}, 0, {key}, {owner}, {attempt}, {attempt}, \
             LAST_INSERT_ID({now}), {ttl_us}, {now}, {now}, {now} + {ttl_us}, \
             {application}, {host}, {pid}, {note} FROM DUAL WHERE {now} < {give_up_us}"
        )
    }

    /// `join`: one more hold on the lease that the same owner has, for a
    /// re-entrant acquire from another client.
    ///
    /// Each hold has an id of its own in `holds`, so that acquire and release
    /// can be repeated after a lost reply without being counted twice. The
    /// token stays, and the lease ends no earlier than before. 0 rows: held by
    /// another owner, lapsed, full (16 holds), or too late.
    pub(crate) fn join(&self, grant: &Grant<'_>) -> String {
        let (lock, row, now) = (&self.names.lock, self.is_this(), NOW_US);
        let (owner, attempt) = (hex(grant.owner), hex(grant.attempt));
        let Grant { ttl_us, give_up_us, .. } = grant;
        format!(
            "UPDATE {lock} FORCE INDEX (PRIMARY) SET attempt = {attempt}, \
             holds = CONCAT(holds, {attempt}), ttl_us = GREATEST(ttl_us, {ttl_us}), \
             renewed_us = {now}, expires_us = GREATEST(expires_us, {now} + {ttl_us}) \
             WHERE {row} AND owner = {owner} AND expires_us > {now} \
             AND LENGTH(holds) < 256 AND {now} < {give_up_us} \
             AND LAST_INSERT_ID(token) > 0"
        )
    }

    /// `renew`: a lease that nobody shares, to `ttl_us` from now.
    ///
    /// It demands that the lease has not lapsed and that token and hold are
    /// still this grant's: one that arrives after a release (which sets the
    /// expiry to 0) or after another's grant changes nothing, however late.
    /// And it is an exchange: `attempt` must be an id that the last renewals
    /// can have left, and becomes this one's. So one whose reply was lost, and
    /// that runs after a later one was done, changes nothing either: it must
    /// not shorten what its client has been told since.
    pub(crate) fn renew(
        &self,
        token: u64,
        hold: &[u8; 16],
        ttl_us: u64,
        before: &[[u8; 16]],
        attempt: &[u8; 16],
    ) -> String {
        let (lock, row, now) = (&self.names.lock, self.is_this(), NOW_US);
        let (hold, attempt) = (hex(hold), hex(attempt));
        let before: Vec<String> = before.iter().map(|id| hex(id)).collect();
        let before = before.join(", ");
        format!(
            "UPDATE {lock} FORCE INDEX (PRIMARY) SET attempt = {attempt}, ttl_us = {ttl_us}, \
             renewed_us = {now}, expires_us = {now} + {ttl_us} WHERE {row} \
             AND token = {token} AND holds = {hold} AND attempt IN ({before}) \
             AND expires_us > {now}"
        )
    }

    /// `renew_shared`: a lease with an owner text, which other clients may hold
    /// too: it ends no earlier than before, so that the order in which the
    /// renewals of all of them are done, and how late, does not matter.
    pub(crate) fn renew_shared(&self, token: u64, hold: &[u8; 16], ttl_us: u64) -> String {
        let (lock, row, now) = (&self.names.lock, self.is_this(), NOW_US);
        let hold = hex(hold);
        format!(
            "UPDATE {lock} FORCE INDEX (PRIMARY) SET ttl_us = GREATEST(ttl_us, {ttl_us}), \
             renewed_us = {now}, expires_us = GREATEST(expires_us, {now} + {ttl_us}) \
             WHERE {row} AND token = {token} AND LOCATE({hold}, holds) > 0 \
             AND expires_us > {now}"
        )
    }

    /// `release`: the lease, by its only hold. The row stays, with its token.
    ///
    /// Token and hold are compared, so it frees this grant and no other, and
    /// may be sent again after a lost reply. 0 rows: it was released, has
    /// lapsed, was taken over, or is shared (then `release_shared`).
    pub(crate) fn release(&self, token: u64, hold: &[u8; 16]) -> String {
        let (lock, row, now, hold) = (&self.names.lock, self.is_this(), NOW_US, hex(hold));
        format!(
            "UPDATE {lock} FORCE INDEX (PRIMARY) SET owner = NULL, holds = x'', \
             expires_us = 0 WHERE {row} AND token = {token} AND holds = {hold} \
             AND expires_us > {now}"
        )
    }

    /// `release_shared`: one hold of several, which leaves the lease to the
    /// others. Removing an id is the same however often it is done.
    pub(crate) fn release_shared(&self, token: u64, hold: &[u8; 16]) -> String {
        let (lock, row, now, hold) = (&self.names.lock, self.is_this(), NOW_US, hex(hold));
        format!(
            "UPDATE {lock} FORCE INDEX (PRIMARY) SET holds = REPLACE(holds, {hold}, x'') \
             WHERE {row} AND token = {token} AND LOCATE({hold}, holds) > 0 \
             AND LENGTH(holds) > 16 AND expires_us > {now}"
        )
    }

    /// `peek`: token, owner, holds, microseconds left, since the grant, TTL,
    /// application, host, pid, note. For people: nothing is decided by it.
    pub(crate) fn peek(&self) -> String {
        let (lock, row, now) = (&self.names.lock, self.is_this(), NOW_US);
        format!(
            "SELECT token, owner, holds, IF(expires_us > {now}, expires_us - {now}, 0) AS left_us, \
             IF({now} > acquired_us, {now} - acquired_us, 0) AS held_us, ttl_us, \
             application, host, pid, note FROM {lock} FORCE INDEX (PRIMARY) WHERE {row}"
        )
    }

    /// `force`: the grant of this token ends, whoever holds it, and no renewal,
    /// release or guard of it finds it any more: the token is another.
    ///
    /// It compares the token that was seen, so that sent again after a lost reply
    /// it does not end the grant of whoever came next.
    pub(crate) fn force(&self, token: u64) -> String {
        let (lock, row, now, forced) = (&self.names.lock, self.is_this(), NOW_US, hex(&FORCED));
        format!(
            "UPDATE {lock} FORCE INDEX (PRIMARY) SET token = GREATEST(token + 1, {now}), \
             owner = NULL, attempt = {forced}, holds = x'', renewed_us = {now}, expires_us = 0 \
             WHERE {row} AND token = {token} AND expires_us > {now}"
        )
    }

    /// `guard`: to be run by the caller, in a transaction of its own: one row if the
    /// grant of this token is still the last one, and until that transaction ends
    /// no later grant can be made.
    ///
    /// The shared lock is on the record of `fence` alone, which the statement
    /// reads and nothing else: a grant writes it, a renewal, a release or a try of
    /// a held lease does not. So it blocks the next grant, and nothing blocks it
    /// but one. There is no time in it, which the caller's session could have set.
    /// On a server that takes no writes it finds nothing: a lock there would hold
    /// back nobody.
    pub(crate) fn guard(&self, token: u64) -> String {
        let (lock, row) = (&self.names.lock, self.is_this());
        format!(
            "SELECT token FROM {lock} FORCE INDEX (fence) WHERE {row} \
             AND token = {token} AND @@global.read_only = 0 LOCK IN SHARE MODE"
        )
    }

    /// `left`: the microseconds that a lease has left, and its holds; no row if it
    /// has no row.
    pub(crate) fn left(&self) -> String {
        let (lock, row, now) = (&self.names.lock, self.is_this(), NOW_US);
        format!(
            "SELECT IF(expires_us > {now}, expires_us - {now}, 0) AS left_us, holds \
             FROM {lock} FORCE INDEX (PRIMARY) WHERE {row}"
        )
    }

    /// `look_if_locked`: whether a transaction has the row locked: refused at
    /// once if so. In autocommit the lock that it takes is gone with its reply.
    pub(crate) fn look_if_locked(&self) -> String {
        let (lock, row) = (&self.names.lock, self.is_this());
        format!("SELECT token FROM {lock} FORCE INDEX (PRIMARY) WHERE {row} FOR UPDATE NOWAIT")
    }

    /// `look`: token, owner, holds, expiry, microseconds left, TTL, last renewal,
    /// attempt.
    ///
    /// A plain read at READ COMMITTED or in a transaction of its own: it sees
    /// all that is committed and waits for nobody. It proves that an attempt
    /// had no effect only once the session that sent it is gone.
    pub(crate) fn look(&self) -> String {
        let (lock, row, now) = (&self.names.lock, self.is_this(), NOW_US);
        format!(
            "SELECT token, owner, holds, expires_us, \
             IF(expires_us > {now}, expires_us - {now}, 0) AS left_us, ttl_us, renewed_us, \
             attempt \
             FROM {lock} FORCE INDEX (PRIMARY) WHERE {row}"
        )
    }
}

/// `watch`: how long each of many leases has left: the key's place in the list,
/// from 1, and the microseconds; a key without a row is left out.
///
/// A plain read, which waits for nobody. The list is one literal of hex digits,
/// so that any number of keys is one statement; each row is fetched by the full
/// primary key.
pub(crate) fn watch(names: &Names, namespace: &[u8], keys: &[&[u8]]) -> String {
    read_all(names, namespace, keys, "")
}

/// The place of each of `keys` in the list, from 1, the microseconds left, and more
/// `columns`.
pub(super) fn read_all(names: &Names, namespace: &[u8], keys: &[&[u8]], columns: &str) -> String {
    let (lock, now, namespace) = (&names.lock, NOW_US, hex(namespace));
    let list: Vec<String> = keys.iter().map(|key| format!("\"{}\"", hex_digits(key))).collect();
    let list = list.join(",");
    format!(
        "SELECT w.n, IF(l.expires_us > {now}, l.expires_us - {now}, 0) AS left_us{columns} \
         FROM JSON_TABLE('[{list}]', '$[*]' COLUMNS (n FOR ORDINALITY, \
         k VARCHAR(510) CHARACTER SET ascii PATH '$')) AS w \
         STRAIGHT_JOIN {lock} AS l FORCE INDEX (PRIMARY) \
         ON l.namespace = {namespace} AND l.kind = 0 AND l.lock_key = UNHEX(w.k)"
    )
}

/// `release_all`: releases of several keys, each a `release` of its own, in one
/// packet and with one commit, in the order of their keys.
///
/// Whoever else locks these rows locks one at a time and then waits for
/// nothing, or takes several in the same order: no circle of waiting can close.
/// A statement that fails ends the packet, and the transaction is rolled back.
pub(crate) fn release_all(mut releases: Vec<(&[u8], String)>) -> String {
    releases.sort();
    let mut text = String::from("BEGIN");
    for (_, release) in releases {
        text.push_str("; ");
        text.push_str(&release);
    }
    text.push_str("; COMMIT");
    text
}

/// `rollback`: what a failed `release_all` has left open.
pub(crate) const ROLLBACK: &str = "ROLLBACK";
