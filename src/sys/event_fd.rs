//! A descriptor that can be made readable, and unreadable again.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// See the module's text. Closed with the last of its owners.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    /// A new one, not readable; `None` if the system has none to give.
    pub(crate) fn new() -> Option<EventFd> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        // SAFETY: the descriptor is new, and nobody else's.
        (fd >= 0).then(|| EventFd(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes it readable.
    pub(crate) fn signal(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: eight readable bytes. Only a counter that is full fails, and
        // it is readable then.
        unsafe { libc::write(self.number(), one.as_ptr().cast(), one.len()) };
    }

    /// Makes it unreadable.
    pub(crate) fn clear(&self) {
        let mut count = [0_u8; 8];
        // SAFETY: eight writable bytes. Only a counter that is zero fails.
        unsafe { libc::read(self.number(), count.as_mut_ptr().cast(), count.len()) };
    }

    pub(crate) fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
