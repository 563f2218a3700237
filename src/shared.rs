//! What a client and its locks share: the calls in progress, the grants that
//! are held, and the end of both when the client is closed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::call::Call;
use crate::calls::{Begun, Calls};
use crate::error::{Error, Result, Status};
use crate::grant::{self, Grant, LostCause};
use crate::key::Key;
use crate::kinds::lease::{Leases, ended};
use crate::lock::Lock;
use crate::sync::{Arc, Mutex};
use crate::sys::clock::Instant;
use crate::sys::fork;

/// How long closing takes at the most.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// What a client and its locks share.
pub(crate) struct Shared {
    generation: u64,
    pub(crate) leases: Leases,
    calls: Arc<Calls>,
    /// Every grant that has not been released, by its hold id.
    grants: Mutex<HashMap<[u8; 16], Arc<Grant>>>,
    closed: AtomicBool,
    /// A call panicked: nothing can be relied on any more.
    broken: AtomicBool,
}

impl Shared {
    pub(crate) fn new(leases: Leases) -> Shared {
        Shared {
            generation: fork::generation(),
            leases,
            calls: Arc::default(),
            grants: Mutex::default(),
            closed: AtomicBool::new(false),
            broken: AtomicBool::new(false),
        }
    }

    /// True in a forked child. To be asked before anything else: the child has
    /// the mutexes as they were, perhaps locked by threads it does not have.
    pub(crate) fn is_forked(&self) -> bool {
        self.generation != fork::generation()
    }

    /// Whether calls may go on.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_forked() {
            let text = "the client was opened before a fork, in the parent";
            return Err(Error::new(Status::Forked, text));
        }
        if self.broken.load(Ordering::Acquire) {
            return Err(Error::new(Status::Internal, "an earlier call panicked"));
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(Status::Closed, "the client is closed"));
        }
        Ok(())
    }

    pub(crate) fn mark_broken(&self) {
        self.broken.store(true, Ordering::Release);
    }

    /// Enters a call into the list of those that closing ends.
    pub(crate) fn begin(&self, deadline: Instant) -> Begun {
        self.calls.begin(deadline)
    }

    /// The deadline of a call that has none of its own.
    pub(crate) fn io_deadline(&self) -> Instant {
        Instant::now().after(self.leases.connector.settings.io_timeout)
    }

    /// A handle on a new grant; CLOSED, and the grant given back, if the client
    /// was closed meanwhile.
    pub(crate) fn keep(self: &Arc<Shared>, grant: Grant) -> Result<Lock> {
        let grant = Arc::new(grant);
        self.grants.lock().insert(grant.hold, Arc::clone(&grant));
        // Looked at after the entry: closing either finds the grant, or had
        // said so before.
        if self.closed.load(Ordering::Acquire) {
            grant.lost(LostCause::Closed);
            self.abandon(&grant);
            return Err(ended(Status::Closed));
        }
        Ok(Lock::new(Arc::clone(self), grant))
    }

    /// One more handle on a grant that the same owner has through this client:
    /// without SQL where the lease that is asked for ends within the margin of
    /// the one that is held, else by a renewal.
    pub(crate) fn join(
        self: &Arc<Shared>,
        call: &Arc<Call>,
        key: &Key,
        owner: &[u8],
        ttl: Duration,
    ) -> Result<Option<Lock>> {
        let found = self.grants.lock().values().find_map(|grant| {
            let same = grant.key == *key && grant.owner.as_deref() == Some(owner);
            (same && grant.join()).then(|| Arc::clone(grant))
        });
        let Some(grant) = found else { return Ok(None) };
        let lock = Lock::new(Arc::clone(self), Arc::clone(&grant));
        let wanted = grant::deadline(Instant::now(), ttl);
        if wanted.since(grant.deadline()) <= grant::margin(ttl) {
            return Ok(Some(lock));
        }
        match grant.turn(call) {
            Ok(turn) => {
                let renewed = self.leases.renew(call, &grant, ttl);
                drop(turn);
                match renewed {
                    Ok(()) => Ok(Some(lock)),
                    // Lost just now: acquired like any other.
                    Err(error) if error.status() == Status::NotHeld => Ok(None),
                    Err(error) => Err(error),
                }
            }
            Err(Some(status)) => Err(ended(status)),
            Err(None) => Ok(None),
        }
    }

    /// A grant has ended.
    pub(crate) fn forget(&self, grant: &Grant) {
        self.grants.lock().remove(&grant.hold);
    }

    /// A grant has ended without a release: what may be left of it goes to the
    /// resolver.
    pub(crate) fn abandon(&self, grant: &Grant) {
        self.forget(grant);
        self.leases.give_back(grant);
    }

    /// See [`Client::close`].
    pub(crate) fn close(self: &Arc<Shared>) {
        if self.is_forked() || self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let stop_at = Instant::now().after(CLOSE_LIMIT);
        self.calls.close();
        let grants: Vec<Arc<Grant>> = self.grants.lock().drain().map(|(_, g)| g).collect();
        for grant in grants {
            grant.lost(LostCause::Closed);
            self.leases.give_back(&grant);
        }
        self.leases.pool.close();
        self.leases.resolver.close(stop_at);
        self.leases.pool.join(stop_at);
        self.calls.join(stop_at);
    }
}
