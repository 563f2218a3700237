"""Waiting: for how long, beside other threads, and until Ctrl-C."""

from __future__ import annotations

import random
import signal
import threading
import time

import dlease
import pytest
from support import finish, is_free


class Interrupt(Exception):
    """What the tests' signal handler raises."""


@pytest.fixture
def alarm():
    """Makes SIGALRM raise, as SIGINT does."""

    def interrupt(*_):
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_none_and_minus_one_wait_for_ever(client, other, key):
    for wait in [dlease.Lock.acquire, lambda lock: lock.acquire(timeout=-1), dlease.Lock.__enter__]:
        holder = other.lock(key)
        holder.acquire()
        release = threading.Timer(0.6, holder.release)
        release.start()
        begin = time.monotonic()
        lock = client.lock(key, wait=None)
        assert wait(lock)
        assert 0.5 < time.monotonic() - begin < 2
        lock.release()
        release.join()
    with pytest.raises(dlease.InvalidArgument):
        client.lock(key, wait=-1)


def test_other_threads_run_while_one_waits(client, other, key):
    def counted(seconds):
        count, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            count += 1
        return count

    alone = counted(0.5)
    with other.lock(key):
        waiter = threading.Thread(target=lambda: client.lock(key).acquire(timeout=2))
        waiter.start()
        beside = counted(0.5)
        assert waiter.is_alive()
        waiter.join()
    # A held GIL would leave nearly none; a busy machine leaves half.
    assert beside > alone / 5


def test_waiting_threads_do_not_wait_for_each_other(client, other, key):
    got = []

    def wait():
        got.append(client.lock(key).acquire(timeout=1))

    with other.lock(key):
        begin = time.monotonic()
        threads = [threading.Thread(target=wait) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert 0.9 < time.monotonic() - begin < 2.5
    assert got == [False] * 20


HELD = """
    import signal, sys, time
    import dlease

    signal.signal(signal.SIGINT, signal.default_int_handler)  # make may run us with it ignored
    client = dlease.Client(sys.argv[1])
    lock = client.lock(sys.argv[2], wait=60)
    """


@pytest.mark.parametrize("waiting", ["lock.acquire(timeout=60)", "lock.acquire()", "lock.__enter__()"])
def test_ctrl_c_ends_a_wait_of_the_main_thread(program, url, client, key, waiting):
    text = HELD + f"""
    try:
        print("waiting", flush=True)
        {waiting}
    except KeyboardInterrupt:
        print(time.monotonic(), lock.locked(), lock.token, flush=True)
    sys.stdin.readline()
    with lock:  # usable after that
        print("held", flush=True)
    """
    with client.lock(key):
        process = program(text, url, key)
        assert process.stdout.readline() == "waiting\n"
        time.sleep(0.4)
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        told, locked, token = process.stdout.readline().split()
        assert float(told) - sent < 0.5  # 0.1 on a machine that does nothing else
        assert (locked, token) == ("False", "None")
    # A statement that was on its way may be granted still, and is undone.
    assert is_free(client, key, within=2)
    process.stdin.write("\n")
    process.stdin.flush()
    assert finish(process) == "held\n"
    assert is_free(client, key)


def test_ctrl_c_inside_of_a_block_releases(program, url, client, key):
    text = HELD + """
    try:
        with lock:
            print("held", flush=True)
            time.sleep(60)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    """
    process = program(text, url, key)
    assert process.stdout.readline() == "held\n"
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert finish(process) == "interrupted\n"
    assert time.monotonic() - sent < 1.5
    assert is_free(client, key)


def test_ctrl_c_while_other_threads_wait(program, url, client, key):
    # They are not interrupted; closing the client ends them.
    text = HELD + """
    import threading

    def wait():
        try:
            lock.acquire()
        except dlease.Closed:
            print("closed", flush=True)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        print("waiting", flush=True)
        lock.acquire()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    client.close()
    thread.join()
    """
    with client.lock(key):
        process = program(text, url, key)
        assert process.stdout.readline() == "waiting\n"
        time.sleep(0.4)
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert finish(process) == "interrupted\nclosed\n"
        assert time.monotonic() - sent < 1.5


def test_a_handler_that_returns_lets_the_wait_go_on(client, other, key):
    calls = []
    before = signal.signal(signal.SIGALRM, lambda *_: calls.append(True))
    try:
        with other.lock(key):
            signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
            assert client.lock(key).acquire(timeout=0.5) is False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(calls) > 3


# Python cannot raise out of a finalizer, and drops an interrupt that comes in
# one, with this warning.
swallowed = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@swallowed
@pytest.mark.parametrize("wait", [0, 5])
def test_an_interrupted_acquire_leaves_nothing_held(alarm, client, other, key, wait):
    interrupted = 0
    for _ in range(100):
        lock = client.lock(key)
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 0.006))
            lock.acquire(timeout=wait)
            time.sleep(0.02)  # so that the alarm comes here at the latest
        except Interrupt:
            interrupted += 1
        if lock.locked():  # it came in the sleep, or not at all
            interrupted -= 1
            lock.release()
        assert is_free(other, key, within=2)
    assert interrupted > 0


@swallowed
def test_two_interrupts_in_a_row_leave_nothing_held(alarm, client, other, key):
    for _ in range(50):
        with other.lock(key):
            lock = client.lock(key)
            with pytest.raises(Interrupt):
                try:
                    signal.setitimer(signal.ITIMER_REAL, random.uniform(0.001, 0.01), 0.0005)
                    lock.acquire()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
        assert not lock.locked()
        assert is_free(other, key, within=2)
