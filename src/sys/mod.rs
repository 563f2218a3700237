//! What needs the operating system directly: the clock, sockets, signals,
//! fork. Unsafe code of the core lives here; nothing here knows of locks.

#![allow(unsafe_code, reason = "system calls that std has no safe form for")]

pub(crate) mod clock;
pub(crate) mod event_fd;
pub(crate) mod fork;
pub(crate) mod host;
pub(crate) mod signals;
pub(crate) mod socket;
pub(crate) mod thread;
