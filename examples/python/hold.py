#!/usr/bin/env python3
"""Holds a lock for a while.

    hold.py URL KEY SECONDS [TTL_MS]

Makes one try, prints `token=N remaining_ms=N`, and releases after SECONDS,
which may be a fraction. Exit status: 0 held to the end, 1 not acquired or lost,
2 usage or error.
"""

from __future__ import annotations

import math
import sys
import time

import dlease


def hold(url: str, key: str, seconds: float, ttl: float | None) -> None:
    with dlease.Client(url, application="hold") as client:
        with client.lock(key, wait=0, ttl=ttl, renew=ttl is None) as lock:
            print(f"token={lock.token} remaining_ms={lock.remaining() * 1000:.0f}", flush=True)
            time.sleep(seconds)


def main(arguments: list[str]) -> int:
    try:
        url, key, seconds = arguments[0], arguments[1], float(arguments[2])
        ttl_ms = int(arguments[3]) if len(arguments) > 3 else None
        if len(arguments) > 4 or not 0 <= seconds < math.inf or (ttl_ms is not None and ttl_ms < 1):
            raise ValueError
    except (IndexError, ValueError):
        print("usage: hold.py URL KEY SECONDS [TTL_MS]", file=sys.stderr)
        return 2
    try:
        hold(url, key, seconds, ttl_ms / 1000 if ttl_ms else None)
    except dlease.Error as error:
        print(f"hold: {error}", file=sys.stderr)
        return 1 if isinstance(error, (dlease.NotAcquired, dlease.LockLost)) else 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
