"""The door to the C library: finds it, checks its ABI number, declares every
function and structure of dlease.h, and owns the pointers.

The only module that imports ctypes. Must know no rule about locks, and of the
statuses only the few that it makes itself.
"""

from __future__ import annotations

import ctypes
import os
import time
import warnings
import weakref
from ctypes import byref, c_char, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Callable, NamedTuple

ABI_VERSION = 0

OK = 0
TIMED_OUT = 2
CANCELLED = 3
CLOSED = -4
WAIT_FOREVER = 2**64 - 1
LONGEST_MS = WAIT_FOREVER - 1

MANUAL_RENEW = 1
UNFAIR = 2
EVENT_LOST = 3

KINDS = {"lease": 0, "row": 1, "named": 2}
LOST_CAUSES = {
    1: "expired",
    2: "unreachable",
    3: "taken",
    4: "forced",
    5: "row_gone",
    6: "connection",
    7: "forked",
    8: "closed",
    9: "max_hold",
}


class ClientOptions(ctypes.Structure):
    """dl_client_options."""

    _fields_ = [
        ("size", c_size_t),
        ("application", c_char_p),
        ("name_space", c_char_p),
        ("table_prefix", c_char_p),
        ("connect_timeout_ms", c_uint64),
        ("io_timeout_ms", c_uint64),
        ("default_ttl_ms", c_uint64),
        ("max_connections", c_uint32),
        ("max_waiting_connections", c_uint32),
        ("fairness_ms", c_uint32),
        ("create_schema", c_int32),
    ]

    def __init__(self, **options: bytes | int | None) -> None:
        super().__init__(size=ctypes.sizeof(self), **options)


class AcquireOptions(ctypes.Structure):
    """dl_acquire_options."""

    _fields_ = [
        ("size", c_size_t),
        ("wait_ms", c_uint64),
        ("ttl_ms", c_uint64),
        ("max_hold_ms", c_uint64),
        ("owner", c_char_p),
        ("note", c_char_p),
        ("cancel", c_void_p),
        ("kind", c_int32),
        ("flags", c_uint32),
    ]

    def __init__(self, **options: bytes | int | c_void_p | None) -> None:
        super().__init__(size=ctypes.sizeof(self), **options)


class Event(ctypes.Structure):
    """dl_event."""

    _fields_ = [
        ("size", c_size_t),
        ("tag", c_uint64),
        ("lock", c_void_p),
        ("error", c_void_p),
        ("status", c_int32),
        ("type", c_int32),
        ("cause", c_int32),
    ]

    def __init__(self) -> None:
        super().__init__(size=ctypes.sizeof(self))


class Holder(ctypes.Structure):
    """dl_holder."""

    _fields_ = [
        ("size", c_size_t),
        ("token", c_uint64),
        ("remaining_ms", c_uint64),
        ("held_ms", c_uint64),
        ("ttl_ms", c_uint64),
        ("holds", c_uint32),
        ("pid", c_uint32),
        ("owner", c_char * 256),
        ("application", c_char * 72),
        ("host", c_char * 256),
        ("note", c_char * 256),
    ]

    def __init__(self) -> None:
        super().__init__(size=ctypes.sizeof(self))


class Stats(ctypes.Structure):
    """dl_stats."""

    _fields_ = [
        ("size", c_size_t),
        ("grants", c_uint64),
        ("waits", c_uint64),
        ("time_outs", c_uint64),
        ("hand_overs", c_uint64),
        ("rings", c_uint64),
        ("looks", c_uint64),
        ("renewals", c_uint64),
        ("releases", c_uint64),
        ("release_failures", c_uint64),
        ("lost_expired", c_uint64),
        ("lost_unreachable", c_uint64),
        ("lost_taken", c_uint64),
        ("lost_row_gone", c_uint64),
        ("lost_otherwise", c_uint64),
        ("retries_blocked", c_uint64),
        ("retries_unavailable", c_uint64),
        ("retries_lost", c_uint64),
        ("gate_fallbacks", c_uint64),
        ("resolved", c_uint64),
        ("panics", c_uint64),
        ("waiting", c_uint64),
        ("connections", c_uint64),
        ("waiting_connections", c_uint64),
    ]

    def __init__(self) -> None:
        super().__init__(size=ctypes.sizeof(self))

    def as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name, *_ in self._fields_[1:]}


