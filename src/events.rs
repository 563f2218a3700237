//! Outcomes of acquires that nobody sleeps for, in the order in which they came,
//! and a descriptor by which an event loop learns of them.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use crate::error::{Error, Result, Status};
use crate::grant::{LostCause, Watcher};
use crate::lock::Lock;
use crate::sync::{Arc, Condvar, Mutex, Timer};
use crate::sys::clock::Instant;
use crate::sys::event_fd::EventFd;

/// What became of an acquire that was begun by
/// [`Client::acquire_async`](crate::Client::acquire_async).
#[derive(Debug)]
#[non_exhaustive]
pub struct Event {
    /// The tag that the acquire was begun with.
    pub tag: u64,
    /// What happened.
    pub outcome: Outcome,
    /// To whom it happened, of a loss.
    pub(crate) watcher: Option<Arc<Watcher>>,
}

/// What happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// The lock is acquired.
    Acquired(Lock),
    /// It is not, for this reason: as from [`Client::acquire`](crate::Client::acquire).
    Failed(Error),
    /// The lock that this tag acquired is lost, for this reason. Not sent once it
    /// is released or dropped.
    Lost(LostCause),
}

impl Event {
    pub(crate) fn new(tag: u64, result: Result<Lock>) -> Event {
        let outcome = match result {
            Ok(lock) => Outcome::Acquired(lock),
            Err(error) => Outcome::Failed(error),
        };
        Event { tag, outcome, watcher: None }
    }
}

/// The events of one client.
#[derive(Debug, Default)]
pub(crate) struct Events {
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Event>,
    /// Made when it is first asked for.
    descriptor: Option<EventFd>,
    closed: bool,
}

impl State {
    /// The last event was taken: the descriptor is readable no more, unless the
    /// client is closed.
    fn clear_if_empty(&self) {
        if self.queue.is_empty()
            && !self.closed
            && let Some(descriptor) = &self.descriptor
        {
            descriptor.clear();
        }
    }
}

impl Events {
    pub(crate) fn push(&self, event: Event) {
        let mut state = self.state.lock();
        if event.watcher.as_ref().is_some_and(|watcher| watcher.closed.load(Ordering::SeqCst)) {
            return;
        }
        if state.queue.is_empty()
            && let Some(descriptor) = &state.descriptor
        {
            descriptor.signal();
        }
        state.queue.push_back(event);
        drop(state);
        self.bell.wake_one();
    }

    /// A lock that came as an event is lost.
    pub(crate) fn push_loss(&self, watcher: Arc<Watcher>, cause: LostCause) {
        let (tag, outcome) = (watcher.tag, Outcome::Lost(cause));
        self.push(Event { tag, outcome, watcher: Some(watcher) });
    }

    /// Takes back the loss of a lock whose holder is done with it, and has said so
    /// in the watcher: one that is pushed later is left out.
    pub(crate) fn forget(&self, watcher: &Arc<Watcher>) {
        let mut state = self.state.lock();
        let is_its =
            |event: &Event| event.watcher.as_ref().is_some_and(|w| Arc::ptr_eq(w, watcher));
        if state.queue.iter().any(is_its) {
            state.queue.retain(|event| !is_its(event));
            state.clear_if_empty();
        }
    }

    /// The next event; `None` if there is none until the deadline.
    pub(crate) fn next(&self, deadline: Instant) -> Result<Option<Event>> {
        let timer = Timer::at(deadline);
        let mut state = self.state.lock();
        loop {
            if let Some(event) = state.queue.pop_front() {
                state.clear_if_empty();
                return Ok(Some(event));
            }
            if state.closed {
                return Err(Error::new(Status::Closed, "the client is closed"));
            }
            if timer.has_fired() {
                return Ok(None);
            }
            state = self.bell.sleep(state, timer);
        }
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        let mut state = self.state.lock();
        if state.descriptor.is_none() {
            state.descriptor = EventFd::new();
            if let Some(descriptor) = &state.descriptor
                && (!state.queue.is_empty() || state.closed)
            {
                descriptor.signal();
            }
        }
        state.descriptor.as_ref().map_or(-1, EventFd::number)
    }

    /// Drops what nobody has taken, and the descriptor.
    pub(crate) fn clear(&self) {
        let mut state = self.state.lock();
        let untaken = std::mem::take(&mut state.queue);
        state.descriptor = None;
        drop(state);
        drop(untaken);
    }

    /// No more events come; whoever waits is told, and the descriptor stays
    /// readable.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        if let Some(descriptor) = &state.descriptor {
            descriptor.signal();
        }
        self.bell.wake_all();
    }
}
