"""What happens between acquire and release: renewal, loss, the guard, and what an
operator may do."""

from __future__ import annotations

import asyncio
import gc
import importlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import dlease
import pytest
from dlease import aio
from support import is_free, sql

Connect = Callable[..., Any]


def test_a_lease_is_renewed_until_it_is_released(client: dlease.Client, other: dlease.Client, key: str) -> None:
    lock = client.lock(key, ttl=0.4)
    with lock:
        token = lock.token
        for _ in range(15):
            time.sleep(0.1)
            assert lock.locked() and lock.token == token
        assert not is_free(other, key)
        assert not lock.lost.wait(0)
    assert is_free(other, key)
    assert client.stats()["renewals"] >= 5


def test_one_that_is_renewed_by_hand_is_lost_without_it(client: dlease.Client, key: str) -> None:
    lock = client.lock(key, ttl=0.3, renew=False)
    lock.acquire()
    begin = time.monotonic()
    assert lock.lost.wait(10) is True
    assert 0.2 < time.monotonic() - begin < 2
    assert lock.lost.cause == "expired"
    with pytest.raises(dlease.LockLost):
        lock.release()


def test_max_hold_ends_renewal(client: dlease.Client, key: str) -> None:
    lock = client.lock(key, ttl=0.3, max_hold=0.8)
    lock.acquire()
    begin = time.monotonic()
    assert lock.lost.wait(10) is True
    assert 0.6 < time.monotonic() - begin < 2
    assert lock.lost.cause == "max_hold"


def test_a_forgotten_lock_is_renewed_no_more(client: dlease.Client, other: dlease.Client, key: str) -> None:
    lock = client.lock(key, ttl=1)
    lock.acquire()
    with pytest.warns(ResourceWarning, match=key):
        del lock
        gc.collect()
    assert is_free(other, key, within=5)


def test_waiting_for_a_loss_ends_by_its_time_and_by_a_release(client: dlease.Client, key: str) -> None:
    lock = client.lock(key)
    assert lock.lost.wait(0.1) is False  # nothing is held
    lock.acquire()
    begin = time.monotonic()
    assert lock.lost.wait(0.3) is False
    assert 0.3 <= time.monotonic() - begin < 1.5
    answers: list[bool] = []
    waiter = threading.Thread(target=lambda lost=lock.lost: answers.append(lost.wait()))
    waiter.start()
    time.sleep(0.1)
    lock.release()
    waiter.join(5)
    assert answers == [False]
    for bad in (-1, float("nan"), float("inf")):
        with pytest.raises(dlease.InvalidArgument):
            lock.lost.wait(bad)


def test_ctrl_c_ends_a_wait_for_a_loss(client: dlease.Client, key: str) -> None:
    lock = client.lock(key)
    lock.acquire()
    handler = signal.signal(signal.SIGALRM, lambda *_: 1 / 0)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        begin = time.monotonic()
        with pytest.raises(ZeroDivisionError):
            lock.lost.wait(10)
        assert time.monotonic() - begin < 2
    finally:
        signal.signal(signal.SIGALRM, handler)
    lock.release()


def test_peek_and_force(url: str, client: dlease.Client, key: str) -> None:
    with dlease.Client(url, application="night job") as holder:
        assert client.peek(key) is None
        assert client.force_release(key) is False
        lock = holder.lock(key, ttl=3, owner="me", note="page Ada €")
        lock.acquire()
        found = client.peek(key.encode())
        assert found is not None
        assert found.token == lock.token and found.owner == b"me"
        assert found.note == "page Ada €".encode() and found.application == b"night job"
        assert 0 < found.remaining <= 3 and found.ttl == 3 and found.held < 3
        assert found.holds == 1 and found.pid > 0 and found.host
        assert client.force_release(key) is True
        assert lock.lost.wait(5) is True
        assert lock.lost.cause == "forced"
        with pytest.raises(dlease.LockLost, match="forced"):
            lock.release()
        assert client.peek(key) is None
    with pytest.raises(dlease.Unsupported):
        client.peek(key, "row")
    with pytest.raises(dlease.InvalidArgument):
        client.force_release("")


