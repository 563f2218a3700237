//! The calls in progress of one client: what closing ends, and what a watchdog
//! cuts off at the socket when its time has come.
//!
//! Why the socket's own time-outs do not suffice: they bound each read anew, and
//! a reply that drips in byte by byte, or signals that interrupt the read again
//! and again, would keep a call there for ever.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::call::Call;
use crate::error::Status;
use crate::sync::{Arc, Condvar, Mutex, Timer};
use crate::sys::clock::Instant;
use crate::sys::thread;

/// How often the watchdog looks while there are calls.
const TICK: Duration = Duration::from_millis(20);
/// It ends when there was no call for so long.
const IDLE: Duration = Duration::from_secs(2);

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    state: Mutex<State>,
    /// Rung when the client is closed, and when the watchdog has ended.
    bell: Condvar,
}

#[derive(Debug, Default)]
struct State {
    present: HashMap<u64, Arc<Call>>,
    next: u64,
    watched: bool,
    closed: bool,
}

/// A call in progress, in the list for as long as this lives.
#[derive(Debug)]
pub(crate) struct Begun {
    calls: Arc<Calls>,
    number: u64,
    call: Arc<Call>,
}

impl Begun {
    pub(crate) fn as_ref(&self) -> &Arc<Call> {
        &self.call
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.calls.state.lock().present.remove(&self.number);
    }
}

impl Calls {
    /// Enters a call; one of a closed client has to end at once.
    pub(crate) fn begin(self: &Arc<Calls>, deadline: Instant) -> Begun {
        self.enter(Arc::new(Call::new(deadline)))
    }

    /// The same for a call that is there already.
    pub(crate) fn enter(self: &Arc<Calls>, call: Arc<Call>) -> Begun {
        let mut state = self.state.lock();
        let is_closed = state.closed;
        if !is_closed && !state.watched {
            let calls = Arc::clone(self);
            // Without a thread the sockets' own time-outs have to do.
            let watch = move || while catch_unwind(AssertUnwindSafe(|| calls.watch())).is_err() {};
            state.watched = thread::start("dlease-watch", watch).is_ok();
        }
        let number = state.next;
        state.next += 1;
        state.present.insert(number, Arc::clone(&call));
        drop(state);
        // What an interruption does may come back here: with no lock held.
        if is_closed {
            call.interrupt(Status::Closed);
        }
        Begun { calls: Arc::clone(self), number, call }
    }

    /// Ends all calls, present and to come, with CLOSED.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let present: Vec<Arc<Call>> = state.present.values().cloned().collect();
        self.bell.wake_all();
        drop(state);
        for call in present {
            call.interrupt(Status::Closed);
        }
    }

    /// Waits for the watchdog to end.
    pub(crate) fn join(&self, deadline: Instant) {
        let timer = Timer::at(deadline);
        let mut state = self.state.lock();
        while state.watched && !timer.has_fired() {
            state = self.bell.sleep(state, timer);
        }
    }

    /// The body of the watchdog.
    fn watch(&self) {
        let mut idle_from = Instant::now();
        let mut state = self.state.lock();
        loop {
            let now = Instant::now();
            let mut late = Vec::new();
            for call in state.present.values() {
                call.cut_off_if_late(now);
                if call.has_no_thread() && now >= call.deadline() {
                    late.push(Arc::clone(call));
                }
            }
            if !late.is_empty() {
                drop(state);
                for call in late {
                    call.interrupt(Status::TimedOut);
                }
                state = self.state.lock();
            }
            if !state.present.is_empty() {
                idle_from = now;
            }
            if state.closed || now.since(idle_from) > IDLE {
                state.watched = false;
                self.bell.wake_all();
                return;
            }
            state = self.bell.sleep(state, Timer::at(now.after(TICK)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_call_at_a_socket_is_cut_off_when_its_time_has_come() {
        let calls = Arc::new(Calls::default());
        let (mut here, _there) = UnixStream::pair().unwrap();
        let start = Instant::now();
        let begun = calls.begin(start.after(Duration::from_secs(60)));
        let until = start.after(Duration::from_millis(100));
        // Without a time-out of its own this read would never end.
        let read = begun.as_ref().at_socket(here.as_raw_fd(), until, || here.read(&mut [0]));
        assert_eq!(read.unwrap(), 0);
        assert!(Instant::now() >= until);
        drop(begun);
        calls.close();
        calls.join(Instant::now().after(Duration::from_secs(5)));
        assert!(!calls.state.lock().watched);
    }
}
