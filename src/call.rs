//! One call of a user's in progress: its deadline, the one place where its
//! thread sleeps, and how others wake it or end it. Knows nothing of what the
//! call is about.

use std::fmt;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::error::Status;
use crate::sync::{Condvar, Mutex, Timer};
use crate::sys::clock::Instant;
use crate::sys::socket;

/// A call in progress.
pub(crate) struct Call {
    begun: Instant,
    deadline: Instant,
    state: Mutex<State>,
    bell: Condvar,
    /// What an interruption does where no thread sleeps in the call.
    on_end: Option<OnEnd>,
}

/// Told why the call must end: once, by whoever ends it, with no lock held.
type OnEnd = Box<dyn Fn(Status) + Send + Sync>;

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("deadline", &self.deadline).finish()
    }
}

#[derive(Debug, Default)]
struct State {
    /// Why the call must end now. Set once.
    interrupted: Option<Status>,
    /// The socket at which the call's thread is, if it is at one, and until
    /// when it may be.
    socket: Option<(RawFd, Instant)>,
}

/// How a wait ended.
#[derive(Debug)]
pub(crate) enum Waited<T> {
    /// What was waited for is there.
    Ready(T),
    /// The instant came first.
    Late,
    /// The call must end.
    Interrupted(Status),
}

impl Call {
    pub(crate) fn new(deadline: Instant) -> Call {
        Call::make(deadline, None)
    }

    /// A call in which no thread sleeps: its end is told to `on_end`, also that
    /// by its deadline, which the watchdog sees to.
    pub(crate) fn without_thread(
        deadline: Instant,
        on_end: impl Fn(Status) + Send + Sync + 'static,
    ) -> Call {
        Call::make(deadline, Some(Box::new(on_end)))
    }

    fn make(deadline: Instant, on_end: Option<OnEnd>) -> Call {
        let begun = Instant::now();
        Call { begun, deadline, state: Mutex::default(), bell: Condvar::new(), on_end }
    }

    /// True if it is for others to end the call at its deadline.
    pub(crate) fn has_no_thread(&self) -> bool {
        self.on_end.is_some()
    }

    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Why the call must end now, if it must.
    pub(crate) fn interruption(&self) -> Option<Status> {
        self.state.lock().interrupted
    }

    /// Ends the call: wakes its thread where it sleeps, and shuts down the
    /// socket where it is blocked. The first reason stands.
    pub(crate) fn interrupt(&self, why: Status) {
        let mut state = self.state.lock();
        let is_first = state.interrupted.is_none();
        state.interrupted.get_or_insert(why);
        if let Some((fd, _)) = state.socket {
            // Under the mutex: the descriptor is open as long as it stands in
            // `state`, so a later one of the same number is never hit.
            socket::shut_down(fd);
        }
        self.bell.wake_all();
        drop(state);
        if let Some(on_end) = &self.on_end
            && is_first
        {
            on_end(why);
        }
    }

    /// Shuts down the socket at which the call's thread is, if it is at one. The
    /// call goes on.
    pub(crate) fn cut(&self) {
        let state = self.state.lock();
        if let Some((fd, _)) = state.socket {
            socket::shut_down(fd);
        }
    }

    /// Has the sleeping thread look again at what it waits for. To be called
    /// after that was changed.
    pub(crate) fn wake(&self) {
        // The empty critical section orders the change before the sleeper's
        // look or after its going to sleep: no wake-up is lost in between.
        drop(self.state.lock());
        self.bell.wake_all();
    }

    /// Until when a call may still be on its way out: within the 100 ms by which
    /// it may be late, and enough to find out what a statement did that had no
    /// reply by the deadline.
    pub(crate) fn last_moment(&self) -> Instant {
        self.deadline.after(Duration::from_millis(70))
    }

    /// Sleeps until `look` finds something, until `until` or the call's own
    /// deadline, or until the call must end. `look` runs under the call's
    /// mutex: it may take other locks for a moment, but not this call's.
    pub(crate) fn wait<T>(&self, until: Instant, look: impl FnMut() -> Option<T>) -> Waited<T> {
        self.wait_beyond(until.min(self.deadline), look)
    }

    /// The same, but also past the call's deadline.
    pub(crate) fn wait_beyond<T>(
        &self,
        until: Instant,
        mut look: impl FnMut() -> Option<T>,
    ) -> Waited<T> {
        let timer = Timer::at(until);
        let mut state = self.state.lock();
        loop {
            // Looked at first: what has been handed to this call is taken
            // along even when its time has come, and never left behind.
            if let Some(found) = look() {
                return Waited::Ready(found);
            }
            if let Some(why) = state.interrupted {
                return Waited::Interrupted(why);
            }
            if timer.has_fired() {
                return Waited::Late;
            }
            state = self.bell.sleep(state, timer);
        }
    }

    /// Shuts down the socket at which the call's thread has been for too long.
    pub(crate) fn cut_off_if_late(&self, now: Instant) {
        let state = self.state.lock();
        if let Some((fd, until)) = state.socket
            && now >= until
        {
            socket::shut_down(fd);
        }
    }

    /// Runs `io` at the socket `fd`, where it may be `until` then; an
    /// interruption shuts the socket down, also one that came before.
    pub(crate) fn at_socket<T>(&self, fd: RawFd, until: Instant, io: impl FnOnce() -> T) -> T {
        let mut state = self.state.lock();
        if state.interrupted.is_some() {
            socket::shut_down(fd);
        }
        state.socket = Some((fd, until));
        drop(state);
        let leave = LeaveSocket(self);
        let result = io();
        drop(leave);
        result
    }
}

/// Takes the socket out of the call again, also when the I/O panics.
struct LeaveSocket<'a>(&'a Call);

impl Drop for LeaveSocket<'_> {
    fn drop(&mut self) {
        self.0.state.lock().socket = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Arc;
    use crate::sys::thread;

    #[test]
    fn a_wait_ends_at_its_deadline_and_not_before() {
        let start = Instant::now();
        let call = Call::new(start.after(Duration::from_millis(30)));
        assert!(matches!(call.wait(Instant::NEVER, || None::<()>), Waited::Late));
        assert!(Instant::now().since(start) >= Duration::from_millis(30));
    }

    #[test]
    fn what_is_there_is_taken_even_after_an_interruption() {
        let call = Call::new(Instant::now());
        call.interrupt(Status::Cancelled);
        call.interrupt(Status::Closed);
        assert!(matches!(call.wait(Instant::NEVER, || Some(1)), Waited::Ready(1)));
        let ended = call.wait(Instant::NEVER, || None::<()>);
        assert!(matches!(ended, Waited::Interrupted(Status::Cancelled)));
    }

    #[test]
    fn a_wake_up_is_never_lost() {
        for _ in 0..200 {
            let call = Arc::new(Call::new(Instant::NEVER));
            let slot = Arc::new(Mutex::new(None));
            let (other, theirs) = (Arc::clone(&call), Arc::clone(&slot));
            let waker = thread::start("waker", move || {
                *theirs.lock() = Some(7);
                other.wake();
            });
            let got = call.wait(Instant::NEVER, || slot.lock().take());
            assert!(matches!(got, Waited::Ready(7)));
            waker.unwrap().join().unwrap();
        }
    }
}
