"""Runs the guard on a caller's own connection, of whichever DB-API driver.

Must not know what the text says, nor locks: one row means that it holds.
"""

from __future__ import annotations

from typing import Any

from ._errors import InvalidArgument

_IN_TRANSACTION, _AUTOCOMMIT = 1, 2  # SERVER_STATUS_…, in a reply of the server's
_NO_SAVEPOINT = 1305


def guard(target: Any, text: str) -> bool:
    """Whether the guard found its row. `target` is a cursor or a connection."""
    if hasattr(target, "execute"):
        return _run(target, target.connection if hasattr(target, "connection") else target, text)
    cursor = target.cursor()
    try:
        return _run(cursor, target, text)
    finally:
        cursor.close()


def _run(cursor: Any, connection: Any, text: str) -> bool:
    cursor.execute(text)
    row = cursor.fetchone()
    if not _in_transaction(cursor, connection):
        raise InvalidArgument("the guard needs an open transaction on this connection: begin one first")
    return row is not None


def _in_transaction(cursor: Any, connection: Any) -> bool:
    """Whether a transaction is open, as the server told the driver."""
    status = getattr(connection, "server_status", None)
    if isinstance(status, int):
        # PyMySQL has it from the last reply without rows: a BEGIN's, if there was one.
        # Without autocommit the guard has begun a transaction by itself.
        return bool(status & _IN_TRANSACTION) or not status & _AUTOCOMMIT
    connection = getattr(cursor, "_connection", None) or getattr(cursor, "_cnx", None) or connection
    is_open = getattr(connection, "in_transaction", None)  # mysql-connector
    if isinstance(is_open, bool):
        return is_open
    # mysqlclient keeps the flag to itself. A savepoint outlives its statement in
    # a transaction alone.
    try:
        cursor.execute("SAVEPOINT dlease_guard")
        cursor.execute("RELEASE SAVEPOINT dlease_guard")
    except Exception as error:
        if error.args and error.args[0] == _NO_SAVEPOINT:
            return False
        raise
    return True
