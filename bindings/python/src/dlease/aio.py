"""dlease for asyncio: the same client and locks, to be awaited.

    from dlease import aio

    async with aio.Client(url) as client:
        async with client.lock("report", wait=10) as lock:
            print("working, fencing token", lock.token)

Tasks that wait take no thread: the library wakes the event loop by a descriptor.
Cancelling a task that waits leaves nothing held. What takes a round trip and no
longer (release, renew, ping, close) runs in a few threads of the client's own.

A client belongs to the loop in which it first waits, until nobody waits in it,
and is to be closed in it: one that is only dropped stays until the loop ends. In
a forked child everything raises Forked, and the parent's loop is left alone.
Must not know ctypes.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Callable, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from . import _arguments, _ffi
from ._client import BaseClient, Holder, Kind
from ._errors import Error, InvalidArgument, LockTimeout, NotAcquired, Unavailable
from ._lock import BaseLock, BaseLost as _BaseLost, note

T = TypeVar("T")
_End = tuple[_ffi.Grant, _ffi.Outcome]

_CLOSED = (_ffi.CLOSED, _ffi.Failure("the client is closed", None, None, False))


class _Waiters:
    """The acquires of one client that were begun, and the loop they wait in."""

    def __init__(self, handle: _ffi.Client) -> None:
        self._handle = handle
        self._process = os.getpid()
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fd = -1
        self._tags = itertools.count(1)
        # By their tags. The token lives until the event has come.
        self._pending: dict[int, tuple[asyncio.Future[_End], _ffi.Cancel]] = {}
        # What they acquired, by the same tags, and who waits for its loss.
        self._held: WeakValueDictionary[int, _ffi.Grant] = WeakValueDictionary()
        self._losses: WeakKeyDictionary[_ffi.Grant, list[asyncio.Future[bool]]] = WeakKeyDictionary()

    async def acquire(self, key: bytes, options: _ffi.AcquireOptions) -> _End:
        """The grant, and how the acquire ended. Cancelled, it leaves nothing
        held."""
        loop = asyncio.get_running_loop()
        if self._closing:
            return _ffi.Grant(), _CLOSED
        if not self.is_forked():
            self._watch(loop)
        tag, cancel = next(self._tags), _ffi.Cancel()
        future: asyncio.Future[_End] = loop.create_future()
        self._pending[tag] = (future, cancel)
        status, failure = self._handle.begin_acquire(tag, cancel, key, options)
        if status != _ffi.OK:
            del self._pending[tag]
            return _ffi.Grant(), (status, failure)
        try:
            return await future
        except BaseException:
            # The outcome is there when this returns, if it was not before.
            cancel.fire()
            self.take_all()
            if future.done() and not future.cancelled() and future.exception() is None:
                future.result()[0].abandon()
            raise

    def take_all(self) -> None:
        """Hands every event that is there to the task that waits for it."""
        while (event := self._handle.next_event()) is not None:
            tag, grant, outcome = event
            if grant is None:
                self._tell_lost(tag)
                continue
            future, _ = self._pending.pop(tag)
            if future.done() or future.get_loop().is_closed():
                grant.abandon()
            else:
                self._held[tag] = grant
                future.set_result((grant, outcome))

    def _tell_lost(self, tag: int) -> None:
        grant = self._held.pop(tag, None)
        if grant is not None:
            for waiter in self._losses.pop(grant, []):
                waiter.get_loop().call_soon_threadsafe(_set_true, waiter)

    async def wait_lost(self, grant: _ffi.Grant, timeout: float | None) -> bool:
        """Whether the grant was lost, by the timeout at the latest."""
        if grant.lost_cause() is not None:
            return True
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._losses.setdefault(grant, []).append(waiter)
        try:
            # A loss in between is an event already, or will be one.
            return await asyncio.wait_for(waiter, timeout)
        except (TimeoutError, asyncio.TimeoutError):
            return grant.lost_cause() is not None
        finally:
            waiters = self._losses.get(grant, [])
            if waiter in waiters:
                waiters.remove(waiter)

    def end(self) -> None:
        """Ends all that wait with Closed, and all that come after."""
        self._closing = True
        if self.is_forked():
            return
        for _, cancel in list(self._pending.values()):
            cancel.fire()
        while (event := self._handle.next_event()) is not None:
            tag, grant, _ = event
            if grant is None:
                self._tell_lost(tag)
                continue
            future, _ = self._pending.pop(tag)
            grant.abandon()
            if not (future.done() or future.get_loop().is_closed()):
                future.get_loop().call_soon_threadsafe(_set, future, (grant, _CLOSED))
        self._unwatch()

    def finish(self) -> None:
        """Tells those whose outcome went with the client."""
        for tag in list(self._held):
            self._tell_lost(tag)
        pending, self._pending = self._pending, {}
        for future, _ in pending.values():
            if not (future.done() or future.get_loop().is_closed()):
                future.get_loop().call_soon_threadsafe(_set, future, (_ffi.Grant(), _CLOSED))

    def is_forked(self) -> bool:
        """Whether this is a child of the process that opened the client, and
        shares the descriptors of its loop with it."""
        return os.getpid() != self._process

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is loop:
            return
        if self._pending and self._loop is not None:
            if not self._loop.is_closed():
                raise RuntimeError("tasks of another event loop wait in this client")
            # Nobody is there to be told.
            for _, cancel in list(self._pending.values()):
                cancel.fire()
            self.take_all()
        self._unwatch()
        fd = self._handle.event_fd()
        if fd < 0:
            raise Unavailable("the system has no descriptor to give, by which to wait")
        loop.add_reader(fd, self.take_all)
        self._loop, self._fd = loop, fd

    def _unwatch(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
        self._loop = None


def _set(future: asyncio.Future[_End], end: _End) -> None:
    if not future.done():
        future.set_result(end)


def _set_true(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(True)


class Lost(_BaseLost):
    """`dlease.Lost`, whose `wait` is awaited."""

    def __init__(self, grant: _ffi.Grant | None, waiters: _Waiters) -> None:
        super().__init__(grant)
        self._waiters = waiters

    async def wait(self, timeout: float | None = None) -> bool:
        """Waits until the grant is lost, or for `timeout` seconds: whether it was
        lost. False at once without a grant. Takes no thread. A release does not end
        it: cancel the task then.

        Raises InvalidArgument for a timeout that is NaN, infinite or negative.
        """
        _arguments.wait_millis("timeout", timeout)
        if self._grant is None:
            return False
        return await self._waiters.wait_lost(self._grant, timeout)


class Lock(BaseLock):
    """A lock of one key for the tasks of an event loop, made by `Client.lock`.
    Each task releases, renews and reads its own grant, as with `dlease.Lock`."""

    _NAME = "dlease.aio.Lock"
    _client: Client

    @property
    def lost(self) -> Lost:
        """Tells whether the grant was lost, and why. It stays with that grant: after
        another acquire, ask for it anew."""
        return Lost(self._mine(), self._client._waiters)

    async def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """Acquires the lock: True if it is held now, False if someone else has
        it. `blocking=False` makes one try; else waits for `timeout` seconds, and
        with None (or -1) for ever, whatever the `wait` of `Client.lock`.

        Raises what `dlease.Lock.acquire` raises. Waits without a thread;
        cancelling the task ends it at once, and what was granted in the same
        moment is given back.
        """
        if timeout == -1:
            timeout = None
        if not blocking and timeout is not None:
            raise InvalidArgument("can't specify a timeout for a non-blocking call")
        wait_ms = _arguments.wait_millis("timeout", timeout) if blocking else 0
        try:
            await self._acquire(wait_ms)
        except (NotAcquired, LockTimeout):
            return False
        return True

    async def release(self) -> None:
        """Releases the lock, as `dlease.Lock.release`. A task that is cancelled
        meanwhile goes on when that is done."""
        grant = self._held()
        self._released(grant, await self._client._run(grant.release))

    async def renew(self, ttl: float | None = None) -> None:
        """Renews the lease, as `dlease.Lock.renew`."""
        ttl_ms = _arguments.optional_millis("ttl", ttl)
        grant = self._held()
        self._renewed(grant, await self._client._run(partial(grant.renew, ttl_ms)))

    async def __aenter__(self) -> Lock:
        """Acquires the lock, waiting for the `wait` of `Client.lock`.

        Raises NotAcquired (wait 0) or LockTimeout if someone else has the lock;
        else as `acquire`.
        """
        await self._acquire(self._wait_ms)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Releases the lock. Raises what `release` raises; but where the body
        raised, its exception goes on, and ours is a note on it (Python 3.11 on)."""
        try:
            await self.release()
        except Error as ours:
            if error is None:
                raise
            note(error, ours)

    async def _acquire(self, wait_ms: int) -> None:
        options = _ffi.AcquireOptions(wait_ms=wait_ms, **self._options)
        self._acquired(*await self._client._waiters.acquire(self._key, options))


