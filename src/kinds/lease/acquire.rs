//! Acquiring a lease: one try for those who do not wait, and for those who do a
//! try and then a place in the queue, until one is granted or the call ends.

use std::time::Duration;

use super::attempt::{Attempt, Tried};
use super::{Leases, ended, is_final, unavailable};
use crate::call::{Call, Waited};
use crate::error::{Error, Result, Status};
use crate::session::pool::NoSession;
use crate::sql::gate::Gate;
use crate::stats::Counter;
use crate::sync::Arc;
use crate::sys::clock::Instant;
use crate::wait::backoff::Backoff;
use crate::wait::waiter::{Granted, Request, Waiter};

/// For how long a single try goes on where the row is locked by somebody's
/// transaction: MySQL's least wait for a row.
const TRY_BLOCKED: Duration = Duration::from_secs(1);
/// How often a single try begins anew where a session or a table was not
/// what it seemed.
const TRY_UNREADY: u32 = 3;
/// How often it is looked whether there are the threads that a wait needs.
const AGAIN: Duration = Duration::from_secs(1);
/// Long enough to leave out a try: the lease will be seen held by others.
const LONG: Duration = Duration::from_secs(1);

impl Leases {
    /// Acquires a lease, or says why not by the call's deadline.
    pub(crate) fn acquire(
        self: &Arc<Leases>,
        call: &Arc<Call>,
        request: Request,
    ) -> Result<Granted> {
        if request.one_try {
            return self.try_now(call, &request, false);
        }
        let waiter = Arc::new(Waiter::new(Arc::clone(call), request));
        let key = &waiter.request.key;
        let waits_long = call.deadline().left() >= LONG;
        let queues = waiter.request.owner.is_none()
            && !waiter.request.unfair
            && (self.waiting.has_queue(key) || (waits_long && self.waiting.is_contended(key)));
        if queues {
            return self.wait(&waiter, None);
        }
        match self.first_try(&waiter, false)? {
            First::Granted(granted) => Ok(granted),
            First::Waits(before) => self.wait(&waiter, before),
        }
    }

    /// The try before a wait.
    pub(crate) fn first_try(&self, waiter: &Waiter, probes: bool) -> Result<First> {
        let (call, request) = (&waiter.call, &waiter.request);
        let mut before = None;
        // Again where a session or a table was not what it seemed.
        for _ in 0..TRY_UNREADY {
            match self.attempt(call, call.deadline(), request, !request.unfair, probes) {
                Tried::Granted(granted) => return Ok(First::Granted(granted)),
                Tried::Failed(error) => return Err(error),
                Tried::Ended(status) => return Err(ended(status)),
                Tried::Held(_) | Tried::Queued | Tried::Blocked(_) => {
                    waiter.saw_held();
                    return Ok(First::Waits(None));
                }
                Tried::Unready(error) if call.deadline().has_passed() => {
                    return Err(unavailable(error));
                }
                Tried::Unready(error) => before = Some(error),
            }
        }
        Ok(First::Waits(before))
    }

    /// Waits in the queue.
    fn wait(self: &Arc<Leases>, waiter: &Arc<Waiter>, before: Option<Error>) -> Result<Granted> {
        self.enter(waiter, true, before);
        let waited = loop {
            let waited = waiter.call.wait(Instant::now().after(AGAIN), || waiter.take());
            if !matches!(waited, Waited::Late) || waiter.call.deadline().has_passed() {
                break waited;
            }
            // Where a thread could not be started before.
            self.muster();
        };
        let status = match waited {
            // Whoever told it has taken it out of the queue.
            Waited::Ready(outcome) => return outcome,
            Waited::Late => Status::TimedOut,
            Waited::Interrupted(status) => status,
        };
        let left = self.leave(waiter, status);
        match left.outcome {
            // Handed over in the moment of leaving: taken along by who only ran
            // out of time.
            Some(Ok(granted)) if status != Status::TimedOut => {
                self.give_up(&waiter.request, &granted);
                Err(ended(status))
            }
            Some(outcome) => outcome,
            None => Err(left.error),
        }
    }

    /// Into the queue, and somebody to work for it.
    pub(crate) fn enter(
        self: &Arc<Leases>,
        waiter: &Arc<Waiter>,
        tried: bool,
        before: Option<Error>,
    ) {
        if self.waiting.enter(waiter, tried) && waiter.has_to_wait() {
            self.stats.count(Counter::Waits);
        }
        if let Some(error) = before {
            self.waiting.failed(&waiter.request.key, error);
        }
        self.muster();
        // Left while it was on its way in: by a cancel, or by closing.
        if waiter.call.interruption().is_some() {
            self.waiting.leave(waiter);
        }
    }

