"""The lock: threading.Lock's contract on a grant of the library's.

Knows whose grant is whose among the threads and tasks that share one Lock; must
not know ctypes, nor hold any rule about leases.

No mutex here, but single steps on dictionaries: a mutex that another thread held
during a fork would stay held in the child for ever.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from . import _arguments, _ffi
from ._guard import guard
from ._errors import Error, InvalidArgument, LockLost, LockTimeout, NotAcquired, NotHeld, Status, error_for
from ._wait import interruptible

if TYPE_CHECKING:
    from ._client import Client

_SLICE_MS = 50

# Grants in the order in which they were made. A dict, since adding and removing
# are single steps.
_Grants = dict[_ffi.Grant, None]


class BaseLock:
    """What locks for threads and locks for tasks have in common: whose grant is
    whose, and all that needs no network."""

    _NAME = "dlease.Lock"

    def __init__(self, client: Any, key: bytes, wait_ms: int, options: dict[str, Any]) -> None:
        self._client = client
        self._key = key
        self._wait_ms = wait_ms
        self._options = options
        # The grants that this object has, each with the dict of its acquirer's.
        self._grants: dict[_ffi.Grant, _Grants] = {}
        # What each thread or task acquired and did not release: lost ones too,
        # so that a late release is never taken for one of another's grant.
        self._own: WeakKeyDictionary[object, _Grants] = WeakKeyDictionary()

    def locked(self) -> bool:
        """Whether this object holds the lock now. Whether somebody else does is
        not asked.

        Raises nothing. Does not block. Any thread. After fork: False.
        """
        return any(grant.held() for grant in list(self._grants))

    @property
    def token(self) -> int | None:
        """The fencing token of the grant: greater than that of every earlier
        grant of the key. Kept when the grant is lost; None without one.

        Raises nothing. Does not block. Any thread. After fork: works.
        """
        grant = self._mine()
        return None if grant is None else grant.token()

    def remaining(self) -> float:
        """The seconds that are left of the lease at least, by the server's
        clock; 0.0 if the lock is not held.

        Raises nothing. Does not block. Any thread. After fork: 0.0.
        """
        grant = self._mine()
        return 0.0 if grant is None else grant.remaining_ms() / 1000

    def guard_sql(self) -> str:
        """The text of the guard: one locking read, for a transaction of your own, on
        any driver or ORM, first thing in it. One row comes back if this lock is still
        the last grant of its key, and until that transaction ends no later grant can
        be made: what it writes cannot be late. No row: roll back at once.

        It does not reach autocommit, XA, Galera and groups with several primaries,
        and is gone without a word after DDL, a second BEGIN, COMMIT AND CHAIN, or a
        deadlock that was caught.

        Raises NotHeld, LockLost; Forked. Does not block. Any thread. After fork:
        Forked.
        """
        grant = self._held()
        text, (status, failure) = grant.guard_sql()
        if status != _ffi.OK:
            raise self._error(grant, status, failure)
        return text

    def guard(self, cursor: Any) -> None:
        """Runs the guard in the open transaction of a DB-API cursor or connection
        (PyMySQL, mysqlclient, mysql-connector), as its first statement: see
        `guard_sql`. Where it raises, roll back at once.

        Raises LockLost if the lock is lost; NotHeld if nothing is held;
        InvalidArgument if the connection has no open transaction: begin one first.
        What the driver raises goes on: its errors 1205, 1213 and 1020 mean "begin
        again".

        Blocks for a round trip, and while a later grant is being made. In the thread
        that may use the cursor. After fork: Forked.
        """
        if not guard(cursor, self.guard_sql()):
            raise LockLost(f"lock {_shown(self._key)} was lost: the guard found a later grant")

    def __repr__(self) -> str:
        state = "locked" if self.locked() else "unlocked"
        return f"<{state} {self._NAME} {_shown(self._key)} token={self.token}>"

    def _mine(self) -> _ffi.Grant | None:
        """The caller's own latest grant, else the object's."""
        for grants in (self._own.get(_caller()), self._grants):
            if grants:
                return list(grants)[-1]
        return None

    def _remember(self, grant: _ffi.Grant) -> None:
        for earlier in list(self._grants):
            if not earlier.held():
                self._grants.pop(earlier, None)  # its acquirer still has it
        caller = _caller()
        # With an owner text acquires may be nested; else a new grant says that
        # the earlier one has ended.
        own = self._own.get(caller, {}) if self._options["owner"] else {}
        own[grant] = None
        self._own[caller] = own
        self._grants[grant] = own

    def _forget(self, grant: _ffi.Grant) -> None:
        for own in (self._grants.pop(grant, None), self._own.get(_caller())):
            if own is not None:
                own.pop(grant, None)

    def _held(self) -> _ffi.Grant:
        grant = self._mine()
        if grant is None:
            raise NotHeld(f"lock {_shown(self._key)} is not held")
        return grant

    def _acquired(self, grant: _ffi.Grant, outcome: _ffi.Outcome) -> None:
        status, failure = outcome
        if status != _ffi.OK:
            raise error_for(status, failure, f"someone else has lock {_shown(self._key)}")
        self._remember(grant)

    def _released(self, grant: _ffi.Grant, outcome: _ffi.Outcome) -> None:
        status, failure = outcome
        if status == _ffi.OK:
            self._forget(grant)
            return
        error = self._error(grant, status, failure)
        if type(error) is NotHeld:
            self._forget(grant)
            error = NotHeld(f"lock {_shown(self._key)} was released already")
        raise error

    def _renewed(self, grant: _ffi.Grant, outcome: _ffi.Outcome) -> None:
        status, failure = outcome
        if status != _ffi.OK:
            # Not forgotten: a release that failed may still be tried again.
            raise self._error(grant, status, failure)

    def _error(self, grant: _ffi.Grant, status: int, failure: _ffi.Failure | None) -> Error:
        if status != Status.NOT_HELD:
            return error_for(status, failure, f"lock {_shown(self._key)}: the call was ended")
        cause = grant.lost_cause()
        if cause is not None:
            return LockLost(f"lock {_shown(self._key)} was lost: {cause}")
        return NotHeld(f"lock {_shown(self._key)} is not held")


class Lock(BaseLock):
    """A lock of one key, made by `Client.lock`. Follows threading.Lock, and may
    be acquired and released any number of times.

    One Lock may be shared by threads and asyncio tasks. A second acquire waits,
    whoever makes it. Whoever acquired through this object releases, renews and
    reads its own grant, also when that one was lost and another thread has the
    lock by now; whoever did not, the grant that the object has.

    A Lock that is collected while it is held is released, with a
    ResourceWarning.
    """

    _client: Client

    @property
    def lost(self) -> Lost:
        """Tells whether the grant was lost, and why. It stays with that grant:
        after another acquire, ask for it anew.

        Raises nothing. Does not block. Any thread. After fork: works.
        """
        return Lost(self._mine())

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquires the lock: True if it is held now, False if someone else has
        it. `blocking=False` makes one try; else waits for `timeout` seconds, and
        with -1 for ever, whatever the `wait` of `Client.lock`.

        Raises Unavailable if the server was not reached in that time;
        ServerError if it refused; ConfigError, InvalidArgument and Unsupported
        at once; Closed, Forked, InternalError. InvalidArgument, which is a
        ValueError, where threading.Lock raises ValueError, and for a timeout
        that is NaN or infinite.

        Blocks as long as that; one try for the lesser of io_timeout and ttl at
        the most. Ctrl-C ends a wait of the main thread within 100 ms, and what
        the server grants all the same is given back. Any thread. After fork:
        Forked.
        """
        if not blocking and timeout != -1:
            raise InvalidArgument("can't specify a timeout for a non-blocking call")
        if not blocking:
            wait_ms = 0
        elif timeout == -1:
            wait_ms = _ffi.WAIT_FOREVER
        else:
            wait_ms = _arguments.wait_millis("timeout", timeout)
        try:
            self._acquire(wait_ms)
        except (NotAcquired, LockTimeout):
            return False
        return True

    def release(self) -> None:
        """Releases the lock: the grant that this thread or task acquired
        through this object, else the one that the object has.

        Raises NotHeld if nothing is held; LockLost (a NotHeld) if the lease had
        been lost: that touches nobody else's. Unavailable if the server was not
        reached: release may then be called again. ServerError, ConfigError,
        Closed, Forked, InternalError.

        Blocks for a round trip, io_timeout at the most. Any thread. After fork:
        Forked.
        """
        grant = self._held()
        self._released(grant, grant.release())

    def renew(self, ttl: float | None = None) -> None:
        """Renews the lease: it lasts for `ttl` seconds from now, 0.01 to 366
        days; None is the grant's own. One with an owner is never shortened.

        Raises NotHeld if nothing is held; LockLost if the lease was lost;
        Unavailable if the server was not reached, with the lease as it was;
        InvalidArgument, ServerError, ConfigError, Closed, Forked, InternalError.

        Blocks for a round trip; io_timeout at the most, and not past the lease.
        Any thread. After fork: Forked.
        """
        ttl_ms = _arguments.optional_millis("ttl", ttl)
        grant = self._held()
        self._renewed(grant, grant.renew(ttl_ms))

    def __enter__(self) -> Lock:
        """Acquires the lock, waiting for the `wait` of `Client.lock`.

        Raises NotAcquired (wait 0) or LockTimeout if someone else has the lock;
        else as `acquire`. Blocks, and is interrupted, like `acquire`.
        """
        self._acquire(self._wait_ms)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Releases the lock. Raises what `release` raises, so LockLost if the
        lease did not last for the whole body; but where the body raised, its
        exception goes on, and ours is a note on it (Python 3.11 on)."""
        try:
            self.release()
        except Error as ours:
            if error is None:
                raise
            note(error, ours)

    def _acquire(self, wait_ms: int) -> None:
        grant, cancel = _ffi.Grant(), _ffi.Cancel()
        options = _ffi.AcquireOptions(wait_ms=wait_ms, **self._options)
        call = partial(self._client._handle.acquire, grant, cancel, self._key, options)
        try:
            # One try is over soon, and not worth a thread.
            self._acquired(grant, interruptible(call, cancel.fire) if wait_ms else call())
        except BaseException:
            # Also one that a signal handler raised after the grant was made.
            self._forget(grant)
            grant.abandon()
            raise


class BaseLost:
    """Whether one grant was lost, and why. Works without the network, does not
    block, raises nothing; any thread. After fork: lost, with the cause "forked".
    """

    def __init__(self, grant: _ffi.Grant | None) -> None:
        self._grant = grant

    def is_set(self) -> bool:
        """Whether the grant was lost."""
        return self.cause is not None

    @property
    def cause(self) -> str | None:
        """None while it is not lost, nor once it was released; else "expired",
        "unreachable" (the server, until the lease ended), "taken" (by another
        owner), "forced" (an operator released it), "row_gone", "connection"
        (gone with it), "forked", "closed" (the client) or "max_hold"."""
        return None if self._grant is None else self._grant.lost_cause()

    def __repr__(self) -> str:
        return f"<dlease.Lost {self.cause}>"


class Lost(BaseLost):
    __doc__ = BaseLost.__doc__

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the grant is lost, or for `timeout` seconds: whether it was
        lost. False at once without a grant, and once it is released.

        Raises InvalidArgument for a timeout that is NaN, infinite or negative.
        Blocks as long as that; Ctrl-C ends it within 100 ms. Any thread. After fork:
        True at once.
        """
        wait_ms = _arguments.wait_millis("timeout", timeout)
        until = time.monotonic() + wait_ms / 1000
        while self._grant is not None:
            # In slices, between which Python's signal handlers run.
            left_ms = max(0, math.ceil((until - time.monotonic()) * 1000))
            lost = self._grant.wait_lost(min(left_ms, _SLICE_MS))
            if lost is not False or left_ms <= _SLICE_MS:
                return bool(lost)
        return False


def _caller() -> object:
    """Who calls: the task, where this thread runs an event loop, or the thread."""
    asyncio = sys.modules.get("asyncio")  # no loop runs where nobody imported it
    if asyncio is not None:
        try:
            task = asyncio.current_task()
        except (RuntimeError, AttributeError):  # no loop; or its import is under way
            task = None
        if task is not None:
            return task
    return threading.current_thread()


def note(error: BaseException, ours: Error) -> None:
    """Leaves our exception as a note on the one that goes on."""
    if sys.version_info >= (3, 11):
        error.add_note(f"dlease: {type(ours).__name__}: {ours}")


def _shown(key: bytes) -> str:
    """A key as people wrote it: text where it is UTF-8."""
    try:
        return repr(key.decode())
    except UnicodeDecodeError:
        return repr(key)
