//! What the client's threads that work for those who wait find to do next, and
//! how many of them there are.

use super::bells::Bell;
use super::queue::{Stand, Work};
use super::{Errand, State, Waiting};
use crate::key::Key;
use crate::session::Session;
use crate::sync::{Arc, Timer};
use crate::sys::clock::Instant;

/// The threads that do one sort of work.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Crew {
    pub(crate) all: usize,
    pub(crate) idle: usize,
}

impl Crew {
    /// How many more are needed for `work` that waits; they count as started.
    fn missing(&mut self, work: usize, most: usize) -> usize {
        let wanted = work.saturating_sub(self.idle).min(most.saturating_sub(self.all));
        self.all += wanted;
        wanted
    }

    /// One has found something to do, or ends.
    fn leave(&mut self, ends: bool) {
        self.idle -= 1;
        self.all -= usize::from(ends);
    }
}

/// What a stander is to do.
pub(crate) struct Place {
    pub(crate) stand: Arc<Stand>,
    /// To be rung before: its session makes room.
    pub(crate) bell: Option<(Key, Session)>,
}

impl Waiting {
    /// What threads are to be started: standers, runners, a watcher. They count
    /// as started.
    pub(crate) fn muster(&self, most_standers: usize, most_runners: usize) -> (usize, usize, bool) {
        let mut state = self.state.lock();
        if state.closed {
            return (0, 0, false);
        }
        let nobody = state.gates_refused || state.dismissed;
        let to_stand = if nobody { 0 } else { state.to_stand.len() };
        let standers = state.standers.missing(to_stand, most_standers);
        let errands = state.errands.len();
        let runners = state.runners.missing(errands, most_runners);
        let busy = !state.queues.is_empty() || !state.call_offs.is_empty();
        let watchers = state.watchers.missing(usize::from(busy), 1);
        (standers, runners, watchers > 0)
    }

    /// The next errand; `None` when a runner has had nothing to do for a while.
    pub(crate) fn next_errand(&self, idle_until: Instant) -> Option<Errand> {
        let mut state = self.state.lock();
        let idle = Timer::at(idle_until);
        state.runners.idle += 1;
        loop {
            let errand = if state.closed { None } else { state.errands.pop_front() };
            if errand.is_some() || state.closed || idle.has_fired() {
                state.runners.leave(errand.is_none());
                self.ended.wake_all();
                return errand;
            }
            state = self.to_run.sleep(state, idle);
        }
    }

    /// The next key to stand for; `None` when a stander has had nothing to do
    /// for a while.
    pub(crate) fn next_to_stand(&self, idle_until: Instant, most: usize) -> Option<Place> {
        let mut state = self.state.lock();
        let idle = Timer::at(idle_until);
        state.standers.idle += 1;
        self.ended.wake_all();
        loop {
            let place = state.next_to_stand(most);
            if place.is_some() || state.closed || idle.has_fired() {
                state.standers.leave(place.is_none());
                self.ended.wake_all();
                return place;
            }
            let timer = idle.or(state.stand_from());
            state = self.to_stand.sleep(state, timer);
        }
    }

    /// Nobody stands for the key any more, and nobody is to before `from`: its
    /// row is watched meanwhile.
    pub(crate) fn stood(&self, stand: &Stand, from: Instant) {
        let mut state = self.state.lock();
        if let Some(queue) = state.queues.get_mut(&stand.key) {
            queue.work = Work::None;
            queue.stand_from = from;
            queue.is_urgent = false;
            queue.look_later();
            state.want_stander(&stand.key);
        }
        state.tidy(&stand.key);
        self.wake_who_is_wanted(&state, Some(&stand.key));
    }

    /// Waits until nobody stands.
    pub(crate) fn wait_for_standers(&self, deadline: Instant) {
        let mut state = self.lock();
        let timer = Timer::at(deadline);
        while state.standers.all > state.standers.idle && !timer.has_fired() {
            state = self.ended.sleep(state, timer);
        }
    }

    /// Waits for the threads to end.
    pub(crate) fn join(&self, deadline: Instant) {
        let timer = Timer::at(deadline);
        let mut state = self.state.lock();
        while state.standers.all + state.runners.all + state.watchers.all > 0 && !timer.has_fired()
        {
            state = self.ended.sleep(state, timer);
        }
    }

    /// A thread could not be started after all.
    pub(crate) fn not_started(&self, crew: fn(&mut State) -> &mut Crew) {
        crew(&mut self.state.lock()).all -= 1;
    }
}

impl State {
    /// The oldest key that may be stood for now, where a place is left. Bells that
    /// are kept take places, too, and give them up: a holder without one is
    /// noticed later, but one who has no place is not in the queue at all.
    fn next_to_stand(&mut self, most: usize) -> Option<Place> {
        if self.closed || self.dismissed || self.gates_refused {
            return None;
        }
        let queues = &self.queues;
        let is_wanted = |key: &Key| {
            let queue = queues.get(key);
            queue.is_some_and(|q| !q.is_empty() && matches!(q.work, Work::ToStand))
        };
        self.to_stand.retain(is_wanted);
        let bells = self.queues.values().filter(|queue| !queue.bell.is_none()).count();
        let standing = self.standers.all - self.standers.idle;
        if standing >= most {
            return None;
        }
        let is_full = bells + standing >= most;
        for place in 0..self.to_stand.len() {
            let key = self.to_stand[place].clone();
            if !self.queues.get(&key).is_some_and(|queue| queue.stand_from.has_passed()) {
                continue;
            }
            let bell = if is_full { self.oldest_bell(&key) } else { None };
            if is_full && bell.is_none() {
                continue;
            }
            let stand = Arc::new(Stand::new(key.clone()));
            if let Some(queue) = self.queues.get_mut(&key) {
                queue.work = Work::Standing(Arc::clone(&stand));
                queue.look_later();
            }
            self.to_stand.remove(place);
            return Some(Place { stand, bell });
        }
        None
    }

    /// Takes the session of the bell that has been kept for longest, of another
    /// key than this.
    fn oldest_bell(&mut self, not: &Key) -> Option<(Key, Session)> {
        let since = |bell: &Bell| match bell {
            Bell::Kept { since, .. } => Some(*since),
            Bell::None | Bell::Busy { .. } => None,
        };
        let others = self.queues.iter_mut().filter(|(key, _)| *key != not);
        let kept = others.filter_map(|(key, queue)| Some((since(&queue.bell)?, key, queue)));
        let (_, key, queue) = kept.min_by_key(|(since, ..)| *since)?;
        let key = key.clone();
        match std::mem::replace(&mut queue.bell, Bell::None) {
            Bell::Kept { session, .. } => {
                self.tidy(&key);
                Some((key, session))
            }
            Bell::None | Bell::Busy { .. } => None,
        }
    }

    /// When the next key may be stood for that may not now.
    fn stand_from(&self) -> Instant {
        let from = |key: &Key| self.queues.get(key).map(|queue| queue.stand_from);
        let later = self.to_stand.iter().filter_map(from).filter(|from| !from.has_passed());
        later.min().unwrap_or(Instant::NEVER)
    }
}
