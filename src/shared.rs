//! What a client and its locks share: the calls in progress, the grants that
//! are held, and the end of both when the client is closed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::call::Call;
use crate::calls::Begun;
use crate::cancel::Cancel;
use crate::error::{Error, Result, Status};
use crate::events::{Event, Events};
use crate::grant::{Grant, LostCause};
use crate::kinds::lease::acquire::First;
use crate::kinds::lease::{Leases, ended};
use crate::lock::Lock;
use crate::sync::{Arc, Weak};
use crate::sys::clock::Instant;
use crate::sys::fork;
use crate::wait::Errand;
use crate::wait::waiter::{Request, Waiter};

/// For how long a thread that others wait for may be at a row.
const A_MOMENT: Duration = Duration::from_secs(1);
/// How long closing takes at the most.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// What a client and its locks share.
pub(crate) struct Shared {
    generation: u64,
    pub(crate) leases: Arc<Leases>,
    /// Outcomes of acquires that nobody sleeps for.
    pub(crate) events: Events,
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
        self.start_keepers(self.leases.grants.enter(&grant));
        // Looked at after the entry: closing either finds the grant, or had
        // said so before.
        if self.closed.load(Ordering::Acquire) {
            grant.lost(LostCause::Closed);
            self.abandon(&grant);
            return Err(ended(Status::Closed));
        }
        Ok(Lock::new(Arc::clone(self), grant))
    }

    /// One more handle on a grant that the same owner has through this client,
    /// where its lease is long enough: without SQL.
    fn join_as_it_is(self: &Arc<Shared>, request: &Request) -> Option<Lock> {
        let grant = self.leases.grants.join(request.owner.as_deref()?, request, true)?;
        self.start_keepers(self.leases.grants.changed(&grant));
        Some(Lock::new(Arc::clone(self), grant))
    }

    /// The same, else by a renewal.
    pub(crate) fn join(
        self: &Arc<Shared>,
        call: &Arc<Call>,
        request: &Request,
    ) -> Result<Option<Lock>> {
        let Some(owner) = request.owner.as_deref() else { return Ok(None) };
        if let Some(lock) = self.join_as_it_is(request) {
            return Ok(Some(lock));
        }
        let Some(grant) = self.leases.grants.join(owner, request, false) else { return Ok(None) };
        self.start_keepers(self.leases.grants.changed(&grant));
        let lock = Lock::new(Arc::clone(self), Arc::clone(&grant));
        match grant.turn(call) {
            Ok(turn) => {
                let renewed = self.leases.renew(call, &grant, request.ttl);
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
                shared.tell(tag, kept);
            })
        });
        let begun = self.leases.calls.enter(Arc::clone(&waiter.call));
        waiter.keep(begun);
        if let Some(cancel) = cancel {
            cancel.attach(&waiter.call);
        }
        let request = &waiter.request;
        if let Some(lock) = self.join_as_it_is(request) {
            return self.tell_joined(&waiter, tag, lock);
        }
        if request.one_try || request.unfair {
            let (shared, waiter) = (Arc::clone(self), Arc::clone(&waiter));
            self.run(move || shared.try_async(&waiter, tag));
            return;
        }
        // In the order in which they were begun.
        self.leases.enter(&waiter, false, None);
        if request.owner.is_some() && !self.leases.waiting.is_first(&waiter) {
            // Its owner may have the lock already: it is not to wait for those who
            // wait for its owner.
            let (shared, waiter) = (Arc::clone(self), Arc::clone(&waiter));
            self.run(move || shared.join_async(&waiter, tag));
        }
    }

    fn run(self: &Arc<Shared>, run: impl FnOnce() + Send + 'static) {
        self.leases.waiting.add(Errand::Run(Box::new(run)));
        self.leases.muster();
    }

    /// One try, in a thread of the client's, and a place in the queue if it may wait.
    fn try_async(self: &Arc<Shared>, waiter: &Arc<Waiter>, tag: u64) {
        let tried = match waiter.request.one_try {
            true => self.leases.try_now(&waiter.call, &waiter.request, true).map(First::Granted),
            false => self.leases.first_try(waiter, true),
        };
        match tried {
            Ok(First::Waits(before)) => self.leases.enter(waiter, true, before),
            Ok(First::Granted(granted)) => self.leases.serve(waiter, granted),
            Err(error) => self.failed_async(waiter, tag, error),
        }
    }

    /// Joins the grant that its owner has, for one who waits behind others.
    fn join_async(self: &Arc<Shared>, waiter: &Arc<Waiter>, tag: u64) {
        match self.leases.join_only(&waiter.call, &waiter.request) {
            Ok(Some(granted)) => self.leases.serve(waiter, granted),
            Ok(None) => {}
            Err(error) => self.failed_async(waiter, tag, error),
        }
    }

    /// Told to the waiter, unless the row only has no place for another hold: one of
    /// them may be a grant of this client's, to be shared by its handles. Asked for
    /// within a moment, since others wait for this thread.
    fn failed_async(self: &Arc<Shared>, waiter: &Arc<Waiter>, tag: u64, error: Error) {
        if error.status() == Status::Unsupported {
            let limit = waiter.call.deadline().min(Instant::now().after(A_MOMENT));
            let begun = self.leases.calls.begin(limit);
            if let Ok(Some(lock)) = self.join(begun.as_ref(), &waiter.request) {
                return self.tell_joined(waiter, tag, lock);
            }
        }
        // Told by whoever ended it, if somebody did.
        let _ = waiter.deliver(Err(error));
        self.leases.waiting.told(waiter);
    }

    /// An acquire without a thread has joined a grant of this client's.
    fn tell_joined(&self, waiter: &Arc<Waiter>, tag: u64, joined: Lock) {
        let (was_waiting, _) = waiter.leave();
        self.leases.waiting.leave(waiter);
        if was_waiting {
            self.tell(tag, Ok(joined));
        }
    }

    /// The outcome of an acquire without a thread, and from then on the loss of
    /// what it acquired: in this order.
    fn tell(&self, tag: u64, outcome: Result<Lock>) {
        let watched = outcome.as_ref().ok().map(|lock| lock.watch(tag));
        self.events.push(Event::new(tag, outcome));
        let Some((watcher, grant)) = watched else { return };
        grant.watch(&watcher);
        // Where it was lost before anybody was there to be told.
        if let Some(cause) = grant.lost_cause() {
            self.tell_watchers(&grant, cause);
        }
    }

    pub(crate) fn tell_watchers(&self, grant: &Grant, cause: LostCause) {
        for watcher in grant.take_watchers() {
            self.events.push_loss(watcher, cause);
        }
    }

    /// An acquire without a thread has to end.
    fn end_async(&self, waiter: &Arc<Waiter>, status: Status, tag: u64) {
        // Told by one of the two: whoever delivers an outcome, or this.
        let left = self.leases.leave(waiter, status);
        if left.was_waiting {
            self.tell(tag, Err(left.error));
        }
    }

    /// Nobody has a handle on a grant any more that was not released: what may be
    /// left of it goes to the resolver.
    pub(crate) fn abandon(&self, grant: &Grant) {
        self.tell_if_lost(grant);
        self.leases.grants.remove(grant);
        self.leases.give_back(grant);
    }

    /// See [`Client::close`].
    pub(crate) fn close(self: &Arc<Shared>) {
        if self.is_forked() || self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let stop_at = Instant::now().after(CLOSE_LIMIT);
        let grants = self.leases.grants.close();
        // Lost before anything that takes time: calls answer CLOSED already.
        for grant in &grants {
            grant.lost(LostCause::Closed);
            self.leases.stats.count_loss(LostCause::Closed);
            self.tell_watchers(grant, LostCause::Closed);
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
        self.leases.renewals.close();
        self.leases.resolver.close(stop_at);
        self.leases.waiting.join(stop_at);
        self.leases.pool.join(stop_at);
        self.leases.gates.join(stop_at);
        self.leases.renewals.join(stop_at);
        self.leases.grants.join_threads(stop_at);
        self.leases.calls.join(stop_at);
        self.events.close();
    }
}