_OUT = ctypes.POINTER(c_void_p)
_CLIENT_OPTIONS = ctypes.POINTER(ClientOptions)
_ACQUIRE_OPTIONS = ctypes.POINTER(AcquireOptions)

# Name, result and arguments of every function. Without them ctypes would pass
# 64-bit handles and tokens as int.
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "dl_version": (c_char_p, []),
    "dl_abi_version": (c_uint32, []),
    "dl_status_name": (c_char_p, [c_int32]),
    "dl_error_status": (c_int32, [c_void_p]),
    "dl_error_message": (c_char_p, [c_void_p]),
    "dl_error_server_errno": (c_uint32, [c_void_p]),
    "dl_error_sqlstate": (c_char_p, [c_void_p]),
    "dl_error_is_retriable": (c_int32, [c_void_p]),
    "dl_error_free": (None, [c_void_p]),
    "dl_cancel_new": (c_void_p, []),
    "dl_cancel_fire": (None, [c_void_p]),
    "dl_cancel_free": (None, [c_void_p]),
    "dl_client_open": (c_int32, [c_char_p, _CLIENT_OPTIONS, _OUT, _OUT]),
    "dl_client_ping": (c_int32, [c_void_p, c_uint64, _OUT]),
    "dl_client_stats": (c_int32, [c_void_p, ctypes.POINTER(Stats)]),
    "dl_client_close": (None, [c_void_p]),
    "dl_acquire_async": (c_int32, [c_void_p, c_char_p, _ACQUIRE_OPTIONS, c_uint64, _OUT]),
    "dl_client_next_event": (c_int32, [c_void_p, c_uint64, ctypes.POINTER(Event)]),
    "dl_client_event_fd": (c_int32, [c_void_p]),
    "dl_acquire": (c_int32, [c_void_p, c_char_p, _ACQUIRE_OPTIONS, _OUT, _OUT]),
    "dl_renew": (c_int32, [c_void_p, c_uint64, _OUT]),
    "dl_release": (c_int32, [c_void_p, _OUT]),
    "dl_lock_free": (None, [c_void_p]),
    "dl_lock_token": (c_uint64, [c_void_p]),
    "dl_lock_key": (c_char_p, [c_void_p]),
    "dl_lock_remaining_ms": (c_uint64, [c_void_p]),
    "dl_lock_state": (c_int32, [c_void_p]),
    "dl_lock_lost_cause": (c_int32, [c_void_p]),
    "dl_lock_wait_lost": (c_int32, [c_void_p, c_uint64]),
    "dl_lock_guard_sql": (c_int32, [c_void_p, c_char_p, c_size_t, ctypes.POINTER(c_size_t), _OUT]),
    "dl_peek": (c_int32, [c_void_p, c_char_p, c_int32, ctypes.POINTER(Holder), _OUT]),
    "dl_force_release": (c_int32, [c_void_p, c_char_p, c_int32, _OUT]),
}


def _load() -> ctypes.CDLL:
    beside = Path(__file__).with_name("libdlease.so")
    name = os.environ.get("DLEASE_LIBRARY") or (str(beside) if beside.exists() else "libdlease.so.0")
    try:
        # CDLL, not PyDLL: the GIL is not held during a call.
        library = ctypes.CDLL(name)
        found = library.dl_abi_version
        found.restype, found.argtypes = c_uint32, []
        number = found()
    except (OSError, AttributeError) as error:
        raise ImportError(f"dlease: cannot load its library {name}: {error}") from error
    if number != ABI_VERSION:
        raise ImportError(
            f"dlease: {name} has the binary interface {number}, and this package is for {ABI_VERSION}"
        )
    for function, (restype, argtypes) in FUNCTIONS.items():
        try:
            declared = getattr(library, function)
        except AttributeError as error:
            raise ImportError(f"dlease: {name} is too old: it has no {function}") from error
        declared.restype, declared.argtypes = restype, argtypes
    return library


