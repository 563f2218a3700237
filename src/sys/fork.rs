//! Tells a forked child from its parent. A child has the parent's memory but
//! none of its threads, and shares its sockets: it must touch neither.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use once_cell::race::OnceBool;

static GENERATION: AtomicU64 = AtomicU64::new(1);
static REGISTERED: OnceBool = OnceBool::new();

/// Threads that initialise what blocks others until it is done.
static INITIALISING: AtomicUsize = AtomicUsize::new(0);

/// Runs `initialise`, during which no fork happens: a child would find the cells
/// that it fills half done, for ever. Milliseconds, once in a process.
pub(crate) fn kept_off(initialise: impl FnOnce()) {
    struct Done;
    impl Drop for Done {
        fn drop(&mut self) {
            INITIALISING.fetch_sub(1, Ordering::SeqCst);
        }
    }
    INITIALISING.fetch_add(1, Ordering::SeqCst);
    let _done = Done;
    initialise();
}

/// How many forks lie between this process and the first one, as a number to
/// compare: a handle made under another generation is the parent's.
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Has the child count itself from now on. Waits for nobody: a cell that blocks
/// may be left by a fork in the middle of its initialisation, for ever. Two
/// callers at the same time both register, and the child then counts by two,
/// which does no harm.
pub(crate) fn register() {
    extern "C" fn before() {
        // No lock is taken: the thread that counts goes on by itself.
        while INITIALISING.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    }
    extern "C" fn in_child() {
        // One atomic add: async-signal-safe, and takes no lock.
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    REGISTERED.get_or_init(|| {
        // SAFETY: the handlers are static functions that stay mapped (the
        // library is linked with -z nodelete) and are safe around a fork.
        unsafe { libc::pthread_atfork(Some(before), None, Some(in_child)) == 0 }
    });
}
