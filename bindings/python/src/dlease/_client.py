"""The client: opens and closes the library's, and makes locks.

Must not know ctypes, nor what a lock does with its grants.
"""

from __future__ import annotations

from types import TracebackType
from typing import Generic, Literal, NamedTuple, TypeVar

from . import _arguments, _ffi
from ._errors import Status, error_for
from ._lock import BaseLock, Lock

L = TypeVar("L", bound=BaseLock)
Kind = Literal["lease", "row", "named"]


class Holder(NamedTuple):
    """Who holds a lock. For people: by the time that it is read it may be over."""

    token: int
    """The fencing token of the grant."""
    remaining: float
    """The seconds that are left of the lease."""
    held: float
    """The seconds for which it has been held."""
    ttl: float
    """The seconds that the lease lasts."""
    holds: int
    """How many hold it: several of one owner, perhaps."""
    owner: bytes
    """The owner text; b"" where the caller gave none."""
    application: bytes
    """The holder's program, as it named itself."""
    host: bytes
    """Its machine."""
    pid: int
    """Its process there."""
    note: bytes
    """Its note."""


class BaseClient(Generic[L]):
    """What clients for threads and clients for tasks have in common: how they
    are opened, what locks they make, and all that needs no network."""

    _lock_type: type[L]

    def __init__(
        self,
        url: str,
        *,
        application: str | bytes | None = None,
        namespace: str | bytes | None = None,
        table_prefix: str | bytes | None = None,
        max_connections: int | None = None,
        max_waiting_connections: int | None = None,
        connect_timeout: float | None = None,
        io_timeout: float | None = None,
        default_ttl: float | None = None,
        create_schema: bool | None = None,
    ) -> None:
        options = _ffi.ClientOptions(
            application=_arguments.optional_text("application", application),
            name_space=_arguments.optional_text("namespace", namespace),
            table_prefix=_arguments.optional_text("table_prefix", table_prefix),
            max_connections=_arguments.optional_count("max_connections", max_connections),
            max_waiting_connections=_arguments.optional_count(
                "max_waiting_connections", max_waiting_connections
            ),
            connect_timeout_ms=_arguments.optional_millis("connect_timeout", connect_timeout),
            io_timeout_ms=_arguments.optional_millis("io_timeout", io_timeout),
            default_ttl_ms=_arguments.optional_millis("default_ttl", default_ttl),
            create_schema=0 if create_schema is None else 1 if create_schema else 2,
        )
        self._handle = _ffi.Client()
        status, failure = self._handle.open(_arguments.text("url", url), options)
        if status != _ffi.OK:
            raise error_for(status, failure, "the client could not be opened")
        self._opened()

    def _opened(self) -> None:
        """What else a client has, once it is open."""

    def lock(
        self,
        key: str | bytes,
        *,
        wait: float | None = None,
        ttl: float | None = None,
        kind: Kind = "lease",
        renew: bool = True,
        owner: str | bytes | None = None,
        note: str | bytes | None = None,
        max_hold: float | None = None,
        fair: bool = True,
    ) -> L:
        """A lock that is not acquired yet.

        `key`: the lock's name: 1 to 255 bytes, any but NUL, compared byte for
        byte; a str means its UTF-8.
        `wait`: the seconds that a `with` block waits: None for ever, 0 makes
        one try. (`Lock.acquire` goes by its own arguments, as threading.Lock's.)
        `ttl`: the seconds that the lease lasts, 0.01 to 366 days; None is the
        client's default.
        `kind`: "lease", a row with an expiry. "row" and "named" are not
        supported yet.
        `renew`: False for a lease that only `Lock.renew` renews; else the library
        does, for as long as it is held.
        `owner`: 1 to 255 bytes: an acquire of the same key by the same owner
        shares the grant. Each is released once, the last release frees the
        key, and a loss ends all. None: every acquire is its own owner.
        `note`: for people who look at the table; at most 255 bytes.
        `max_hold`: the seconds for which the library renews the lease at most: then
        it ends, and the lock is lost by "max_hold". None: for ever.
        `fair`: False to take the lock if it is free, though others wait for it
        already. (One try always does.) Those who wait are served first come,
        first served.

        Raises InvalidArgument for a time that is NaN, infinite, negative or (but
        for wait) 0, for a text with a NUL or a lone surrogate, and for an
        unknown kind; TypeError for an argument of another type. What else can
        be wrong with an argument is told by the acquire.

        Does not block. Any thread. After fork: works, but what it returns
        cannot be acquired.
        """
        flags = (0 if renew else _ffi.MANUAL_RENEW) | (0 if fair else _ffi.UNFAIR)
        return self._lock_type(
            self,
            _arguments.text("key", key),
            _arguments.wait_millis("wait", wait),
            {
                "ttl_ms": _arguments.optional_millis("ttl", ttl),
                "max_hold_ms": _arguments.optional_millis("max_hold", max_hold),
                "owner": _arguments.optional_text("owner", owner),
                "note": _arguments.optional_text("note", note),
                "kind": _arguments.kind(kind),
                "flags": flags,
            },
        )

    def stats(self) -> dict[str, int]:
        """Counters of what this client did since it was opened ("grants",
        "waits", "hand_overs", "lost_expired", …), and what it has open now
        ("waiting", "connections", "waiting_connections"): dl_stats of dlease.h
        says what each one means. All 0 once it is closed.

        Raises nothing. Does not block. Any thread. After fork: all 0.
        """
        return self._handle.stats()

    def _peek(self, key: str | bytes, kind: Kind) -> Holder | None:
        found = _ffi.Holder()
        arguments = _arguments.text("key", key), _arguments.kind(kind)
        status, failure = self._handle.peek(*arguments, found)
        if status == Status.NOT_HELD:
            return None
        if status != _ffi.OK:
            raise error_for(status, failure, "the peek was ended")
        return Holder(
            token=found.token,
            remaining=found.remaining_ms / 1000,
            held=found.held_ms / 1000,
            ttl=found.ttl_ms / 1000,
            holds=found.holds,
            owner=found.owner,
            application=found.application,
            host=found.host,
            pid=found.pid,
            note=found.note,
        )

    def _force_release(self, key: str | bytes, kind: Kind) -> bool:
        arguments = _arguments.text("key", key), _arguments.kind(kind)
        status, failure = self._handle.force_release(*arguments)
        if status not in (_ffi.OK, Status.NOT_HELD):
            raise error_for(status, failure, "the forced release was ended")
        return status == _ffi.OK

    def _ping(self, timeout: float) -> None:
        status, failure = self._handle.ping(_arguments.millis("timeout", timeout))
        if status != _ffi.OK:
            raise error_for(status, failure, "the ping was ended")


