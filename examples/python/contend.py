#!/usr/bin/env python3
"""Proves that a lock excludes: run several at a time, in any languages.

    contend.py URL KEY ROUNDS FILE

Each round acquires the lock, and inside creates FILE, which must not be there;
sees that the last token in FILE.log is less than its own; appends its own; and
removes FILE. Exit status: 0 done, 1 not acquired or lost, 2 usage or error, 3
exclusion broken.
"""

from __future__ import annotations

import os
import sys

import dlease


class Broken(Exception):
    """Two were in the critical section, or in the wrong order."""


def critical_section(path: str, token: int) -> None:
    """What only one of all may be in at a time."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except FileExistsError:
        raise Broken(f"{path} is there") from None
    try:
        with open(f"{path}.log", "a+") as log:
            log.seek(0)
            tokens = [int(line) for line in log]
            if tokens and tokens[-1] >= token:
                raise Broken(f"token {token} after {tokens[-1]}")
            log.write(f"{token}\n")
    finally:
        os.unlink(path)


def contend(url: str, key: str, rounds: int, path: str) -> None:
    with dlease.Client(url, application="contend") as client:
        lock = client.lock(key, wait=60, ttl=10)
        for _ in range(rounds):
            with lock:
                critical_section(path, lock.token or 0)


def main(arguments: list[str]) -> int:
    try:
        url, key, rounds, path = arguments[0], arguments[1], int(arguments[2]), arguments[3]
        if len(arguments) > 4 or rounds < 1:
            raise ValueError
    except (IndexError, ValueError):
        print("usage: contend.py URL KEY ROUNDS FILE", file=sys.stderr)
        return 2
    try:
        contend(url, key, rounds, path)
    except Broken as broken:
        print(f"contend: exclusion broken: {broken}", file=sys.stderr)
        return 3
    except (dlease.Error, OSError) as error:
        print(f"contend: {error}", file=sys.stderr)
        return 1 if isinstance(error, (dlease.NotAcquired, dlease.LockTimeout, dlease.LockLost)) else 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
