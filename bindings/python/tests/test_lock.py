"""A Lock follows threading.Lock, and tells what became of its lease."""

from __future__ import annotations

import gc
import time
import warnings

import dlease
import pytest
from support import is_free, run_thread, sql


def test_acquire_and_release(client, other, key):
    lock = client.lock(key)
    assert (lock.locked(), lock.token, lock.remaining()) == (False, None, 0.0)
    assert lock.acquire() is True
    assert lock.locked() and lock.token > 0
    assert 28 < lock.remaining() <= 30
    assert not is_free(other, key)
    assert other.lock(key).locked() is False  # "this object holds it"
    assert lock.release() is None
    assert (lock.locked(), lock.token, lock.remaining()) == (False, None, 0.0)
    assert is_free(other, key)


def test_a_later_grant_has_a_higher_token(client, other, key):
    tokens = []
    for lock in [client.lock(key), other.lock(key), client.lock(key)]:
        with lock:
            tokens.append(lock.token)
    assert tokens == sorted(set(tokens))


def test_acquire_answers_false_when_busy_or_too_late(client, other, key):
    with client.lock(key):
        lock = other.lock(key)
        begin = time.monotonic()
        assert lock.acquire(blocking=False) is False
        assert lock.acquire(timeout=0) is False
        assert time.monotonic() - begin < 1
        begin = time.monotonic()
        assert lock.acquire(timeout=0.5) is False
        assert 0.45 < time.monotonic() - begin < 1.2
        assert not lock.locked()


def test_acquire_raises_value_error_where_threading_does(client, key):
    lock = client.lock(key)
    for arguments in [(False, 1), (False, 0), (True, -2), (True, -0.5), (True, float("nan"))]:
        with pytest.raises(ValueError):
            lock.acquire(*arguments)
    with pytest.raises(ValueError):
        lock.acquire(timeout=float("inf"))
    with pytest.raises(TypeError):
        lock.acquire(timeout="1")
    assert lock.acquire(False, -1) is True
    lock.release()


def test_a_second_acquire_of_a_held_lock_waits_like_anybodys(client, key):
    lock = client.lock(key)
    lock.acquire()
    assert lock.acquire(blocking=False) is False
    assert lock.acquire(timeout=0.2) is False
    assert lock.locked()
    lock.release()
    assert not lock.locked()


def test_releasing_what_is_not_held_raises(client, key):
    lock = client.lock(key)
    for _ in range(2):
        with pytest.raises(dlease.NotHeld) as caught:
            lock.release()
        assert isinstance(caught.value, RuntimeError)
        assert not isinstance(caught.value, dlease.LockLost)
    with pytest.raises(dlease.NotHeld):
        lock.renew()
    lock.acquire()
    lock.release()
    with pytest.raises(dlease.NotHeld):
        lock.release()


def test_with_gives_the_lock_and_never_runs_the_body_unlocked(client, other, key):
    with client.lock(key) as held:
        assert isinstance(held, dlease.Lock) and held.locked()
        with pytest.raises(dlease.NotAcquired):
            with other.lock(key, wait=0):
                pytest.fail("the body ran")
        with pytest.raises(dlease.LockTimeout) as caught:
            with other.lock(key, wait=0.2):
                pytest.fail("the body ran")
        assert isinstance(caught.value, TimeoutError)
    assert is_free(other, key)


def test_with_releases_when_the_body_raises(client, other, key):
    with pytest.raises(KeyError):
        with client.lock(key):
            raise KeyError
    assert is_free(other, key)


def test_a_lost_lease_is_told_at_the_end_of_the_body(client, key):
    lock = client.lock(key, ttl=0.3, renew=False)
    with pytest.raises(dlease.LockLost) as caught:
        with lock:
            time.sleep(0.35)
    assert isinstance(caught.value, dlease.NotHeld)
    assert caught.value.status == dlease.Status.NOT_HELD
    assert "expired" in str(caught.value)


def test_the_body_s_exception_goes_on_with_a_note_of_ours(client, key):
    with pytest.raises(KeyError) as caught:
        with client.lock(key, ttl=0.3, renew=False):
            time.sleep(0.35)
            raise KeyError("the body's")
    if hasattr(caught.value, "__notes__"):  # Python 3.11 on
        assert ["LockLost" in note for note in caught.value.__notes__] == [True]


