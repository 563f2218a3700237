//! Waiting for a lock that somebody else holds: who waits, in which order, and
//! what is to be done for them. Pure state behind one mutex: it talks to no
//! server, and starts no thread; kinds do both.

pub(crate) mod backoff;
pub(crate) mod bells;
mod crew;
mod pace;
pub(crate) mod queue;
mod round;
pub(crate) mod waiter;

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::error::Error;
use crate::key::Key;
use crate::sync::{Arc, Condvar, Mutex, MutexGuard};
use crate::sys::clock::Instant;
pub(crate) use crew::Crew;
use queue::{Queue, Stand, Turn, Work};
use waiter::{Granted, Waiter};

/// For how long a key counts as contended after others were seen at it.
const CONTENDED: Duration = Duration::from_millis(50);
/// More are not remembered.
const MOST_CONTENDED: usize = 1_000;

/// Something for a client thread to do.
pub(crate) enum Errand {
    /// Try to take this key for the head of its queue.
    Try(Key),
    /// Whatever it is.
    Run(Box<dyn FnOnce() + Send>),
}

/// Everybody in a client who waits.
#[derive(Default)]
pub(crate) struct Waiting {
    state: Mutex<State>,
    /// Rung when there is something to do, for each sort of thread, and when a
    /// thread has ended, or stands for nobody.
    to_stand: Condvar,
    to_run: Condvar,
    to_watch: Condvar,
    ended: Condvar,
}

/// See the module's text.
#[derive(Default)]
pub(crate) struct State {
    queues: HashMap<Key, Queue>,
    /// Keys for which somebody is to stand at the gate, oldest first. Until
    /// then, and so beyond the bound, their rows are watched.
    to_stand: VecDeque<Key>,
    errands: VecDeque<Errand>,
    /// Keys for which others were seen to wait or to hold, and when.
    contended: HashMap<Key, Instant>,
    /// Those who are to be called off from where they wait in the server.
    call_offs: Vec<Arc<Stand>>,
    /// Threads, by what they do: all, and those with nothing to do.
    pub(crate) standers: Crew,
    pub(crate) runners: Crew,
    pub(crate) watchers: Crew,
    last_look: Option<Instant>,
    /// When the watcher wakes by itself.
    watcher_wakes: Option<Instant>,
    /// The server refuses GET_LOCK: nobody stands, all rows are watched.
    gates_refused: bool,
    /// Nobody is to stand any more.
    dismissed: bool,
    closed: bool,
}

impl Waiting {
    /// True if callers of this process wait for the key already: who comes now
    /// waits behind them.
    pub(crate) fn has_queue(&self, key: &Key) -> bool {
        let state = self.state.lock();
        state.queues.get(key).is_some_and(|queue| !queue.is_empty())
    }

    /// Others were seen to wait for the key, or to hold it.
    pub(crate) fn saw_others(&self, key: &Key) {
        let contended = &mut self.state.lock().contended;
        if contended.len() >= MOST_CONTENDED {
            contended.clear();
        }
        contended.insert(key.clone(), Instant::now());
    }

    /// True if a try for the key would be in vain, most likely: it is left out
    /// by those who can wait.
    pub(crate) fn is_contended(&self, key: &Key) -> bool {
        let state = self.state.lock();
        let seen = state.contended.get(key);
        seen.is_some_and(|at| Instant::now().since(*at) < CONTENDED)
    }

    /// The last of the queue. `tried` if the caller has found the lease held;
    /// else the first of a queue has a client thread try for it. False if that
    /// may be all.
    pub(crate) fn enter(&self, waiter: &Arc<Waiter>, tried: bool) -> bool {
        let mut state = self.state.lock();
        let key = waiter.request.key.clone();
        let queue = state.queues.entry(key.clone()).or_insert_with(Queue::new);
        if queue.is_empty() {
            queue.begin();
        }
        queue.push_back(waiter);
        let waits = tried || queue.count() > 1;
        if waiter.has_seen_held() {
            queue.saw_held();
        } else if queue.is_known_held() {
            waiter.saw_held();
        } else if queue.count() > 1 {
            // Whether it is held is to be seen in its call, too.
            queue.due = Instant::now();
        }
        if tried {
            state.want_stander(&key);
        } else if queue.count() == 1 && !queue.trying && matches!(queue.work, Work::None) {
            queue.trying = true;
            state.errands.push_back(Errand::Try(key));
        }
        self.wake_who_is_wanted(&state, Some(&waiter.request.key));
        waits
    }

    /// Takes a waiter out. Nothing comes to it any more. The last one has
    /// whoever stands for the key called off.
    pub(crate) fn leave(&self, waiter: &Arc<Waiter>) {
        let mut state = self.state.lock();
        let key = &waiter.request.key;
        let Some(queue) = state.queues.get_mut(key) else { return };
        queue.remove(waiter);
        state.call_off_if_empty(key);
        state.tidy(key);
        self.wake_who_is_wanted(&state, Some(key));
    }

