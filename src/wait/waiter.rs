//! One acquire that waits, and the place where its outcome is handed to it:
//! exactly once, or not at all once it has left.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::call::Call;
use crate::calls::Begun;
use crate::error::Result;
use crate::key::Key;
use crate::sync::{Arc, Mutex};
use crate::sys::clock::Instant;

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) key: Key,
    pub(crate) owner: Option<Vec<u8>>,
    pub(crate) note: Vec<u8>,
    pub(crate) ttl: Duration,
    pub(crate) one_try: bool,
    /// Takes a free lease though others wait for it.
    pub(crate) unfair: bool,
    /// The library renews it, for as long as `max_hold`.
    pub(crate) renews: bool,
    pub(crate) max_hold: Option<Duration>,
}

#[cfg(test)]
impl Request {
    /// One try for a lease of a second, for tests.
    pub(crate) fn of(key: Key) -> Request {
        Request {
            key,
            owner: None,
            note: Vec::new(),
            ttl: Duration::from_secs(1),
            one_try: true,
            unfair: false,
            renews: false,
            max_hold: None,
        }
    }
}

/// A lease as it was granted.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) token: u64,
    pub(crate) hold: [u8; 16],
    pub(crate) deadline: Instant,
    /// Since when this process has served its own callers with the key.
    pub(crate) turn_began: Instant,
    /// It came through the gate while that turn was under way: the turn goes on for
    /// this grant, and for no other that comes so.
    pub(crate) turn_goes_on: bool,
}

/// See the module's text.
pub(crate) struct Waiter {
    pub(crate) call: Arc<Call>,
    pub(crate) request: Request,
    seen_held: AtomicBool,
    waits: AtomicBool,
    in_queue: AtomicBool,
    slot: Mutex<Slot>,
    /// Its entry in the list of calls, where no thread has it.
    begun: Mutex<Option<Begun>>,
    /// Takes the outcome where no thread sleeps for it.
    sink: Option<Sink>,
}

type Sink = Box<dyn Fn(Result<Granted>) + Send + Sync>;

enum Slot {
    Open,
    /// It has left, or was told.
    Closed,
    Told(Result<Granted>),
}

impl Waiter {
    /// One whose thread sleeps in `call`.
    pub(crate) fn new(call: Arc<Call>, request: Request) -> Waiter {
        Waiter {
            call,
            request,
            seen_held: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            in_queue: AtomicBool::new(false),
            slot: Mutex::new(Slot::Open),
            begun: Mutex::default(),
            sink: None,
        }
    }

    /// One whose outcome goes to `sink`.
    pub(crate) fn with_sink(
        call: Arc<Call>,
        request: Request,
        sink: impl Fn(Result<Granted>) + Send + Sync + 'static,
    ) -> Waiter {
        Waiter { sink: Some(Box::new(sink)), ..Waiter::new(call, request) }
    }

    /// Stays in the list of calls until it is told, or leaves.
    pub(crate) fn keep(&self, begun: Begun) {
        let mut slot = self.begun.lock();
        if self.is_waiting() {
            *slot = Some(begun);
        }
    }

    /// Hands it its outcome, which comes back if it has left.
    pub(crate) fn deliver(&self, outcome: Result<Granted>) -> Result<(), Result<Granted>> {
        let mut slot = self.slot.lock();
        if !matches!(*slot, Slot::Open) {
            return Err(outcome);
        }
        match &self.sink {
            Some(sink) => {
                *slot = Slot::Closed;
                drop(slot);
                drop(self.begun.lock().take());
                sink(outcome);
            }
            None => {
                *slot = Slot::Told(outcome);
                drop(slot);
                self.call.wake();
            }
        }
        Ok(())
    }

    /// What it was handed.
    pub(crate) fn take(&self) -> Option<Result<Granted>> {
        let mut slot = self.slot.lock();
        match std::mem::replace(&mut *slot, Slot::Closed) {
            Slot::Told(outcome) => Some(outcome),
            other => {
                *slot = other;
                None
            }
        }
    }

    /// It waits no longer. What it was handed in the same moment, if anything;
    /// `false` if it had been told before.
    pub(crate) fn leave(&self) -> (bool, Option<Result<Granted>>) {
        let mut slot = self.slot.lock();
        let before = std::mem::replace(&mut *slot, Slot::Closed);
        drop(slot);
        drop(self.begun.lock().take());
        match before {
            Slot::Open => (true, None),
            Slot::Closed => (false, None),
            Slot::Told(outcome) => (false, Some(outcome)),
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(*self.slot.lock(), Slot::Open)
    }

    /// Marks it as in a queue or not. True if it was in one before.
    pub(super) fn mark_queued(&self, is_in: bool) -> bool {
        self.in_queue.swap(is_in, Ordering::Relaxed)
    }

    pub(super) fn is_queued(&self) -> bool {
        self.in_queue.load(Ordering::Relaxed)
    }

    /// It has to wait. True the first time.
    pub(crate) fn has_to_wait(&self) -> bool {
        !self.waits.swap(true, Ordering::Relaxed)
    }

    /// The lease was seen held in its call.
    pub(crate) fn saw_held(&self) {
        self.seen_held.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_seen_held(&self) -> bool {
        self.seen_held.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").field("request", &self.request).finish()
    }
}
