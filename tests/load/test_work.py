"""How much work a call may be, in instructions of Python's byte code: a slow-down by accident fails here.

Instructions are counted and not microseconds, so the same commit gives the same figures on any machine. They differ a
little between Python releases; the bounds leave room for that, and not for a loop over the names that was not there.
Decoding, encoding and sets are C and count for nothing, so this does not say that a call is fast: ``make bench`` does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, Final

import pytest

from app.verbs.outcome import Verb
from tests.load import cluster
from tests.load.shop import Shop, app, asked, constraint, pending, pending_json, pod

NODES: Final = 1000
FEW, MANY = 100, 900

ZONE_HARD: Final = constraint(cluster.ZONE_KEY, app(7))
ZONE_FULL: Final = constraint(cluster.ZONE_KEY, app(7), skew=1)
HOST_HARD: Final = constraint(cluster.HOST_KEY, app(7), skew=1)
ZONE_SOFT: Final = constraint(cluster.ZONE_KEY, app(7), hard=False)
HOST_SOFT: Final = constraint(cluster.HOST_KEY, app(7), hard=False)


def instructions(call: Callable[[], object]) -> int:
    """Byte code instructions executed by ``call`` and everything it calls, as far as its code has been traced before.

    Code that never was tells nothing of the first time from Python 3.12 on: ``usual`` is for what can be repeated.
    """
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def usual(call: Callable[[], object]) -> int:
    """The same where one call is like the other, but for those in which a plugin is timed."""
    instructions(call)
    return min(instructions(call) for _ in range(3))


@pytest.fixture(scope="module")
def shop() -> Shop:
    return Shop(NODES, pods=4000)


def work(shop: Shop, verb: Verb, made: dict[str, Any], names: int) -> int:
    body = asked(made, shop.names()[:names])
    return usual(lambda: shop.call(verb, body))


@pytest.mark.parametrize(
    ("verb", "spread", "a_call", "a_name"),
    [
        pytest.param("filter", [], 2500, 0.1, id="filter, nothing to decide"),
        pytest.param("filter", [ZONE_HARD], 3500, 0.1, id="filter, zone hard"),
        pytest.param("filter", [ZONE_FULL], 3500, 30, id="filter, zone hard, some zones full"),
        pytest.param("filter", [HOST_HARD], 3500, 30, id="filter, host hard"),
        pytest.param("filter", [ZONE_HARD, HOST_HARD], 4500, 30, id="filter, zone and host hard"),
        pytest.param("prioritize", [ZONE_SOFT], 4500, 1, id="prioritize, zone soft"),
        pytest.param("prioritize", [HOST_SOFT], 4500, 1, id="prioritize, host soft"),
        pytest.param("prioritize", [ZONE_SOFT, HOST_SOFT], 5500, 1, id="prioritize, zone and host soft"),
    ],
)
def test_a_call_and_a_name_more_are_little_work(
    shop: Shop, verb: Verb, spread: list[Any], a_call: int, a_name: float
) -> None:
    few, many = (work(shop, verb, pending_json(7, *spread), names) for names in (FEW, MANY))
    each = (many - few) / (MANY - FEW)

    assert (few - each * FEW <= a_call, each <= a_name) == (True, True), (few, many, each)


def test_a_candidate_of_preempt_is_little_work(shop: Shop) -> None:
    def candidates(count: int) -> bytes:
        nodes = list(shop.picture.nodes.items())[:count]
        victims = {name: {"Pods": [{"UID": uid} for uid in list(info.pods)[:1]]} for name, info in nodes}
        return json.dumps({"Pod": pending_json(7, ZONE_FULL), "NodeNameToMetaVictims": victims}).encode()

    few, many = (usual(partial(shop.call, "preempt", body)) for body in map(candidates, (FEW, MANY)))

    assert (many - few) / (MANY - FEW) <= 1500, (few, many)


def test_an_event_is_no_more_work_for_constraints_of_other_pods() -> None:
    shop = Shop(NODES, pods=1000)
    came, gone = (pod(cluster.pod(5007, NODES)) for _ in range(2))

    def event() -> int:
        taken = instructions(lambda: shop.picture.upsert_pod(came))
        shop.picture.delete_pod(gone.key, gone.uid)
        return taken

    event()
    with_none = event()
    for workload in range(100, 300):
        shop.filter(pending(workload, constraint(cluster.ZONE_KEY, app(workload))), shop.sample())

    assert event() == with_none
