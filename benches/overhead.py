"""What a call through Python costs that does no SQL: `name nanoseconds` lines."""

import os
import timeit

import dlease

CALLS = 20_000


def nanoseconds(call):
    """The median of several runs, for one call."""
    times = sorted(timeit.repeat(call, number=CALLS, repeat=9))
    return times[len(times) // 2] / CALLS * 1e9


with dlease.Client(os.environ["DLEASE_TEST_URLS"].split()[0]) as client:
    with client.lock(f"overhead-{os.getpid()}", wait=10, ttl=120) as lock:
        print("token", nanoseconds(lambda: lock.token))
        print("remaining", nanoseconds(lambda: lock.remaining()))
