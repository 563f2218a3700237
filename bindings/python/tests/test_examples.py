"""The two programs of examples/python, and their exit statuses."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from support import PACKAGE, ROOT, is_free


def example(name, *arguments):
    return subprocess.Popen(
        [sys.executable, ROOT / "examples" / "python" / f"{name}.py", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": PACKAGE},
    )


def ended(process):
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_hold_holds_and_says_so(url, client, key):
    process = example("hold", url, key, "0.5", "5000")
    token, remaining = process.stdout.readline().split()
    assert token.startswith("token=") and 4000 < int(remaining.removeprefix("remaining_ms=")) <= 5000
    assert not is_free(client, key)
    assert ended(example("hold", url, key, "0"))[0] == 1  # someone else has it
    assert ended(process)[0] == 0
    assert is_free(client, key)


def test_hold_tells_that_it_lost_the_lock(url, key):
    status, out, err = ended(example("hold", url, key, "0.3", "100"))
    assert (status, out[:6]) == (1, "token=")
    assert "lost: expired" in err


def test_contend_excludes(url, key, tmp_path):
    file = tmp_path / "inside"
    processes = [example("contend", url, key, "15", file) for _ in range(3)]
    assert [ended(process)[0] for process in processes] == [0, 0, 0]
    tokens = [int(line) for line in (tmp_path / "inside.log").read_text().split()]
    assert len(tokens) == 45 and tokens == sorted(set(tokens))
    assert not file.exists()


def test_contend_tells_broken_exclusion(url, key, tmp_path):
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
def test_wrong_usage_and_errors_are_2(url, key, name, arguments):
    given = [{"URL": url, "k": key}.get(each, each) for each in arguments]
    status, out, err = ended(example(name, *given))
    assert (status, out) == (2, "") and err
