"""What several test files need: a proxy that can fall silent, programs in
processes of their own, plain SQL."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import TracebackType
from urllib.parse import unquote, urlsplit

import dlease
import pymysql

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = str(Path(dlease.__file__).resolve().parents[1])


class Proxy:
    """Forwards TCP connections to the server of a URL; while it is silent,
    nothing, and says nothing about it either. `url` leads through it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "", parts.port or 3306)
        self._speaking = threading.Event()
        self._speaking.set()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        login, _, _ = parts.netloc.rpartition("@")
        port = self._listener.getsockname()[1]
        self.url = parts._replace(netloc=f"{login}@127.0.0.1:{port}").geturl()
        threading.Thread(target=self._accept, daemon=True).start()

    def silence(self) -> None:
        self._speaking.clear()

    def speak(self) -> None:
        self._speaking.set()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(self._target)
            self._sockets += [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                self._speaking.wait()
                target.sendall(data)
            self._speaking.wait()
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()
        self.speak()


def start(text: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Starts a Python program of its own process, on this package."""
    return subprocess.Popen(
        [sys.executable, "-X", "dev", "-c", textwrap.dedent(text), *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": PACKAGE, **environment},
    )


def finish(process: subprocess.Popen[str], timeout: float = 20) -> str:
    """Waits for a program that is to end well, and gives what it printed."""
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, (process.returncode, out, err)
    return out


def run_thread(function: object) -> None:
    """Runs it in a thread of its own, which is gone afterwards; what it raises
    is raised here."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            function()  # type: ignore[operator]
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def sql(url: str, statement: str, *values: object) -> tuple[tuple[object, ...], ...]:
    """Runs one statement beside the library."""
    parts = urlsplit(url)
    connection = pymysql.connect(
        host=parts.hostname, port=parts.port or 3306, database=parts.path[1:],
        user=unquote(parts.username or ""), password=unquote(parts.password or ""), autocommit=True,
    )
    with connection, connection.cursor() as cursor:
        cursor.execute(statement, values)
        return tuple(cursor.fetchall())


def is_free(client: dlease.Client, key: str | bytes, within: float = 0) -> bool:
    """Whether somebody else can have the lock now, or within some seconds."""
    lock = client.lock(key)
    if not lock.acquire(timeout=within):
        return False
    lock.release()
    return True
