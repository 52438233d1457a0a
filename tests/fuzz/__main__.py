"""Send a running service what nobody should, and count.

python -m tests.fuzz                                  # 100,000 of each part
python -m tests.fuzz --short                          # what `make test-all` runs
python -m tests.fuzz --sample                         # what `make test` runs
python -m tests.fuzz --only objects --count 5000 --seed 7
python -m tests.fuzz --only requests --seed 1 --case 4711    # one case again, with all that is known of it
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvloop

from tests.chaos.report import Report, table
from tests.fuzz import amounts, large, lies, objects, requests
from tests.fuzz.campaign import Amounts, Campaign, Limits, Objects, Requests
from tests.fuzz.families import chosen
from tests.fuzz.findings import Findings
from tests.fuzz.world import World

COUNT: Final = 100_000
LARGE: Final = 1_000 * len(objects.KINDS)
FULL: Final = {"requests": COUNT, "objects": COUNT, "amounts": COUNT, "large": LARGE, "lies": COUNT}
SHORT: Final = {"requests": 5_000, "objects": 5_000, "amounts": 1_000, "large": LARGE // 50, "lies": 2_000}
SAMPLE: Final = {"requests": 2_000, "objects": 2_000, "amounts": 400, "large": LARGE // 500, "lies": 500}
FULL_LIMITS: Final = Limits()
OTHER_LIMITS: Final = Limits(step_ms=1_000.0)
"""Twenty times as much: a test must not depend on what else the machine does. Work without bounds takes more."""

PARTS: Final = ("requests", "objects", "amounts", "large", "lies")
_BATCH: Final = 1_000
_LARGE_BATCH: Final = len(objects.KINDS)
"""Objects of 1.4 MB at once: one of each kind."""

_CAMPAIGNS: Final[Mapping[str, tuple[type[Campaign[Any]], Callable[..., Any]]]] = {
    "requests": (Requests, requests.made),
    "objects": (Objects, objects.made),
    "amounts": (Amounts, amounts.made),
    "large": (Objects, large.made),
}
_FAILURES: Final = Path("build/fuzz")


def main(argv: Sequence[str] | None = None) -> int:
    """0 if nothing was found."""
    given = _parser().parse_args(argv)
    limits = FULL_LIMITS if given.counts is FULL else OTHER_LIMITS
    reports = []
    for part in given.only or PARTS:
        families = chosen(part, given.family)
        count = given.count or given.counts[part]
        numbers = [given.case] if given.case is not None else range(count)
        if part == "lies":
            report = lies.report(
                given.seed, numbers, families, limits.step_ms, Findings(part, given.seed, given.failures)
            )
        else:
            report = uvloop.run(play(part, given.seed, numbers, families, limits, given.failures))
        print(table(report), flush=True)
        if not report.good:
            print(json.dumps(report.details["findings"], indent=2), flush=True)
        reports.append(report)
    if given.json:
        given.json.write_text(json.dumps({"seed": given.seed, "parts": [it.as_json() for it in reports]}, indent=2))
    return 0 if all(it.good for it in reports) else 1


async def play(
    part: str, seed: int, numbers: Sequence[int], families: Mapping[str, Any], limits: Limits, folder: Path
) -> Report:
    """One part, on a world of its own."""
    findings, began = Findings(part, seed, folder), time.monotonic()
    with tempfile.TemporaryDirectory() as work:
        world = World(Path(work), amounts.PROFILES if part == "amounts" else ())
        try:
            await world.start()
            kind, made = _CAMPAIGNS[part]
            campaign = kind(world, findings, limits)
            batch = _LARGE_BATCH if part == "large" else _BATCH
            await campaign.run(partial(made, seed, families=families), numbers, batch)
            tally = campaign.tally
        finally:
            world.close()
    report = Report(f"{part}, seed {seed}")
    report.add(f"{part} sent", sum(tally.sent.values()))
    if part in ("requests", "amounts"):
        report.add("requests that need an answer", tally.asks)
    report.add("breaches", findings.count("breach"), 0)
    report.add("crashes", findings.count("crash"), 0)
    report.add(f"standstills beyond {limits.step_ms:g} ms", findings.count("standstill"), 0)
    report.add("standstills that did not occur again", tally.not_again)
    report.add("longest step, processor time", tally.longest_step_ms, unit=" ms")
    if part in ("objects", "large"):
        report.add("longest time until a valid object was in the snapshot", round(tally.slowest_marker, 2), unit=" s")
    before, after = tally.memory[min(1, len(tally.memory) - 1)], tally.memory[-1]
    report.add("memory after the first batch", round(before, 1), unit=" MB")
    report.add("memory at the end", round(after, 1), unit=" MB")
    report.add("growth of memory", round(after - before, 1), limits.growth, unit=" MB")
    report.add(
        "most memory, minus that after the first batch", round(tally.peak - before, 1), limits.growth, unit=" MB"
    )
    report.add("seconds", round(time.monotonic() - began, 1), unit=" s")
    report.details |= {
        "families": dict(tally.sent),
        "kinds": dict(tally.kinds),
        "longest step in": tally.longest_step_in,
        "found": findings.by_family(),
        "findings": findings.told(),
    }
    return report


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.fuzz", description="Send a running service what nobody should.")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--short", dest="counts", action="store_const", const=SHORT, default=FULL, help=f"{SHORT}")
    size.add_argument("--sample", dest="counts", action="store_const", const=SAMPLE, help=f"{SAMPLE}")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, help=f"of each part; default: {FULL}")
    parser.add_argument("--case", type=int, help="only this one; needs --only and the seed it was found with")
    parser.add_argument("--family", nargs="+", default=(), help="only these")
    parser.add_argument("--failures", type=Path, default=_FAILURES, help="where cases that fail are written")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
