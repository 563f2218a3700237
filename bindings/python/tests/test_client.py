"""A Client: opening, its options, pinging, closing; and the program that the
package's documentation shows."""

from __future__ import annotations

import gc
import textwrap
import threading
import time

import dlease
import pytest
from support import finish, is_free, sql


def test_the_program_in_the_documentation_runs(program, url):
    begin = dlease.__doc__.index("    import dlease")
    end = dlease.__doc__.index("\nA `Client`")
    text = textwrap.dedent(dlease.__doc__[begin:end])
    shown = 'url = "mysql://user:password@127.0.0.1/database"'
    assert shown in text
    out = finish(program(text.replace(shown, f"url = {url!r}")))
    assert out.startswith("working, fencing token ")


def test_opening_talks_to_no_server():
    client = dlease.Client("mysql://nobody:secret@127.0.0.1:1/nothing")
    with pytest.raises(dlease.Unavailable):
        client.ping(0.5)
    client.close()


def test_ping(client):
    assert client.ping() is None
    assert client.ping(timeout=1) is None


def test_options_show_where_they_should(url, key):
    with dlease.Client(
        url,
        application="nightly",
        namespace="n1",
        table_prefix="dl_",
        max_connections=2,
        max_waiting_connections=2,
        connect_timeout=2,
        io_timeout=2.5,
        default_ttl=7,
        create_schema=True,
    ) as client:
        with client.lock(key) as lock:
            assert 6 < lock.remaining() <= 7
            rows = sql(url, "SELECT namespace, application FROM dl_lock WHERE lock_key = %s", key)
            assert rows == ((b"n1", b"nightly"),)
            with dlease.Client(url, namespace=b"n2") as elsewhere:
                assert is_free(elsewhere, key)
            with dlease.Client(f"{url}?namespace=n1") as same:
                assert not is_free(same, key)


def test_tables_that_may_not_be_made_are_missing(url, key):
    with dlease.Client(url, table_prefix="not_there_", create_schema=False) as client:
        with pytest.raises(dlease.ConfigError):
            client.lock(key).acquire(timeout=10)


def test_closing_releases_what_is_held(url, other, key):
    client = dlease.Client(url)
    lock = client.lock(key)
    lock.acquire()
    begin = time.monotonic()
    client.close()
    assert time.monotonic() - begin < 2
    assert is_free(other, key)
    assert not lock.locked()
    assert (lock.lost.is_set(), lock.lost.cause) == (True, "closed")


def test_a_closed_client_says_so(url, key):
    with dlease.Client(url) as client:
        lock = client.lock(key)
        held = client.lock(f"{key} held")
        held.acquire()
    client.close()  # again
    for call in [client.ping, lock.acquire, client.lock("k").acquire, held.release, held.renew]:
        with pytest.raises(dlease.Closed):
            call()
    with pytest.raises(dlease.NotHeld):
        lock.release()


def test_closing_ends_calls_in_other_threads(url, other, key):
    client = dlease.Client(url)
    raised = []

    def wait():
        try:
            client.lock(key).acquire()
        except dlease.Error as error:
            raised.append(type(error))

    with other.lock(key):
        threads = [threading.Thread(target=wait) for _ in range(10)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        begin = time.monotonic()
        client.close()
        for thread in threads:
            thread.join(5)
        assert time.monotonic() - begin < 2
    assert raised == [dlease.Closed] * 10


def test_closing_while_a_server_is_silent_is_bounded(proxy, key):
    client = dlease.Client(proxy.url)
    lock = client.lock(key)
    lock.acquire()
    proxy.silence()
    pinger = threading.Thread(target=lambda: pytest.raises(dlease.Error, client.ping, 10))
    pinger.start()
    time.sleep(0.1)
    begin = time.monotonic()
    client.close()
    assert time.monotonic() - begin < 2.5
    pinger.join(2)
    assert not pinger.is_alive()
    assert lock.lost.cause == "closed"


def test_a_client_that_is_collected_is_closed(url, other, key):
    client = dlease.Client(url)
    lock = client.lock(key)
    lock.acquire()
    del client
    gc.collect()
    assert lock.locked()  # the lock keeps its client
    lock.release()
    del lock
    gc.collect()
    assert is_free(other, key)


def test_no_password_in_what_is_shown(url, key):
    client = dlease.Client("mysql://nobody:s3cret@127.0.0.1:1/nothing?connect_timeout_ms=500")
    with pytest.raises(dlease.Error) as caught:
        client.lock(key).acquire(timeout=0.3)
    for shown in [repr(client), str(caught.value), repr(caught.value), repr(client.lock(key))]:
        assert "s3cret" not in shown
    client.close()
    with pytest.raises(dlease.InvalidArgument) as caught:
        dlease.Client("mysql://nobody:s3cret@127.0.0.1:1/nothing?no_such_option=1")
    assert "s3cret" not in str(caught.value)
