//! Those of one process who wait for one key, first come, first served, and who
//! works for them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::bells::Bell;
use super::pace;
use super::waiter::Waiter;
use crate::call::Call;
use crate::error::Error;
use crate::key::Key;
use crate::session::Session;
use crate::session::server::Server;
use crate::sync::{Arc, Mutex};
use crate::sys::clock::Instant;

/// For how long a free lease may go by a queue before it is taken out of turn:
/// whoever is to have it is stopped or cut off, and no longer at the gate by
/// then, since servers end a silent session before.
const OVERTAKEN: Duration = Duration::from_millis(2_500);
/// How often a row is looked at though somebody stands for its key: it may be
/// free, with a gate that a stopped or foreign session keeps.
const LAST_RESORT: Duration = Duration::from_secs(2);

/// For how long what was seen counts as seen now.
const A_MOMENT: Duration = Duration::from_millis(50);
/// How often a caller with an owner text tries for a lease that is held.
const JOIN: Duration = Duration::from_millis(500);
/// Too short for a look of one's own.
const BRIEFLY: Duration = Duration::from_millis(300);

/// See the module's text.
pub(super) struct Queue {
    /// In their order, with some who have left: thousands may leave at once, and
    /// to look for each would take too long.
    waiters: VecDeque<Arc<Waiter>>,
    /// How many have not left.
    count: usize,
    pub(super) work: Work,
    /// A client thread tries for the head.
    pub(super) trying: bool,
    /// Since when somebody waits.
    since: Instant,
    /// When the row is to be looked at next.
    pub(super) due: Instant,
    /// The one who stands for it has the gate, and waits for the row alone.
    pub(super) is_urgent: bool,
    /// Nobody is to stand for it before this.
    pub(super) stand_from: Instant,
    /// Since when the lease has been seen free without a look between at which
    /// it was held.
    pub(super) free_since: Option<Instant>,
    /// When the head last tried to join a grant that its owner may have got
    /// elsewhere.
    joined_at: Instant,
    /// When it was last seen held, and what went wrong since.
    held_at: Option<Instant>,
    pub(super) error: Option<Error>,
    pub(super) bell: Bell,
    /// The last grant to one of its waiters, and the turn that it belongs to.
    pub(super) turn: Option<Turn>,
}

/// See [`Granted`](super::waiter::Granted).
pub(super) struct Turn {
    pub(super) hold: [u8; 16],
    pub(super) began: Instant,
    pub(super) goes_on: bool,
    /// When it was released.
    pub(super) ended: Option<Instant>,
}

/// Who works for a queue.
pub(super) enum Work {
    None,
    /// It is in the list of keys to stand for.
    ToStand,
    Standing(Arc<Stand>),
}

impl Queue {
    pub(super) fn new() -> Queue {
        let now = Instant::now();
        Queue {
            waiters: VecDeque::new(),
            count: 0,
            work: Work::None,
            trying: false,
            since: now,
            due: now.after(pace::SHORTEST),
            is_urgent: false,
            stand_from: now,
            free_since: None,
            joined_at: now,
            held_at: None,
            error: None,
            bell: Bell::None,
            turn: None,
        }
    }

    /// Somebody waits for it from now on.
    pub(super) fn begin(&mut self) {
        self.since = Instant::now();
        self.due = self.since.after(pace::SHORTEST);
        self.free_since = None;
        self.held_at = None;
        self.error = None;
    }

    pub(super) fn saw_held(&mut self) {
        self.held_at = Some(Instant::now());
        self.error = None;
    }

    /// Something went wrong.
    pub(super) fn failed(&mut self, error: Error) {
        self.held_at = None;
        self.error = Some(error);
    }

    /// Whether it was seen held a moment ago, so that nobody has to look.
    pub(super) fn is_known_held(&self) -> bool {
        self.held_at.is_some_and(|at| Instant::now().since(at) < A_MOMENT)
    }

