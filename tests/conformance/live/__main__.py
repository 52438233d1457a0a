"""Compares on a real control plane: where pods go with Homeport's scores or filters, how cases are judged, and whether
the remedies of explain help.

    python -m tests.conformance.live                      # CASES, CLUSTERS, PODS, COUNT and SEED as below
    python -m tests.conformance.live --cases 20 --clusters 5
    python -m tests.conformance.live --only remedies --count 20

Prints a table for each part and, as its last line, the same as JSON. Ends with 1 if a pod was placed against the rules,
a case differs, or a pod is not bound after its best remedy; those are written to `build/live/`.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tests.conformance.live import cases, drains, losses, prioritize, rebalances, remedies, simulations, whole
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
    parser.add_argument(
        "--count",
        type=int,
        default=int(asked("COUNT") or 300),
        help="stuck pods for remedies, and cases of each what-if (COUNT)",
    )
    only = (asked("ONLY") or "").split()
    parser.add_argument("--only", nargs="+", choices=PARTS, default=only or [*PARTS], help="parts to run (ONLY)")
    arguments = parser.parse_args()
    if unknown := {*arguments.only} - PARTS.keys():
        parser.error(f"ONLY: {' '.join(sorted(unknown))}: not among {' '.join(PARTS)}")
    return arguments


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


def _prioritize(arguments: argparse.Namespace) -> Sequence[Any]:
    with ControlPlane() as plane:
        return prioritize.measure(plane, prioritize.SETTINGS, arguments.clusters, arguments.pods, seed=arguments.seed)


def _whole(arguments: argparse.Namespace) -> Sequence[Any]:
    with ControlPlane() as plane:
        return [whole.measure(plane, arguments.clusters, arguments.pods // 2, seed=arguments.seed)]


def _cases(arguments: argparse.Namespace) -> Sequence[Any]:
    with ControlPlane(apiserver_flags=APISERVER_FLAGS) as plane:
        return list(cases.judge_all(plane, arguments.cases))


def _remedies(arguments: argparse.Namespace) -> Sequence[Any]:
    with ControlPlane() as plane:
        tallies = remedies.measure(plane, arguments.count, seed=arguments.seed)
    if not remedies.enough(tallies):
        tallies[0].wrong.append("too few of the pods have a remedy")
    return tallies


def _simulations(arguments: argparse.Namespace) -> Sequence[Any]:
    with ControlPlane() as plane:
        return [simulations.measure(plane, arguments.count, seed=arguments.seed)]


def _drains(arguments: argparse.Namespace) -> Sequence[Any]:
    with ControlPlane() as plane:
        return [drains.measure(plane, arguments.count, seed=arguments.seed)]


def _losses(arguments: argparse.Namespace) -> Sequence[Any]:
    with ControlPlane() as plane:
        return [losses.measure(plane, arguments.count, seed=arguments.seed)]


def _rebalances(arguments: argparse.Namespace) -> Sequence[Any]:
    with ControlPlane() as plane:
        return [rebalances.measure(plane, arguments.count, seed=arguments.seed)]


PARTS: Final[Mapping[str, Callable[[argparse.Namespace], Sequence[Any]]]] = {
    "prioritize": _prioritize,
    "whole": _whole,
    "cases": _cases,
    "remedies": _remedies,
    "simulations": _simulations,
    "drains": _drains,
    "losses": _losses,
    "rebalances": _rebalances,
}


def main() -> int:
    """0 if all is as kube-scheduler's own plugin would have it, and every remedy helps."""
    arguments = _arguments()
    begun = time.monotonic()
    found: dict[str, list[dict[str, Any]]] = {}
    failed = False
    for name in (it for it in PARTS if it in arguments.only):
        found[name] = [asdict(it) for it in PARTS[name](arguments)]
        sys.stdout.write(table(found[name]))
        failed |= _keep(name, found[name])
    seconds = round(time.monotonic() - begun)
    sys.stdout.write(json.dumps({"kubernetes": DEFAULT_KUBERNETES, "seconds": seconds, **found}) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
