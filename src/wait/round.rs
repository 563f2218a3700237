//! What the watcher has to do next: rows to look at, bells to keep up, and those
//! who are to be called off.

use std::time::Duration;

use super::bells::Bell;
use super::queue::{Queue, Stand, Work};
use super::{Errand, State, Waiting, pace};
use crate::key::Key;
use crate::session::Session;
use crate::sync::{Arc, Timer};
use crate::sys::clock::Instant;

/// One look takes keys of so many bytes; the others come with the next.
const MOST_BYTES: usize = 200_000;

/// What is due within this time shares a look.
const TOGETHER: Duration = Duration::from_millis(60);

/// See the module's text.
#[derive(Default)]
pub(crate) struct Round {
    pub(crate) call_offs: Vec<Arc<Stand>>,
    pub(crate) keys: Vec<Key>,
    /// With true: its lease has ended, and it is to be rung.
    pub(crate) bells: Vec<(Key, Session, bool)>,
}

impl Round {
    fn is_empty(&self) -> bool {
        self.call_offs.is_empty() && self.keys.is_empty() && self.bells.is_empty()
    }
}

impl Waiting {
    /// Waits until there is something to do; `None` when the watcher has had
    /// nothing for a while.
    pub(crate) fn next_round(&self, idle: Duration) -> Option<Round> {
        let mut is_idle = Timer::at(Instant::now().after(idle));
        let mut state = self.lock();
        loop {
            let round = state.round();
            if !round.is_empty() {
                return Some(round);
            }
            if !state.queues.is_empty() {
                is_idle = Timer::at(Instant::now().after(idle));
            }
            if state.closed || is_idle.has_fired() {
                state.watchers.all -= 1;
                self.ended.wake_all();
                return None;
            }
            let due = state.next_due();
            state.watcher_wakes = Some(due);
            state = self.to_watch.sleep(state, is_idle.or(due));
            state.watcher_wakes = None;
        }
    }

    /// A look found the key's lease free (`None` or zero), or held for `left`.
    pub(crate) fn looked(&self, key: &Key, left: Option<Duration>) {
        let mut state = self.lock();
        let Some(queue) = state.queues.get_mut(key) else { return };
        if queue.is_empty() || !queue.looked(left) {
            return;
        }
        match &queue.work {
            Work::Standing(stand) if queue.is_urgent => stand.ring(),
            _ if queue.trying => {}
            _ => {
                queue.trying = true;
                state.errands.push_back(Errand::Try(key.clone()));
            }
        }
        self.wake_who_is_wanted(&state, Some(key));
    }

    /// The one who stands for the key is first at the gate and waits for the
    /// row alone (or no longer does): the row is looked at often.
    pub(crate) fn watch(&self, key: &Key, is_urgent: bool) {
        let mut state = self.lock();
        if let Some(queue) = state.queues.get_mut(key) {
            queue.is_urgent = is_urgent;
            queue.look_later();
        }
        self.wake_watcher(&state, Some(key));
    }

    /// The row could not be looked at.
    pub(crate) fn watch_later(&self, key: &Key) {
        if let Some(queue) = self.lock().queues.get_mut(key) {
            queue.look_later();
        }
    }

    /// Those who stand at the server.
    pub(crate) fn standing(&self) -> Vec<Arc<Stand>> {
        let state = self.lock();
        let stand = |work: &Work| match work {
            Work::Standing(stand) => Some(Arc::clone(stand)),
            _ => None,
        };
        state.queues.values().filter_map(|queue| stand(&queue.work)).collect()
    }
}

impl State {
    fn round(&mut self) -> Round {
        let mut round =
            Round { call_offs: std::mem::take(&mut self.call_offs), ..Round::default() };
        let may_look = self.last_look.is_none_or(|last| last.after(pace::SHORTEST).has_passed());
        let (mut bytes, mut is_due) = (0, false);
        // Once there is a look, what would be due soon comes along.
        let soon = Instant::now().after(TOGETHER);
        let mut due: Vec<(Instant, &Key)> = Vec::new();
        for (key, queue) in &mut self.queues {
            if queue.bell.due().has_passed() {
                let bell = std::mem::replace(&mut queue.bell, Bell::None);
                if let Bell::Kept { session, token, until, since, .. } = bell {
                    let ended = until.has_passed();
                    queue.bell = Bell::Busy { token, until, rings: ended, since };
                    round.bells.push((key.clone(), session, ended));
                }
            }
            if may_look && queue.look_due() <= soon {
                is_due |= queue.due.has_passed();
                due.push((queue.due, key));
            }
        }
        if !is_due {
            due.clear();
        }
        due.sort_unstable();
        for (_, key) in due {
            bytes += key.as_bytes().len() * 2 + 3;
            if bytes > MOST_BYTES {
                break;
            }
            round.keys.push(key.clone());
        }
        if !round.keys.is_empty() {
            self.last_look = Some(Instant::now());
        }
        round
    }

    fn next_due(&self) -> Instant {
        let next_look = self.queues.values().map(Queue::look_due).min();
        let next_look = next_look.unwrap_or(Instant::NEVER);
        let not_before = self.last_look.map_or(next_look, |last| last.after(pace::SHORTEST));
        let next_bell = self.queues.values().map(|queue| queue.bell.due()).min();
        next_look.max(not_before).min(next_bell.unwrap_or(Instant::NEVER))
    }
}