    /// Whether the lease was seen held while `waiter` waited, or what went
    /// wrong instead.
    pub(crate) fn seen(&self, waiter: &Waiter) -> Result<(), Option<Error>> {
        let state = self.state.lock();
        match state.queues.get(&waiter.request.key) {
            _ if waiter.has_seen_held() => Ok(()),
            Some(queue) if queue.was_held_since(waiter.call.begun()) => Ok(()),
            Some(queue) => Err(queue.error.clone()),
            None => Err(None),
        }
    }

    /// Whether this one is the first who waits for its key, or waits no more.
    pub(crate) fn is_first(&self, waiter: &Arc<Waiter>) -> bool {
        self.head(&waiter.request.key).is_none_or(|head| Arc::ptr_eq(&head, waiter))
    }

    /// The first who waits for the key.
    pub(crate) fn head(&self, key: &Key) -> Option<Arc<Waiter>> {
        self.state.lock().queues.get_mut(key)?.head()
    }

    /// Takes the first who waits out of the queue, to hand the lease to it.
    pub(crate) fn next(&self, key: &Key) -> Option<Arc<Waiter>> {
        let mut state = self.state.lock();
        let queue = state.queues.get_mut(key)?;
        let next = queue.head()?;
        queue.remove(&next);
        Some(next)
    }

    /// Puts it back where it was: it could not be handed the lease.
    pub(crate) fn put_back(&self, waiter: &Arc<Waiter>) {
        if !waiter.is_waiting() {
            return;
        }
        let mut state = self.state.lock();
        let key = &waiter.request.key;
        let queue = state.queues.entry(key.clone()).or_insert_with(Queue::new);
        queue.push_front(waiter);
        state.want_stander(key);
        self.wake_who_is_wanted(&state, Some(key));
    }

    /// The turn of this process that the grant of this hold belongs to, if it went to
    /// one of its waiters: since when, and whether it has gone on through the gate.
    pub(crate) fn turn_of(&self, key: &Key, hold: &[u8]) -> Option<(Instant, bool)> {
        let state = self.state.lock();
        let turn = state.queues.get(key)?.turn.as_ref()?;
        (turn.hold == hold).then_some((turn.began, turn.goes_on))
    }

    /// The grant of this hold is released, and to nobody of this process.
    pub(crate) fn turn_ends(&self, key: &Key, hold: &[u8; 16]) {
        if let Some(queue) = self.state.lock().queues.get_mut(key)
            && let Some(turn) = &mut queue.turn
            && turn.hold == *hold
        {
            turn.ended = Some(Instant::now());
        }
    }

    /// The turn of this process that has ended no longer ago than that.
    pub(crate) fn turn_before(&self, key: &Key, ago: Duration) -> Option<(Instant, bool)> {
        let state = self.state.lock();
        let turn = state.queues.get(key)?.turn.as_ref()?;
        let is_recent = Instant::now().since(turn.ended?) <= ago;
        is_recent.then_some((turn.began, turn.goes_on))
    }

    /// Takes a waiter out that gets what it waited for.
    pub(crate) fn served(&self, waiter: &Arc<Waiter>, granted: &Granted) {
        let Granted { hold, turn_began, turn_goes_on, .. } = *granted;
        self.turn(&waiter.request.key, hold, turn_began, turn_goes_on);
        self.told(waiter);
    }

    /// The grant of this hold goes to one of those who wait, or is about to.
    pub(crate) fn turn(&self, key: &Key, hold: [u8; 16], began: Instant, goes_on: bool) {
        if let Some(queue) = self.state.lock().queues.get_mut(key) {
            queue.free_since = None;
            queue.turn = Some(Turn { hold, began, goes_on, ended: None });
        }
    }

    /// Takes a waiter out that is told how its wait ended.
    pub(crate) fn told(&self, waiter: &Arc<Waiter>) {
        let mut state = self.state.lock();
        let key = &waiter.request.key;
        if let Some(queue) = state.queues.get_mut(key) {
            queue.remove(waiter);
        }
        // Who has no thread does not leave by itself.
        state.call_off_if_empty(key);
        state.tidy(key);
        self.wake_who_is_wanted(&state, Some(key));
    }

    /// Takes everybody out who waits for the key.
    pub(crate) fn all(&self, key: &Key) -> Vec<Arc<Waiter>> {
        let mut state = self.state.lock();
        let Some(queue) = state.queues.get_mut(key) else { return Vec::new() };
        let all = queue.drain();
        state.call_off_if_empty(key);
        state.tidy(key);
        self.wake_who_is_wanted(&state, None);
        all
    }

