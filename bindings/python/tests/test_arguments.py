"""What may be passed: keys, times, options. Nothing is cut, wrapped around or
taken for a default."""

from __future__ import annotations

import math
import time

import dlease
import pytest
from support import is_free

SECONDS = ["ttl", "wait", "max_hold"]
DAY = 24 * 60 * 60


def test_a_key_is_any_bytes_but_nul(client, other):
    keys = ["k", "k ", "K", "ключ", "😀", b"\xff\xfe", b"\x01", "a'b\"c\\%_`"]
    keys += [b"x" * 254 + b"1", b"x" * 254 + b"2"]
    locks = [client.lock(key, ttl=10) for key in keys]
    for lock in locks:
        assert lock.acquire(blocking=False)  # all different
    assert not is_free(other, "ключ".encode())
    for lock in locks:
        lock.release()


def test_a_key_with_a_nul_or_a_lone_surrogate_is_refused(client):
    for key in ["a\x00b", "a\x00c", b"a\x00b", "\x00", "\ud800", "k\udfff"]:
        with pytest.raises(dlease.InvalidArgument) as caught:
            client.lock(key)
        assert isinstance(caught.value, ValueError)
        assert caught.value.status == dlease.Status.INVALID_ARGUMENT
    assert is_free(client, "a")


def test_a_key_of_no_or_too_many_bytes_is_refused_at_once(client):
    for key in ["", b"", "k" * 256, b"k" * 1000, "é" * 128]:
        begin = time.monotonic()
        with pytest.raises(dlease.InvalidArgument):
            client.lock(key).acquire(timeout=10)
        assert time.monotonic() - begin < 1
    for key in [None, 1, bytearray(b"k"), ["k"]]:
        with pytest.raises(TypeError):
            client.lock(key)


def test_other_texts_are_checked_too(client, url, key):
    for name in ["owner", "note"]:
        for value in ["a\x00b", "\ud800"]:
            with pytest.raises(dlease.InvalidArgument):
                client.lock(key, **{name: value})
        with pytest.raises(dlease.InvalidArgument):
            client.lock(key, **{name: "x" * 256}).acquire(blocking=False)
    with pytest.raises(dlease.InvalidArgument):
        client.lock(key, owner="").acquire(blocking=False)
    for name, length in [("application", 65), ("namespace", 65), ("table_prefix", 51)]:
        for value in ["x" * length, "a\x00b", "\ud800"]:
            with pytest.raises(dlease.InvalidArgument):
                dlease.Client(url, **{name: value})


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1, -1e-9, -(2**63)])
def test_a_time_that_is_none_is_refused(client, url, key, bad):
    for name in SECONDS:
        with pytest.raises(dlease.InvalidArgument):
            client.lock(key, **{name: bad})
    for name in ["connect_timeout", "io_timeout", "default_ttl"]:
        with pytest.raises(dlease.InvalidArgument):
            dlease.Client(url, **{name: bad})
    with pytest.raises(dlease.InvalidArgument):
        client.ping(bad)
    with client.lock(key) as lock:
        with pytest.raises(dlease.InvalidArgument):
            lock.renew(bad)


def test_zero_is_a_time_for_wait_alone(client, url, key):
    for name in ["ttl", "max_hold"]:
        with pytest.raises(dlease.InvalidArgument):
            client.lock(key, **{name: 0})
    with pytest.raises(dlease.InvalidArgument):
        dlease.Client(url, default_ttl=0)
    with client.lock(key, wait=0) as lock:
        with pytest.raises(dlease.InvalidArgument):
            lock.renew(0)
    for bad in ["1", None, [1]]:
        with pytest.raises(TypeError):
            client.ping(bad)


TOO_SHORT = [0.0001, 0.001, 0.009]
TOO_LONG = [367 * DAY, 15 * 365 * DAY, 2**31, 2**53, 2**63, 2**64, 1e300, 10**400]


@pytest.mark.parametrize("ttl", TOO_SHORT + TOO_LONG)
def test_a_ttl_is_10_ms_to_366_days(client, key, ttl):
    with pytest.raises(dlease.InvalidArgument):
        client.lock(key, ttl=ttl).acquire(blocking=False)
    with client.lock(key) as lock:
        with pytest.raises(dlease.InvalidArgument):
            lock.renew(ttl)
        assert lock.locked()
    assert is_free(client, key)


def test_the_longest_ttl_is_held_for_as_long(client, other, key):
    # 366 days are more than 2^31 ms and more than 2^32.
    with client.lock(key, ttl=366 * DAY) as lock:
        assert 0.98 * 366 * DAY < lock.remaining() <= 366 * DAY
        assert not is_free(other, key)
    assert is_free(other, key)


def test_fractions_of_a_second_count(client, key):
    with client.lock(key, ttl=0.75) as lock:
        assert 0.1 < lock.remaining() <= 0.75
    with client.lock(key):
        for wait in [0.1, 0.4]:
            begin = time.monotonic()
            with pytest.raises(dlease.LockTimeout):
                with client.lock(key, wait=wait):
                    pass
            assert wait - 0.01 <= time.monotonic() - begin < wait + 0.6
        # Not 0, which would be one try with all the time for a reply.
        with pytest.raises((dlease.LockTimeout, dlease.Unavailable)):
            with client.lock(key, wait=0.0001):
                pass


def test_a_wait_beyond_every_clock_is_for_ever(client, other, key):
    for wait in [2**53, 2**64, 1e300, 10**400]:
        holder = client.lock(key, ttl=0.3, renew=False)
        holder.acquire()
        begin = time.monotonic()
        with other.lock(key, wait=wait):
            assert 0.05 < time.monotonic() - begin < 5


def test_kinds_and_counts(client, url, key):
    for kind in ["", "LEASE", "leases", None, 0, ["lease"]]:
        with pytest.raises(dlease.InvalidArgument):
            client.lock(key, kind=kind)
    for name in ["max_connections", "max_waiting_connections"]:
        for count in [0, -1, 10_001, 2**32, 2**32 + 1, 2**64]:
            with pytest.raises(dlease.InvalidArgument):
                dlease.Client(url, **{name: count})
        with pytest.raises(TypeError):
            dlease.Client(url, **{name: 1.5})
