"""The exceptions, one for each status of the library's.

Knows what the statuses mean; must not know how a call is made.
"""

from __future__ import annotations

import enum
from typing import ClassVar

from ._ffi import Failure


class Status(enum.IntEnum):
    """The result of a call: 0 done, above 0 an outcome to expect, below 0 a
    failure. The numbers are the library's, and frozen."""

    OK = 0
    NOT_ACQUIRED = 1
    TIMED_OUT = 2
    CANCELLED = 3
    NOT_HELD = 4
    CONFLICT = 5
    INVALID_ARGUMENT = -1
    UNAVAILABLE = -2
    SERVER = -3
    CLOSED = -4
    FORKED = -5
    CONFIG = -6
    UNSUPPORTED = -7
    INTERNAL = -98
    PANIC = -99


class Error(Exception):
    """What every exception of this package is. The text never holds a
    password, and may change with any version; the attributes do not:

    `status`: the library's number, a `Status` if this version knows it.
    `errno`: the server's error number; None if the server sent none.
    `sqlstate`: the server's SQLSTATE, five characters; None as well.
    `retriable`: whether the same call may succeed later without anybody's help.
    """

    status: int
    errno: int | None
    sqlstate: str | None
    retriable: bool

    _status: ClassVar[Status] = Status.INTERNAL

    def __init__(
        self,
        message: str = "",
        status: int | None = None,
        errno: int | None = None,
        sqlstate: str | None = None,
        retriable: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = self._status if status is None else status
        self.errno = errno
        self.sqlstate = sqlstate
        self.retriable = retriable

    def __reduce__(self) -> tuple[type[Error], tuple[object, ...]]:
        # Exceptions travel between processes by pickle, and what OSError
        # would make of this is the text alone.
        return type(self), (str(self), self.status, self.errno, self.sqlstate, self.retriable)


class NotAcquired(Error):
    """One try was made, and someone else has the lock."""

    _status = Status.NOT_ACQUIRED


class LockTimeout(Error, TimeoutError):
    """The time to wait passed while someone else had the lock."""

    _status = Status.TIMED_OUT


class Cancelled(Error):
    """The call was ended from outside."""

    _status = Status.CANCELLED


class NotHeld(Error, RuntimeError):
    """The lock is not held: never acquired, or already released."""

    _status = Status.NOT_HELD


class LockLost(NotHeld):
    """The lock was acquired, and lost before it was released: whatever was
    done under it since may have met another holder."""


class Conflict(Error):
    """The version has moved on."""

    _status = Status.CONFLICT


class InvalidArgument(Error, ValueError):
    """An argument is outside of what the call takes."""

    _status = Status.INVALID_ARGUMENT


class Unavailable(Error, ConnectionError):
    """The server cannot be reached, or cannot serve now."""

    _status = Status.UNAVAILABLE


class ServerError(Error):
    """The server refused; see `errno` and `sqlstate`."""

    _status = Status.SERVER


class Closed(Error):
    """The client was closed."""

    _status = Status.CLOSED


class Forked(Error):
    """The client or lock was made before a fork, in the parent."""

    _status = Status.FORKED


class ConfigError(Error):
    """Password, rights, schema or server are wrong: trying again cannot help."""

    _status = Status.CONFIG


class Unsupported(Error):
    """This server or kind of lock cannot do what was asked."""

    _status = Status.UNSUPPORTED


class InternalError(Error):
    """The library is in a state it should never be in: close the client."""

    _status = Status.INTERNAL


_BY_STATUS: dict[int, type[Error]] = {
    Status.NOT_ACQUIRED: NotAcquired,
    Status.TIMED_OUT: LockTimeout,
    Status.CANCELLED: Cancelled,
    Status.NOT_HELD: NotHeld,
    Status.CONFLICT: Conflict,
    Status.INVALID_ARGUMENT: InvalidArgument,
    Status.UNAVAILABLE: Unavailable,
    Status.SERVER: ServerError,
    Status.CLOSED: Closed,
    Status.FORKED: Forked,
    Status.CONFIG: ConfigError,
    Status.UNSUPPORTED: Unsupported,
    Status.INTERNAL: InternalError,
    Status.PANIC: InternalError,
}


def error_for(status: int, failure: Failure | None, otherwise: str) -> Error:
    """The exception for a status; `otherwise` is the text of an outcome above
    zero, which the library sends no text with."""
    known = _BY_STATUS.get(status)
    if known is not None:
        status = Status(status)
    kind = known or Error
    if failure is None:
        return kind(otherwise, status)
    return kind(failure.message, status, failure.errno, failure.sqlstate, failure.retriable)