    /// The lease was seen held by somebody.
    pub(crate) fn saw_held(&self, key: &Key) {
        if let Some(queue) = self.state.lock().queues.get_mut(key) {
            queue.saw_held();
        }
    }

    /// Something went wrong at the server.
    pub(crate) fn failed(&self, key: &Key, error: Error) {
        if let Some(queue) = self.state.lock().queues.get_mut(key) {
            queue.failed(error);
        }
    }

    /// The head of the queue is to be tried for, whatever is known of the row.
    pub(crate) fn try_now(&self, key: &Key) {
        let mut state = self.state.lock();
        if let Some(queue) = state.queues.get_mut(key)
            && !queue.trying
            && !queue.is_empty()
        {
            queue.trying = true;
            state.errands.push_back(Errand::Try(key.clone()));
            self.to_run.wake_one();
        }
    }

    /// The try for the head of the queue is over, and it still waits: somebody
    /// stands for it, or its row is watched.
    pub(crate) fn tried(&self, key: &Key) {
        let mut state = self.state.lock();
        if let Some(queue) = state.queues.get_mut(key) {
            queue.trying = false;
            queue.look_later();
            state.want_stander(key);
        }
        state.tidy(key);
        self.wake_who_is_wanted(&state, Some(key));
    }

    /// How long the lease has been free without the queue's getting it, as far
    /// as was seen.
    pub(crate) fn is_overtaken(&self, key: &Key) -> bool {
        let state = self.state.lock();
        state.queues.get(key).is_some_and(Queue::is_overtaken)
    }

    /// Adds something for a client thread to do.
    pub(crate) fn add(&self, errand: Errand) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            return drop(errand);
        }
        state.errands.push_back(errand);
        self.to_run.wake_one();
    }

    /// The server does not do what gates need. True the first time.
    pub(crate) fn refuse_gates(&self) -> bool {
        !std::mem::replace(&mut self.state.lock().gates_refused, true)
    }

    /// Whether there are gates, as far as is known.
    pub(crate) fn has_gates(&self) -> bool {
        !self.state.lock().gates_refused
    }

    /// Nobody is to stand any more. Those who do, and have to be called off.
    pub(crate) fn dismiss(&self) -> Vec<Arc<Stand>> {
        let mut state = self.state.lock();
        state.dismissed = true;
        drop(state);
        self.standing().into_iter().filter(|stand| stand.abandon()).collect()
    }

    /// Whether nobody is to stand any more.
    pub(crate) fn is_dismissed(&self) -> bool {
        self.state.lock().dismissed
    }

    /// Ends the threads, and drops what is to be done.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let errands = std::mem::take(&mut state.errands);
        let queues = std::mem::take(&mut state.queues);
        state.to_stand.clear();
        for bell in [&self.to_stand, &self.to_run, &self.to_watch] {
            bell.wake_all();
        }
        drop(state);
        // Sessions and closures are dropped with no lock held.
        drop((errands, queues));
    }

    /// How many callers wait.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().queues.values().map(Queue::count).sum()
    }

    /// Wakes the threads that have something to do now: one of each sort, since
    /// each looks for more when it is done. `changed` is the key for which there
    /// may be something earlier than the watcher knows.
    fn wake_who_is_wanted(&self, state: &State, changed: Option<&Key>) {
        if !state.to_stand.is_empty() {
            self.to_stand.wake_one();
        }
        if !state.errands.is_empty() {
            self.to_run.wake_one();
        }
        self.wake_watcher(state, changed);
    }

    fn wake_watcher(&self, state: &State, changed: Option<&Key>) {
        // One that does not sleep finds out by itself.
        let Some(wakes) = state.watcher_wakes else { return };
        let queue = changed.and_then(|key| state.queues.get(key));
        if !state.call_offs.is_empty() || queue.is_some_and(|queue| queue.next_due() < wakes) {
            self.to_watch.wake_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn want_stander(&mut self, key: &Key) {
        if let Some(queue) = self.queues.get_mut(key)
            && matches!(queue.work, Work::None)
            && !queue.is_empty()
        {
            queue.work = Work::ToStand;
            self.to_stand.push_back(key.clone());
        }
    }

    /// Nobody waits any more: whoever stands for them is called off.
    fn call_off_if_empty(&mut self, key: &Key) {
        if let Some(queue) = self.queues.get(key)
            && queue.is_empty()
            && let Work::Standing(stand) = &queue.work
            && stand.abandon()
        {
            self.call_offs.push(Arc::clone(stand));
        }
    }

    /// Forgets a queue that has nobody and nothing.
    fn tidy(&mut self, key: &Key) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        if !queue.is_empty() {
            return;
        }
        if matches!(queue.work, Work::ToStand) {
            // Its place in the list is passed over.
            queue.work = Work::None;
        }
        if matches!(queue.work, Work::None) && !queue.trying && queue.bell.is_none() {
            self.queues.remove(key);
        }
    }
}
