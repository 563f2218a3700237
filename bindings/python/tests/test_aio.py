"""dlease.aio: tasks wait without threads, in order, and leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Coroutine

import dlease
import pytest
from dlease import aio


def run(test: Callable[[], Coroutine[object, object, None]]) -> None:
    """Runs a coroutine function in a loop of its own, within 60 s."""
    asyncio.run(asyncio.wait_for(test(), 60))


async def waiting(client: aio.Client, count: int) -> None:
    give_up = time.monotonic() + 10
    while client.stats()["waiting"] != count:
        assert time.monotonic() < give_up
        await asyncio.sleep(0.01)


def test_a_lock_is_acquired_renewed_and_released(url: str, key: str) -> None:
    async def test() -> None:
        async with aio.Client(url) as client:
            lock = client.lock(key, wait=5, ttl=20)
            async with lock as same:
                assert same is lock and lock.locked() and (lock.token or 0) > 0
                assert 15 < lock.remaining() <= 20
                await lock.renew(30)
                assert lock.remaining() > 25
                assert await client.lock(key).acquire(blocking=False) is False
                with pytest.raises(dlease.NotAcquired):
                    async with client.lock(key, wait=0):
                        pass
                with pytest.raises(dlease.LockTimeout):
                    async with client.lock(key, wait=0.2):
                        pass
            assert not lock.locked()
            with pytest.raises(dlease.NotHeld):
                await lock.release()
            await client.ping()

    run(test)


def test_a_wait_ends_at_its_time(url: str, key: str) -> None:
    async def test() -> None:
        async with aio.Client(url) as client, client.lock(key):
            start = time.monotonic()
            assert await client.lock(key).acquire(timeout=0.4) is False
            assert 0.4 <= time.monotonic() - start < 2

    run(test)


def test_cancelling_a_task_leaves_nothing_held(url: str, key: str) -> None:
    async def test() -> None:
        async with aio.Client(url) as client, aio.Client(url) as other:
            for round in range(60):
                held = client.lock(key)
                if round % 2:
                    await held.acquire()
                asked = other.lock(key)
                task = asyncio.ensure_future(asked.acquire())
                await asyncio.sleep(round % 7 * 0.001)
                task.cancel()
                start = time.monotonic()
                granted = False
                try:
                    granted = await task
                except asyncio.CancelledError:
                    pass
                assert time.monotonic() - start < 1
                if round % 2:
                    assert not granted
                    await held.release()
                del task
                if granted:
                    await asked.release()
                # Whatever the task was granted unseen is given back.
                async with client.lock(key, wait=5):
                    pass
            assert other.stats()["waiting"] == 0

    run(test)


def test_a_thousand_tasks_wait_without_threads(url: str, key: str) -> None:
    async def test() -> None:
        async with aio.Client(url) as client:
            held = client.lock(key)
            await held.acquire()
            before = threading.active_count()
            order: list[int] = []

            async def work(number: int) -> None:
                async with client.lock(key, ttl=60):
                    order.append(number)

            tasks = [asyncio.ensure_future(work(number)) for number in range(1000)]
            await waiting(client, 1000)
            assert threading.active_count() == before
            with open("/proc/self/status") as status:
                (threads,) = [line for line in status if line.startswith("Threads:")]
            assert int(threads.split()[1]) < 64
            await held.release()
            await asyncio.gather(*tasks)
            assert order == list(range(1000))

    run(test)


def test_tasks_that_share_a_lock_touch_only_their_own_grants(url: str, key: str) -> None:
    async def test() -> None:
        async with aio.Client(url) as client:
            lock = client.lock(key, ttl=1, renew=False)
            late = asyncio.Event()

            async def slow() -> None:
                await lock.acquire()
                await late.wait()
                with pytest.raises(dlease.LockLost):
                    await lock.release()

            task = asyncio.ensure_future(slow())
            await asyncio.sleep(0.2)
            assert await lock.acquire(timeout=10)
            late.set()
            await task
            assert lock.locked()
            await lock.release()

    run(test)


def test_closing_ends_what_waits_with_closed(url: str, key: str) -> None:
    async def test() -> None:
        holder = aio.Client(url)
        client = aio.Client(url)
        held = holder.lock(key)
        await held.acquire()
        tasks = [asyncio.ensure_future(client.lock(key).acquire()) for _ in range(100)]
        await waiting(client, 100)
        await client.close()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(ended, dlease.Closed)
        with pytest.raises(dlease.Closed):
            await client.lock(key).acquire()
        await client.close()
        await holder.close()

    run(test)


def test_a_body_that_raises_keeps_its_exception(url: str, key: str) -> None:
    async def test() -> None:
        async with aio.Client(url) as client:
            with pytest.raises(ZeroDivisionError):
                async with client.lock(key):
                    1 / 0
            async with client.lock(key, wait=0):
                pass

    run(test)


def test_one_client_may_serve_one_loop_after_the_other(url: str, key: str) -> None:
    client = aio.Client(url)

    async def test() -> None:
        async with client.lock(key, wait=5):
            pass

    run(test)
    run(test)
    asyncio.run(client.close())


def test_what_cannot_be_asked_for_is_refused(url: str) -> None:
    async def test() -> None:
        async with aio.Client(url) as client:
            with pytest.raises(dlease.InvalidArgument):
                await client.lock("").acquire()
            with pytest.raises(dlease.InvalidArgument):
                client.lock("k", ttl=0)
            with pytest.raises(dlease.Unsupported):
                await client.lock("k", kind="row").acquire()

    run(test)


def test_ctrl_c_ends_a_loop_that_waits_and_leaves_nothing_held(url: str, key: str, program: Any) -> None:
    with dlease.Client(url) as client:
        held = client.lock(key, ttl=60)
        held.acquire()
        process = program(f"""
            import asyncio, signal, time
            from dlease import aio

            # Whoever started the tests may have had it ignored.
            signal.signal(signal.SIGINT, signal.default_int_handler)

            async def main():
                async with aio.Client({url!r}) as client:
                    print("waits", flush=True)
                    async with client.lock({key!r}, wait=60):
                        print("held", flush=True)

            try:
                asyncio.run(main())
            except KeyboardInterrupt:
                print("interrupted", time.monotonic(), flush=True)
            """)
        assert process.stdout.readline() == "waits\n"
        time.sleep(0.5)
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        said, when = process.stdout.readline().split()
        assert said == "interrupted" and float(when) - start < 1
        process.communicate(timeout=20)
        held.release()
        again = client.lock(key)
        assert again.acquire(blocking=False)
        again.release()


def test_an_acquire_that_races_with_closing_ends_with_closed(url: str, key: str) -> None:
    async def test() -> None:
        for _ in range(30):
            client = aio.Client(url)

            async def work(client: aio.Client, number: int) -> None:
                with pytest.raises(dlease.Closed):
                    while True:
                        async with client.lock(f"{key}-{number}"):
                            await asyncio.sleep(0)

            tasks = [asyncio.ensure_future(work(client, number)) for number in range(4)]
            await asyncio.sleep(0.02)
            await client.close()
            await asyncio.wait_for(asyncio.gather(*tasks), 10)

    run(test)


def test_a_forked_child_leaves_the_parents_loop_alone(url: str, key: str) -> None:
    async def test() -> None:
        async with aio.Client(url) as client, aio.Client(url) as other:
            held, asked = other.lock(key), client.lock(key)
            await held.acquire()
            waits = asyncio.ensure_future(asked.acquire(timeout=20))
            await waiting(client, 1)
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    asyncio.set_event_loop(None)
                    asyncio._set_running_loop(None)

                    async def use() -> None:
                        with pytest.raises(dlease.Forked):
                            await client.lock(key).acquire()
                        await client.close()

                    asyncio.run(use())
                    status = 0
                finally:
                    os._exit(status)
            assert os.waitpid(child, 0)[1] == 0
            await held.release()
            start = time.monotonic()
            assert await waits
            assert time.monotonic() - start < 2
            await asked.release()

    run(test)


def test_a_loop_that_was_closed_under_a_waiting_task_costs_nobody_the_lock(url: str, key: str) -> None:
    client, holder = aio.Client(url), dlease.Client(url)
    held = holder.lock(key)
    held.acquire()
    abandoned = asyncio.new_event_loop()
    asked = client.lock(key)
    task = abandoned.create_task(asked.acquire())
    abandoned.run_until_complete(asyncio.sleep(0.2))
    abandoned.close()

    async def test() -> None:
        async with client.lock(f"{key}-other", wait=5):
            pass
        held.release()
        async with client.lock(key, wait=5):
            pass
        await client.close()

    run(test)
    holder.close()
    task.get_coro().close()


def test_a_busy_executor_of_the_loop_delays_no_release(url: str, key: str) -> None:
    async def test() -> None:
        async with aio.Client(url) as client:
            loop = asyncio.get_running_loop()
            loop.set_default_executor(ThreadPoolExecutor(1))
            busy = loop.run_in_executor(None, time.sleep, 2)
            start = time.monotonic()
            async with client.lock(key) as lock:
                await lock.renew()
            assert time.monotonic() - start < 1
            await busy

    run(test)


def test_a_failed_release_can_be_tried_again_after_a_renewal(proxy: Any, key: str) -> None:
    async def test() -> None:
        async with aio.Client(proxy.url, io_timeout=0.5) as client:
            lock = client.lock(key, ttl=60)
            await lock.acquire()
            proxy.silence()
            with pytest.raises(dlease.Unavailable):
                await lock.release()
            with pytest.raises(dlease.NotHeld):
                await lock.renew()
            proxy.speak()
            await lock.release()

    run(test)