library = _load()


class Failure(NamedTuple):
    """What a dl_error says."""

    message: str
    errno: int | None
    sqlstate: str | None
    retriable: bool


# The status, and what the library has to say about a failure.
Outcome = tuple[int, "Failure | None"]


def _call(function: Callable[..., Any], *arguments: object) -> Outcome:
    """Makes a call whose last argument receives an error."""
    error = c_void_p()
    status: int = function(*arguments, byref(error))
    return status, _failure(error)


def _failure(error: c_void_p) -> Failure | None:
    """What a dl_error says, which is freed."""
    if not error:
        return None
    try:
        return Failure(
            library.dl_error_message(error).decode("utf-8", "replace"),
            library.dl_error_server_errno(error) or None,
            library.dl_error_sqlstate(error).decode("ascii", "replace") or None,
            bool(library.dl_error_is_retriable(error)),
        )
    finally:
        library.dl_error_free(error)


def version() -> str:
    """The library's version."""
    text: bytes = library.dl_version()
    return text.decode()


class _Handle:
    """A pointer, freed with this object at the latest. Made before the call
    that fills it, so that no exception can come between and leak it."""

    def __init__(self, free: Callable[[c_void_p], None], at_exit: bool = False) -> None:
        self.pointer = c_void_p()
        self._finalizer = weakref.finalize(self, _free, self.pointer, free, os.getpid())
        self._finalizer.atexit = at_exit


def _free(pointer: c_void_p, free: Callable[[c_void_p], None], process: int) -> None:
    # In a forked child the pointer is the parent's.
    if pointer and os.getpid() == process:
        free(pointer)
        pointer.value = None


class Cancel(_Handle):
    """A dl_cancel."""

    def __init__(self) -> None:
        super().__init__(library.dl_cancel_free)
        self.pointer.value = library.dl_cancel_new()

    def fire(self) -> None:
        library.dl_cancel_fire(self.pointer)


class _Calls:
    """The calls under way in one client, which must not be freed while a
    thread is about to enter it.

    No mutex here, but single steps on a set and a flag: a mutex that another
    thread held during a fork would stay held in the child for ever.
    """

    def __init__(self) -> None:
        self.closed = False
        self.under_way: set[Cancel] = set()

    def close(self, client: c_void_p) -> None:
        self.closed = True
        for call in list(self.under_way):
            call.fire()
        # Acquires return at once. A ping need not: after this long it is far
        # inside the library, which ends it.
        give_up = time.monotonic() + 0.2
        while self.under_way and time.monotonic() < give_up:
            time.sleep(0.001)
        library.dl_client_close(client)


