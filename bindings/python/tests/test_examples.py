"""The two programs of examples/python, and their exit statuses."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from support import PACKAGE, ROOT, is_free


@pytest.fixture
def example():
    """Starts one of them in a process, which ends with the test."""
    started = []

    def run(name, *arguments):
        process = subprocess.Popen(
            [sys.executable, ROOT / "examples" / "python" / f"{name}.py", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": PACKAGE},
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        with process:
            pass


def ended(process):
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_hold_holds_and_says_so(example, url, client, key):
    process = example("hold", url, key, "0.5", "9000")
    token, remaining = process.stdout.readline().split()
    assert token.startswith("token=") and 5000 < int(remaining.removeprefix("remaining_ms=")) <= 9000
    assert not is_free(client, key)
    assert ended(process)[0] == 0
    assert is_free(client, key)


def test_hold_tells_that_someone_else_has_the_lock(example, url, client, key):
    with client.lock(key):
        status, out, err = ended(example("hold", url, key, "0"))
    assert (status, out) == (1, "") and "someone else" in err


def test_hold_tells_that_it_lost_the_lock(example, url, key):
    status, out, err = ended(example("hold", url, key, "0.6", "500"))
    assert (status, out[:6]) == (1, "token=")
    assert "lost: expired" in err


def test_contend_excludes(example, url, key, tmp_path):
    file = tmp_path / "inside"
    processes = [example("contend", url, key, "15", file) for _ in range(3)]
    assert [ended(process)[0] for process in processes] == [0, 0, 0]
    tokens = [int(line) for line in (tmp_path / "inside.log").read_text().split()]
    assert len(tokens) == 45 and tokens == sorted(set(tokens))
    assert not file.exists()


def test_contend_tells_broken_exclusion(example, url, key, tmp_path):
    file = tmp_path / "inside"
    file.touch()
    assert ended(example("contend", url, key, "1", file))[0] == 3
    file.unlink()
    (tmp_path / "inside.log").write_text(f"{time.time_ns()}\n")  # a token of the future
    assert ended(example("contend", url, key, "1", file))[0] == 3


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("hold", []),
        ("hold", ["URL", "k", "soon"]),
        ("hold", ["URL", "k", "-1"]),
        ("hold", ["URL", "k", "nan"]),
        ("hold", ["URL", "k", "0", "0"]),
        ("hold", ["URL", "k", "0", "5"]),
        ("hold", ["URL", "k", "0", "1000", "more"]),
        ("hold", ["URL", "", "0"]),
        ("hold", ["nonsense", "k", "0"]),
        ("contend", []),
        ("contend", ["URL", "k", "0", "file"]),
        ("contend", ["URL", "k", "1", "file", "more"]),
        ("contend", ["URL", "k", "1", "/not/there/file"]),
        ("contend", ["nonsense", "k", "1", "file"]),
    ],
)
def test_wrong_usage_and_errors_are_2(example, url, key, name, arguments):
    given = [{"URL": url, "k": key}.get(each, each) for each in arguments]
    status, out, err = ended(example(name, *given))
    assert (status, out) == (2, "") and err
