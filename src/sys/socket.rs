//! A connection's socket by its descriptor: time-outs, shutdown, and a look
//! whether the other end has gone.

use std::os::fd::RawFd;
use std::time::Duration;

/// Bounds every later read and write by `limit` (at least a microsecond,
/// since zero would mean for ever; 24 days and more are for ever).
pub(crate) fn set_timeouts(fd: RawFd, limit: Duration) {
    let for_ever = limit.as_secs() >= 1 << 21;
    let limit = if for_ever { Duration::ZERO } else { limit.max(Duration::from_micros(1)) };
    let time = libc::timeval {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_usec: libc::suseconds_t::from(limit.subsec_micros()),
    };
    for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        // SAFETY: the pointer and the length describe `time`; a bad
        // descriptor gives an error and nothing else.
        unsafe {
            libc::setsockopt(
                fd,
                libc::SOL_SOCKET,
                option,
                (&raw const time).cast(),
                size_of::<libc::timeval>() as libc::socklen_t,
            );
        }
    }
}

/// Ends both directions: a thread blocked at the socket returns at once, and
/// the descriptor stays its owner's to close.
pub(crate) fn shut_down(fd: RawFd) {
    // SAFETY: no memory is passed; a bad descriptor gives an error.
    unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
}

/// True if nothing waits to be read: an idle connection whose server has gone
/// (end of file), or has said why it is going (a packet nobody asked for),
/// must not be used again.
pub(crate) fn is_quiet(fd: RawFd) -> bool {
    let mut byte = 0u8;
    // SAFETY: the buffer is one writable byte.
    let got =
        unsafe { libc::recv(fd, (&raw mut byte).cast(), 1, libc::MSG_PEEK | libc::MSG_DONTWAIT) };
    got < 0 && std::io::Error::last_os_error().kind() == std::io::ErrorKind::WouldBlock
}
