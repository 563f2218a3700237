//! What went wrong: a status that a program can act on, and a text for people.
//! Never holds a password: messages are made from parts that are known not to.

use std::fmt;

/// The result of a call that did not simply succeed. The numbers are those of
/// the C interface and are frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum Status {
    /// One try was made, and someone else has the lock.
    NotAcquired = 1,
    /// The call's own deadline passed while someone else had the lock.
    TimedOut = 2,
    /// The call was ended by its cancel token.
    Cancelled = 3,
    /// The lock is not held: lost, taken over, or already released.
    NotHeld = 4,
    /// The version has moved on.
    Conflict = 5,
    /// An argument is outside of what the call takes.
    InvalidArgument = -1,
    /// The server cannot be reached, or cannot serve now.
    Unavailable = -2,
    /// The server refused; see the error number.
    Server = -3,
    /// The client was closed.
    Closed = -4,
    /// The handle was made before a fork, in the parent.
    Forked = -5,
    /// Password, rights, schema or server are wrong: trying again cannot help.
    Config = -6,
    /// This server or kind of lock cannot do what was asked.
    Unsupported = -7,
    /// The library is in a state it should never be in.
    Internal = -98,
    /// The library panicked.
    Panic = -99,
}

impl Status {
    /// The number that C sees.
    pub fn code(self) -> i32 {
        self as i32
    }

    /// The name as C spells it, without the prefix.
    pub fn name(self) -> &'static str {
        match self {
            Status::NotAcquired => "NOT_ACQUIRED",
            Status::TimedOut => "TIMED_OUT",
            Status::Cancelled => "CANCELLED",
            Status::NotHeld => "NOT_HELD",
            Status::Conflict => "CONFLICT",
            Status::InvalidArgument => "INVALID_ARGUMENT",
            Status::Unavailable => "UNAVAILABLE",
            Status::Server => "SERVER",
            Status::Closed => "CLOSED",
            Status::Forked => "FORKED",
            Status::Config => "CONFIG",
            Status::Unsupported => "UNSUPPORTED",
            Status::Internal => "INTERNAL",
            Status::Panic => "PANIC",
        }
    }
}

/// An error of any call of this crate.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Error {
    status: Status,
    message: String,
    server_errno: u16,
    sqlstate: String,
    is_retriable: bool,
}

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn new(status: Status, message: impl Into<String>) -> Error {
        Error {
            status,
            message: message.into(),
            server_errno: 0,
            sqlstate: String::new(),
            is_retriable: status == Status::Unavailable,
        }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Error {
        Error::new(Status::InvalidArgument, message)
    }

    /// This error with what the server said of it.
    pub(crate) fn with_server(mut self, errno: u16, sqlstate: &str) -> Error {
        self.server_errno = errno;
        sqlstate.clone_into(&mut self.sqlstate);
        self
    }

    /// UNAVAILABLE in place of SERVER, where trying again may help.
    pub(crate) fn unavailable_if_retriable(mut self) -> Error {
        if self.status == Status::Server && self.is_retriable {
            self.status = Status::Unavailable;
        }
        self
    }

    /// UNAVAILABLE, with what the server said: what was retried in vain.
    pub(crate) fn into_unavailable(mut self) -> Error {
        self.status = Status::Unavailable;
        self.retriable()
    }

    pub(crate) fn retriable(mut self) -> Error {
        self.is_retriable = true;
        self
    }

    /// What happened, to act on.
    pub fn status(&self) -> Status {
        self.status
    }

    /// What happened, for people. Its wording is not part of any promise.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The server's error number, 0 if the server sent none.
    pub fn server_errno(&self) -> u16 {
        self.server_errno
    }

    /// The server's SQLSTATE, empty if the server sent none.
    pub fn sqlstate(&self) -> &str {
        &self.sqlstate
    }

    /// True if the same call may succeed later without anybody's help.
    pub fn is_retriable(&self) -> bool {
        self.is_retriable
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status.name(), self.message)
    }
}

impl std::error::Error for Error {}
