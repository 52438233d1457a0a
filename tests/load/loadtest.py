"""Loads a Homeport that serves the sample cluster, verb by verb, with hey: throughput and percentiles.

    make loadtest
    make loadtest SECONDS_EACH=2 AT_ONCE=1
    python -m tests.load.loadtest --url http://127.0.0.1:8888      # one that runs already, such as that of make run

hey is a load generator in Go: one program without dependencies, installed by name from the module proxy into the cache
in which the control plane's binaries are, with the Go that these need anyway. It writes down every single request, and
from these the figures here are made. It keeps ``AT_ONCE`` connections busy; kube-scheduler's filter and prioritize come
one at a time (``AT_ONCE=1``), its binds overlap. Prints JSON, and a table on standard error.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.controlplane import binaries
from tests.load import report
from tests.served import served

HEY: Final = ("github.com/rakyll/hey", "v0.1.5")
EXAMPLES: Final = Path(__file__).parents[2] / "examples"
REQUESTS: Final[Mapping[str, str]] = {
    "filter, hard constraint": "filter filter-spread.json",
    "filter, home": "filter filter-home.json",
    "prioritize, soft constraint": "prioritize prioritize-spread.json",
    "preempt": "preempt preempt.json",
    "bind, refused": "bind bind-crowded.json",
    "bind, bound already": "bind bind-spread.json",
}
_MOST: Final = 1_000_000
"""hey writes down no more requests than these."""


@contextmanager
def serving(url: str) -> Iterator[str]:
    """The one that is named, or one of our own as ``make run`` starts it."""
    if url:
        yield url.rstrip("/")
        return
    saved = EXAMPLES / "sample-cluster.yaml"
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder), "--cluster", saved, "--explain=profile", "--log-level=error") as http,
    ):
        yield str(http.base_url)


def load(hey: Path, url: str, body: Path, seconds: float, at_once: int) -> dict[str, Any]:
    """The figures of one request, sent again and again."""
    command = [str(hey), "-z", f"{seconds:g}s", "-c", str(at_once), "-m", "POST", "-T", "application/json"]
    done = subprocess.run([*command, "-D", str(body), "-o", "csv", url], stdout=subprocess.PIPE, check=True, text=True)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    if not 1 < len(rows) < _MOST:
        raise RuntimeError(f"hey reports {len(rows)} answers of {url}: choose another SECONDS_EACH")
    times = [float(row["response-time"]) * 1e6 for row in rows]
    ended = max(float(row["offset"]) + float(row["response-time"]) for row in rows)
    return {
        "calls": len(rows),
        "calls_per_second": round(len(rows) / ended, 1),
        "us": report.percentiles(times),
        "status": dict(Counter(row["status-code"] for row in rows)),
    }


def measure(url: str, seconds: float, at_once: int) -> dict[str, Any]:
    hey = binaries.tool(*HEY)
    with serving(url) as base:
        return {
            name: load(hey, f"{base}/{verb}", EXAMPLES / "requests" / file, seconds, at_once)
            for name, (verb, file) in ((name, asked.split()) for name, asked in REQUESTS.items())
        }


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.load.loadtest", description=__doc__)
    parser.add_argument("--url", default="", help="a Homeport that runs; default: one of its own")
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("SECONDS_EACH") or 5))
    parser.add_argument("--at-once", type=int, default=int(os.environ.get("AT_ONCE") or 8))
    given = parser.parse_args()
    found = measure(given.url, given.seconds, given.at_once)
    report.table(
        (f"{given.at_once} at once", "calls/s", "p50 µs", "p99 µs", "longest", "answers"),
        [
            (
                name,
                it["calls_per_second"],
                *it["us"].values(),
                " ".join(f"{n}x{code}" for code, n in it["status"].items()),
            )
            for name, it in found.items()
        ],
    )
    report.publish({"machine": report.machine(), "at_once": given.at_once, "loadtest": found})


if __name__ == "__main__":
    main()
