"""What a run of the bench missed, in words: a gate for whoever wants one (``make bench CHECK=1``).

The limits are those of docs/performance.md. They hold on a machine that does nothing else; nothing of ``make test``
depends on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

LONGEST_PAUSE_MS: Final = 20.0
"""Of the loop under ordinary load, in processor time of its thread."""


def exceeded(found: Mapping[str, Any]) -> list[str]:
    """``found``: what the parts printed, by part. Empty if every limit was kept."""
    return [it for part, limits in _LIMITS.items() if part in found for it in limits(found[part])]


def _ratios(found: Mapping[str, Any]) -> Iterator[str]:
    for name, it in found["ratios"].items():
        if it["ratio"] > it["most"]:
            yield f"ratios: {name}: {it['ratio']} times what is beside it, at most {it['most']:g}"


def _service(found: Mapping[str, Any]) -> Iterator[str]:
    for name, it in found["service"].get("events", {}).get("segments", {}).items():
        longest = it["longest_pause"]["cpu_ms"]
        if longest > LONGEST_PAUSE_MS:
            yield f"service: {name}: a pause of {longest} ms, at most {LONGEST_PAUSE_MS:g}"


def _scheduling(found: Mapping[str, Any]) -> Iterator[str]:
    for it in found["scheduling"]:
        if it["target"] is not None and it["ratio"] is not None and it["ratio"] < it["target"]:
            yield f"scheduling: {it['workload']}: {it['ratio']} of the in-tree plugin's pods/s, at least {it['target']}"


_LIMITS: Final[Mapping[str, Callable[[Any], Iterator[str]]]] = {
    "ratios": _ratios,
    "service": _service,
    "scheduling": _scheduling,
}
