//! Holding a lease: renewing and releasing it, and finding out why it is gone.

use std::time::Duration;

use super::hand_over::RungOut;
use super::{Found, Leases, micros, not_held, taken_by};
use crate::call::Call;
use crate::error::Result;
use crate::grant::{self, Grant, LostCause};
use crate::random;
use crate::resolve::{self, Leftover};
use crate::session::failure::Failure;
use crate::stats::Counter;
use crate::sync::Arc;
use crate::sys::clock::Instant;

impl Leases {
    /// Renews a held grant to `ttl` from now.
    pub(crate) fn renew(&self, call: &Arc<Call>, grant: &Grant, ttl: Duration) -> Result<()> {
        let row = self.row(&grant.key);
        let shared = grant.owner.is_some();
        let mut sent_last = Instant::NEVER;
        self.stats.count(Counter::Renewals);
        let done = self.until_answered(call, "renew", true, |session| {
            let (sent, attempt) = (Instant::now(), random::id());
            sent_last = sent;
            let before = grant.renewing(attempt, ttl, !shared);
            let text = if shared {
                row.renew_shared(grant.token, &grant.hold, micros(ttl))
            } else {
                row.renew(grant.token, &grant.hold, micros(ttl), &before, &attempt)
            };
            match session.execute(call, &text) {
                Ok(done) if done.rows > 0 => {
                    grant.answered(attempt);
                    Ok(true)
                }
                Ok(_) => Ok(false),
                Err(failure) => {
                    if matches!(failure, Failure::Refused(_)) {
                        grant.refused(attempt);
                    }
                    Err(failure)
                }
            }
        });
        let renewed_until = grant::deadline(sent_last, ttl);
        match done {
            Ok(true) if grant.renewed(renewed_until) => {
                let (key, token) = (&grant.key, grant.token);
                self.waiting.pass_bell(key, token, token, grant.deadline());
                Ok(())
            }
            Ok(true) => {
                // Answered after the handle's deadline: it was told lost, and
                // stays so. The lease is given back, and kept for nobody.
                self.give_back(grant);
                Err(not_held())
            }
            Ok(false) => {
                self.tell_lost(call, grant);
                Err(not_held())
            }
            Err(error) => {
                grant.not_renewed(true);
                Err(error)
            }
        }
    }

    /// Releases a grant, `again` if that was tried before. False if it was not
    /// there any more.
    pub(crate) fn release(&self, call: &Arc<Call>, grant: &Grant, again: bool) -> Result<bool> {
        let row = self.row(&grant.key);
        self.waiting.turn_ends(&grant.key, &grant.hold);
        let mut sent = u32::from(again);
        match self.release_and_ring(call, grant) {
            Some(RungOut::Done(true)) => return Ok(true),
            Some(RungOut::Done(false)) => return Ok(again && self.was_released(call, grant)),
            Some(RungOut::Unknown) => sent += 1,
            Some(RungOut::NotDone) | None => {}
        }
        let released = self.until_answered(call, "release", true, |session| {
            sent += 1;
            if grant.owner.is_some() {
                return resolve::release(session, call, &row, grant.token, &grant.hold);
            }
            let text = row.release(grant.token, &grant.hold);
            session.execute(call, &text).map(|done| done.rows > 0)
        })?;
        if let Some(bell) = self.waiting.take_bell(&grant.key, grant.token) {
            self.ring(call, &grant.key, bell);
        }
        // Not there at the second sending: the first may have done it.
        Ok(released || (sent > 1 && self.was_released(call, grant)))
    }

    /// Whether a release whose reply was lost had been in time: the row says
    /// so, or the lease could not have ended otherwise yet.
    fn was_released(&self, call: &Arc<Call>, grant: &Grant) -> bool {
        if !grant.deadline().has_passed() {
            return true;
        }
        match self.look(call, grant) {
            Ok(Some(found)) => found.stamp.token == grant.token && found.stamp.expires_us == 0,
            _ => false,
        }
    }

    /// Leaves a grant that has ended without a release to the resolver, if its
    /// row may still be held. Harmless where it is not, or is another's by now.
    pub(crate) fn give_back(&self, grant: &Grant) {
        if grant.leaves_row() {
            self.resolver.release(Leftover {
                key: grant.key.clone(),
                token: grant.token,
                hold: grant.hold,
                is_shared: grant.owner.is_some(),
                until: grant.row_until(),
                bell: self.last_ring(&grant.key, grant.token),
            });
        }
    }

    /// A renewal or release found nothing to change: the grant is lost, for the
    /// cause that the row tells.
    pub(crate) fn tell_lost(&self, call: &Arc<Call>, grant: &Grant) {
        let cause = match self.look(call, grant) {
            Ok(None) => LostCause::RowGone,
            Ok(Some(found)) if found.stamp.token != grant.token => taken_by(&found.attempt),
            _ => LostCause::Expired,
        };
        grant.lost(cause);
    }

    fn look(&self, call: &Arc<Call>, grant: &Grant) -> Result<Option<Found>> {
        let text = self.row(&grant.key).look();
        let rows = self.until_answered(call, "look", true, |session| session.query(call, &text))?;
        Ok(Found::read(&rows))
    }
}