class Client(BaseClient[Lock]):
    """A client of one database: connections, and whatever is acquired through
    them. One for a process is enough.

    Opening it talks to no server: a wrong address, password or schema shows at
    the first call that needs the server. A `with` block closes it; otherwise
    `close`, the garbage collector or the end of the interpreter does.

    `url`: mysql://user:password@host:port,host2:port2/database?option=value,
    with percent-encoding. Several hosts: the first that can be reached and
    takes writes. Options: those below by their names, and fairness_ms,
    socket=/path, tls=off|preferred|required|verify_ca|verify_identity,
    tls_ca=FILE. Times in a URL are in milliseconds and end in _ms.

    Arguments win over the URL; None leaves it to the URL or the default:

    `application`: the program's name, for people who look at the table; at
    most 64 bytes.
    `namespace`: keys of different namespaces are different locks; at most 64
    bytes; "".
    `table_prefix`: what the tables' names begin with; at most 50 bytes; "dl_".
    `max_connections`: the most connections at a time, 1 to 10000; 8.
    `max_waiting_connections`: the most connections that wait for a lock, apart
    from those, one for each key that is waited for; 8. Beyond them rows are looked
    at now and then, order is not kept, and who waits so may wait for as long as
    others queue.
    `connect_timeout`: seconds that a connect, and each step of a log-in, may
    take; 5.
    `io_timeout`: seconds that one reply is waited for; 5.
    `default_ttl`: seconds that a lease lasts if its lock names no ttl; 0.01 to
    366 days; 30.
    `create_schema`: whether missing tables are made; True.

    Raises InvalidArgument for a URL or an argument that cannot be, TypeError
    for one of another type.

    Opening does not block. All methods may be called from any threads at the
    same time. In a forked child they raise Forked; a child may open a client
    of its own.
    """

    _lock_type = Lock

    def ping(self, timeout: float = 5.0) -> None:
        """Makes one round trip to the server, within `timeout` seconds.

        Raises Unavailable if the server was not reached in time; ConfigError if
        it does not let us in, is too old, or its tables are not ours;
        ServerError, Closed, Forked, InternalError; InvalidArgument for a
        timeout that is 0, negative, NaN or infinite.

        Blocks up to the timeout. Any thread. After fork: Forked.
        """
        self._ping(timeout)

    def peek(self, key: str | bytes, kind: Kind = "lease") -> Holder | None:
        """Who holds the lock of this key; None if nobody does.

        Raises InvalidArgument, TypeError, Unavailable, ServerError, ConfigError,
        Unsupported, Closed, Forked, InternalError.

        Blocks for a round trip, io_timeout at the most. Any thread. After fork:
        Forked.
        """
        return self._peek(key, kind)

    def force_release(self, key: str | bytes, kind: Kind = "lease") -> bool:
        """Releases the lock of this key, whoever holds it: True if somebody did.
        Its token is no longer valid, no guard with it passes, and its holder is told
        at its next renewal at the latest, with the cause "forced". An open guard of
        the holder's is waited for.

        Raises as `peek`.

        Blocks for a few round trips, io_timeout at the most. Any thread. After fork:
        Forked.
        """
        return self._force_release(key, kind)

    def close(self) -> None:
        """Releases what is held through this client, ends its calls with
        Closed, and takes its connections down. Its locks are lost from then on,
        with the cause "closed". May be called again, which does nothing.

        Raises nothing. Blocks up to 2 s, of which a server that answers takes a
        few milliseconds. Any thread. After fork: does nothing.
        """
        self._handle.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