    /// Out of the queue.
    pub(crate) fn leave(self: &Arc<Leases>, waiter: &Arc<Waiter>, status: Status) -> Left {
        let seen = self.waiting.seen(waiter);
        let (was_waiting, outcome) = waiter.leave();
        self.waiting.leave(waiter);
        self.muster();
        let error = match (status, seen) {
            (Status::TimedOut, Ok(())) if !waiter.request.one_try => {
                if waiter.has_to_wait() {
                    self.stats.count(Counter::Waits);
                }
                self.stats.count(Counter::TimeOuts);
                Error::new(Status::TimedOut, "timed out: someone else has the lock")
            }
            (Status::TimedOut, Err(Some(error))) => unavailable(error),
            (status, _) => ended(status),
        };
        Left { error, was_waiting, outcome }
    }

    /// One try: NOT_ACQUIRED if someone else has it.
    pub(crate) fn try_now(
        &self,
        call: &Arc<Call>,
        request: &Request,
        probes: bool,
    ) -> Result<Granted> {
        let mut backoff = Backoff::new();
        let mut unready = 0;
        loop {
            let (held, error) = match self.attempt(call, call.deadline(), request, false, probes) {
                Tried::Granted(granted) => return Ok(granted),
                Tried::Failed(error) => return Err(error),
                Tried::Ended(status) => return Err(ended(status)),
                Tried::Held(_) | Tried::Queued => return Err(not_acquired()),
                Tried::Blocked(_) => {
                    if Instant::now().since(call.begun()) >= TRY_BLOCKED {
                        return Err(not_acquired());
                    }
                    (true, not_acquired())
                }
                Tried::Unready(error) => {
                    unready += 1;
                    if unready >= TRY_UNREADY {
                        return Err(error);
                    }
                    (false, error)
                }
            };
            match call.wait(Instant::now().after(backoff.next()), || None::<()>) {
                Waited::Interrupted(status) => return Err(ended(status)),
                _ if call.deadline().has_passed() => {
                    return Err(if held { error } else { unavailable(error) });
                }
                _ => {}
            }
        }
    }

    /// One attempt, on one of the pool's sessions. A `fair` one leaves a free
    /// lease to those who stand at its gate; one that `probes` waits for no row.
    pub(super) fn attempt(
        &self,
        call: &Arc<Call>,
        until: Instant,
        request: &Request,
        fair: bool,
        probes: bool,
    ) -> Tried {
        let gate = (fair && self.waiting.has_gates()).then(|| Gate::new(&self.row(&request.key)));
        let take = Attempt::new(call, until, request);
        self.try_on_a_session(&Attempt { behind: gate.as_ref(), probes, ..take })
    }

    /// Joins the lease that the request's owner has elsewhere, if it has it: takes no
    /// free one, and waits for no row.
    pub(crate) fn join_only(&self, call: &Arc<Call>, request: &Request) -> Result<Option<Granted>> {
        let take = Attempt::new(call, call.deadline(), request);
        match self.try_on_a_session(&Attempt { probes: true, only_joins: true, ..take }) {
            Tried::Granted(granted) => Ok(Some(granted)),
            Tried::Failed(error) => Err(error),
            _ => Ok(None),
        }
    }

    fn try_on_a_session(&self, attempt: &Attempt<'_>) -> Tried {
        let call = attempt.call;
        let mut session = match self.pool.take(call) {
            Ok(session) => session,
            Err(NoSession::Interrupted(status)) => return Tried::Ended(status),
            Err(NoSession::Failed(error)) if is_final(&error) => return Tried::Failed(error),
            // A single try knocks more than once: a connection may be lost while
            // it is being opened, by whatever ended the ones before.
            Err(NoSession::Failed(error) | NoSession::Late(error)) => {
                return Tried::Unready(error);
            }
        };
        let sent = self.send(&mut session, attempt);
        let was_outdated = self.give_session_back(call, session, sent.failure());
        self.conclude(attempt, sent, was_outdated)
    }
}

/// How the try before a wait ended.
pub(crate) enum First {
    Granted(Granted),
    /// It has to wait, with what went wrong, if something did.
    Waits(Option<Error>),
}

/// How a waiter left.
pub(crate) struct Left {
    /// What to answer with, if nothing else.
    pub(crate) error: Error,
    /// It had been told nothing, and will be told nothing by others.
    pub(crate) was_waiting: bool,
    /// What it was handed in the same moment.
    outcome: Option<Result<Granted>>,
}

fn not_acquired() -> Error {
    Error::new(Status::NotAcquired, "not acquired: someone else has the lock")
}
