//! One grant of a lease as its holders see it: until when it is certainly
//! held, by how many handles, and how it ended. Pure state: it talks to nobody.

use std::time::Duration;

use crate::call::{Call, Waited};
use crate::error::Status;
use crate::key::Key;
use crate::sync::{Arc, Mutex};
use crate::sys::clock::Instant;
use crate::wait::waiter::{Granted, Request};

/// Why a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostCause {
    /// Its time ran out without a renewal.
    Expired,
    /// It could not be renewed in time, since the server was not reached.
    Unreachable,
    /// Another owner was granted the key.
    Taken,
    /// An operator released it by force.
    Forced,
    /// Its row is gone from the table.
    RowGone,
    /// The connection that it lived on is gone.
    Connection,
    /// The handle was made before a fork, in the parent.
    Forked,
    /// The client was closed.
    Closed,
    /// It was held for as long as it might be.
    MaxHold,
}

/// A grant.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) key: Key,
    /// The owner text, where the caller gave one: such a grant may be shared.
    pub(crate) owner: Option<Vec<u8>>,
    pub(crate) token: u64,
    /// Its id in the row's set of holds.
    pub(crate) hold: [u8; 16],
    pub(crate) ttl: Duration,
    /// Since when this process has served its own callers with the key.
    pub(crate) turn_began: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// It is certainly held before this, and not known to be after.
    deadline: Instant,
    /// The row may be held for this grant until then at the latest, by whatever
    /// was sent for it, answered or not.
    row_until: Instant,
    /// Handles that have not released it.
    handles: usize,
    /// What may stand in the row's `attempt`: the id of the last renewal that
    /// was answered, and of those sent since. At first the hold's own.
    attempts: Vec<[u8; 16]>,
    /// The last renewal did not reach the server.
    unreachable: bool,
    /// A renewal or release is under way.
    busy: bool,
    /// Calls that wait for it to end.
    queue: Vec<Arc<Call>>,
}

/// Where a grant is in its life. Only ever moves on, but from `Ending` by a
/// release that is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Held, as far as the deadline goes.
    Held,
    /// A release was sent and its outcome is not known: not to be relied on
    /// any more, and to be released again.
    Ending,
    /// Released.
    Released,
    /// Lost.
    Lost(LostCause),
}

/// A lease of `ttl` that was asked for at `sent` is certainly held until this
/// local instant: the TTL less a margin of 5 %, at most 100 ms, and less 1 % in
/// case the two clocks do not run at the same speed.
pub(crate) fn deadline(sent: Instant, ttl: Duration) -> Instant {
    sent.after((ttl - margin(ttl)) / 101 * 100)
}

/// By how much a handle's deadline lies before the end of its lease.
pub(crate) fn margin(ttl: Duration) -> Duration {
    (ttl / 20).min(Duration::from_millis(100))
}

/// When a lease of `ttl` that is asked for now, or was a moment ago, is over,
/// however the clocks run.
fn row_until(ttl: Duration) -> Instant {
    Instant::now().after(ttl + ttl / 100)
}

impl Grant {
    pub(crate) fn new(request: &Request, granted: &Granted) -> Grant {
        let Granted { token, hold, deadline, turn_began } = *granted;
        let Request { key, owner, ttl, .. } = request.clone();
        let state = State {
            phase: Phase::Held,
            deadline,
            row_until: row_until(ttl),
            handles: 1,
            attempts: vec![hold],
            unreachable: false,
            busy: false,
            queue: Vec::new(),
        };
        Grant { key, owner, token, hold, ttl, turn_began, state: Mutex::new(state) }
    }

    /// Where the grant is now. Its deadline alone ends it, without anybody's
    /// doing; once seen, that stays so.
    pub(crate) fn phase(&self) -> Phase {
        self.state.lock().phase_now()
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.state.lock().deadline
    }

    pub(crate) fn row_until(&self) -> Instant {
        self.state.lock().row_until
    }

