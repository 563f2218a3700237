//! The bells that this process keeps while its callers hold a lease: each in a
//! session of its own, which waits for nothing and says something now and then,
//! so that the server keeps it.

use super::Waiting;
use super::queue::Queue;
use crate::key::Key;
use crate::session::Session;
use crate::session::connect::KEEP_UP;
use crate::sys::clock::Instant;

/// A key's bell.
pub(super) enum Bell {
    None,
    /// Kept for the grant of this token.
    Kept {
        session: Session,
        token: u64,
        until: Instant,
        used: Instant,
        since: Instant,
    },
    /// The watcher is just saying something in its session; `rings`, if its
    /// grant has ended meanwhile.
    Busy {
        token: u64,
        until: Instant,
        rings: bool,
        since: Instant,
    },
}

impl Bell {
    pub(super) fn is_none(&self) -> bool {
        matches!(self, Bell::None)
    }

    /// When it needs something.
    pub(super) fn due(&self) -> Instant {
        match self {
            Bell::Kept { until, used, .. } => used.after(KEEP_UP).min(*until),
            _ => Instant::NEVER,
        }
    }
}

impl Waiting {
    /// The bell is kept for the grant of this token, until it is released or
    /// its lease, as it is now, has ended. The session of an earlier grant's
    /// comes back.
    pub(crate) fn keep_bell(
        &self,
        key: &Key,
        session: Session,
        token: u64,
        until: Instant,
    ) -> Option<Session> {
        let mut state = self.lock();
        let queue = state.queues.entry(key.clone()).or_insert_with(Queue::new);
        let now = Instant::now();
        let bell = Bell::Kept { session, token, until, used: now, since: now };
        let before = std::mem::replace(&mut queue.bell, bell);
        self.wake_watcher(&state, Some(key));
        match before {
            Bell::Kept { session, .. } => Some(session),
            Bell::None | Bell::Busy { .. } => None,
        }
    }

    /// The session of this grant's bell, to ring it with.
    pub(crate) fn take_bell(&self, key: &Key, token: u64) -> Option<Session> {
        let mut state = self.lock();
        let queue = state.queues.get_mut(key)?;
        match &mut queue.bell {
            Bell::Kept { token: kept, .. } if *kept == token => {}
            Bell::Busy { token: kept, rings, .. } if *kept == token => {
                *rings = true;
                return None;
            }
            _ => return None,
        }
        let Bell::Kept { session, .. } = std::mem::replace(&mut queue.bell, Bell::None) else {
            return None;
        };
        state.tidy(key);
        Some(session)
    }

    /// The lease has passed to another grant of this process, or was renewed:
    /// the bell goes along.
    pub(crate) fn pass_bell(&self, key: &Key, from: u64, to: u64, lasts: Instant) {
        let mut state = self.lock();
        let Some(queue) = state.queues.get_mut(key) else { return };
        match &mut queue.bell {
            Bell::Kept { token, until, .. } | Bell::Busy { token, until, .. } if *token == from => {
                *token = to;
                *until = lasts;
            }
            _ => {}
        }
    }

    /// The watcher is done with a bell's session: it is kept again, or comes
    /// back, to be rung or given up.
    pub(crate) fn kept_up(&self, key: &Key, session: Session) -> Option<Session> {
        let mut state = self.lock();
        let queue = state.queues.get_mut(key);
        match queue.map(|queue| &mut queue.bell) {
            Some(bell @ Bell::Busy { rings: false, .. }) if !session.is_broken() => {
                let Bell::Busy { token, until, since, .. } = *bell else { return Some(session) };
                *bell = Bell::Kept { session, token, until, used: Instant::now(), since };
                None
            }
            Some(bell @ Bell::Busy { .. }) => {
                *bell = Bell::None;
                state.tidy(key);
                Some(session)
            }
            _ => Some(session),
        }
    }
}
