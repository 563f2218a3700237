"""A forked child is told so, at once, and the parent loses nothing."""

from __future__ import annotations

import multiprocessing

import dlease
from support import finish, is_free

# Forks 20 times while four threads acquire and release. Each child tries
# everything, within five seconds, and ends like a program: through the hooks
# that run at exit.
FORKS = """
    import os, signal, sys, threading, time, warnings
    import dlease

    warnings.simplefilter("ignore", DeprecationWarning)  # of fork beside threads, from Python 3.12 on
    url, key = sys.argv[1:]
    client = dlease.Client(url)
    lock = client.lock(key)
    lock.acquire()
    token = lock.token
    stop = threading.Event()

    def work(number):
        busy = client.lock(f"{key} {number}")
        while not stop.is_set():
            with busy:
                lock.locked(), lock.token, lock.remaining()

    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()

    def forked(call):
        try:
            call()
        except dlease.Forked as error:
            return error.status == dlease.Status.FORKED

    def child():
        signal.alarm(5)
        told = [
            forked(client.ping),
            forked(lock.release),
            forked(lock.renew),
            forked(lambda: lock.acquire(blocking=False)),
            forked(lambda: lock.acquire(timeout=5)),
            forked(client.lock(key).acquire),
        ]
        read = (lock.locked(), lock.remaining(), lock.token == token, lock.lost.cause)
        client.close()
        return told == [True] * 6 and read == (False, 0.0, True, "forked")

    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            sys.exit(0 if child() else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert lock.locked()
    stop.set()
    for thread in threads:
        thread.join()
    lock.renew()
    assert lock.token == token
    print("held", flush=True)
    sys.stdin.readline()
    lock.release()
    """


def test_a_child_is_told_and_the_parent_still_holds(program, url, client, key):
    process = program(FORKS, url, key)
    assert process.stdout.readline() == "held\n", process.communicate()[1]
    assert not is_free(client, key)
    process.stdin.write("\n")
    process.stdin.flush()
    finish(process)
    assert is_free(client, key)


def test_a_child_may_open_a_client_of_its_own(program, url, client, key):
    text = """
    import os, sys, warnings
    import dlease

    warnings.simplefilter("ignore", DeprecationWarning)
    url, key = sys.argv[1:]
    with dlease.Client(url) as client, client.lock(key):
        pid = os.fork()
        if pid == 0:
            with dlease.Client(url) as own:
                with own.lock(key + " child"):
                    assert not own.lock(key).acquire(blocking=False)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert not client.lock(key).acquire(blocking=False)
    """
    finish(program(text, url, key))
    assert is_free(client, key) and is_free(client, f"{key} child")


def test_a_block_that_a_child_leaves_stays_the_parents(program, url, client, key):
    text = """
    import os, sys, warnings
    import dlease

    warnings.simplefilter("ignore", DeprecationWarning)
    url, key = sys.argv[1:]
    client = dlease.Client(url)
    try:
        with client.lock(key) as lock:
            pid = os.fork()
            if pid:
                assert os.waitpid(pid, 0)[1] == 0
                assert lock.locked()
    except dlease.Forked:
        assert pid == 0
        sys.exit(0)
    assert pid
    """
    finish(program(text, url, key))
    assert is_free(client, key)


def _hold(url, key):
    with dlease.Client(url) as client, client.lock(key) as lock:
        return lock.token


def test_spawned_processes_are_programs_of_their_own(url, client, key):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        tokens = pool.starmap(_hold, [(url, key)] * 4)
    assert len(set(tokens)) == 4
    with client.lock(key) as lock:
        assert lock.token > max(tokens)
