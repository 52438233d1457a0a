"""How figures are printed: one JSON object on standard output, tables for a person on standard error."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any

Row = Sequence[object]


def machine() -> dict[str, Any]:
    """What was measured on, and what."""
    models = [it for it in Path("/proc/cpuinfo").read_text().splitlines() if it.startswith("model name")]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "python": platform.python_version(),
        "processor": models[0].partition(":")[2].strip() if models else platform.machine(),
        "cores": len(models),
        "kernel": platform.release(),
        "load average": Path("/proc/loadavg").read_text().split()[0],
        "commit": commit.stdout.strip(),
    }


def say(text: str = "") -> None:
    """A line for the person who waits."""
    print(text, file=sys.stderr, flush=True)


def table(head: Row, rows: Sequence[Row]) -> None:
    """A table as Markdown has it, so that it can be put into docs/performance.md."""
    lines = [[_cell(it) for it in row] for row in (head, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    lines.insert(1, ["-" * width for width in widths])
    say()
    for line in lines:
        say("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |")


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return str(value)


def publish(found: Any, output: str = "") -> None:
    """Print the figures, and keep them in a file if one is named."""
    text = json.dumps(found, indent=2)
    if output:
        Path(output).write_text(text + "\n")
    print(text)


def percentiles(times: Sequence[float]) -> dict[str, float]:
    """p50, p99 and the longest."""
    cuts = quantiles(times, n=100)
    return {"p50": round(cuts[49], 1), "p99": round(cuts[98], 1), "max": round(max(times), 1)}
