//! The resolver: finds out what became of acquires whose reply was lost, and
//! releases what nobody is there to release. A thread of the client's own,
//! started when there is work, with a session apart from the pool's.
//!
//! Why a look at the row is not enough: while the session that sent a
//! statement lives, the statement may still have its effect (it waits for a
//! row lock, or its server was paused). So the old session is ended first, over
//! a connection to the same incarnation of the same server (numbers of sessions
//! begin anew with each), and only when it has left the server's list does the
//! row tell what happened, for good. A server that has restarted, or another
//! one that has taken its place, has no such session.

mod work;

use std::collections::VecDeque;
use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;

use crate::call::{Call, Waited};
use crate::error::{Error, Status};
use crate::key::Key;
use crate::session::Session;
use crate::session::connect::Connector;
use crate::session::pool::{Closing, Pool};
use crate::session::server::Server;
use crate::sync::{Arc, Condvar, Mutex, Timer};
use crate::sys::clock::Instant;
use crate::sys::thread;

/// How long the thread stays when there is nothing to do.
const IDLE: Duration = Duration::from_secs(5);
/// How many releases share a commit, give or take.
const MOST_AT_ONCE: usize = 64;
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// An acquire that was sent and not answered.
#[derive(Debug)]
pub(crate) struct Unknown {
    pub(crate) key: Key,
    pub(crate) hold: [u8; 16],
    /// The session that sent it, which is ended first.
    pub(crate) session: u64,
    pub(crate) server: Arc<Server>,
    /// From here on it cannot matter any more: the statement does nothing
    /// after its give-up, and a lease granted before has ended.
    pub(crate) until: Instant,
}

/// A hold to be released.
#[derive(Debug)]
pub(crate) struct Leftover {
    pub(crate) key: Key,
    pub(crate) token: u64,
    pub(crate) hold: [u8; 16],
    /// Other clients may have holds of the same grant.
    pub(crate) is_shared: bool,
    /// When the lease ends by itself.
    pub(crate) until: Instant,
    /// The session that keeps the key's bell for it: closed, and so rung, once
    /// the row is released and this is dropped.
    #[expect(dead_code, reason = "there to be dropped")]
    pub(crate) bell: Option<Closing>,
}

/// Where the resolver and the call that asks meet.
#[derive(Debug)]
struct Reply {
    call: Arc<Call>,
    slot: Mutex<Slot>,
}

#[derive(Debug)]
enum Slot {
    Open,
    /// Nobody waits any more: a grant is to be undone.
    Left,
    Told(Verdict),
}

/// What became of an acquire whose reply was lost.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verdict {
    /// It was granted, with this token.
    Granted(u64),
    /// It was not: someone else has the key, or a transaction its row.
    Busy,
    /// It was not.
    Nothing,
}

#[derive(Debug)]
enum Job {
    Find(Unknown, Arc<Reply>),
    Release(Vec<Leftover>),
}

pub(crate) use work::release;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Resolver {
    connector: Arc<Connector>,
    pool: Arc<Pool>,
    state: Mutex<State>,
    /// Rung when there is work, or the thread has ended.
    bell: Condvar,
    /// The thread's session. Touched by that thread alone and never waited
    /// for, which is why a lock that cannot be used across a fork will do.
    session: parking_lot::Mutex<Option<Session>>,
}

#[derive(Debug)]
struct State {
    jobs: VecDeque<Job>,
    running: bool,
    /// What the thread is doing, to end it when the client closes.
    current: Option<Arc<Call>>,
    /// Set by close: no thread works past this.
    stop_at: Option<Instant>,
}

impl Resolver {
    pub(crate) fn new(connector: Arc<Connector>, pool: Arc<Pool>) -> Resolver {
        let state = State { jobs: VecDeque::new(), running: false, current: None, stop_at: None };
        Resolver {
            connector,
            pool,
            state: Mutex::new(state),
            bell: Condvar::new(),
            session: parking_lot::const_mutex(None),
        }
    }

    /// Finds out what became of an acquire: its token if it was granted. Where
    /// the call ends first, a grant is undone whenever it is found.
    pub(crate) fn find(
        self: &Arc<Resolver>,
        call: &Arc<Call>,
        unknown: Unknown,
    ) -> Waited<Verdict> {
        let slot = if call.interruption().is_some() { Slot::Left } else { Slot::Open };
        // Past `until` the answer is known, whether or not the thread came to it.
        let wait_until = call.last_moment().min(unknown.until);
        let reply = Arc::new(Reply { call: Arc::clone(call), slot: Mutex::new(slot) });
        self.add(Job::Find(unknown, Arc::clone(&reply)));
        let look = || match *reply.slot.lock() {
            Slot::Told(verdict) => Some(verdict),
            Slot::Open | Slot::Left => None,
        };
        let waited = call.wait_beyond(wait_until, look);
        let mut slot = reply.slot.lock();
        match (&waited, &*slot) {
            // Told in the moment of leaving: taken along.
            (Waited::Late | Waited::Interrupted(_), Slot::Told(verdict)) => Waited::Ready(*verdict),
            (Waited::Late | Waited::Interrupted(_), _) => {
                *slot = Slot::Left;
                drop(slot);
                waited
            }
            (Waited::Ready(_), _) => {
                drop(slot);
                waited
            }
        }
    }