def test_a_late_release_is_told_and_the_token_kept(client, other, key):
    # Nobody else came: it is told all the same.
    lock = client.lock(key, ttl=0.3, renew=False)
    lock.acquire()
    token = lock.token
    assert (lock.lost.is_set(), lock.lost.cause) == (False, None)
    time.sleep(0.35)
    assert not lock.locked()
    assert lock.remaining() == 0.0
    assert (lock.lost.is_set(), lock.lost.cause) == (True, "expired")
    for _ in range(2):
        with pytest.raises(dlease.LockLost):
            lock.release()
    with pytest.raises(dlease.LockLost):
        lock.renew()
    assert lock.token == token
    assert is_free(other, key)
    # The same object works again.
    with lock:
        assert lock.token > token
        assert lock.lost.cause is None


def test_lost_stays_with_its_grant(client, key):
    lock = client.lock(key, ttl=0.3, renew=False)
    lock.acquire()
    lost = lock.lost
    time.sleep(0.35)
    lock.acquire()
    assert lost.is_set() and not lock.lost.is_set()
    lock.release()
    assert lock.lost.cause is None


def test_a_late_release_leaves_the_next_holder_alone(client, other, key):
    late = client.lock(key, ttl=0.3, renew=False)
    late.acquire()
    time.sleep(0.35)
    holder = other.lock(key)
    holder.acquire()
    token, left = holder.token, holder.remaining()
    with pytest.raises(dlease.LockLost):
        late.release()
    assert not is_free(client, key)
    holder.renew()
    assert holder.token == token and holder.remaining() >= left - 1
    holder.release()


def test_a_waiter_that_gave_up_frees_nobody(client, other, key):
    with client.lock(key):
        waiter = other.lock(key)
        try:
            assert waiter.acquire(timeout=0.3) is False
        finally:
            with pytest.raises(dlease.NotHeld):
                waiter.release()
        assert not is_free(other, key)


def test_renewing_keeps_the_lease(client, key):
    lock = client.lock(key, ttl=1, renew=False)
    lock.acquire()
    token = lock.token
    for _ in range(20):
        time.sleep(0.1)
        lock.renew()
        assert 0.5 < lock.remaining() <= 1
    assert lock.locked() and lock.token == token
    lock.renew(ttl=10)
    assert 9 < lock.remaining() <= 10
    lock.release()


def test_remaining_is_never_more_than_the_server_says(client, url, key):
    lock = client.lock(key, ttl=5)
    lock.acquire()
    # A grant by another zone's clock would be hours off.
    ((left,),) = sql(
        url,
        "SELECT remaining_s FROM dl_locks WHERE lock_key = %s",
        key,
    )
    assert lock.remaining() <= float(left) + 0.05
    assert lock.remaining() > 2
    lock.release()


def test_an_owner_shares_its_grant(client, other, key):
    lock = client.lock(key, owner="importer", ttl=5)
    again = other.lock(key, owner=b"importer", ttl=5)
    lock.acquire()
    again.acquire()
    lock.acquire()  # nested, through the same object
    assert lock.token == again.token
    lock.release()
    assert lock.locked()
    lock.release()
    assert not lock.locked()
    assert again.locked() and not is_free(client, key)
    again.release()
    assert is_free(client, key)
    with pytest.raises(dlease.NotHeld):
        lock.release()


def test_a_lock_that_is_collected_is_released_with_a_warning(client, other, key):
    lock = client.lock(key)
    lock.acquire()
    with pytest.warns(ResourceWarning, match=key):
        del lock
        gc.collect()
    with other.lock(key, wait=2):
        pass


def test_a_lock_that_was_released_or_never_held_is_collected_quietly(client, key):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lock = client.lock(key)
        client.lock(key)
        with lock:
            pass
        del lock
        gc.collect()


def test_an_exception_in_a_thread_ends_the_hold_with_its_block(client, other, key):
    def work():
        with client.lock(key):
            raise KeyError

    with pytest.raises(KeyError):
        run_thread(work)
    assert is_free(other, key)


def test_kinds_that_are_not_there_yet_say_so(client, key):
    for kind in ("row", "named"):
        with pytest.raises(dlease.Unsupported):
            client.lock(key, kind=kind).acquire()


def test_every_option_is_taken(client, url, key):
    lock = client.lock(
        key, wait=1, ttl=5, kind="lease", renew=False, owner="o", note="nightly run", max_hold=9, fair=False
    )
    with lock:
        rows = sql(url, "SELECT owner, note FROM dl_lock WHERE lock_key = %s", key)
        assert rows == ((b"o", b"nightly run"),)


def test_repr_tells_the_state(client, key):
    lock = client.lock(key)
    assert "unlocked" in repr(lock) and key in repr(lock)
    with lock:
        assert "unlocked" not in repr(lock) and str(lock.token) in repr(lock)
