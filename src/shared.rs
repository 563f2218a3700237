//! What a client and its locks share: the calls in progress, the grants that
//! are held, and the end of both when the client is closed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::call::Call;
use crate::calls::Begun;
use crate::cancel::Cancel;
use crate::error::{Error, Result, Status};
use crate::events::{Event, Events};
use crate::grant::{self, Grant, LostCause, Phase};
use crate::kinds::lease::acquire::First;
use crate::kinds::lease::{Leases, ended};
use crate::lock::Lock;
use crate::sync::{Arc, Mutex, Weak};
use crate::sys::clock::Instant;
use crate::sys::fork;
use crate::wait::Errand;
use crate::wait::waiter::{Request, Waiter};

/// How long closing takes at the most.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// What a client and its locks share.
pub(crate) struct Shared {
    generation: u64,
    pub(crate) leases: Arc<Leases>,
    /// Outcomes of acquires that nobody sleeps for.
    pub(crate) events: Events,
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
            leases: Arc::new(leases),
            events: Events::default(),
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

    pub(crate) fn check_forked(&self) -> Result<()> {
        if self.is_forked() {
            let text = "the client was opened before a fork, in the parent";
            return Err(Error::new(Status::Forked, text));
        }
        Ok(())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether calls may go on.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_forked()?;
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
        self.leases.calls.begin(deadline)
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
        request: &Request,
    ) -> Result<Option<Lock>> {
        let Some(owner) = request.owner.as_deref() else { return Ok(None) };
        let (key, ttl) = (&request.key, request.ttl);
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

    /// Acquires without a thread to sleep in: the outcome becomes an event.
    pub(crate) fn acquire_async(
        self: &Arc<Shared>,
        request: Request,
        deadline: Instant,
        cancel: Option<&Cancel>,
        tag: u64,
    ) {
        let waiter = Arc::new_cyclic(|this: &Weak<Waiter>| {
            let (shared, this) = (Arc::clone(self), Weak::clone(this));
            let call = Call::without_thread(deadline, move |status| {
                if let Some(waiter) = this.upgrade() {
                    shared.end_async(&waiter, status, tag);
                }
            });
            let (shared, asked) = (Arc::clone(self), request.clone());
            Waiter::with_sink(Arc::new(call), request, move |outcome| {
                let kept = outcome.and_then(|granted| shared.keep(Grant::new(&asked, &granted)));
                shared.events.push(Event::new(tag, kept));
            })
        });
        let begun = self.leases.calls.enter(Arc::clone(&waiter.call));
        waiter.keep(begun);
        if let Some(cancel) = cancel {
            cancel.attach(&waiter.call);
        }
        let request = &waiter.request;
        if request.one_try || request.owner.is_some() {
            let (shared, waiter) = (Arc::clone(self), Arc::clone(&waiter));
            let run = move || shared.run_async(&waiter, tag);
            self.leases.waiting.add(Errand::Run(Box::new(run)));
            self.leases.muster();
        } else {
            self.leases.enter(&waiter, false, None);
        }
    }

    /// What an acquire has to do before it may wait, in a thread of the client's.
    fn run_async(self: &Arc<Shared>, waiter: &Arc<Waiter>, tag: u64) {
        match self.join(&waiter.call, &waiter.request) {
            Ok(None) => {
                let tried = match waiter.request.one_try {
                    true => {
                        self.leases.try_now(&waiter.call, &waiter.request, true).map(First::Granted)
                    }
                    false => self.leases.first_try(waiter, true),
                };
                match tried {
                    Ok(First::Waits(before)) => self.leases.enter(waiter, true, before),
                    Ok(First::Granted(granted)) => self.leases.serve(waiter, granted),
                    // Told by whoever ended it, if somebody did.
                    Err(error) => drop(waiter.deliver(Err(error))),
                }
            }
            joined => {
                let (was_waiting, _) = waiter.leave();
                if was_waiting && let Some(joined) = joined.transpose() {
                    self.events.push(Event::new(tag, joined));
                }
            }
        }
    }

    /// An acquire without a thread has to end.
    fn end_async(&self, waiter: &Arc<Waiter>, status: Status, tag: u64) {
        // Told by one of the two: whoever delivers an outcome, or this.
        let left = self.leases.leave(waiter, status);
        if left.was_waiting {
            self.events.push(Event::new(tag, Err(left.error)));
        }
    }

    /// A grant has ended.
    pub(crate) fn forget(&self, grant: &Grant) {
        if let Phase::Lost(cause) = grant.phase() {
            self.leases.stats.count_loss(cause);
        }
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
        let grants: Vec<Arc<Grant>> = self.grants.lock().drain().map(|(_, g)| g).collect();
        // Lost before anything that takes time: calls answer CLOSED already.
        for grant in &grants {
            grant.lost(LostCause::Closed);
        }
        self.leases.dismiss();
        self.leases.calls.close();
        for grant in &grants {
            self.leases.give_back(grant);
        }
        // After that, since bells are to ring behind their rows.
        self.leases.waiting.close();
        self.leases.pool.close();
        self.leases.gates.close();
        self.leases.resolver.close(stop_at);
        self.leases.waiting.join(stop_at);
        self.leases.pool.join(stop_at);
        self.leases.gates.join(stop_at);
        self.leases.calls.join(stop_at);
        self.events.close();
    }
}