    /// Whether the lease was seen held since `begun`. Somebody who does not wait
    /// for long goes by what was seen before.
    pub(super) fn was_held_since(&self, begun: Instant) -> bool {
        self.held_at.is_some_and(|at| at >= begun || Instant::now().since(begun) < BRIEFLY)
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn push_back(&mut self, waiter: &Arc<Waiter>) {
        waiter.mark_queued(true);
        self.waiters.push_back(Arc::clone(waiter));
        self.count += 1;
    }

    pub(super) fn push_front(&mut self, waiter: &Arc<Waiter>) {
        waiter.mark_queued(true);
        self.waiters.push_front(Arc::clone(waiter));
        self.count += 1;
    }

    pub(super) fn remove(&mut self, waiter: &Waiter) {
        if waiter.mark_queued(false) {
            self.count -= 1;
        }
        while self.waiters.front().is_some_and(|first| !first.is_queued()) {
            self.waiters.pop_front();
        }
        if self.waiters.len() > 2 * self.count + 16 {
            self.waiters.retain(|other| other.is_queued());
        }
    }

    /// Takes everybody out.
    pub(super) fn drain(&mut self) -> Vec<Arc<Waiter>> {
        self.count = 0;
        self.waiters.drain(..).filter(|waiter| waiter.mark_queued(false)).collect()
    }

    /// The first who waits.
    pub(super) fn head(&mut self) -> Option<Arc<Waiter>> {
        while let Some(first) = self.waiters.front() {
            if first.is_queued() && first.is_waiting() {
                return Some(Arc::clone(first));
            }
            let gone = Arc::clone(first);
            self.remove(&gone);
        }
        None
    }

    /// The next look comes after a pause.
    pub(super) fn look_later(&mut self) {
        let now = Instant::now();
        let pause = if self.stands() { LAST_RESORT } else { pace::pause(now.since(self.since)) };
        self.due = now.after(pause);
    }

    /// Whether somebody stands for it in the queue at the gate: not yet, while it has
    /// no session there, and not only there, once it waits for the row alone.
    fn stands(&self) -> bool {
        match &self.work {
            Work::Standing(stand) => stand.has_place() && !self.is_urgent,
            _ => false,
        }
    }

    /// A look found the lease free, or held for `left`. True if it is to be
    /// taken now.
    pub(super) fn looked(&mut self, left: Option<Duration>) -> bool {
        self.look_later();
        let Some(left) = left.filter(|left| !left.is_zero()) else {
            let now = Instant::now();
            self.free_since.get_or_insert(now);
            if self.stands() && !self.is_overtaken() {
                // It may be on its way to whoever is first at the gate.
                self.due = now.after(OVERTAKEN / 3);
                return false;
            }
            return true;
        };
        self.free_since = None;
        self.saw_held();
        // Whoever is first at the gate wakes by itself, if it is one of us.
        if !self.stands() {
            let ends = Instant::now().after(left.saturating_add(Duration::from_millis(1)));
            self.due = self.due.min(ends);
        }
        self.may_join()
    }

    /// Whether the head is to try for a held lease: its owner may have it.
    fn may_join(&mut self) -> bool {
        let now = Instant::now();
        let has_owner = self.head().is_some_and(|head| head.request.owner.is_some());
        let may = has_owner && now.since(self.joined_at) >= JOIN;
        if may {
            self.joined_at = now;
        }
        may
    }

    /// When the row is to be looked at, if somebody waits for that.
    pub(super) fn look_due(&self) -> Instant {
        if self.is_empty() || self.trying { Instant::NEVER } else { self.due }
    }

    /// When the watcher has something to do for it, a look or its bell.
    pub(super) fn next_due(&self) -> Instant {
        self.look_due().min(self.bell.due())
    }

    pub(super) fn is_overtaken(&self) -> bool {
        self.free_since.is_some_and(|since| Instant::now().since(since) >= OVERTAKEN)
    }
}

/// Where one stands who stands for a key.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) call: Arc<Call>,
    /// The server's number for its session.
    pub(crate) session: u64,
    pub(crate) server: Arc<Server>,
}

/// One who stands for a key at the server, and how others reach it there.
pub(crate) struct Stand {
    pub(crate) key: Key,
    at: Mutex<Option<Place>>,
    /// It has a session.
    reached: AtomicBool,
    /// It is in a statement that waits.
    waits: AtomicBool,
    /// Nobody waits for the key any more.
    over: AtomicBool,
    /// The row is free, as a look has found.
    rung: AtomicBool,
    /// How many are about to call it off: before the last of them has ended its
    /// session must serve nobody else.
    pub(crate) callers: AtomicUsize,
}

impl Stand {
    pub(super) fn new(key: Key) -> Stand {
        Stand {
            key,
            at: Mutex::default(),
            reached: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            over: AtomicBool::new(false),
            rung: AtomicBool::new(false),
            callers: AtomicUsize::new(0),
        }
    }

    /// It stands there with this session.
    pub(crate) fn at(&self, call: &Arc<Call>, session: &Session) {
        let (call, server) = (Arc::clone(call), Arc::clone(&session.server));
        *self.at.lock() = Some(Place { call, session: session.id, server });
        self.reached.store(true, Ordering::Relaxed);
    }

    /// Whether it has a session.
    fn has_place(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }

    /// Where it stands, once it has a session.
    pub(crate) fn place(&self) -> Option<Place> {
        self.at.lock().clone()
    }

