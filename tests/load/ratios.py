"""A call beside an echo of the same bytes, an event beside one nobody counts: neither should cost twice what it did.

    python -m tests.load.ratios

Ratios of two things measured side by side, and the best of three tries: a busy machine is mostly busy for both. Mostly:
so this is a part of ``make bench``, a gate for whoever wants one (``CHECK=1``), and none of ``make test``. ``RECORDED``
is what was found on a quiet machine, in a cluster this small (where a refused pod is looked at on all nodes more
often); the other parts of the bench have the figures that count.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.load import bench, cluster, picture, report
from tests.load.shop import Shop

RECORDED: Final = {
    "lean_filter_500": 1.5,
    "lean_prioritize_500": 1.2,
    "lean_prioritize_500_without_filter": 1.6,
    "filter_500": 2.4,
    "prioritize_500": 2.0,
    "filter_500_refused_again": 2.4,
    "filter_500_refused_again_in_one_order": 2.4,
}
EVENTS_RECORDED: Final = {"pod add": 3.7, "pod update": 1.4, "pod relabel": 2.0, "pod delete": 4.7}
MOST: Final = 2.0
"""A ratio beyond so many times the recorded one is one too many."""

_TRIES: Final = 3
_CONSTRAINTS_FOR_EACH_POD: Final = 6


def best(measured: Callable[[], Mapping[str, float]], recorded: Mapping[str, float]) -> dict[str, float]:
    """The lowest ratio of each name; again as long as one of them is beyond its limit."""
    found: dict[str, float] = {}
    for _ in range(_TRIES):
        for name, ratio in measured().items():
            found[name] = min(ratio, found.get(name, ratio))
        if not any(ratio > MOST * recorded[name] for name, ratio in found.items()):
            break
    return found


def limited(found: Mapping[str, float], recorded: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Each ratio with its limit."""
    return {name: {"ratio": ratio, "most": MOST * recorded[name]} for name, ratio in found.items()}


def calls(nodes: int, pods: int, count: int) -> dict[str, float]:
    """Calls beside an echo, in processes of their own."""

    def measured() -> dict[str, float]:
        found = bench.bench(nodes, pods, count, names=RECORDED)
        return {name: it["ratio_p50"] for name, it in found["microseconds"].items()}

    return best(measured, RECORDED)


def events(nodes: int, pods: int) -> dict[str, float]:
    """Events on a picture with constraints alive beside those on one with none."""
    quiet, busy = Shop(nodes, pods), Shop(nodes, pods)
    picture.keep_constraints(busy, _CONSTRAINTS_FOR_EACH_POD * cluster.WORKLOADS)

    def measured() -> dict[str, float]:
        found = picture.events(busy, quiet)
        return {name: it["ratio"] for name, it in found.items() if name in EVENTS_RECORDED}

    return best(measured, EVENTS_RECORDED)


def measure(nodes: int, pods: int, count: int) -> dict[str, Any]:
    return {**limited(calls(nodes, pods, count), RECORDED), **limited(events(nodes, pods), EVENTS_RECORDED)}


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.load.ratios", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--pods", type=int, default=5_000)
    parser.add_argument("--calls", type=int, default=150)
    given = parser.parse_args()
    found = measure(given.nodes, given.pods, given.calls)
    report.table(("ratio", "found", "at most"), [(name, it["ratio"], it["most"]) for name, it in found.items()])
    report.publish({"ratios": found})


if __name__ == "__main__":
    main()
