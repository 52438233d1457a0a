"""How quiet is the machine? What other tenants take shows as steal, and, where nothing is stolen, as slower memory.

    python -m tests.load.quiet --seconds 30

A walk of dependent look-ups through 64 MB, and additions that need no memory: both in nanoseconds of the wall clock a
step. Beside the figures of a benchmark they say whether its rounds had the same machine.
"""

from __future__ import annotations

import argparse
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from msgspec import Struct

from tests.load import report

_BITS: Final = 23
"""Of the table's length: 64 MB of eight bytes each."""
_STEPS: Final = 200_000
_STEAL: Final = 7
_MULTIPLIER: Final = 1_140_671_485
_INCREMENT: Final = 12_820_163


class Sample(Struct, frozen=True):
    """``walk`` and ``add`` in ns a step · ``stolen``: of the processors' time since the last sample, a part."""

    walk: float
    add: float
    stolen: float


class Probe:
    """Looks at the machine between two runs of a benchmark, for some 50 ms each."""

    def __init__(self) -> None:
        mask = (1 << _BITS) - 1
        self._next = array("q", ((it * _MULTIPLIER + _INCREMENT) & mask for it in range(1 << _BITS)))
        self._at = 0
        self._samples: list[Sample] = []
        self._times = _processor_times()

    def take(self) -> Sample:
        """One more sample, which is kept for ``as_json``."""
        before, self._times = self._times, _processor_times()
        passed = [now - then for now, then in zip(self._times, before, strict=True)]
        whole = sum(passed) or 1
        found = Sample(walk=self._walk(), add=_add(), stolen=round(passed[_STEAL] / whole, 4))
        self._samples.append(found)
        return found

    def as_json(self) -> dict[str, Any]:
        """Least, median and most of what was taken."""
        return {
            "walk ns": _spread([it.walk for it in self._samples]),
            "add ns": _spread([it.add for it in self._samples]),
            "stolen": _spread([it.stolen for it in self._samples]),
        }

    def _walk(self) -> float:
        table, at = self._next, self._at
        began = time.perf_counter_ns()
        for _ in range(_STEPS):
            at = table[at]
        self._at = at
        return round((time.perf_counter_ns() - began) / _STEPS, 1)


def _add() -> float:
    found = 0
    began = time.perf_counter_ns()
    for it in range(_STEPS):
        found += it
    return round((time.perf_counter_ns() - began) / _STEPS, 1)


def _processor_times() -> list[int]:
    """user, nice, system, idle, iowait, irq, softirq, steal: of all processors, in ticks (proc(5))."""
    return [int(it) for it in Path("/proc/stat").read_text().splitlines()[0].split()[1 : _STEAL + 2]]


def _spread(values: Sequence[float]) -> list[float]:
    return [min(values), round(median(values), 4), max(values)] if values else []


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.load.quiet", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10, help="for how long; default: %(default)s")
    arguments = parser.parse_args()
    probe, ends = Probe(), time.monotonic() + arguments.seconds
    while time.monotonic() < ends:
        probe.take()
        time.sleep(0.5)
    report.publish({"machine": report.machine(), "quiet": probe.as_json()})


if __name__ == "__main__":
    main()
