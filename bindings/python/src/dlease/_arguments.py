"""What callers pass, made into what the C library takes.

Checks only what the library could not see any more: a NUL would cut a text, a
number could wrap around, or become the 0 that stands for a default. All other
bounds are the library's.
"""

from __future__ import annotations

import math

from . import _ffi
from ._errors import InvalidArgument


def text(name: str, value: str | bytes) -> bytes:
    """A text as bytes; str becomes UTF-8."""
    if isinstance(value, str):
        try:
            value = value.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"invalid {name}: it has a lone surrogate") from error
    if not isinstance(value, bytes):
        raise TypeError(f"{name} must be str or bytes, not {type(value).__name__}")
    if b"\0" in value:
        raise InvalidArgument(f"invalid {name}: it has a NUL")
    return value


def optional_text(name: str, value: str | bytes | None) -> bytes | None:
    return None if value is None else text(name, value)


def millis(name: str, seconds: float, zero: bool = False) -> int:
    """Seconds to the nearest millisecond; 0 only from 0, where that is allowed."""
    if not isinstance(seconds, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, not {type(seconds).__name__}")
    # NaN fails every comparison.
    if not 0 <= seconds < math.inf or (seconds == 0 and not zero):
        raise InvalidArgument(f"invalid {name}: {seconds!r} s")
    if seconds == 0:
        return 0
    return max(round(min(seconds * 1000, _ffi.LONGEST_MS)), 1)


def optional_millis(name: str, seconds: float | None) -> int:
    """The library's 0 where no time was given."""
    return 0 if seconds is None else millis(name, seconds)


def wait_millis(name: str, seconds: float | None) -> int:
    """None waits for ever, 0 makes one try."""
    return _ffi.WAIT_FOREVER if seconds is None else millis(name, seconds, zero=True)


def optional_count(name: str, value: int | None) -> int:
    """The library's 0 where no number was given."""
    if value is None:
        return 0
    if not isinstance(value, int):
        raise TypeError(f"{name} must be int, not {type(value).__name__}")
    if not 1 <= value < 2**32:
        raise InvalidArgument(f"invalid {name}: {value}")
    return value


def kind(value: str) -> int:
    """The number of a kind of lock."""
    try:
        return _ffi.KINDS[value]
    except (KeyError, TypeError):
        raise InvalidArgument(f"invalid kind: {value!r}, it is one of {', '.join(_ffi.KINDS)}") from None
