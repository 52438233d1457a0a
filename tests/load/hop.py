"""What does a call cost that one Homeport hands on to another, against one that is answered where it arrives?

    python -m tests.load.hop --direct http://127.0.0.1:8888 --forwarded http://127.0.0.1:8889

Both are Homeports that run; ``--forwarded`` is one that hands its calls on to ``--direct``. The same bodies go to both
in turns on two kept connections. Prints JSON, and a table on standard error.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tests.load import report
from tests.load.bench import Connection

REQUESTS: Final = Path(__file__).parents[2] / "examples" / "requests"
_WARM_UP: Final = 50


def compared(direct: Connection, forwarded: Connection, path: str, body: bytes, calls: int) -> dict[str, Any]:
    """Microseconds of both, and what the hop adds to the median."""
    times: dict[str, list[float]] = {"direct": [], "forwarded": []}
    for number in range(calls + _WARM_UP):
        for name, connection in (("direct", direct), ("forwarded", forwarded)):
            began = time.perf_counter()
            connection.post(path, body)
            if number >= _WARM_UP:
                times[name].append((time.perf_counter() - began) * 1e6)
    found = {name: report.percentiles(taken) for name, taken in times.items()}
    one, other = found["direct"]["p50"], found["forwarded"]["p50"]
    return {**found, "hop_us": round(other - one, 1), "ratio": round(other / one, 2)}


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.load.hop", description=__doc__)
    parser.add_argument("--direct", required=True, help="the one that decides")
    parser.add_argument("--forwarded", required=True, help="the one that hands on")
    parser.add_argument("--body", default=str(REQUESTS / "bind-crowded.json"), help="default: a bind that is refused")
    parser.add_argument("--verb", default="bind")
    parser.add_argument("--calls", type=int, default=2_000)
    given = parser.parse_args()
    direct, forwarded = (Connection(urlsplit(url).port or 80) for url in (given.direct, given.forwarded))
    found = compared(direct, forwarded, f"/{given.verb}", Path(given.body).read_bytes(), given.calls)
    rows = [(name, *found[name].values()) for name in ("direct", "forwarded")]
    report.table((given.verb, "p50 µs", "p99 µs", "longest"), rows)
    report.publish({"machine": report.machine(), "hop": found})


if __name__ == "__main__":
    main()
