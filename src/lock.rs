//! The handle on a grant: what a holder asks, renews and releases.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::error::{Error, Result, Status};
use crate::grant::{Grant, LostCause, Phase, Watcher};
use crate::kinds::lease::hand_over::HandOver;
use crate::kinds::lease::{ended, not_held};
use crate::options::check_ttl;
use crate::shared::Shared;
use crate::stats::Counter;
use crate::sync::Arc;
use crate::sys::clock::Instant;

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
    /// Where it came as an event, and its loss will.
    watcher: OnceLock<Arc<Watcher>>,
}

impl Lock {
    pub(crate) fn new(client: Arc<Shared>, grant: Arc<Grant>) -> Lock {
        Lock { client, grant, released: AtomicBool::new(false), watcher: OnceLock::new() }
    }

    /// Who is to be told of its loss by an event with this tag, and the grant.
    pub(crate) fn watch(&self, tag: u64) -> (Arc<Watcher>, Arc<Grant>) {
        let (handle, closed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let watcher = Arc::new(Watcher { tag, handle, closed });
        let _ = self.watcher.set(Arc::clone(&watcher));
        (watcher, Arc::clone(&self.grant))
    }

    /// The C handle, which events of its loss are to name.
    pub(crate) fn is_at(&self, handle: usize) {
        if let Some(watcher) = self.watcher.get() {
            watcher.handle.store(handle, Ordering::Release);
        }
    }

    /// Its holder is done with it: no loss is told any more.
    fn unwatch(&self) {
        if let Some(watcher) = self.watcher.get() {
            watcher.closed.store(true, Ordering::SeqCst);
            self.grant.unwatch(watcher);
            self.client.events.forget(watcher);
        }
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
        self.grant.lost_cause()
    }

    /// Waits until the lock is lost, or until `timeout`. True if it is lost. Needs
    /// no network.
    ///
    /// # Errors
    /// NOT_HELD once it is released.
    pub fn wait_lost(&self, timeout: Duration) -> Result<bool> {
        if self.client.is_forked() {
            return Ok(true);
        }
        let until = Instant::now().after(timeout);
        match self.grant.wait_lost(until, || self.released.load(Ordering::Acquire)) {
            Some(true) => Ok(true),
            Some(false) => Err(not_held()),
            None => Ok(false),
        }
    }

    /// The text of the guard: one locking read, to be run inside an open
    /// transaction of the caller's own, first thing in it, on its own connection.
    /// One row comes back if this lock is still the last grant of its key, and until
    /// that transaction ends no later grant can be made. No row: roll back at once.
    /// Does not block, and needs no network.
    ///
    /// # Errors
    /// NOT_HELD if the lock is lost or released; FORKED.
    pub fn guard_sql(&self) -> Result<String> {
        self.client.check_forked()?;
        if !self.is_held() {
            return Err(not_held());
        }
        Ok(self.client.leases.row(&self.grant.key).guard(self.grant.token))
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
            self.client.leases.renew(call, &self.grant, ttl.unwrap_or_else(|| self.grant.ttl()))
        } else {
            Err(not_held())
        };
        drop(turn);
        // It may end earlier than it did.
        self.client.start_keepers(self.client.leases.grants.changed(&self.grant));
        // At its deadline the lock is lost, whatever the server would say.
        if result.is_err() && self.grant.lost_cause().is_some() {
            self.client.tell_if_lost(&self.grant);
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
        self.unwatch();
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
        let turn = self.grant.last_turn(call).map_err(no_turn)?;
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
            leases.grants.remove(&self.grant);
        } else {
            leases.tell_lost(call, &self.grant);
            self.client.tell_if_lost(&self.grant);
        }
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
        self.unwatch();
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
