//! Keeps signals away from the host and from the library's threads, without
//! installing a handler.

use std::mem::MaybeUninit;
use std::ptr;

/// Runs `io` so that a write to a closed socket cannot kill the host by
/// SIGPIPE (rustls writes vectored, which std does not protect): the signal is
/// blocked in this thread meanwhile, and one that `io` raised is taken away
/// again. A SIGPIPE that was pending before is left to whom it belongs.
///
/// Not for plain sockets, which need it not: changing a thread's mask has the
/// kernel look for signals of the process, and a handler may then run here
/// instead of waking up a main thread that waits for it.
pub(crate) fn without_sigpipe<T>(io: impl FnOnce() -> T) -> T {
    let pipe = set_of_sigpipe();
    let was_pending = sigpipe_is_pending();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are valid; pthread_sigmask writes `before` in full.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, before.as_mut_ptr()) };
    let restore = Restore { before, pipe, was_pending };
    let result = io();
    drop(restore);
    result
}

/// Puts the mask back, also when `io` panics.
struct Restore {
    before: MaybeUninit<libc::sigset_t>,
    pipe: libc::sigset_t,
    was_pending: bool,
}

impl Drop for Restore {
    fn drop(&mut self) {
        if !self.was_pending && sigpipe_is_pending() {
            let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: the set and the timespec are valid; a null info pointer
            // is allowed. The signal is blocked here, so it can be taken.
            unsafe { libc::sigtimedwait(&self.pipe, ptr::null_mut(), &at_once) };
        }
        // SAFETY: `before` was written by pthread_sigmask.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, self.before.as_ptr(), ptr::null_mut());
        }
    }
}

/// Runs `start` with every signal blocked, so that a thread started in it
/// never runs a handler of the host.
pub(crate) fn all_blocked<T>(start: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset writes `all` in full, pthread_sigmask `before`.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let result = start();
    // SAFETY: `before` was written above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    result
}

fn set_of_sigpipe() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset writes the whole set before sigaddset reads it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE);
        set.assume_init()
    }
}

fn sigpipe_is_pending() -> bool {
    let mut pending = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigpending writes the whole set before it is read.
    unsafe {
        libc::sigpending(pending.as_mut_ptr());
        libc::sigismember(pending.as_ptr(), libc::SIGPIPE) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_pipe_is_an_error_and_not_a_signal() {
        // SAFETY: plain system calls on descriptors made here.
        unsafe {
            let handler = libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            let mut ends = [0; 2];
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            libc::close(ends[0]);
            let written = without_sigpipe(|| libc::write(ends[1], b"x".as_ptr().cast(), 1));
            assert_eq!(written, -1);
            assert!(!sigpipe_is_pending());
            libc::close(ends[1]);
            libc::signal(libc::SIGPIPE, handler);
        }
    }
}