    /// True if a row may be left that nobody will release: the grant was not
    /// released, and its lease, or one that an unanswered renewal made, may
    /// still run.
    pub(crate) fn may_be_left(&self) -> bool {
        let mut state = self.state.lock();
        state.phase_now() != Phase::Released && !state.row_until.has_passed()
    }

    /// How much of the lease is left by the server's clock at least; zero if it
    /// is not held. Runs down by 1 % faster than time, so that it is over at
    /// the deadline however the clocks run.
    pub(crate) fn remaining(&self) -> Duration {
        let mut state = self.state.lock();
        match state.phase_now() {
            Phase::Held => state.deadline.left() / 100 * 101,
            _ => Duration::ZERO,
        }
    }

    /// One more handle, if the grant is held and nobody is about to end it.
    pub(crate) fn join(&self) -> bool {
        let mut state = self.state.lock();
        let can = state.phase_now() == Phase::Held;
        state.handles += usize::from(can);
        can
    }

    /// One handle less. Where it was the last one, the grant is about to be
    /// released: from then on no other handle can join. One step, so that none
    /// joins in between. Where the grant was when this handle left it, and
    /// whether others are left.
    pub(crate) fn leave(&self) -> (Phase, bool) {
        let mut state = self.state.lock();
        let phase = state.phase_now();
        if state.handles > 1 {
            state.handles -= 1;
            return (phase, true);
        }
        if phase == Phase::Held {
            state.phase = Phase::Ending;
        }
        (phase, false)
    }

    /// The turn to renew or release, one at a time: a release is never
    /// overtaken by a renewal of the same grant.
    pub(crate) fn turn<'a>(&'a self, call: &Arc<Call>) -> Result<Turn<'a>, Option<Status>> {
        let took = || {
            let mut state = self.state.lock();
            let free = !state.busy;
            state.busy = true;
            free.then_some(())
        };
        self.state.lock().queue.push(Arc::clone(call));
        let waited = call.wait(Instant::NEVER, took);
        self.state.lock().queue.retain(|other| !Arc::ptr_eq(other, call));
        match waited {
            Waited::Ready(()) => Ok(Turn(self)),
            Waited::Late => Err(None),
            Waited::Interrupted(status) => Err(Some(status)),
        }
    }

    /// A renewal of id `attempt` to `ttl` is about to be sent: what may stand in
    /// the row before it.
    pub(crate) fn renewing(&self, attempt: [u8; 16], ttl: Duration) -> Vec<[u8; 16]> {
        let mut state = self.state.lock();
        state.row_until = state.row_until.max(row_until(ttl));
        if self.owner.is_none() {
            // It may shorten the lease, and its reply may be lost.
            state.deadline = state.deadline.min(deadline(Instant::now(), ttl));
        }
        let before = state.attempts.clone();
        state.attempts.push(attempt);
        before
    }

    /// The renewal of id `attempt` was refused, and had no effect.
    pub(crate) fn refused(&self, attempt: [u8; 16]) {
        self.state.lock().attempts.retain(|other| *other != attempt);
    }

    /// The renewal of id `attempt` was answered: no other can be done any more.
    pub(crate) fn answered(&self, attempt: [u8; 16]) {
        self.state.lock().attempts = vec![attempt];
    }

    /// A renewal was done. False if the grant has ended meanwhile: a lost
    /// grant never becomes held again.
    pub(crate) fn renewed(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        if state.phase_now() != Phase::Held {
            return false;
        }
        state.deadline = state.deadline.max(deadline);
        state.unreachable = false;
        true
    }

    /// A renewal did not reach the server.
    pub(crate) fn not_reached(&self) {
        self.state.lock().unreachable = true;
    }

    pub(crate) fn released(&self) {
        self.state.lock().phase = Phase::Released;
    }

    /// Lost, unless it had ended before.
    pub(crate) fn lost(&self, cause: LostCause) {
        let mut state = self.state.lock();
        if matches!(state.phase_now(), Phase::Held | Phase::Ending) {
            state.phase = Phase::Lost(cause);
        }
    }
}

