"""A release, renewal or try that does not reach the server."""

from __future__ import annotations

import time

import dlease
import pytest
from support import is_free


@pytest.fixture
def slow(proxy):
    with dlease.Client(proxy.url, io_timeout=0.5, connect_timeout=0.5) as client:
        yield client


def test_a_failed_release_can_be_tried_again(slow, proxy, other, key):
    lock = slow.lock(key, ttl=30, renew=False)
    lock.acquire()
    token = lock.token
    proxy.silence()
    for _ in range(2):
        begin = time.monotonic()
        with pytest.raises(dlease.Unavailable) as caught:
            lock.release()
        assert time.monotonic() - begin < 1
        assert caught.value.retriable
        assert lock.token == token
    assert not is_free(other, key)
    proxy.speak()
    deadline = time.monotonic() + 5
    while True:
        try:
            lock.release()
            break
        except dlease.Unavailable:
            assert time.monotonic() < deadline
    assert is_free(other, key)
    with pytest.raises(dlease.NotHeld):
        lock.release()


def test_a_with_block_tells_of_a_failed_release(slow, proxy, key):
    lock = slow.lock(key, ttl=5)
    with pytest.raises(dlease.Unavailable):
        with lock:
            proxy.silence()
    with pytest.raises(KeyError) as caught:
        proxy.speak()
        lock.acquire(timeout=10)
        with slow.lock(f"{key} 2", wait=10):
            proxy.silence()
            raise KeyError("the body's")
    if hasattr(caught.value, "__notes__"):
        assert "Unavailable" in caught.value.__notes__[0]
    proxy.speak()


def test_a_failed_renewal_leaves_the_lease_as_it_was(slow, proxy, key):
    lock = slow.lock(key, ttl=2, renew=False)
    lock.acquire()
    proxy.silence()
    begin = time.monotonic()
    with pytest.raises(dlease.Unavailable):
        lock.renew()
    assert time.monotonic() - begin < 1
    assert lock.locked() and 0 < lock.remaining() < 2
    # Cut off for good: it is told by the lease's end, without the network.
    time.sleep(lock.remaining())
    assert not lock.locked()
    assert lock.lost.cause in ("unreachable", "expired")
    with pytest.raises(dlease.LockLost):
        lock.renew()
    proxy.speak()


def test_a_try_on_a_silent_server_is_bounded(slow, proxy, key):
    proxy.silence()
    for call in [lambda: slow.lock(key).acquire(blocking=False), lambda: slow.lock(key).acquire(timeout=0.7)]:
        begin = time.monotonic()
        with pytest.raises(dlease.Unavailable):
            call()
        assert time.monotonic() - begin < 1
    proxy.speak()