class Client(_Handle):
    """A dl_client. Closed at exit."""

    def __init__(self) -> None:
        self._calls = _Calls()
        super().__init__(self._calls.close, at_exit=True)

    def open(self, url: bytes, options: ClientOptions) -> Outcome:
        return _call(library.dl_client_open, url, byref(options), byref(self.pointer))

    def close(self) -> None:
        self._finalizer()

    def ping(self, timeout_ms: int) -> Outcome:
        return self._enter(Cancel(), library.dl_client_ping, timeout_ms)

    def acquire(self, grant: Grant, cancel: Cancel, key: bytes, options: AcquireOptions) -> Outcome:
        """Fills the grant on success."""
        options.cancel = cancel.pointer
        return grant.fill(
            lambda: self._enter(cancel, library.dl_acquire, key, byref(options), byref(grant.pointer))
        )

    def begin_acquire(
        self, tag: int, cancel: Cancel, key: bytes, options: AcquireOptions
    ) -> Outcome:
        """Begins an acquire, whose outcome comes as an event with this tag.
        `cancel` has to live until then."""
        options.cancel = cancel.pointer
        return self._enter(Cancel(), library.dl_acquire_async, key, byref(options), tag)

    def next_event(self) -> tuple[int, Grant | None, Outcome] | None:
        """The tag, the grant (empty on failure; None where the event is the loss of
        the tag's grant), and how it ended; None if no event waits."""
        event, call = Event(), Cancel()
        calls = self._calls
        calls.under_way.add(call)
        try:
            if calls.closed or library.dl_client_next_event(self.pointer, 0, byref(event)) != OK:
                return None
        finally:
            calls.under_way.discard(call)
        if event.type == EVENT_LOST:
            return event.tag, None, (event.status, None)
        grant = Grant()
        grant.pointer.value = event.lock
        return event.tag, grant, (event.status, _failure(c_void_p(event.error)))

    def peek(self, key: bytes, kind: int, holder: Holder) -> Outcome:
        return self._enter(Cancel(), library.dl_peek, key, kind, byref(holder))

    def force_release(self, key: bytes, kind: int) -> Outcome:
        return self._enter(Cancel(), library.dl_force_release, key, kind)

    def event_fd(self) -> int:
        """Readable while events wait; -1 where there is none to have."""
        return -1 if self._calls.closed else int(library.dl_client_event_fd(self.pointer))

    def stats(self) -> dict[str, int]:
        counters = Stats()
        if not self._calls.closed:
            library.dl_client_stats(self.pointer, byref(counters))
        return counters.as_dict()

    def _enter(self, cancel: Cancel, function: Callable[..., Any], *arguments: object) -> Outcome:
        calls = self._calls
        calls.under_way.add(cancel)
        try:
            # Looked at after the entry: whoever closes sees either of the two.
            if not calls.closed:
                status, failure = _call(function, self.pointer, *arguments)
                if status != CANCELLED or not calls.closed:
                    return status, failure
            return CLOSED, Failure("the client is closed", None, None, False)
        finally:
            calls.under_way.discard(cancel)


class Grant(_Handle):
    """A dl_lock, or the place for one."""

    def __init__(self) -> None:
        super().__init__(_collect)
        self._filling = self._abandoned = False

    def fill(self, call: Callable[[], Outcome]) -> Outcome:
        self._filling = True
        try:
            if self._abandoned:
                return CANCELLED, None
            return call()
        finally:
            self._filling = False
            if self._abandoned:
                self.abandon()

    def abandon(self) -> None:
        """Gives it up, also while another thread is filling it: then that
        thread does. Each sets its flag before it looks at the other's."""
        self._abandoned = True
        if not self._filling and self._finalizer.detach():
            library.dl_lock_free(self.pointer)
            self.pointer.value = None

    def renew(self, ttl_ms: int) -> Outcome:
        return _call(library.dl_renew, self.pointer, ttl_ms)

    def release(self) -> Outcome:
        return _call(library.dl_release, self.pointer)

    def wait_lost(self, timeout_ms: int) -> bool | None:
        """True: lost; False: not in that time; None: released."""
        status = library.dl_lock_wait_lost(self.pointer, timeout_ms)
        return {OK: True, TIMED_OUT: False}.get(status)

    def guard_sql(self) -> tuple[str, Outcome]:
        length = c_size_t()
        library.dl_lock_guard_sql(self.pointer, None, 0, byref(length), None)
        text = ctypes.create_string_buffer(length.value + 1)
        outcome = _call(library.dl_lock_guard_sql, self.pointer, text, len(text), byref(length))
        return text.value.decode(), outcome

    def token(self) -> int:
        return int(library.dl_lock_token(self.pointer))

    def remaining_ms(self) -> int:
        return int(library.dl_lock_remaining_ms(self.pointer))

    def held(self) -> bool:
        return bool(library.dl_lock_state(self.pointer) == OK)

    def lost_cause(self) -> str | None:
        cause = library.dl_lock_lost_cause(self.pointer)
        return LOST_CAUSES.get(cause, f"cause {cause}") if cause else None


def _collect(lock: c_void_p) -> None:
    """Frees a lock that nobody can reach any more."""
    held = library.dl_lock_state(lock) == OK
    key = library.dl_lock_key(lock)
    library.dl_lock_free(lock)
    if held:
        text = f"dlease: nobody released lock {key!r}, which is released now that it was collected"
        warnings.warn(text, ResourceWarning, stacklevel=2)
