"""A call beside an echo of the same bytes, an event beside one that nobody counts: neither costs twice what it did.

Ratios of two things measured side by side, and the best of three tries: a busy machine is busy for both. ``RECORDED``
is what was found on a quiet one, in a cluster this small (where a refused pod is looked at on all nodes more often);
``make bench`` has the figures that count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from tests.load import bench, cluster, picture
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
NODES, PODS, CALLS = 1000, 5000, 150
TRIES: Final = 3
CONSTRAINTS_FOR_EACH_POD: Final = 6


def best(measured: Callable[[], dict[str, float]], recorded: dict[str, float]) -> dict[str, float]:
    """The lowest ratio of each name; again as long as one of them is beyond twice what is recorded."""
    found: dict[str, float] = {}
    for _ in range(TRIES):
        for name, ratio in measured().items():
            found[name] = min(ratio, found.get(name, ratio))
        if not beyond(found, recorded):
            break
    return found


def beyond(found: dict[str, float], recorded: dict[str, float]) -> dict[str, float]:
    return {name: ratio for name, ratio in found.items() if ratio > 2 * recorded[name]}


def test_calls() -> None:
    def measured() -> dict[str, float]:
        found = bench.bench(NODES, PODS, CALLS, names=RECORDED)
        return {name: it["ratio_p50"] for name, it in found["microseconds"].items()}

    found = best(measured, RECORDED)

    assert RECORDED.keys() == found.keys()
    assert {} == beyond(found, RECORDED)


def test_events() -> None:
    quiet, busy = Shop(NODES, PODS), Shop(NODES, PODS)
    picture.keep_constraints(busy, CONSTRAINTS_FOR_EACH_POD * cluster.WORKLOADS)

    def measured() -> dict[str, float]:
        found = picture.events(busy, quiet)
        return {name: it["ratio"] for name, it in found.items() if name in EVENTS_RECORDED}

    found = best(measured, EVENTS_RECORDED)

    assert EVENTS_RECORDED.keys() == found.keys()
    assert {} == beyond(found, EVENTS_RECORDED)


@pytest.mark.parametrize(("ratio", "fails"), [(4.1, True), (3.9, False)])
def test_twice_is_too_much(ratio: float, fails: bool) -> None:
    assert fails == bool(beyond(best(lambda: {"it": ratio}, {"it": 2.0}), {"it": 2.0}))
