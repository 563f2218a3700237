//! Tells a forked child from its parent. A child has the parent's memory but
//! none of its threads, and shares its sockets: it must touch neither.

use std::sync::atomic::{AtomicU64, Ordering};

use once_cell::race::OnceBool;

static GENERATION: AtomicU64 = AtomicU64::new(1);
static REGISTERED: OnceBool = OnceBool::new();

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
    extern "C" fn in_child() {
        // One atomic add: async-signal-safe, and takes no lock.
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    REGISTERED.get_or_init(|| {
        // SAFETY: the handler is a static function that stays mapped (the
        // library is linked with -z nodelete) and is safe in a forked child.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) == 0 }
    });
}
