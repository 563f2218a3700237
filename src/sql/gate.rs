//! Gate and bell: two named locks a key, by which waiters queue and are woken.
//! They order and they ring; only the row decides. No statement in here that
//! can wait touches a table: one that does holds a metadata lock meanwhile, and
//! an ALTER behind it would stop everyone.

use std::time::Duration;

use sha2::{Digest, Sha256};

use super::hex_digits;
use super::lease::Row;

/// The names of one key's locks: 37 characters of lower-case ASCII, which both
/// servers take as they are, and 128 bits of hash, so that no two keys meet.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    gate: String,
    bell: String,
}

/// As long as a server may be asked to wait: a year. Whoever leaves before ends
/// the statement, since a shorter wait, repeated, would give up the place.
const FOR_EVER_S: u32 = 31_536_000;

impl Gate {
    pub(crate) fn new(row: &Row<'_>) -> Gate {
        let mut hash = Sha256::new();
        // Each part with its length, so that no two lists read the same.
        // The table's name is that of its database and prefix too.
        for part in [row.names.lock.as_bytes(), row.namespace, row.key] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let digits = hex_digits(&hash.finalize()[..16]);
        Gate { gate: format!("dl_g_{digits}"), bell: format!("dl_b_{digits}") }
    }

    /// `enter_gate`: stands in the queue until this session is its first. The
    /// server serves in the order of arrival, and takes out who has died.
    pub(crate) fn enter(&self) -> String {
        format!("SELECT GET_LOCK('{}', {FOR_EVER_S})", self.gate)
    }

    /// `wait_for_bell`: until the holder rings, by giving the bell up or by
    /// losing its session, or until `left` has passed, when its lease ends. The
    /// first at the gate alone waits here, so the bell has one waiter. MySQL
    /// counts whole seconds and is ended by its limit on execution (3024);
    /// MariaDB has no such limit in a SELECT and counts fractions.
    pub(crate) fn wait_for_bell(&self, left: Duration, is_mariadb: bool) -> String {
        // Not before the end: the next statement would find the lease held.
        let ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        let bell = &self.bell;
        if is_mariadb {
            let ms = ms.min(u64::from(FOR_EVER_S) * 1_000);
            return format!("SELECT GET_LOCK('{bell}', {}.{:03})", ms / 1_000, ms % 1_000);
        }
        // The hint takes 32 bits: a longer wait is taken up again.
        let ms = ms.min(4_000_000_000);
        let seconds = ms / 1_000 + 2;
        format!("SELECT /*+ MAX_EXECUTION_TIME({ms}) */ GET_LOCK('{bell}', {seconds})")
    }

    /// `leave_gate_if_taken`: in one packet behind a `take`, so that even a
    /// client that is stopped in between keeps the gate from nobody: the queue
    /// goes on if the row was taken, and else this session stays its first.
    pub(crate) fn leave_if_taken(&self) -> String {
        format!("DO IF(ROW_COUNT() = 1, RELEASE_LOCK('{}'), 0)", self.gate)
    }

    /// `leave_gate`: the queue goes on without this session.
    pub(crate) fn leave(&self) -> String {
        format!("DO RELEASE_LOCK('{}')", self.gate)
    }

    /// `ring`: gives the bell to whoever waits for it. In one packet behind the
    /// row's release, which has been committed by then.
    pub(crate) fn ring(&self) -> String {
        format!("DO RELEASE_LOCK('{}')", self.bell)
    }

    /// `first_at_gate`: the session that is the first there; NULL if none is.
    pub(crate) fn first(&self) -> String {
        format!("SELECT IS_USED_LOCK('{}')", self.gate)
    }

    /// `look_at_gate`: whether nobody stands there, where that must not be a part
    /// of a statement that goes into the binary log.
    pub(crate) fn look(&self) -> String {
        format!("SELECT {}", self.is_free())
    }

    /// Whether nobody stands at the gate, as a condition. A hint: it may be old
    /// by the time that it is used, and nobody waits on it.
    pub(super) fn is_free(&self) -> String {
        format!("IS_FREE_LOCK('{}')", self.gate)
    }
}

/// `leave_everything`: after any doubt, since locks nest and a session that
/// keeps one keeps others waiting.
pub(crate) const LEAVE_EVERYTHING: &str = "DO RELEASE_ALL_LOCKS()";

/// `waiting_session`: the server ends a session that has said nothing for
/// `seconds`, and with it what it holds of gate and bell: so a stopped or
/// cut-off process costs the others no more than that.
pub(crate) fn idle_limit(seconds: u32) -> String {
    format!("SET SESSION wait_timeout = {seconds}")
}

/// `call_off`: ends what the session `id` is waiting for, and not the session.
pub(crate) fn call_off(id: u64) -> String {
    format!("KILL QUERY {id}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::Names;

    fn of(namespace: &str, key: &str) -> Gate {
        let names = Names::new("d", "dl_");
        Gate::new(&Row { names: &names, namespace: namespace.as_bytes(), key: key.as_bytes() })
    }

    #[test]
    fn names_are_short_and_different() {
        let gate = of("a", "b");
        assert_eq!(gate.gate.len(), 37);
        assert!(
            gate.gate.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        );
        for other in [of("", "ab"), of("ab", ""), of("a", "B")] {
            assert_ne!(gate.gate, other.gate);
        }
        assert_ne!(gate.gate, gate.bell);
    }

    #[test]
    fn the_bell_is_waited_for_until_the_lease_has_ended() {
        let gate = of("a", "b");
        let left = Duration::from_micros(1_234_567);
        assert!(gate.wait_for_bell(left, true).ends_with(", 1.235)"));
        assert!(gate.wait_for_bell(left, false).contains("(1235)"));
        assert!(gate.wait_for_bell(Duration::MAX, false).contains("(4000000000)"));
        assert!(gate.wait_for_bell(Duration::MAX, true).ends_with(", 31536000.000)"));
    }
}