    /// Releases a hold when the server can be reached.
    pub(crate) fn release(self: &Arc<Resolver>, leftover: Leftover) {
        self.add(Job::Release(vec![leftover]));
    }

    fn add(self: &Arc<Resolver>, job: Job) {
        let mut state = self.state.lock();
        if state.stop_at.is_some_and(Instant::has_passed) {
            return;
        }
        state.jobs.push_back(job);
        if !state.running {
            let resolver = Arc::clone(self);
            // Without a thread the job waits for the next one that asks.
            state.running = thread::start("dlease-resolve", move || resolver.run()).is_ok();
        }
        self.bell.wake_all();
    }

    /// No more work after `stop_at`; what is under way then is cut off.
    pub(crate) fn close(&self, stop_at: Instant) {
        let mut state = self.state.lock();
        state.stop_at = Some(stop_at);
        self.bell.wake_all();
        let timer = Timer::at(stop_at);
        while state.running && !timer.has_fired() {
            state = self.bell.sleep(state, timer);
        }
        state.jobs.clear();
        if let Some(call) = &state.current {
            call.interrupt(Status::Closed);
        }
    }

    /// The body of the thread.
    fn run(self: &Arc<Resolver>) {
        let mut pause = SHORTEST_PAUSE;
        while let Some(job) = self.next() {
            let working = AssertUnwindSafe(|| self.work(&job));
            let done = panic::catch_unwind(working).unwrap_or_else(|_| {
                Err(Error::new(Status::Internal, "cannot resolve: the library panicked"))
            });
            match done {
                Ok(()) => pause = SHORTEST_PAUSE,
                Err(_) if until(&job).has_passed() => drop_late(job),
                Err(_) => {
                    self.rest(Instant::now().after(pause));
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    self.state.lock().jobs.push_back(job);
                }
            }
        }
    }

    /// The next job, or `None` when the thread is to end.
    fn next(&self) -> Option<Job> {
        let idle_until = Instant::now().after(IDLE);
        let mut state = self.state.lock();
        state.current = None;
        loop {
            if state.is_over(idle_until) {
                // Its connection is closed before it says that it has ended: the
                // next thread never meets this one at the session.
                drop(state);
                *self.session.lock() = None;
                state = self.state.lock();
                if state.is_over(idle_until) {
                    state.running = false;
                    self.bell.wake_all();
                    return None;
                }
            }
            if let Some(job) = state.next_job() {
                return Some(job);
            }
            state = self.bell.sleep(state, Timer::at(idle_until));
        }
    }

    /// Enters what the thread is about to do. Its time counts from when there
    /// is a session: over a slow network to open one takes longer than to use it.
    fn begin(&self) -> Arc<Call> {
        let mut state = self.state.lock();
        let limit = Instant::now().after(self.connector.settings.io_timeout);
        let call = Arc::new(Call::new(limit.min(state.stop_at.unwrap_or(limit))));
        state.current = Some(Arc::clone(&call));
        call
    }

    /// Lets time pass, but for closing.
    fn rest(&self, until: Instant) {
        let timer = Timer::at(until);
        let mut state = self.state.lock();
        while state.stop_at.is_none() && !timer.has_fired() {
            state = self.bell.sleep(state, timer);
        }
    }
}

impl State {
    /// True if the thread has nothing more to do.
    fn is_over(&self, idle_until: Instant) -> bool {
        let stopped = self.stop_at.is_some_and(Instant::has_passed);
        let idle = self.stop_at.is_some() || idle_until.has_passed();
        stopped || (self.jobs.is_empty() && idle)
    }

    /// The next job; releases that wait with it come along.
    fn next_job(&mut self) -> Option<Job> {
        let mut job = self.jobs.pop_front()?;
        if let Job::Release(batch) = &mut job
            && batch.iter().all(|leftover| !leftover.is_shared)
        {
            while batch.len() < MOST_AT_ONCE
                && let Some(Job::Release(more)) = self.jobs.front_mut()
                && more.iter().all(|leftover| !leftover.is_shared)
            {
                batch.append(more);
                self.jobs.pop_front();
            }
        }
        Some(job)
    }
}

fn until(job: &Job) -> Instant {
    match job {
        Job::Find(unknown, _) => unknown.until,
        Job::Release(leftovers) => {
            leftovers.iter().map(|leftover| leftover.until).max().unwrap_or(Instant::NEVER)
        }
    }
}

/// A job that cannot matter any more: whoever waits is told that nothing is
/// held, which is true by now.
fn drop_late(job: Job) {
    if let Job::Find(_, reply) = job {
        let mut slot = reply.slot.lock();
        if matches!(*slot, Slot::Open) {
            *slot = Slot::Told(Verdict::Nothing);
        }
        drop(slot);
        reply.call.wake();
    }
}
