//! Every grant of a client that has not ended, and when the two threads that
//! keep them have something to do: the renewer, and the one that tells of losses.
//! Pure state: it talks to no server, and starts no thread.
//!
//! The threads look through all grants when they wake, a millisecond for ten
//! thousand, and sleep until the first that is due: nothing has to be entered or
//! crossed out for a lock that is released before its first renewal.

use std::collections::HashMap;
use std::time::Duration;

use crate::grant::{Grant, Phase};
use crate::key::Key;
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, Timer};
use crate::sys::clock::Instant;
use crate::wait::waiter::Request;

/// How long a thread stays when there is nothing to do.
const IDLE: Duration = Duration::from_secs(2);
/// The most renewals in a statement, and the bytes that they take there: well within
/// the packet that the driver sends.
const MOST_AT_ONCE: usize = 2_000;
const MOST_BYTES: usize = 600_000;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    state: Mutex<State>,
    /// Rung for each thread when something is due earlier than it knows.
    to_renew: Condvar,
    to_tell: Condvar,
    /// Rung when a thread has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By their hold ids.
    held: HashMap<[u8; 16], Arc<Grant>>,
    /// Those with an owner text, by key and owner: their hold ids.
    owned: HashMap<(Key, Vec<u8>), [u8; 16]>,
    renewer: Keeper,
    teller: Keeper,
    closed: bool,
}

/// One of the two threads.
#[derive(Debug, Default)]
struct Keeper {
    runs: bool,
    /// When it wakes by itself.
    wakes: Option<Instant>,
}

/// The two threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Renewer,
    Teller,
}

/// What has to be started for a new grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ToStart {
    pub(crate) renewer: bool,
    pub(crate) teller: bool,
}

impl Grants {
    /// Enters a grant.
    pub(crate) fn enter(&self, grant: &Arc<Grant>) -> ToStart {
        let mut state = self.state.lock();
        state.held.insert(grant.hold, Arc::clone(grant));
        if let Some(owner) = &grant.owner {
            state.owned.insert((grant.key.clone(), owner.clone()), grant.hold);
        }
        self.is_due(&mut state, grant)
    }

    /// Something of it is due earlier than before, perhaps.
    pub(crate) fn changed(&self, grant: &Grant) -> ToStart {
        self.is_due(&mut self.state.lock(), grant)
    }

    fn is_due(&self, state: &mut State, grant: &Grant) -> ToStart {
        let (renew_at, deadline) = (grant.renew_at(), grant.deadline());
        if state.renewer.is_early(renew_at) {
            self.to_renew.wake_one();
        }
        if state.teller.is_early(deadline) {
            self.to_tell.wake_one();
        }
        let renewer = renew_at != Instant::NEVER && !state.renewer.runs;
        let teller = !state.teller.runs;
        state.renewer.runs |= renewer;
        state.teller.runs = true;
        ToStart { renewer, teller }
    }

    /// A thread could not be started: the next grant tries again.
    pub(crate) fn not_started(&self, which: Which) {
        self.state.lock().keeper(which).runs = false;
    }

    /// The grant that `owner` has of the key, with one more handle for `request`.
    pub(crate) fn join(
        &self,
        owner: &[u8],
        request: &Request,
        as_it_is: bool,
    ) -> Option<Arc<Grant>> {
        let state = self.state.lock();
        let hold = state.owned.get(&(request.key.clone(), owner.to_vec()))?;
        let grant = state.held.get(hold)?;
        grant.join(request, as_it_is).then(|| Arc::clone(grant))
    }

    /// Since when this process has served its own callers, if the grant of this hold
    /// is its own, and whether that turn has gone on through the gate.
    pub(crate) fn turn_of(&self, hold: &[u8]) -> Option<(Instant, bool)> {
        let state = self.state.lock();
        let grant = state.held.get(hold)?;
        Some((grant.turn_began, grant.turn_goes_on))
    }

    /// Takes a grant out that has ended. False if it was out already.
    pub(crate) fn remove(&self, grant: &Grant) -> bool {
        let mut state = self.state.lock();
        if let Some(owner) = &grant.owner {
            let name = (grant.key.clone(), owner.clone());
            // Its owner may have another grant by now.
            if state.owned.get(&name) == Some(&grant.hold) {
                state.owned.remove(&name);
            }
        }
        state.held.remove(&grant.hold).is_some()
    }

    /// Takes everything out, and ends the threads.
    pub(crate) fn close(&self) -> Vec<Arc<Grant>> {
        let mut state = self.state.lock();
        state.closed = true;
        state.owned.clear();
        self.to_renew.wake_all();
        self.to_tell.wake_all();
        state.held.drain().map(|(_, grant)| grant).collect()
    }

