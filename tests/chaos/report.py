"""What a scenario found, against its targets; a table for people and JSON for machines."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

WIDTH: Final = 58


@dataclass(frozen=True, slots=True)
class Figure:
    """``most``: the greatest value that is good; ``None`` for a figure that is only told."""

    name: str
    value: float
    most: float | None = None
    unit: str = ""

    @property
    def good(self) -> bool:
        return self.most is None or self.value <= self.most


@dataclass(slots=True)
class Report:
    """One scenario. ``details``: evidence, such as the first violations; only in the JSON."""

    scenario: str
    figures: list[Figure] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, value: float, most: float | None = None, unit: str = "") -> None:
        self.figures.append(Figure(name, value, most, unit))

    @property
    def good(self) -> bool:
        return all(it.good for it in self.figures)

    def as_json(self) -> dict[str, Any]:
        figures = [{"name": it.name, "value": it.value, "most": it.most, "good": it.good} for it in self.figures]
        return {"scenario": self.scenario, "good": self.good, "figures": figures, "details": self.details}


def table(report: Report) -> str:
    """A line a figure: what, how much, what is wanted, and whether it is missed."""
    lines = [report.scenario]
    for it in report.figures:
        wanted = "" if it.most is None else f"at most {it.most:g}{it.unit}"
        missed = "" if it.good else "  MISSED"
        lines.append(f"  {it.name:<{WIDTH}} {_told(it.value)}{it.unit:<4} {wanted}{missed}".rstrip())
    return "\n".join(lines)


def _told(value: float) -> str:
    return f"{value:>10,}" if isinstance(value, int) else f"{value:>10,.3f}"


def percentiles(values: Sequence[float]) -> Mapping[str, float]:
    """Median, 90th and 99th centile and the greatest, all 0 without values."""
    ranked = sorted(values) or [0.0]
    places = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {name: round(ranked[min(len(ranked) - 1, int(place * len(ranked)))], 6) for name, place in places.items()}


def progress(told: str) -> None:
    """A word to whoever waits; the report itself is on standard output."""
    print(f"  {told}", file=sys.stderr, flush=True)
