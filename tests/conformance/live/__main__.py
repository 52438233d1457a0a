"""Compares on a real control plane: where pods go with Homeport's scores or filters, and how cases are judged.

    python -m tests.conformance.live                      # CASES, CLUSTERS, PODS and SEED as below
    python -m tests.conformance.live --cases 20 --clusters 5

Prints three tables and, as its last line, the same as JSON. Ends with 1 if a pod was placed against the rules or a case
differs; those are written to `build/live/`.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tests.conformance.live import cases, prioritize, whole
from tests.conformance.live.loading import APISERVER_FLAGS
from tests.controlplane.binaries import DEFAULT_KUBERNETES
from tests.controlplane.controlplane import ControlPlane

FOUND: Final = Path(__file__).parents[3] / "build" / "live"
RECORDED_CASES: Final = 500
"""Of each topic, with the verdicts of the Go plugins."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.conformance.live", description="Compare on a control plane.")
    asked = os.environ.get
    parser.add_argument(
        "--clusters", type=int, default=int(asked("CLUSTERS") or 50), help="clusters for prioritize (CLUSTERS)"
    )
    parser.add_argument("--pods", type=int, default=int(asked("PODS") or 40), help="pods for each of them (PODS)")
    parser.add_argument("--seed", type=int, default=int(asked("SEED") or 1), help="of the clusters (SEED)")
    parser.add_argument(
        "--cases",
        type=int,
        choices=range(RECORDED_CASES + 1),
        metavar=f"0..{RECORDED_CASES}",
        default=int(asked("CASES") or 150),
        help="generated cases of each topic (CASES)",
    )
    return parser.parse_args()


def table(rows: Sequence[dict[str, Any]]) -> str:
    """For people: what was counted, without the list of what went wrong."""
    head = [name for name in rows[0] if name != "wrong"]
    shown = [head, *([str(row[name]) for name in head] for row in rows)]
    widths = [max(map(len, column)) + 2 for column in zip(*shown, strict=True)]
    lines = ("".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in shown)
    return "\n".join(lines) + "\n\n"


def _keep(name: str, rows: Sequence[dict[str, Any]]) -> bool:
    """Write down what went wrong, and say whether anything did."""
    wrong = [found for row in rows for found in row.pop("wrong")]
    target = FOUND / f"{name}.json"
    target.unlink(missing_ok=True)
    if wrong:
        FOUND.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(wrong, indent=1) + "\n")
        sys.stderr.write(f"what went wrong: {target}\n")
    return bool(wrong)


def main() -> int:
    """0 if all is as kube-scheduler's own plugin would have it."""
    arguments = _arguments()
    begun = time.monotonic()
    with ControlPlane() as plane:
        placed = [
            asdict(it)
            for it in prioritize.measure(
                plane, prioritize.SETTINGS, arguments.clusters, arguments.pods, seed=arguments.seed
            )
        ]
    sys.stdout.write(table(placed))
    with ControlPlane() as plane:
        left_to_us = [asdict(whole.measure(plane, arguments.clusters, arguments.pods // 2, seed=arguments.seed))]
    sys.stdout.write(table(left_to_us))
    with ControlPlane(apiserver_flags=APISERVER_FLAGS) as plane:
        judged = [asdict(it) for it in cases.judge_all(plane, arguments.cases)]
    sys.stdout.write(table(judged))
    failed = [_keep("prioritize", placed), _keep("whole", left_to_us), _keep("cases", judged)]
    seconds = round(time.monotonic() - begun)
    found = {"prioritize": placed, "whole": left_to_us, "cases": judged}
    summary = {"kubernetes": DEFAULT_KUBERNETES, "seconds": seconds, **found}
    sys.stdout.write(json.dumps(summary) + "\n")
    return 1 if any(failed) else 0


if __name__ == "__main__":
    sys.exit(main())
