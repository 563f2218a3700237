//! Renewing many leases at once: one statement that changes them, and one that
//! tells what became of each, in one packet.

use super::{NOW_US, Names, hex, hex_digits};

/// A lease that is to be renewed.
#[derive(Clone, Debug)]
pub(crate) struct Due<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) token: u64,
    pub(crate) hold: [u8; 16],
    pub(crate) ttl_us: u64,
    /// What `attempt` must be before, one of these; none: anything. It is this
    /// renewal's own afterwards.
    pub(crate) before: Vec<[u8; 16]>,
    pub(crate) attempt: [u8; 16],
}

impl Due<'_> {
    /// As an element of the statements' list.
    fn listed(&self) -> String {
        let before: Vec<String> = self.before.iter().map(|id| hex_digits(id)).collect();
        format!(
            "[\"{}\",{},\"{}\",{},\"{}\",\"{}\"]",
            hex_digits(self.key),
            self.token,
            hex_digits(&self.hold),
            self.ttl_us,
            before.join(","),
            hex_digits(&self.attempt),
        )
    }
}

/// `renew_all`: each lease to its TTL from now, unless it ends later already.
///
/// What a single renewal demands is demanded of each: not lapsed, token and hold
/// still this grant's, and for those that nobody shares the exchange of
/// `attempt`. It never shortens a lease, so the order in which several are done
/// does not matter.
///
/// A row that a transaction has locked is passed over, and is as it was: no row
/// waits, so none delays the others, and no circle of waiting can close. The
/// lock is taken inside, by the derived table, which must not be merged into the
/// join: MySQL would drop SKIP LOCKED then. `token` is not touched, so an open
/// guard is neither waited for nor disturbed.
pub(crate) fn renew_all(
    names: &Names,
    namespace: &[u8],
    due: &[Due<'_>],
    is_mariadb: bool,
) -> String {
    let (lock, now, namespace) = (&names.lock, NOW_US, hex(namespace));
    let list: Vec<String> = due.iter().map(Due::listed).collect();
    let list = list.join(",");
    // MySQL would lock the list too, and refuses to; MariaDB knows no OF.
    let of = if is_mariadb { "" } else { "OF l " };
    format!(
        "UPDATE /*+ NO_MERGE(d) */ (SELECT l.lock_key, v.ttl_us, v.attempt \
         FROM JSON_TABLE('[{list}]', '$[*]' COLUMNS (\
         k VARCHAR(510) CHARACTER SET ascii PATH '$[0]', \
         token BIGINT UNSIGNED PATH '$[1]', \
         hold VARCHAR(32) CHARACTER SET ascii PATH '$[2]', \
         ttl_us BIGINT UNSIGNED PATH '$[3]', \
         was VARCHAR(4000) CHARACTER SET ascii PATH '$[4]', \
         attempt VARCHAR(32) CHARACTER SET ascii PATH '$[5]')) AS v \
         STRAIGHT_JOIN {lock} AS l FORCE INDEX (PRIMARY) \
         ON l.namespace = {namespace} AND l.kind = 0 AND l.lock_key = UNHEX(v.k) \
         WHERE l.token = v.token AND l.expires_us > {now} \
         AND LOCATE(UNHEX(v.hold), l.holds) > 0 \
         AND (v.was = '' OR LOCATE(LOWER(HEX(l.attempt)), v.was) > 0) \
         FOR UPDATE {of}SKIP LOCKED) AS d \
         STRAIGHT_JOIN {lock} AS t FORCE INDEX (PRIMARY) \
         ON t.namespace = {namespace} AND t.kind = 0 AND t.lock_key = d.lock_key \
         SET t.attempt = UNHEX(d.attempt), t.ttl_us = GREATEST(t.ttl_us, d.ttl_us), \
         t.renewed_us = {now}, t.expires_us = GREATEST(t.expires_us, {now} + d.ttl_us)"
    )
}

/// `renew_one`: the same for one lease, where the server's binary log holds
/// statements and SKIP LOCKED is not for it.
pub(crate) fn renew_one(names: &Names, namespace: &[u8], due: &Due<'_>) -> String {
    let (lock, now, namespace) = (&names.lock, NOW_US, hex(namespace));
    let Due { token, ttl_us, .. } = due;
    let (key, hold, attempt) = (hex(due.key), hex(&due.hold), hex(&due.attempt));
    let before: Vec<String> = due.before.iter().map(|id| hex(id)).collect();
    let exchange = match before.is_empty() {
        true => String::new(),
        false => format!(" AND attempt IN ({})", before.join(", ")),
    };
    format!(
        "UPDATE {lock} FORCE INDEX (PRIMARY) SET attempt = {attempt}, \
         ttl_us = GREATEST(ttl_us, {ttl_us}), renewed_us = {now}, \
         expires_us = GREATEST(expires_us, {now} + {ttl_us}) \
         WHERE namespace = {namespace} AND kind = 0 AND lock_key = {key} \
         AND token = {token} AND LOCATE({hold}, holds) > 0 AND expires_us > {now}{exchange}"
    )
}

/// `look_all`: place in the list from 1, microseconds left, token, holds and attempt
/// of each; a key without a row is left out.
///
/// A plain read, which waits for nobody, behind `renew_all` in one packet: a row
/// whose `attempt` is the renewal's was renewed. One that is this grant's still,
/// and was not, was locked.
pub(crate) fn look_all(names: &Names, namespace: &[u8], keys: &[&[u8]]) -> String {
    super::lease::read_all(names, namespace, keys, ", l.token, l.holds, l.attempt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_digits_alone() {
        let due = Due {
            key: b"a'\"",
            token: 7,
            hold: [1; 16],
            ttl_us: 9,
            before: vec![[0xaa; 16], [0xbb; 16]],
            attempt: [2; 16],
        };
        let (hold, attempt) = ("01".repeat(16), "02".repeat(16));
        let before = format!("{},{}", "aa".repeat(16), "bb".repeat(16));
        let listed = format!("[\"612722\",7,\"{hold}\",9,\"{before}\",\"{attempt}\"]");
        assert_eq!(due.listed(), listed);
        let names = Names::new("d", "dl_");
        let due = [due];
        assert!(renew_all(&names, b"n", &due, true).contains(&listed));
        assert!(renew_all(&names, b"n", &due, false).contains("FOR UPDATE OF l SKIP LOCKED"));
        assert!(look_all(&names, b"n", &[b"k"]).contains("'[\"6b\"]'"));
    }
}
