//! The one local clock: CLOCK_BOOTTIME, which nobody can set and which goes on
//! while the machine sleeps, so that a lease that ended during a suspend is
//! over on waking. The wall clock is never read.

use std::time::Duration;

/// A point on the local clock, in nanoseconds since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(u64);

impl Instant {
    /// Later than anything that will ever be asked.
    pub(crate) const NEVER: Instant = Instant(u64::MAX);

    /// Reads the clock.
    pub(crate) fn now() -> Instant {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid, writable timespec; CLOCK_BOOTTIME exists
        // on every Linux since 2.6.39, so the call cannot fail.
        unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut time) };
        Instant(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    /// This instant moved on by `duration`, at most to `NEVER`.
    pub(crate) fn after(self, duration: Duration) -> Instant {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.saturating_add(nanos))
    }

    /// The time from `earlier` to this instant; zero if it lies behind.
    pub(crate) fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The time from now to this instant; zero once it has passed.
    pub(crate) fn left(self) -> Duration {
        self.since(Instant::now())
    }

    /// True once this instant has been reached.
    pub(crate) fn has_passed(self) -> bool {
        self != Instant::NEVER && Instant::now() >= self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_forward_and_saturates() {
        let start = Instant::now();
        let later = start.after(Duration::from_millis(5));
        assert_eq!(later.since(start), Duration::from_millis(5));
        assert_eq!(start.since(later), Duration::ZERO);
        assert_eq!(start.after(Duration::MAX), Instant::NEVER);
        assert!(!Instant::NEVER.has_passed());
        assert!(start.has_passed());
    }
}
