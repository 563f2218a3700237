"""One Lock object shared by threads and asyncio tasks: whose release is whose."""

from __future__ import annotations

import asyncio
import queue
import threading
import time

import dlease
import pytest
from support import is_free, run_thread


def test_a_late_release_in_another_thread_leaves_the_holder_alone(client, other, key):
    lock = client.lock(key, ttl=0.3, renew=False)
    taken_over, told = threading.Event(), threading.Event()
    seen = {}

    def late():
        lock.acquire()
        seen["late"] = lock.token
        time.sleep(0.4)
        assert taken_over.wait(5)
        # It reads and renews its own grant, not its successor's.
        assert lock.token == seen["late"]
        assert (lock.remaining(), lock.lost.cause) == (0.0, "expired")
        assert lock.locked()  # the object does hold it
        for call in (lock.renew, lock.release, lock.release):
            with pytest.raises(dlease.LockLost):
                call()
        told.set()

    def successor():
        time.sleep(0.1)
        lock.acquire()
        lock.renew(ttl=30)
        seen["successor"] = lock.token
        taken_over.set()
        assert told.wait(5)
        assert lock.locked() and lock.token == seen["successor"] > seen["late"]
        assert not is_free(other, key)
        lock.release()
        assert is_free(other, key)

    thread = threading.Thread(target=successor)
    thread.start()
    run_thread(late)
    thread.join()
    assert set(seen) == {"late", "successor"} and is_free(other, key)


def test_a_late_release_in_another_task_leaves_the_holder_alone(client, other, key):
    lock = client.lock(key, ttl=0.3, renew=False)

    async def late(taken_over):
        lock.acquire(blocking=False)
        token = lock.token
        await taken_over.wait()
        assert lock.token == token
        with pytest.raises(dlease.LockLost):
            lock.release()

    async def successor(taken_over):
        await asyncio.sleep(0.4)
        assert lock.acquire(blocking=False)
        lock.renew(ttl=30)
        taken_over.set()
        await asyncio.sleep(0.1)
        assert lock.locked() and not is_free(other, key)
        lock.release()

    async def both():
        taken_over = asyncio.Event()
        await asyncio.gather(late(taken_over), successor(taken_over))

    asyncio.run(both())
    assert is_free(other, key)


def test_a_lock_may_be_released_by_another_thread(client, other, key):
    lock = client.lock(key)
    run_thread(lock.acquire)
    assert lock.locked()
    token = lock.token
    seen = []

    def finish():
        seen.append(lock.token)
        lock.renew()
        lock.release()

    run_thread(finish)
    assert seen == [token]
    assert not lock.locked() and is_free(other, key)
    with pytest.raises(dlease.NotHeld):
        lock.release()


def test_whoever_handed_its_lock_over_has_none(client, key):
    lock = client.lock(key)
    lock.acquire()
    run_thread(lock.release)
    with pytest.raises(dlease.NotHeld):
        lock.release()
    assert lock.token is None


def test_a_lost_grant_is_told_to_whoever_releases_it(client, key):
    lock = client.lock(key, ttl=0.3, renew=False)
    run_thread(lock.acquire)
    time.sleep(0.35)
    with pytest.raises(dlease.LockLost):
        lock.release()


def test_threads_that_share_a_lock_exclude_each_other(client, key):
    lock = client.lock(key, ttl=20)
    inside, tokens, errors = [0], [], queue.Queue()

    def work():
        try:
            for _ in range(10):
                with lock:
                    inside[0] += 1
                    assert inside[0] == 1
                    tokens.append(lock.token)
                    inside[0] -= 1
        except BaseException as error:
            errors.put(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors.empty(), errors.get()
    assert len(tokens) == 40 and tokens == sorted(set(tokens))


def test_it_serves_as_the_lock_of_a_condition(client, key):
    condition = threading.Condition(client.lock(key))
    ready = []

    def tell():
        with condition:
            ready.append(True)
            condition.notify()

    thread = threading.Thread(target=tell)
    with condition:
        thread.start()
        assert condition.wait_for(lambda: ready, timeout=10)
    thread.join()
