//! The client's sessions: lent to one call at a time, first come, first
//! served, and opened by threads of their own, so that no caller ever waits
//! for anything but its own deadline.

use std::collections::VecDeque;
use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;

use super::Session;
use super::connect::Connector;
use crate::call::{Call, Waited};
use crate::error::{Error, Result, Status};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, Timer};
use crate::sys::clock::Instant;
use crate::sys::thread;

/// The pause after a failed connect, doubled with each up to the longest: the
/// bound on how often a client knocks at a server that is down.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Sessions in and out of use, at most `max_connections`.
#[derive(Debug)]
pub(crate) struct Pool {
    connector: Arc<Connector>,
    /// Sessions that wait at gates and keep bells, not those for statements.
    for_waiting: bool,
    most: usize,
    state: Mutex<State>,
    /// Rung when a connecting thread ends.
    ended: Condvar,
}

#[derive(Debug)]
struct State {
    idle: Vec<Session>,
    waiting: VecDeque<Arc<Waiter>>,
    /// Idle or lent.
    open: usize,
    /// Threads that are opening one.
    connecting: usize,
    /// Why the last connect failed, if it did.
    failed: Option<Error>,
    pause: Duration,
    /// No connect before this.
    connect_from: Instant,
    closed: bool,
}

/// A lent session that goes back to be closed, when this is dropped.
#[derive(Debug)]
pub(crate) struct Closing {
    session: Option<Session>,
    pool: Arc<Pool>,
}

impl Drop for Closing {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            self.pool.discard(session);
        }
    }
}

/// A call that waits for a session.
#[derive(Debug)]
struct Waiter {
    call: Arc<Call>,
    slot: Mutex<Option<Result<Session>>>,
}

/// Why there is no session for a call.
#[derive(Debug)]
pub(crate) enum NoSession {
    /// None can be opened now.
    Failed(Error),
    /// The call's deadline passed first.
    Late(Error),
    /// The call must end.
    Interrupted(Status),
}

impl Pool {
    /// The sessions for statements.
    pub(crate) fn new(connector: Arc<Connector>) -> Pool {
        let most = connector.settings.max_connections;
        Pool::make(connector, false, most)
    }

    /// The sessions that wait, apart from those: however many wait, renewals and
    /// releases have theirs.
    pub(crate) fn for_waiting(connector: Arc<Connector>) -> Pool {
        let most = connector.settings.max_waiting_connections;
        Pool::make(connector, true, most)
    }

    /// The renewer's, which does one thing at a time.
    pub(crate) fn for_renewing(connector: Arc<Connector>) -> Pool {
        Pool::make(connector, false, 1)
    }

    fn make(connector: Arc<Connector>, for_waiting: bool, most: usize) -> Pool {
        let state = State {
            idle: Vec::new(),
            waiting: VecDeque::new(),
            open: 0,
            connecting: 0,
            failed: None,
            pause: FIRST_PAUSE,
            connect_from: Instant::now(),
            closed: false,
        };
        Pool { connector, for_waiting, most, state: Mutex::new(state), ended: Condvar::new() }
    }

    /// Lends a session to `call`; it comes back by [`Pool::put_back`].
    pub(crate) fn take(self: &Arc<Pool>, call: &Arc<Call>) -> Result<Session, NoSession> {
        if let Some(status) = call.interruption() {
            return Err(NoSession::Interrupted(status));
        }
        let mut stale = Vec::new();
        let mut state = self.state.lock();
        if state.closed {
            return Err(NoSession::Interrupted(Status::Closed));
        }
        while let Some(session) = state.idle.pop() {
            if session.is_fresh() {
                return Ok(session);
            }
            state.open -= 1;
            stale.push(session);
        }
        let waiter = Arc::new(Waiter { call: Arc::clone(call), slot: Mutex::new(None) });
        state.waiting.push_back(Arc::clone(&waiter));
        drop(state);
        // Closing a connection is I/O: not under the pool's mutex.
        drop(stale);
        self.wait(&waiter)
    }

    fn wait(self: &Arc<Pool>, waiter: &Arc<Waiter>) -> Result<Session, NoSession> {
        loop {
            // Also looked at again where a connect failed without anybody
            // being told, since lent sessions were still to come back.
            let look_again = self.start_connecting().min(Instant::now().after(LONGEST_PAUSE));
            match waiter.call.wait(look_again, || waiter.slot.lock().take()) {
                Waited::Ready(Ok(session)) => return Ok(session),
                Waited::Ready(Err(error)) if error.status() == Status::Closed => {
                    return Err(NoSession::Interrupted(Status::Closed));
                }
                Waited::Ready(Err(error)) => return Err(NoSession::Failed(error)),
                Waited::Late if !waiter.call.deadline().has_passed() => {}
                Waited::Late => {
                    let why = self.leave(waiter);
                    return Err(NoSession::Late(why));
                }
                Waited::Interrupted(status) => {
                    self.leave(waiter);
                    return Err(NoSession::Interrupted(status));
                }
            }
        }
    }

    /// Takes a waiter out of the queue, and says what it waited for in vain.
    fn leave(self: &Arc<Pool>, waiter: &Arc<Waiter>) -> Error {
        let mut state = self.state.lock();
        state.waiting.retain(|other| !Arc::ptr_eq(other, waiter));
        let busy = state.open;
        let why = state.failed.clone().unwrap_or_else(|| match busy {
            0 => {
                let names = self.connector.address_names();
                let text = format!("cannot connect to {names}: no answer in time");
                Error::new(Status::Unavailable, text)
            }
            _ => {
                let text = format!("no free connection: all {busy} in use until the deadline");
                Error::new(Status::Unavailable, text)
            }
        });
        drop(state);
        // Out of the queue, nobody hands it anything any more; what came
        // before goes to the next.
        let left_over = waiter.slot.lock().take();
        if let Some(Ok(session)) = left_over {
            self.put_back(session);
        }
        why
    }