class Client(BaseClient[Lock]):
    """A client for the tasks of an event loop. Takes what `dlease.Client` takes,
    and its other methods mean the same.

    Opening does not block, and raises what `dlease.Client` raises. In a forked
    child its calls raise Forked.
    """

    _lock_type = Lock

    def _opened(self) -> None:
        self._waiters = _Waiters(self._handle)
        # Not the loop's executor: whatever keeps that busy would keep locks from
        # being renewed and released.
        self._executor = ThreadPoolExecutor(4, "dlease")

    async def ping(self, timeout: float = 5.0) -> None:
        """Makes one round trip to the server, as `dlease.Client.ping`."""
        await self._run(partial(self._ping, timeout))

    async def peek(self, key: str | bytes, kind: Kind = "lease") -> Holder | None:
        """Who holds the lock of this key, as `dlease.Client.peek`."""
        return await self._run(partial(self._peek, key, kind))

    async def force_release(self, key: str | bytes, kind: Kind = "lease") -> bool:
        """Releases the lock of this key by force, as `dlease.Client.force_release`."""
        return await self._run(partial(self._force_release, key, kind))

    async def close(self) -> None:
        """Ends what waits with Closed, releases what is held, and takes the
        connections down, in 2 s at the most. May be called again, which does
        nothing."""
        self._waiters.end()
        # Not in the executor, whose threads may all be at a silent server.
        try:
            await _to_its_end(asyncio.ensure_future(asyncio.to_thread(self._handle.close)))
        finally:
            self._waiters.finish()
            self._executor.shutdown(wait=False)

    async def _run(self, call: Callable[[], T]) -> T:
        """Runs a call in one of the client's own threads, to its end: a cancel
        is raised after that."""
        if self._waiters.is_forked():
            return call()  # which raises Forked; the threads are the parent's
        loop = asyncio.get_running_loop()
        try:
            running = loop.run_in_executor(self._executor, call)
        except RuntimeError:  # closed
            return call()
        return await _to_its_end(running)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


async def _to_its_end(running: asyncio.Future[T]) -> T:
    """Waits for what cannot be ended: a cancel is raised after it."""
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return running.result()


__all__ = ["Client", "Lock", "Lost"]
