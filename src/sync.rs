//! The one door to mutexes, condition variables and timed waits, so that a
//! model checker can stand in for all of them.
//!
//! They are std's, not parking_lot's: whatever an entry point can reach must
//! work in a forked child, and parking_lot keeps a process-wide table that a
//! fork copies locked. std's are futexes, with no state but their own.

use std::sync::PoisonError;
use std::time::Duration;

use crate::sys::clock::Instant;

pub(crate) use std::sync::{Arc, MutexGuard, Weak};

/// A mutex whose holder's panic does not spread: the panic boundary marks the
/// client as broken, and what is behind the mutex is only ever left whole.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A condition variable with deadlines on the library's clock.
#[derive(Debug, Default)]
pub(crate) struct Condvar(std::sync::Condvar);

/// The longest single sleep. std's wait counts on a clock that stands still
/// while the machine sleeps; waking this often and looking at ours bounds how
/// late a deadline is seen after a suspend.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

impl Condvar {
    pub(crate) const fn new() -> Condvar {
        Condvar(std::sync::Condvar::new())
    }

    /// Sleeps until woken or until `deadline`, and not longer than a second:
    /// callers test their condition and their deadline in a loop.
    pub(crate) fn wait_until<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Instant,
    ) -> MutexGuard<'a, T> {
        let sleep = deadline.left().min(LONGEST_SLEEP);
        match self.0.wait_timeout(guard, sleep) {
            Ok((guard, _)) => guard,
            Err(poisoned) => poisoned.into_inner().0,
        }
    }

    pub(crate) fn wake_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn wake_all(&self) {
        self.0.notify_all();
    }
}
