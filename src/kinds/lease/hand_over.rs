//! Handing a lease to the next caller of this process when it is released: one
//! commit in place of two, and no process in between; within the time after
//! which the next process has its turn.

use std::time::Duration;

use super::Leases;
use super::attempt::{Attempt, Tried};
use super::stand::{BLOCKED, rest};
use crate::call::Call;
use crate::grant::Grant;
use crate::key::Key;
use crate::resolve::Leftover;
use crate::session::failure::{Class, Failure};
use crate::session::pool::Closing;
use crate::sql::gate::Gate;
use crate::stats::Counter;
use crate::sync::Arc;
use crate::sys::clock::Instant;
use crate::wait::waiter::{Granted, Request, Waiter};

/// Once a locked row has been left alone for as long, it is released otherwise.
const GIVEN_UP: Duration = Duration::from_millis(20);

impl Leases {
    /// Releases `grant` by handing its lease to the next who waits, if somebody
    /// does and this process's turn is not over.
    pub(crate) fn hand_over(self: &Arc<Leases>, call: &Arc<Call>, grant: &Grant) -> HandOver {
        let turn_ends = grant.turn_began.after(self.connector.settings.fairness);
        if grant.owner.is_some() || turn_ends.has_passed() || !self.waiting.has_queue(&grant.key) {
            return HandOver::NotDone;
        }
        let Some(next) = self.waiting.next(&grant.key) else { return HandOver::NotDone };
        match self.hand_to(call, grant, &next) {
            Ok(mut granted) => {
                granted.turn_began = grant.turn_began;
                granted.turn_goes_on = grant.turn_goes_on;
                self.stats.count(Counter::HandOvers);
                self.waiting.saw_held(&grant.key);
                self.waiting.pass_bell(&grant.key, grant.token, granted.token, granted.deadline);
                self.serve(&next, granted);
                HandOver::Done
            }
            Err(how) => {
                self.waiting.put_back(&next);
                self.muster();
                how
            }
        }
    }

    /// The exchange in the row. Where its reply is lost, what happened is found
    /// out; if that cannot be in time, the release that follows finds the row
    /// another's, or the resolver undoes the new grant.
    fn hand_to(&self, call: &Arc<Call>, grant: &Grant, next: &Waiter) -> Result<Granted, HandOver> {
        let Ok(mut session) = self.pool.take(call) else { return Err(HandOver::NotDone) };
        let take = Attempt::new(call, next.call.deadline(), &next.request);
        let attempt = Attempt { from: Some(grant), ..take };
        // Before the row has it: whoever stands at the gate for this process may look.
        self.waiting.turn(&grant.key, attempt.hold, grant.turn_began, grant.turn_goes_on);
        let sent = self.send(&mut session, &attempt);
        self.give_session_back(call, session, sent.failure());
        if sent.had_no_effect() {
            return Err(HandOver::NotDone);
        }
        match self.conclude(&attempt, sent, false) {
            Tried::Granted(granted) => Ok(granted),
            // Told by the row, with the old hold still in it or another's.
            _ => Err(HandOver::Unknown),
        }
    }

    /// A lease for which nobody is there any more: released by the client's own
    /// thread, and its bell rung after that.
    pub(crate) fn give_up(&self, request: &Request, granted: &Granted) {
        self.resolver.release(Leftover {
            key: request.key.clone(),
            token: granted.token,
            hold: granted.hold,
            is_shared: request.owner.is_some(),
            until: Instant::now().after(request.ttl),
            bell: self.last_ring(&request.key, granted.token),
        });
    }

    /// The bell of a grant that ends, to be rung after its release.
    pub(super) fn last_ring(&self, key: &Key, token: u64) -> Option<Closing> {
        let session = self.waiting.take_bell(key, token)?;
        Some(self.gates.closing(session))
    }

    /// Releases `grant` and rings, if this process keeps the key's bell for it: the
    /// row first, then the bell, in one packet on the bell's session.
    /// `None`: it does not, or it could not be done that way.
    pub(super) fn release_and_ring(&self, call: &Call, grant: &Grant) -> Option<RungOut> {
        if grant.owner.is_some() {
            return None;
        }
        let mut session = self.waiting.take_bell(&grant.key, grant.token)?;
        let row = self.row(&grant.key);
        let gate = Gate::new(&row);
        let text = format!("{}; {}", row.release(grant.token, &grant.hold), gate.ring());
        let mut pause = BLOCKED;
        let answer = loop {
            match session.execute_first(call, &text) {
                // Another's try has the row locked for a moment, which MariaDB
                // tells at once.
                Err(Failure::Refused(refusal))
                    if refusal.class() == Class::Blocked && pause < GIVEN_UP =>
                {
                    pause = rest(call, pause);
                }
                answer => break answer,
            }
        };
        let outcome = match &answer {
            Ok(done) => RungOut::Done(done.rows > 0),
            Err(Failure::Lost(_)) => RungOut::Unknown,
            // It stopped at the first error: the bell is still kept, and goes
            // with its session.
            Err(Failure::Refused(_)) => {
                drop(self.gates.closing(session));
                return Some(RungOut::NotDone);
            }
        };
        self.stats.count(Counter::Rings);
        self.gates.put_back(session);
        Some(outcome)
    }
}

/// How handing over went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandOver {
    /// The lease is the next caller's.
    Done,
    /// It is still this grant's, to be released like any other.
    NotDone,
    /// It may be either's: like a release whose reply was lost.
    Unknown,
}

/// How a release by the bell's session went.
pub(super) enum RungOut {
    /// True if the lease was there.
    Done(bool),
    Unknown,
    NotDone,
}