    /// Takes a session back, and hands it to whoever has waited longest. A
    /// broken one is closed, and makes room for a new one.
    pub(crate) fn put_back(self: &Arc<Pool>, session: Session) {
        let mut state = self.state.lock();
        if session.is_broken() || state.closed {
            drop(state);
            return self.discard(session);
        }
        hand_over(&mut state, session);
    }

    /// Takes a session back to close it: with a goodbye, if it is whole.
    fn discard(self: &Arc<Pool>, session: Session) {
        let mut state = self.state.lock();
        state.open -= 1;
        let someone_waits = !state.waiting.is_empty();
        drop(state);
        drop(session);
        if someone_waits {
            self.start_connecting();
        }
    }

    /// Starts as many connecting threads as there are waiters without one and
    /// places left. Returns when to look again.
    fn start_connecting(self: &Arc<Pool>) -> Instant {
        let mut state = self.state.lock();
        while !state.closed
            // While the server lets nobody in, one knocks for all.
            && (state.failed.is_none() || state.connecting == 0)
            && state.connecting < state.waiting.len()
            && state.open + state.connecting < self.most
        {
            if !state.connect_from.has_passed() {
                return state.connect_from;
            }
            state.connecting += 1;
            let pool = Arc::clone(self);
            if let Err(error) = thread::start("dlease-connect", move || pool.connect()) {
                let text = format!("cannot connect: no thread: {error}");
                self.connect_failed(&mut state, Error::new(Status::Unavailable, text));
                return state.connect_from;
            }
        }
        Instant::NEVER
    }

    /// The body of a connecting thread.
    fn connect(self: &Arc<Pool>) {
        // A panic must not cost the pool a place for ever, nor its callers the
        // answer that they wait for.
        let opening = AssertUnwindSafe(|| match self.for_waiting {
            true => self.connector.open_for_waiting(),
            false => self.connector.open(),
        });
        let result = panic::catch_unwind(opening).unwrap_or_else(|_| {
            Err(Error::new(Status::Internal, "cannot connect: the library panicked"))
        });
        let mut state = self.state.lock();
        match result {
            Ok(session) if !state.closed => {
                state.connecting -= 1;
                state.open += 1;
                state.failed = None;
                state.pause = FIRST_PAUSE;
                hand_over(&mut state, session);
            }
            Ok(session) => {
                state.connecting -= 1;
                drop(state);
                drop(session);
            }
            Err(error) => self.connect_failed(&mut state, error),
        }
        self.ended.wake_all();
    }

    /// Remembers the failure, and tells the waiters: all of them where no other
    /// session could come to them, or where waiting cannot help.
    fn connect_failed(&self, state: &mut MutexGuard<'_, State>, error: Error) {
        state.connecting -= 1;
        state.connect_from = Instant::now().after(state.pause);
        state.pause = (state.pause * 2).min(LONGEST_PAUSE);
        let nothing_comes = state.open == 0 && state.connecting == 0;
        if nothing_comes || error.status() == Status::Config {
            tell_all(state, &error);
        }
        state.failed = Some(error);
    }

    /// To close a lent session later.
    pub(crate) fn closing(self: &Arc<Pool>, session: Session) -> Closing {
        Closing { session: Some(session), pool: Arc::clone(self) }
    }

    /// How many are open.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().open
    }

    /// Closes what nobody has used for so long.
    pub(crate) fn trim(&self, idle: Duration) {
        let mut state = self.state.lock();
        let now = Instant::now();
        let is_old = |session: &mut Session| now.since(session.idle_since) >= idle;
        let old: Vec<Session> = state.idle.extract_if(.., is_old).collect();
        state.open -= old.len();
        drop(state);
        drop(old);
    }

    /// Closes every idle session: what was found out when they were opened is
    /// no longer true.
    pub(crate) fn flush(&self) {
        self.trim(Duration::ZERO);
    }

    /// Closes what is idle and refuses everybody from now on; what is lent is
    /// closed as it comes back.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        tell_all(&mut state, &Error::new(Status::Closed, "the client is closed"));
        drop(state);
        self.flush();
    }

    /// Waits for the connecting threads to end. One that is stuck in the
    /// system is left to itself: it finds the pool closed when it returns.
    pub(crate) fn join(&self, deadline: Instant) {
        let mut state = self.state.lock();
        let timer = Timer::at(deadline);
        while state.connecting > 0 && !timer.has_fired() {
            state = self.ended.sleep(state, timer);
        }
    }
}

fn hand_over(state: &mut MutexGuard<'_, State>, mut session: Session) {
    match state.waiting.pop_front() {
        Some(waiter) => {
            *waiter.slot.lock() = Some(Ok(session));
            waiter.call.wake();
        }
        None => {
            session.idle_since = Instant::now();
            state.idle.push(session);
        }
    }
}

fn tell_all(state: &mut MutexGuard<'_, State>, error: &Error) {
    for waiter in state.waiting.drain(..) {
        *waiter.slot.lock() = Some(Err(error.clone()));
        waiter.call.wake();
    }
}