    /// Waits for the threads to end.
    pub(crate) fn join_threads(&self, deadline: Instant) {
        let timer = Timer::at(deadline);
        let mut state = self.state.lock();
        while (state.renewer.runs || state.teller.runs) && !timer.has_fired() {
            state = self.ended.sleep(state, timer);
        }
    }

    /// The renewer's: waits for renewals that are due, in the order of their
    /// keys. `None` if it is to end.
    pub(crate) fn next_renewals(&self) -> Option<Vec<Arc<Grant>>> {
        self.next(Which::Renewer, |state| {
            let now = Instant::now();
            let first = state.held.values().map(|grant| grant.renew_at()).min();
            match first {
                Some(at) if at <= now => {
                    let mut due: Vec<Arc<Grant>> =
                        state.held.values().filter(|grant| grant.is_due()).cloned().collect();
                    due.sort_unstable_by(|a, b| a.key.cmp(&b.key));
                    due.truncate(fitting(&due));
                    Ok(due)
                }
                first => Err(first.unwrap_or(Instant::NEVER)),
            }
        })
    }

    /// The teller's: waits for grants that are lost, which are to be taken out.
    /// `None` if it is to end.
    pub(crate) fn next_losses(&self) -> Option<Vec<Arc<Grant>>> {
        self.next(Which::Teller, |state| {
            let is_lost = |grant: &&Arc<Grant>| matches!(grant.phase(), Phase::Lost(_));
            let lost: Vec<Arc<Grant>> = state.held.values().filter(is_lost).cloned().collect();
            if lost.is_empty() {
                let first = state.held.values().map(|grant| grant.deadline()).min();
                return Err(first.unwrap_or(Instant::NEVER));
            }
            Ok(lost)
        })
    }

    /// Waits until `look` finds something; it says when to look again if not.
    fn next<T>(&self, which: Which, look: impl Fn(&mut State) -> Result<T, Instant>) -> Option<T> {
        let bell = match which {
            Which::Renewer => &self.to_renew,
            Which::Teller => &self.to_tell,
        };
        let idle_until = Instant::now().after(IDLE);
        let mut state: MutexGuard<'_, State> = self.state.lock();
        loop {
            if state.closed || (state.held.is_empty() && idle_until.has_passed()) {
                state.keeper(which).runs = false;
                self.ended.wake_all();
                return None;
            }
            let again = match look(&mut state) {
                Ok(found) => return Some(found),
                Err(again) => again,
            };
            let wakes = if state.held.is_empty() { idle_until } else { again };
            state.keeper(which).wakes = Some(wakes);
            state = bell.sleep(state, Timer::at(wakes));
            state.keeper(which).wakes = None;
        }
    }
}

/// How many of these fit into one packet: one at least.
fn fitting(due: &[Arc<Grant>]) -> usize {
    let mut bytes = 0;
    let fits = |grant: &&Arc<Grant>| {
        bytes += grant.bytes_to_renew();
        bytes <= MOST_BYTES
    };
    due.iter().take(MOST_AT_ONCE).take_while(fits).count().max(1)
}

impl State {
    fn keeper(&mut self, which: Which) -> &mut Keeper {
        match which {
            Which::Renewer => &mut self.renewer,
            Which::Teller => &mut self.teller,
        }
    }
}

impl Keeper {
    /// Whether `at` is before it wakes by itself.
    fn is_early(&self, at: Instant) -> bool {
        self.wakes.is_some_and(|wakes| at < wakes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::waiter::Granted;

    #[test]
    fn what_is_renewed_together_fits_into_a_packet() {
        let grant = |number: usize, length: usize, unanswered: u8| {
            let key = format!("{number:0>length$}");
            let request = Request::of(Key::new(key.as_bytes()).unwrap());
            let (deadline, turn_began) = (Instant::NEVER, Instant::now());
            let hold = [0; 16];
            let granted = Granted { token: 7, hold, deadline, turn_began, turn_goes_on: false };
            let grant = Grant::new(&request, &granted);
            for id in 0..unanswered {
                grant.renewing([id; 16], Duration::from_secs(1), false);
            }
            Arc::new(grant)
        };
        let many = |length, unanswered| -> Vec<Arc<Grant>> {
            (0..3_000).map(|number| grant(number, length, unanswered)).collect()
        };
        assert_eq!(fitting(&many(10, 0)), MOST_AT_ONCE);
        assert!((300..600).contains(&fitting(&many(255, 0))));
        assert!((100..200).contains(&fitting(&many(10, 120))));
        assert_eq!(fitting(&many(10, 0)[..1]), 1);
        // What a statement really takes.
        let due = many(255, 90);
        let due = &due[..fitting(&due)];
        let bytes: usize = due.iter().map(|grant| grant.bytes_to_renew()).sum();
        assert!(bytes <= MOST_BYTES);
    }
}
