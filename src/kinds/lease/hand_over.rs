//! Handing a lease to the next caller of this process when it is released: one
//! commit in place of two, and no process in between; within the time after
//! which the next process has its turn.

use super::Leases;
use std::time::Duration;

use super::attempt::{Attempt, Tried, owner_of};
use crate::call::Call;
use crate::grant::Grant;
use crate::key::Key;
use crate::random;
use crate::resolve::{Leftover, Unknown};
use crate::session::failure::{Class, Failure};
use crate::session::pool::{Closing, NoSession};
use crate::stats::Counter;
use crate::sync::Arc;
use crate::sys::clock::Instant;
use crate::wait::waiter::{Granted, Request, Waiter};

/// How long a locked row is left alone, doubled with each try, up to the longest.
const BLOCKED: Duration = Duration::from_micros(100);
const LONGEST_BLOCKED: Duration = Duration::from_millis(20);

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
        let mut session = match self.pool.take(call) {
            Ok(session) => session,
            Err(NoSession::Interrupted(_) | NoSession::Failed(_) | NoSession::Late(_)) => {
                return Err(HandOver::NotDone);
            }
        };
        let hold = random::id();
        let request: &Request = &next.request;
        let attempt = Attempt {
            call,
            until: next.call.deadline(),
            request,
            behind: None,
            probes: false,
            at: None,
        };
        let sent = Instant::now();
        let answer = session.give_up(call, attempt.until).and_then(|give_up_us| {
            let owner = owner_of(request, &hold);
            let into = self.grant(request, &owner, &hold, give_up_us);
            let text = self.row(&grant.key).hand_over(grant.token, &grant.hold, &into);
            session.execute(call, &text)
        });
        let unknown = matches!(answer, Err(Failure::Lost(_))).then(|| Unknown {
            key: grant.key.clone(),
            hold,
            session: session.id,
            server: Arc::clone(&session.server),
            until: Instant::now().after(self.connector.settings.io_timeout + request.ttl),
        });
        self.give_session_back(call, session, answer.as_ref().err());
        let tried = match (answer, unknown) {
            (Ok(done), _) if done.rows > 0 => self.honest(request, done.insert_id, hold, sent),
            (Err(failure), Some(unknown)) => {
                self.find_out(&attempt, sent, unknown, false, failure.refusal())
            }
            _ => return Err(HandOver::NotDone),
        };
        match tried {
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

/// A release whose session is the bell's: the row first, then the bell, in one
/// packet.
impl Leases {
    /// Releases `grant` and rings, if this process keeps the key's bell for it.
    /// `None`: it does not, or it could not be done that way.
    pub(super) fn release_and_ring(&self, call: &Call, grant: &Grant) -> Option<RungOut> {
        if grant.owner.is_some() {
            return None;
        }
        let mut session = self.waiting.take_bell(&grant.key, grant.token)?;
        let row = self.row(&grant.key);
        let gate = crate::sql::gate::Gate::new(&row);
        let text = format!("{}; {}", row.release(grant.token, &grant.hold), gate.ring());
        let mut pause = BLOCKED;
        let answer = loop {
            match session.execute_first(call, &text) {
                // Another's try has the row locked for a moment, which MariaDB
                // tells at once.
                Err(Failure::Refused(refusal))
                    if refusal.class() == Class::Blocked && pause < LONGEST_BLOCKED =>
                {
                    let _ = call.wait(Instant::now().after(pause), || None::<()>);
                    pause *= 2;
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

/// How a release by the bell's session went.
pub(super) enum RungOut {
    /// True if the lease was there.
    Done(bool),
    Unknown,
    NotDone,
}
