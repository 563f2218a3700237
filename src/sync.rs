//! The one door to mutexes, condition variables and time-outs, so that a model
//! checker can stand in for all of them.
//!
//! A time-out is an event of its own, the firing of a [`Timer`]: whoever sleeps
//! asks the timer, and not the clock, whether the sleep is over. A checker needs no
//! clock then; it lets a timer fire, or not, wherever a sleep could end.
//!
//! They are std's, not parking_lot's: whatever an entry point can reach must
//! work in a forked child, and parking_lot keeps a process-wide table that a
//! fork copies locked. std's are futexes, with no state but their own.

#![allow(clippy::disallowed_types, reason = "this is the door")]

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

/// What ends a sleep when nobody else does. Once it has fired it stays so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer(Instant);

impl Timer {
    /// Fires at this instant; never, at `Instant::NEVER`.
    pub(crate) fn at(instant: Instant) -> Timer {
        Timer(instant)
    }

    /// Whether it has fired.
    pub(crate) fn has_fired(self) -> bool {
        self.0.has_passed()
    }

    /// One that fires when the first of the two does.
    pub(crate) fn or(self, other: Instant) -> Timer {
        Timer(self.0.min(other))
    }

    fn left(self) -> Duration {
        self.0.left()
    }
}

/// A condition variable.
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

    /// Sleeps until woken, or until the timer fires, and not longer than a second:
    /// callers test their condition and the timer in a loop.
    pub(crate) fn sleep<'a, T>(&self, guard: MutexGuard<'a, T>, timer: Timer) -> MutexGuard<'a, T> {
        match self.0.wait_timeout(guard, timer.left().min(LONGEST_SLEEP)) {
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
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_that_has_fired_ends_a_sleep_at_once() {
        let (mutex, bell) = (Mutex::new(()), Condvar::new());
        let begun = Instant::now();
        let timer = Timer::at(begun.after(Duration::from_millis(20)));
        assert!(!timer.has_fired() && !Timer::at(Instant::NEVER).has_fired());
        let mut guard = mutex.lock();
        while !timer.has_fired() {
            guard = bell.sleep(guard, timer.or(Instant::NEVER));
        }
        assert!(Instant::now().since(begun) >= Duration::from_millis(20));
        drop(bell.sleep(guard, timer));
        assert!(timer.has_fired());
        assert!(Instant::now().since(begun) < Duration::from_millis(900));
    }
}
