//! Tells a forked child from its parent. A child has the parent's memory but
//! none of its threads, and shares its sockets: it must touch neither.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static GENERATION: AtomicU64 = AtomicU64::new(1);
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// How many forks lie between this process and the first one, as a number to
/// compare: a handle made under another generation is the parent's.
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Has the child count itself from now on. Waits for nobody (no Once, whose
/// holder may be a thread that a fork leaves behind): two callers at the same
/// time both register, and the child then counts by two, which does no harm.
pub(crate) fn register() {
    extern "C" fn in_child() {
        // One atomic add: async-signal-safe, and takes no lock.
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    if !REGISTERED.load(Ordering::Acquire) {
        // SAFETY: the handler is a static function that stays mapped (the
        // library is linked with -z nodelete) and is safe in a forked child.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        REGISTERED.store(true, Ordering::Release);
    }
}