def test_a_task_waits_for_a_loss_without_a_thread(url: str, client: dlease.Client, key: str) -> None:
    async def main() -> None:
        async with aio.Client(url) as tasks:
            lock = tasks.lock(key, ttl=2)
            assert await lock.lost.wait(0.1) is False
            async with tasks.lock(key + "-other"):
                pass
            assert await lock.acquire()
            assert await lock.lost.wait(0.2) is False
            waits = [asyncio.create_task(lock.lost.wait()) for _ in range(3)]
            await asyncio.sleep(0)
            holder = await tasks.peek(key)
            assert holder is not None and holder.token == lock.token
            assert await tasks.force_release(key)
            begin = time.monotonic()
            assert await asyncio.gather(*waits) == [True] * 3
            assert time.monotonic() - begin < 3
            assert lock.lost.is_set() and lock.lost.cause == "forced"
            with pytest.raises(dlease.LockLost):
                await lock.release()
            # And one that is lost with its client.
            other = tasks.lock(key + "-closed")
            await other.acquire()
            closed = asyncio.create_task(other.lost.wait())
            await asyncio.sleep(0.05)
        assert await asyncio.wait_for(closed, 3) is True
        assert other.lost.cause == "closed"

    asyncio.run(main())


# The guard, on every driver.


DRIVERS = ["pymysql", "MySQLdb", "mysql.connector"]


@pytest.fixture(params=DRIVERS)
def connect(request: pytest.FixtureRequest, url: str) -> Iterator[Connect]:
    driver = importlib.import_module(request.param)
    parts = urlsplit(url)
    opened = []

    def open_one(autocommit: bool = False) -> Any:
        connection = driver.connect(
            host=parts.hostname, port=parts.port, user=parts.username, password=parts.password,
            database=parts.path[1:], autocommit=autocommit,
        )  # fmt: skip
        opened.append(connection)
        return connection

    yield open_one
    for connection in opened:
        connection.close()


def test_the_guard_passes_for_the_last_grant_alone(connect: Connect, client: dlease.Client, other: dlease.Client, key: str) -> None:
    connection = connect()
    lock = client.lock(key, ttl=5)
    with lock, closing(connection.cursor()) as cursor:
        assert "LOCK IN SHARE MODE" in lock.guard_sql()
        lock.guard(cursor)
        lock.guard(connection)
        connection.commit()
        # It blocks the next grant, and nothing of this one's.
        lock.guard(cursor)
        assert other.force_release(key + "-other") is False
        lock.renew()
    assert not other.lock(key).acquire(blocking=False)
    connection.commit()
    later = other.lock(key, ttl=5)
    with later, closing(connection.cursor()) as cursor:
        later.guard(cursor)
        connection.rollback()
        token = later.token
        sql_of_later = later.guard_sql()
        assert str(token) in sql_of_later
    with pytest.raises(dlease.NotHeld):
        later.guard(connection)


def test_the_guard_tells_a_loss(connect: Connect, client: dlease.Client, other: dlease.Client, key: str) -> None:
    connection = connect()
    lock = client.lock(key, ttl=20)
    lock.acquire()
    other.force_release(key)
    with pytest.raises(dlease.LockLost):
        lock.guard(connection)
    connection.rollback()
    with pytest.raises(dlease.LockLost):
        lock.release()


def test_the_guard_refuses_where_no_transaction_is_open(connect: Connect, client: dlease.Client, key: str) -> None:
    connection = connect(autocommit=True)
    with client.lock(key) as lock, closing(connection.cursor()) as cursor:
        with pytest.raises(dlease.InvalidArgument, match="transaction"):
            lock.guard(cursor)
        cursor.execute("BEGIN")
        lock.guard(cursor)
        cursor.execute("COMMIT")
        with pytest.raises(dlease.InvalidArgument):
            lock.guard(connection)


def test_what_a_late_holder_writes_cannot_land(connect: Connect, url: str, client: dlease.Client, other: dlease.Client, key: str) -> None:
    """The holder is late in the middle of its transaction's work: the next one waits
    for it. Late before its transaction: it cannot begin."""
    sql(url, "CREATE TABLE IF NOT EXISTS py_guarded (id INT PRIMARY KEY, by_token BIGINT)")
    sql(url, "REPLACE INTO py_guarded VALUES (1, 0)")
    connection = connect()
    late = client.lock(key, ttl=0.3, renew=False)
    late.acquire()
    text = late.guard_sql()
    time.sleep(0.5)
    with other.lock(key, wait=5):
        with closing(connection.cursor()) as cursor:
            cursor.execute(text)
            assert cursor.fetchone() is None
        connection.rollback()
    with pytest.raises(dlease.LockLost):
        late.guard(connection)