    /// Runs a statement that waits. Not begun where nobody waits any more.
    pub(crate) fn waiting<T>(&self, wait: impl FnOnce() -> T) -> Option<T> {
        self.waits.store(true, Ordering::SeqCst);
        // Looked at after the mark: either the last waiter sees the mark, and
        // has this one called off, or its leaving is seen here.
        if self.over.load(Ordering::SeqCst) {
            self.waits.store(false, Ordering::SeqCst);
            return None;
        }
        let result = wait();
        self.waits.store(false, Ordering::SeqCst);
        Some(result)
    }

    /// Nobody waits for the key any more. True if it has to be called off.
    pub(super) fn abandon(&self) -> bool {
        let before = self.over.swap(true, Ordering::SeqCst);
        if let Some(place) = &*self.at.lock() {
            place.call.wake();
        }
        let waits = self.waits.load(Ordering::SeqCst) && !before;
        if waits {
            self.callers.fetch_add(1, Ordering::SeqCst);
        }
        waits
    }

    /// Somebody waits again, or still.
    pub(crate) fn resume(&self) {
        self.over.store(false, Ordering::SeqCst);
    }

    /// The row is free: go and take it.
    pub(super) fn ring(&self) {
        self.rung.store(true, Ordering::SeqCst);
        if let Some(place) = &*self.at.lock() {
            place.call.wake();
        }
    }

    /// True once for each ring, and whenever nobody waits any more.
    pub(crate) fn was_rung(&self) -> bool {
        self.rung.swap(false, Ordering::SeqCst) || self.over.load(Ordering::SeqCst)
    }

    /// It is called off no more.
    pub(crate) fn called_off(&self) {
        self.callers.fetch_sub(1, Ordering::SeqCst);
        if let Some(place) = &*self.at.lock() {
            place.call.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::waiter::Request;

    fn waiter(key: &str) -> Arc<Waiter> {
        let request = Request { one_try: false, ..Request::of(Key::new(key.as_bytes()).unwrap()) };
        Arc::new(Waiter::new(Arc::new(Call::new(Instant::NEVER)), request))
    }

    #[test]
    fn the_head_is_the_first_who_has_not_left() {
        let mut queue = Queue::new();
        let waiters: Vec<_> = (0..3).map(|_| waiter("k")).collect();
        waiters.iter().for_each(|waiter| queue.push_back(waiter));
        waiters[0].leave();
        assert_eq!(queue.count(), 3);
        assert!(Arc::ptr_eq(&queue.head().unwrap(), &waiters[1]));
        assert_eq!(queue.count(), 2);
        queue.remove(&waiters[1]);
        queue.remove(&waiters[1]);
        assert_eq!(queue.count(), 1);
        assert!(Arc::ptr_eq(&queue.head().unwrap(), &waiters[2]));
        queue.remove(&waiters[2]);
        assert!(queue.head().is_none() && queue.is_empty());
        queue.push_front(&waiters[0]);
        assert!(queue.head().is_none() && queue.is_empty(), "it has left");
    }

    #[test]
    fn a_held_row_is_looked_at_again_when_its_lease_ends_at_the_latest() {
        let mut queue = Queue::new();
        queue.begin();
        assert!(!queue.looked(Some(Duration::from_millis(3))));
        assert!(queue.due <= Instant::now().after(Duration::from_millis(5)));
        assert!(queue.was_held_since(Instant::now().after(Duration::from_secs(1))));
    }

    #[test]
    fn a_free_row_is_taken_at_once_unless_somebody_stands_for_it() {
        let mut queue = Queue::new();
        assert!(queue.looked(None));
        let stand = Arc::new(Stand::new(Key::new(b"k").unwrap()));
        queue.work = Work::Standing(Arc::clone(&stand));
        assert!(queue.looked(None), "nobody stands at the gate yet");
        queue.free_since = None;
        stand.reached.store(true, Ordering::Relaxed);
        assert!(!queue.looked(None), "it is on its way to the first at the gate");
        assert!(!queue.is_overtaken());
        queue.is_urgent = true;
        assert!(queue.looked(Some(Duration::ZERO)), "that is us");
    }

    #[test]
    fn nobody_begins_to_wait_in_the_server_once_all_have_left() {
        let stand = Stand::new(Key::new(b"k").unwrap());
        assert_eq!(stand.waiting(|| 1), Some(1));
        assert!(!stand.abandon(), "it waits nowhere");
        assert_eq!(stand.waiting(|| 1), None);
        assert!(stand.was_rung());
        stand.resume();
        assert_eq!(stand.waiting(|| stand.abandon()), Some(true));
        assert_eq!(stand.callers.load(Ordering::SeqCst), 1);
        stand.called_off();
        assert_eq!(stand.callers.load(Ordering::SeqCst), 0);
    }
}
