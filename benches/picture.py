"""Draws docs/waiting.svg from the figures of `make bench` (target/bench.json):
how soon after a release the next one has the lock, and what waiters cost."""

from __future__ import annotations

import json
import re
from pathlib import Path

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "dlease"  # the same figures, the same file
import matplotlib.pyplot as plt  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
FIGURES = json.loads((ROOT / "target" / "bench.json").read_text())
SERVERS = [name for name in dict.fromkeys(figure["server"] for figure in FIGURES) if name != "-"]


def values(server: str, pattern: str) -> dict[int, float]:
    """The values of the figures whose names match, by the number in them."""
    found = {}
    for figure in FIGURES:
        match = re.fullmatch(pattern, figure["figure"])
        if figure["server"] == server and match:
            found[int(match.group(1))] = figure["value"]
    return found


picture, (latency, load) = plt.subplots(1, 2, figsize=(10, 4))
for server in SERVERS:
    for percent, style in (("p50", "-"), ("p99", "--")):
        points = values(server, rf"release to next, {percent}, (\d+) processes")
        latency.plot(list(points), list(points.values()), style, marker="o", label=f"{server}, {percent}")
    points = values(server, r"statements for (\d+) waiters on one key")
    load.plot(list(points), list(points.values()), marker="o", label=server)
latency.axhline(100, color="grey", linestyle=":", label="polling every 100 ms, at worst")
latency.set(title="From release to the next holder", xlabel="processes", ylabel="ms", xscale="log", yscale="log")
waiters = [10, 100, 1000]
load.plot(waiters, [10 * count for count in waiters], color="grey", linestyle=":", label="polling every 100 ms")
load.set(title="What waiters ask the server", xlabel="waiters on one held key", ylabel="statements/s", xscale="log", yscale="log")
for axes in (latency, load):
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
picture.tight_layout()
picture.savefig(ROOT / "docs" / "waiting.svg", metadata={"Date": None})