impl State {
    fn phase_now(&mut self) -> Phase {
        if self.phase == Phase::Held && self.deadline.has_passed() {
            let cause = if self.unreachable { LostCause::Unreachable } else { LostCause::Expired };
            self.phase = Phase::Lost(cause);
        }
        self.phase
    }
}

/// The right to renew or release, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Grant);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.busy = false;
        let waiting = state.queue.clone();
        drop(state);
        for call in waiting {
            call.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(ttl_ms: u64) -> Grant {
        let ttl = Duration::from_millis(ttl_ms);
        let key = Key::new(b"k").unwrap();
        let request =
            Request { key, owner: None, note: Vec::new(), ttl, one_try: true, unfair: false };
        let now = Instant::now();
        let deadline = deadline(now, ttl);
        Grant::new(&request, &Granted { token: 7, hold: [0; 16], deadline, turn_began: now })
    }

    #[test]
    fn the_deadline_lies_before_the_end_of_the_lease() {
        let sent = Instant::now();
        for (ttl_ms, most_ms) in [(10, 10), (2_000, 1_900), (10_000, 9_900), (30_000, 29_900)] {
            let ttl = Duration::from_millis(ttl_ms);
            let held = deadline(sent, ttl).since(sent);
            assert!(held <= Duration::from_millis(most_ms) / 101 * 100);
            assert!(held >= ttl * 93 / 100);
        }
    }

    #[test]
    fn remaining_is_near_the_ttl_at_first() {
        let remaining = grant(10_000).remaining();
        assert!(remaining <= Duration::from_millis(9_900));
        assert!(remaining > Duration::from_millis(9_800));
    }

    #[test]
    fn what_was_lost_is_never_held_again() {
        let grant = grant(10);
        std::thread::sleep(Duration::from_millis(12));
        assert_eq!(grant.phase(), Phase::Lost(LostCause::Expired));
        assert!(!grant.renewed(Instant::NEVER));
        assert!(!grant.join());
        assert_eq!(grant.remaining(), Duration::ZERO);
    }

    #[test]
    fn nobody_joins_a_grant_that_its_last_handle_has_left() {
        let grant = grant(10_000);
        assert!(grant.join());
        assert_eq!(grant.leave(), (Phase::Held, true));
        assert_eq!(grant.leave(), (Phase::Held, false));
        assert!(!grant.join());
        assert_eq!(grant.phase(), Phase::Ending);
    }

    #[test]
    fn a_renewal_that_may_shorten_counts_when_it_is_sent() {
        let grant = grant(10_000);
        let long_until = grant.row_until();
        assert_eq!(grant.renewing([1; 16], Duration::from_millis(100)), [[0; 16]]);
        assert!(grant.deadline().left() <= Duration::from_millis(95));
        assert_eq!(grant.row_until(), long_until);
        assert_eq!(grant.renewing([2; 16], Duration::from_secs(60)), [[0; 16], [1; 16]]);
        assert!(grant.deadline().left() <= Duration::from_millis(95));
        assert!(grant.row_until() > long_until);
        grant.answered([2; 16]);
        assert!(grant.renewed(Instant::now().after(Duration::from_secs(50))));
        assert!(grant.deadline().left() > Duration::from_secs(49));
        assert_eq!(grant.renewing([3; 16], Duration::from_secs(60)), [[2; 16]]);
        grant.refused([3; 16]);
        assert_eq!(grant.renewing([4; 16], Duration::from_secs(60)), [[2; 16]]);
    }

    #[test]
    fn one_turn_at_a_time() {
        let grant = grant(10_000);
        let soon = Instant::now().after(Duration::from_millis(20));
        let first = grant.turn(&Arc::new(Call::new(soon))).unwrap();
        assert!(matches!(grant.turn(&Arc::new(Call::new(soon))), Err(None)));
        drop(first);
        assert!(grant.turn(&Arc::new(Call::new(Instant::NEVER))).is_ok());
    }
}
