"""Which servers the tests run on, and what each test is given.

DLEASE_TEST_URLS holds the servers' URLs, separated by blanks; every test that
asks for `url` runs once on each.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import dlease
import pytest
from support import Proxy, start

URLS = os.environ.get("DLEASE_TEST_URLS", "").split()


def pytest_configure(config: pytest.Config) -> None:
    if not URLS:
        raise pytest.UsageError("DLEASE_TEST_URLS names no server: the tests need one at least")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "url" in metafunc.fixturenames:
        # The port alone: no password in the test's name.
        metafunc.parametrize("url", URLS, ids=[f"port{urlsplit(url).port}" for url in URLS])


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """A key of this test's own."""
    return f"{request.function.__name__}-{uuid.uuid4()}"


@pytest.fixture
def client(url: str) -> Iterator[dlease.Client]:
    with dlease.Client(url, application="pytest") as client:
        yield client


@pytest.fixture
def other(url: str) -> Iterator[dlease.Client]:
    """A second client, for what another process would see."""
    with dlease.Client(url, application="pytest other") as client:
        yield client


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    """What stands between a client and the server, and can fall silent."""
    with Proxy(url) as proxy:
        yield proxy


@pytest.fixture
def program() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a Python program in a process of its own, which ends with the test."""
    started: list[subprocess.Popen[str]] = []

    def run(text: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        started.append(start(text, *arguments, **environment))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        with process:  # closes its pipes
            pass
