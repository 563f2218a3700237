"""Waiting in the library so that Ctrl-C works.

Python runs signal handlers in the main thread alone, and only between two steps
of Python code: a main thread inside of a C call would not see them. So another
thread makes the call, and the main thread waits for it in Python.

Must not know what is waited for.
"""

from __future__ import annotations

import _thread
import threading
from typing import Callable, TypeVar

T = TypeVar("T")


def interruptible(call: Callable[[], T], cancel: Callable[[], None]) -> T:
    """Returns what `call` returns. An exception from a signal handler fires
    `cancel`, which is to end the call at once, waits for that, and goes on."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    result: list[T] = []
    failure: list[BaseException] = []
    # Not an Event: a signal handler that raises within threading's Python code
    # can leave an Event's lock locked for ever. Only wakes; the lists tell.
    ended = _thread.allocate_lock()
    ended.acquire()

    def run() -> None:
        try:
            result.append(call())
        except BaseException as error:
            failure.append(error)
        ended.release()

    def wait() -> None:
        # The kernel may give the signal to another thread that happens to be
        # in a system call, and the main thread would sleep on: so it looks up.
        while not result and not failure:
            ended.acquire(timeout=0.05)

    started = False
    try:
        try:
            # Not a Thread, for which exit would wait, though a second Ctrl-C
            # may leave it behind.
            started = True
            _thread.start_new_thread(run, ())
        except RuntimeError:  # no threads any more: the interpreter is ending
            started = False
            return call()
        wait()
    except BaseException:
        cancel()
        if started:
            wait()
        raise
    if failure:
        raise failure[0]
    return result[0]
