"""The Python half of `make demo`: `demo.py wait|late URL KEY`."""

import sys
import time

import dlease


def say(text):
    print(f"    Python: {text}", flush=True)


def wait(client, key):
    """Waits for the lock like any other program."""
    say("waiting …")
    start = time.monotonic()
    with client.lock(key, wait=30) as lock:
        say(f"held after {time.monotonic() - start:.1f} s, token={lock.token}")


def late(client, key):
    """A holder that is too late: its release must not free another's lock."""
    # As if the whole process slept, and the thread that renews with it.
    sleeper = client.lock(key, wait=10, ttl=1, renew=False)
    sleeper.acquire()
    say(f"sleeper holds it for 1 s, token={sleeper.token}, and falls asleep")
    other = client.lock(key, wait=10)
    other.acquire()
    say(f"another one holds it now, token={other.token}")
    try:
        sleeper.release()
    except dlease.LockLost as error:
        say(f"sleeper releases: refused ({type(error).__name__}: {error})")
    say(f"the other one still holds it: {other.locked()}")
    other.release()


if __name__ == "__main__":
    what, url, key = sys.argv[1:]
    with dlease.Client(url, application="demo") as client:
        {"wait": wait, "late": late}[what](client, key)
