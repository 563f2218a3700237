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

use std::collections::VecDeque;
use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;

use crate::call::{Call, Waited};
use crate::error::{Error, Status};
use crate::key::Key;
use crate::kinds::lease::Found;
use crate::session::Session;
use crate::session::connect::Connector;
use crate::session::failure::{Class, Failure};
use crate::session::pool::Pool;
use crate::session::server::Server;
use crate::sql::lease::{ROLLBACK, Row, release_all};
use crate::sql::session::kill;
use crate::sync::{Arc, Condvar, Mutex};
use crate::sys::clock::Instant;
use crate::sys::thread;

/// The server's number for "there is no such session".
const NO_SUCH_SESSION: u16 = 1094;
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
        while state.running && !stop_at.has_passed() {
            state = self.bell.wait_until(state, stop_at);
        }
        state.jobs.clear();
        if let Some(call) = &state.current {
            call.interrupt(Status::Closed);
        }
    }

    /// The body of the thread.
    fn run(self: &Arc<Resolver>) {
        let mut pause = SHORTEST_PAUSE;
        while let Some((job, call)) = self.next() {
            let working = AssertUnwindSafe(|| self.work(&call, &job));
            let done = panic::catch_unwind(working).unwrap_or_else(|_| {
                Err(Error::new(Status::Internal, "cannot resolve: the library panicked"))
            });
            match done {
                Ok(()) => pause = SHORTEST_PAUSE,
                Err(_) if until(&job).has_passed() => drop_late(job),
                Err(_) => {
                    let rest = Instant::now().after(pause);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    let _ = call.wait(rest, || None::<()>);
                    self.state.lock().jobs.push_back(job);
                }
            }
        }
    }

    /// The next job, or `None` when the thread is to end.
    fn next(&self) -> Option<(Job, Arc<Call>)> {
        let idle_until = Instant::now().after(IDLE);
        let mut state = self.state.lock();
        state.current = None;
        loop {
            let stopped = state.stop_at.is_some_and(Instant::has_passed);
            let idle = state.stop_at.is_some() || idle_until.has_passed();
            if stopped || (state.jobs.is_empty() && idle) {
                break;
            }
            if let Some(job) = state.next_job() {
                let limit = Instant::now().after(self.connector.settings.io_timeout);
                let call = Arc::new(Call::new(limit.min(state.stop_at.unwrap_or(limit))));
                state.current = Some(Arc::clone(&call));
                return Some((job, call));
            }
            state = self.bell.wait_until(state, idle_until);
        }
        state.running = false;
        self.bell.wake_all();
        drop(state);
        *self.session.lock() = None;
        None
    }

    /// Does one job, or says why it could not be done now.
    fn work(&self, call: &Arc<Call>, job: &Job) -> Result<(), Error> {
        let mut slot = self.session.lock();
        let own = self.session_for(slot.take(), job);
        let is_own = own.is_ok();
        // Where the server lets nobody more in, one of the pool's will do.
        let mut session = own.or_else(|error| self.pool.take(call).map_err(|_| error))?;
        let done = match job {
            Job::Find(unknown, reply) => self.find_out(&mut session, call, unknown, reply),
            Job::Release(leftovers) => self.release_all(&mut session, call, leftovers),
        };
        if !is_own {
            self.pool.put_back(session);
        } else if !session.is_broken() {
            *slot = Some(session);
        }
        done.map_err(|failure| failure.refusal().error("cannot resolve"))
    }

    /// A session to the server that the job is about, or to the one that has
    /// taken its place.
    fn session_for(&self, had: Option<Session>, job: &Job) -> Result<Session, Error> {
        let had = had.filter(Session::is_fresh);
        match job {
            Job::Release(_) => had.map_or_else(|| self.connector.open(), Ok),
            Job::Find(unknown, _) => {
                let address = unknown.server.address;
                match had.filter(|session| session.server.address == address) {
                    Some(session) => Ok(session),
                    None => self.connector.open_at(address).or_else(|_| self.connector.open()),
                }
            }
        }
    }

    fn find_out(
        &self,
        session: &mut Session,
        call: &Call,
        unknown: &Unknown,
        reply: &Reply,
    ) -> Result<(), Failure> {
        if session.server.is_same_incarnation(&unknown.server) {
            end_session(session, call, unknown.session)?;
        }
        let row = self.row(&unknown.key);
        let verdict = verdict(session, call, &row, &unknown.hold)?;
        let left = {
            let mut slot = reply.slot.lock();
            match *slot {
                Slot::Left => true,
                _ => {
                    *slot = Slot::Told(verdict);
                    false
                }
            }
        };
        reply.call.wake();
        match verdict {
            Verdict::Granted(token) if left => {
                release(session, call, &row, token, &unknown.hold).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Many at once with one commit; where that fails for one of them, one after
    /// the other.
    fn release_all(
        &self,
        session: &mut Session,
        call: &Call,
        leftovers: &[Leftover],
    ) -> Result<(), Failure> {
        if leftovers.len() > 1 {
            let mut texts: Vec<(&[u8], String)> = Vec::new();
            for leftover in leftovers {
                let text = self.row(&leftover.key).release(leftover.token, &leftover.hold);
                texts.push((leftover.key.as_bytes(), text));
            }
            match session.execute_all(call, &release_all(texts)) {
                Ok(()) => return Ok(()),
                Err(failure @ Failure::Lost(_)) => return Err(failure),
                Err(Failure::Refused(_)) => session.execute(call, ROLLBACK)?,
            };
        }
        for leftover in leftovers {
            let row = self.row(&leftover.key);
            release(session, call, &row, leftover.token, &leftover.hold)?;
        }
        Ok(())
    }

    fn row<'a>(&'a self, key: &'a Key) -> Row<'a> {
        Row {
            names: &self.connector.names,
            namespace: &self.connector.settings.namespace,
            key: key.as_bytes(),
        }
    }
}

impl State {
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

/// Ends the session `id`, and waits until it has left the server's list. That
/// takes a millisecond, or as long as the server is busy with what it was
/// doing: then the job comes back later, and others have their turn.
fn end_session(session: &mut Session, call: &Call, id: u64) -> Result<(), Failure> {
    let mut pause = Duration::from_millis(1);
    loop {
        match session.execute(call, &kill(id)) {
            Ok(_) if call.deadline().left() <= pause => return Err(Failure::not_gone()),
            Ok(_) => {
                let _ = call.wait(Instant::now().after(pause), || None::<()>);
                pause = (pause * 2).min(Duration::from_millis(100));
            }
            Err(Failure::Refused(refusal)) if refusal.errno == NO_SUCH_SESSION => return Ok(()),
            Err(failure) => return Err(failure),
        }
    }
}

/// Releases one hold: as the only one, or as one of several, whichever it is by
/// then (others may join or leave in between). True if it was there.
pub(crate) fn release(
    session: &mut Session,
    call: &Call,
    row: &Row<'_>,
    token: u64,
    hold: &[u8; 16],
) -> Result<bool, Failure> {
    for _ in 0..4 {
        for text in [row.release(token, hold), row.release_shared(token, hold)] {
            if session.execute(call, &text)?.rows > 0 {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// What the row says of an acquire, once the session that sent it is gone.
fn verdict(
    session: &mut Session,
    call: &Call,
    row: &Row<'_>,
    hold: &[u8; 16],
) -> Result<Verdict, Failure> {
    match Found::read(&session.query(call, &row.look())?) {
        Some(found) if found.left_us > 0 && found.has(hold) => {
            return Ok(Verdict::Granted(found.stamp.token));
        }
        Some(found) if found.left_us > 0 => return Ok(Verdict::Busy),
        _ => {}
    }
    match session.query(call, &row.look_if_locked()) {
        Ok(_) => Ok(Verdict::Nothing),
        Err(Failure::Refused(refusal)) if refusal.class() == Class::Blocked => Ok(Verdict::Busy),
        Err(failure) => Err(failure),
    }
}
