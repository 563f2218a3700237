//! The handle on a grant: what a holder asks, renews and releases.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{Error, Result, Status};
use crate::grant::{Grant, LostCause, Phase};
use crate::kinds::lease::hand_over::HandOver;
use crate::kinds::lease::{ended, not_held};
use crate::options::check_ttl;
use crate::shared::Shared;
use crate::stats::Counter;
use crate::sync::Arc;

/// A lock that was acquired. Dropping it leaves the release to the client's
/// own thread; [`Lock::release`] tells how it went.
///
/// Usable from any thread. In a forked child every call answers FORKED, and
/// the parent loses nothing.
#[must_use = "a lock that is dropped at once is released at once"]
pub struct Lock {
    client: Arc<Shared>,
    grant: Arc<Grant>,
    released: AtomicBool,
}

impl Lock {
    pub(crate) fn new(client: Arc<Shared>, grant: Arc<Grant>) -> Lock {
        Lock { client, grant, released: AtomicBool::new(false) }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.client
    }

    /// The key, byte for byte.
    pub fn key(&self) -> &[u8] {
        self.grant.key.as_bytes()
    }

    /// The fencing token: greater than that of every earlier grant of the key.
    /// Kept after the lock has ended. Does not block.
    pub fn token(&self) -> u64 {
        self.grant.token
    }

    /// How much of the lease is left by the server's clock at least; zero once
    /// the lock is not held. Needs no network, and does not block.
    pub fn remaining(&self) -> Duration {
        if self.is_held() { self.grant.remaining() } else { Duration::ZERO }
    }

    /// True while the lock is certainly held. Needs no network, and does not
    /// block.
    pub fn is_held(&self) -> bool {
        !self.client.is_forked()
            && !self.released.load(Ordering::Acquire)
            && self.grant.phase() == Phase::Held
    }

    /// Why the lock was lost, if it was.
    pub fn lost_cause(&self) -> Option<LostCause> {
        if self.client.is_forked() {
            return Some(LostCause::Forked);
        }
        match self.grant.phase() {
            Phase::Lost(cause) => Some(cause),
            _ => None,
        }
    }

    /// Renews the lease for its own TTL from now. Blocks for one round trip,
    /// and for the client's `io_timeout` at most.
    ///
    /// # Errors
    /// NOT_HELD once the lock is lost or released; UNAVAILABLE if the server
    /// was not reached, with the lease as it was; SERVER, CONFIG, CLOSED,
    /// FORKED.
    pub fn renew(&self) -> Result<()> {
        self.renew_to(None)
    }

    /// Renews the lease for `ttl` from now: 10 ms to 366 days. Otherwise like
    /// [`Lock::renew`]. A lease with an owner text is never shortened.
    ///
    /// # Errors
    /// As [`Lock::renew`], and INVALID_ARGUMENT for another TTL.
    pub fn renew_for(&self, ttl: Duration) -> Result<()> {
        self.renew_to(Some(check_ttl("ttl_ms", ttl)?))
    }

    fn renew_to(&self, ttl: Option<Duration>) -> Result<()> {
        self.client.check()?;
        if !self.is_held() {
            return Err(not_held());
        }
        let call = self.client.begin(self.client.io_deadline().min(self.grant.deadline()));
        let call = call.as_ref();
        let turn = self.grant.turn(call).map_err(no_turn)?;
        // A release may have had the turn before.
        let result = if self.is_held() {
            self.client.leases.renew(call, &self.grant, ttl.unwrap_or(self.grant.ttl))
        } else {
            Err(not_held())
        };
        drop(turn);
        // At its deadline the lock is lost, whatever the server would say.
        if result.is_err() && matches!(self.grant.phase(), Phase::Lost(_)) {
            return Err(not_held());
        }
        result
    }

    /// Releases the lock. Blocks for one round trip, and for the client's
    /// `io_timeout` at most.
    ///
    /// # Errors
    /// NOT_HELD if the lock had been lost before; UNAVAILABLE if the server was
    /// not reached: the client's own thread then goes on trying.
    pub fn release(self) -> Result<()> {
        self.release_in_place()
    }

    /// Releases, and leaves the handle: after UNAVAILABLE it may be tried
    /// again; after anything else every later try is NOT_HELD, without SQL.
    pub(crate) fn release_in_place(&self) -> Result<()> {
        self.client.check()?;
        if self.released.swap(true, Ordering::AcqRel) {
            return Err(not_held());
        }
        let call = self.client.begin(self.client.io_deadline());
        let result = self.end(call.as_ref());
        if let Err(error) = &result
            && error.status() != Status::NotHeld
        {
            self.released.store(false, Ordering::Release);
        }
        result
    }

    fn end(&self, call: &Arc<crate::call::Call>) -> Result<()> {
        let turn = self.grant.turn(call).map_err(no_turn)?;
        let (phase, others) = self.grant.leave();
        match phase {
            Phase::Held if others => return Ok(()),
            Phase::Held | Phase::Ending => {}
            Phase::Released | Phase::Lost(_) => {
                if !others {
                    self.client.abandon(&self.grant);
                }
                return Err(not_held());
            }
        }
        let leases = &self.client.leases;
        let handed = match phase {
            Phase::Held => leases.hand_over(call, &self.grant),
            _ => HandOver::Unknown,
        };
        let again = handed == HandOver::Unknown;
        let released = handed == HandOver::Done
            || leases.release(call, &self.grant, again).inspect_err(|_| {
                leases.stats.count(Counter::ReleaseFailures);
            })?;
        if released {
            self.grant.released();
            leases.stats.count(Counter::Releases);
        } else {
            leases.tell_lost(call, &self.grant);
        }
        self.client.forget(&self.grant);
        drop(turn);
        if released { Ok(()) } else { Err(not_held()) }
    }
}

fn no_turn(interrupted: Option<Status>) -> Error {
    match interrupted {
        Some(status) => ended(status),
        None => {
            let text = "a renewal or release of the same lock did not end in time";
            Error::new(Status::Unavailable, text)
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // In a forked child nothing is touched: the grant is the parent's.
        // A closed client has given it back already.
        let is_over = || self.released.load(Ordering::Acquire) || self.client.is_closed();
        if self.client.is_forked() || is_over() {
            return;
        }
        let (_, others) = self.grant.leave();
        if !others {
            self.client.abandon(&self.grant);
        }
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("key", &String::from_utf8_lossy(self.key()))
            .field("token", &self.token())
            .field("held", &self.is_held())
            .finish()
    }
}
