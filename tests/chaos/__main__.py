"""Try to break a hard constraint, and count.

python -m tests.chaos                     # everything; an hour or so on a small machine
python -m tests.chaos --short             # what `make test-all` runs
python -m tests.chaos --sample            # what `make test` runs
python -m tests.chaos --only conflicts    # one scenario, or several
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.chaos import crashes, kills, leaders, outage, overbook, preemptions, restarts, waves
from tests.chaos.report import Report, table
from tests.conformance import soak

IN_TREE_PER_APP: Final = 4
"""Small waves: large ones get stuck at once."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything. ``scenarios``: those that are played unless others are asked for; all, if empty."""

    binds: int
    per_app: int
    in_tree_binds: int
    conflict_binds: int
    kills: int
    outage: float
    leader_failures: int
    crashes: int
    events: int
    room_binds: int
    stock_room_binds: int
    machines: int
    restarts: int
    preemptions: int
    scenarios: tuple[str, ...] = ()


FULL: Final = Sizes(
    binds=10_000,
    per_app=60,
    in_tree_binds=1_000,
    conflict_binds=6_000,
    kills=1_000,
    outage=60.0,
    leader_failures=100,
    crashes=200,
    events=1_000_000,
    room_binds=5_000,
    stock_room_binds=5_000,
    machines=200,
    restarts=50,
    preemptions=1_000,
)
SHORT: Final = replace(
    FULL,
    binds=500,
    per_app=20,
    kills=20,
    outage=5.0,
    leader_failures=5,
    crashes=4,
    room_binds=300,
    stock_room_binds=0,
    machines=20,
    restarts=5,
    preemptions=40,
    scenarios=(
        "race",
        "beyond",
        "overbook",
        "kills",
        "restarts",
        "restarts-soft",
        "leaders",
        "crashes",
        "outage",
    ),
)
SAMPLE: Final = replace(
    SHORT,
    binds=200,
    kills=4,
    leader_failures=2,
    crashes=2,
    room_binds=100,
    machines=8,
    restarts=2,
    scenarios=("race", "kills", "restarts", "leaders"),
)
FRESHNESS: Final = 35.0
"""Seconds after which Homeport is told to take its picture for too old in the outages."""

Scenario = Callable[[Sizes, int], Report]

SCENARIOS: Final[dict[str, Scenario]] = {
    "race": lambda sizes, seed: waves.race(sizes.binds, sizes.per_app, seed),
    "beyond": lambda sizes, seed: waves.beyond(sizes.binds // 4, sizes.per_app, seed, together=bool(sizes.scenarios)),
    "failing": lambda sizes, seed: waves.failing(sizes.binds, sizes.per_app, seed),
    "in-tree": lambda sizes, seed: waves.in_tree(sizes.in_tree_binds, IN_TREE_PER_APP, seed),
    "kills": lambda sizes, seed: kills.kills(sizes.kills, seed),
    "restarts": lambda sizes, seed: restarts.hard(sizes.machines, sizes.restarts, seed),
    "restarts-soft": lambda sizes, seed: restarts.soft(sizes.machines, sizes.restarts, seed, is_sampled=False),
    "restarts-sampled": lambda sizes, seed: restarts.soft(sizes.machines, sizes.restarts, seed, is_sampled=True),
    "outage": lambda sizes, seed: outage.outages(sizes.outage, FRESHNESS, seed),
    "leaders": lambda sizes, seed: leaders.leaders(sizes.leader_failures, seed),
    "crashes": lambda sizes, seed: crashes.crashes(sizes.crashes, seed),
    "overbook": lambda sizes, seed: overbook.overbook(sizes.room_binds, sizes.stock_room_binds, seed),
    "preemptions": lambda sizes, seed: preemptions.preemptions(sizes.preemptions, seed),
    "conflicts": lambda sizes, seed: waves.conflicts(sizes.conflict_binds, sizes.per_app, seed),
    "memory": lambda sizes, seed: memory(sizes.events, seed),
}


def memory(events: int, seed: int) -> Report:
    """What `make soak` does, in a process of its own: only then is its memory all that is measured."""
    report = Report(f"memory over {events:,} pod events")
    command = [sys.executable, "-m", "tests.conformance.soak", f"--events={events}", f"--seed={seed}"]
    told = [json.loads(it) for it in subprocess.run(command, capture_output=True, check=False).stdout.splitlines()]
    report.add("growth, percent", round(100 * told[-1]["growth"], 2), 100 * soak.ALLOWED_GROWTH, unit=" %")
    report.add("differences in recounts during the run", sum(len(it["wrong"]) for it in told), 0)
    report.details["reports"] = told
    return report


def main(argv: Sequence[str] | None = None) -> int:
    """0 if every target was met."""
    arguments = _parser().parse_args(argv)
    sizes: Sizes = arguments.sizes
    if arguments.binds:
        binds = arguments.binds
        sizes = replace(sizes, binds=binds, in_tree_binds=binds, conflict_binds=binds, room_binds=binds)
        sizes = replace(sizes, stock_room_binds=binds if sizes.stock_room_binds else 0)
    if arguments.stock:
        sizes = replace(sizes, stock_room_binds=sizes.room_binds)
    chosen = arguments.only or sizes.scenarios or tuple(SCENARIOS)
    reports = []
    for name in chosen:
        started = time.monotonic()
        report = _played(name, sizes, arguments.seed)
        report.add("seconds", round(time.monotonic() - started, 1), unit=" s")
        reports.append(report)
        print(table(report), flush=True)
        if not report.good:
            print(json.dumps(report.details, indent=2), flush=True)
    if arguments.json:
        found = {"seed": arguments.seed, "reports": [it.as_json() for it in reports]}
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0 if all(it.good for it in reports) else 1


def _played(name: str, sizes: Sizes, seed: int) -> Report:
    """One that cannot be played to its end is a miss, and no reason to leave out the others."""
    try:
        return SCENARIOS[name](sizes, seed)
    except Exception as failure:  # noqa: BLE001  # see above; told with its traceback
        report = Report(name)
        report.add("ended by an error", 1, 0)
        report.details["error"] = traceback.format_exception(failure)
        return report


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.chaos", description="Try to break a hard constraint, and count.")
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--short", dest="sizes", action="store_const", const=SHORT, default=FULL, help="for make test-all"
    )
    size.add_argument("--sample", dest="sizes", action="store_const", const=SAMPLE, help="for make test")
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--binds", type=int, help="bind as many pods in each scenario of waves")
    parser.add_argument("--stock", action="store_true", help="in short too: how much stock schedulers overbook alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures and evidence there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
