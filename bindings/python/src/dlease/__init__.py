"""dlease: distributed leases on the MySQL or MariaDB that you already run.

    import dlease

    url = "mysql://user:password@127.0.0.1/database"

    with dlease.Client(url, application="nightly") as client:
        report = client.lock("report", wait=10, ttl=30)
        try:
            with report:
                # One holder in the whole cluster. The token is greater than
                # that of every earlier holder: put it into what you write.
                print("working, fencing token", report.token)
        except dlease.LockTimeout:
            print("somebody else is at it")
        except dlease.LockLost:
            print("the lease ran out before the work was done")

A `Client` is opened once for a process, and may be used by all of its threads.
`Client.lock` makes a `Lock`, which follows `threading.Lock`. For asyncio there
is `dlease.aio` (`from dlease import aio`), with the same names. All times are
seconds. Every exception is an `Error`.

The client belongs to the process that opened it. In a forked child every call
raises `Forked`, and nothing that the parent holds is touched; a child opens a
client of its own. With multiprocessing, "spawn" and "forkserver" avoid the
question.

This package holds no logic of its own: it calls the library `libdlease.so`,
which is looked for at DLEASE_LIBRARY, then beside this file, then where the
system's loader looks for `libdlease.so.0`.
"""

from . import _ffi
from ._client import Client, Holder
from ._errors import (
    Cancelled,
    Closed,
    ConfigError,
    Conflict,
    Error,
    Forked,
    InternalError,
    InvalidArgument,
    LockLost,
    LockTimeout,
    NotAcquired,
    NotHeld,
    ServerError,
    Status,
    Unavailable,
    Unsupported,
)
from ._lock import Lock, Lost

__version__ = _ffi.version()

__all__ = [
    "Cancelled",
    "Client",
    "Closed",
    "ConfigError",
    "Conflict",
    "Error",
    "Forked",
    "Holder",
    "InternalError",
    "InvalidArgument",
    "Lock",
    "LockLost",
    "LockTimeout",
    "Lost",
    "NotAcquired",
    "NotHeld",
    "ServerError",
    "Status",
    "Unavailable",
    "Unsupported",
]
