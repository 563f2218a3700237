"""The exceptions: which is which, what they carry, and that they travel."""

from __future__ import annotations

import pickle
from urllib.parse import urlsplit

import dlease
import pytest
from dlease import _errors, _ffi

BASES = {
    dlease.NotAcquired: dlease.Error,
    dlease.LockTimeout: TimeoutError,
    dlease.NotHeld: RuntimeError,
    dlease.LockLost: dlease.NotHeld,
    dlease.Conflict: dlease.Error,
    dlease.Cancelled: dlease.Error,
    dlease.InvalidArgument: ValueError,
    dlease.Unavailable: ConnectionError,
    dlease.ConfigError: dlease.Error,
    dlease.ServerError: dlease.Error,
    dlease.Unsupported: dlease.Error,
    dlease.Closed: dlease.Error,
    dlease.Forked: dlease.Error,
    dlease.InternalError: dlease.Error,
}


def test_every_status_has_its_exception():
    for number in range(-99, 6):
        name = _ffi.library.dl_status_name(number).decode()
        if name == "UNKNOWN":
            assert number not in _errors.Status._value2member_map_
            continue
        assert dlease.Status(number).name == name
        if number != dlease.Status.OK:
            error = _errors.error_for(number, None, "text")
            assert type(error) is not dlease.Error
            assert error.status is dlease.Status(number)
    unknown = _errors.error_for(-50, None, "text")
    assert (type(unknown), unknown.status) == (dlease.Error, -50)


def test_exceptions_are_what_python_programs_expect():
    for exception, base in BASES.items():
        assert issubclass(exception, base) and issubclass(exception, dlease.Error)
        error = exception("text")
        assert (str(error), error.errno, error.sqlstate, error.retriable) == ("text", None, None, False)
        assert error.status == exception._status


def test_exceptions_travel_between_processes():
    for exception in BASES:
        error = exception("text", -3, 1213, "40001", True)
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is exception
        assert (str(copy), copy.status, copy.errno, copy.sqlstate, copy.retriable) == (
            ("text", -3, 1213, "40001", True)
        )


def test_a_wrong_password_is_told_at_once_with_the_server_s_numbers(url, key):
    parts = urlsplit(url)
    wrong = parts._replace(netloc=f"{parts.username}:wrong@{parts.hostname}:{parts.port or 3306}").geturl()
    with dlease.Client(wrong) as client:
        with pytest.raises(dlease.ConfigError) as caught:
            client.lock(key).acquire(timeout=10)
    error = caught.value
    assert (error.status, error.errno, error.sqlstate) == (dlease.Status.CONFIG, 1045, "28000")
    assert error.retriable is False
    assert "wrong" not in str(error)


def test_a_server_that_is_not_there_is_unavailable(key):
    with dlease.Client("mysql://u:p@127.0.0.1:1/d", connect_timeout=0.5) as client:
        with pytest.raises(ConnectionError) as caught:
            client.lock(key).acquire(timeout=0.3)
    assert caught.value.status == dlease.Status.UNAVAILABLE
    assert caught.value.retriable is True


def test_a_url_that_is_none_is_refused():
    for url in ["", "x", "http://host/db", "mysql://", "mysql://host:99999/db", "a\x00b", "\ud800"]:
        with pytest.raises(dlease.InvalidArgument):
            dlease.Client(url)
