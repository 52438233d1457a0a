"""The evictions that would let a pod in if somebody preempted for topology spread."""

from __future__ import annotations

from typing import Any

import pytest

from app.analysis.judging import Judge
from app.analysis.spread_preemption import add_preemption, can_preempt
from tests.builders import JsonObject, constraint
from tests.harness import World
from tests.unit.app.analysis.test_judging import COMPLETE, WEB, judged, node, pod

NEVER = "would let the pod in; preemption is Never"
NONE = "no eviction would let the pod in: 0/2 nodes are available: 1 Preemption is not helpful for scheduling, 1"
SPREAD = [constraint(app="web")]


def web(name: str, at: str, priority: int = 0, **fields: Any) -> JsonObject:
    return pod(name, labels=WEB, node=at, priority=priority, **fields)


def budget(allowed: int) -> JsonObject:
    spec = {"selector": {"matchLabels": WEB}, "minAvailable": 1}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": spec,
        "status": {"disruptionsAllowed": allowed},
    }


def sentences(*objects: JsonObject, priority: int = 10, stays: str = "") -> list[str]:
    """What is said of a pod with a hard constraint over zones."""
    world = World(*objects, profile=COMPLETE)
    asked = world.pod(pod("new", labels=WEB, spread=SPREAD, priority=priority))
    told: list[str] = []
    judge = Judge(world.framework, world.cluster)
    for _ in add_preemption(world.framework, judge, asked, judged(world, asked), lambda _: stays, told):
        pass
    return told


ZONES = [node("a1", zone="a"), node("b1", zone="b", unschedulable=True)]


def test_the_victims_and_their_node() -> None:
    assert sentences(*ZONES, web("low", "a1")) == [f"evicting default/low on a1 {NEVER}"]


def test_a_budget_that_forbids_the_eviction_is_named() -> None:
    (told,) = sentences(*ZONES, web("low", "a1"), budget(0))
    assert told == f"{NONE} budget default/web allows no further eviction."
    assert sentences(*ZONES, web("low", "a1"), budget(1)) == [f"evicting default/low on a1 {NEVER}"]


def test_many_victims_are_named_in_part_the_most_important_first() -> None:
    crowd = [web(f"low-{number}", "a1", number, cpu="100m") for number in range(7)]

    (told,) = sentences(*ZONES, *crowd)
    assert told == (
        f"evicting default/low-6, default/low-5, default/low-4, default/low-3, default/low-2 and 2 more on a1 {NEVER}"
    )


def test_the_reason_why_pods_must_stay_is_named() -> None:
    (told,) = sentences(*ZONES, web("low", "a1"), stays="it has a hard home")
    assert told == f"{NONE} pods of lower priority must stay: it has a hard home."


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param([*ZONES, web("equal", "a1", 10)], id="no pod of lower priority"),
        pytest.param([node("a1", zone="a", unschedulable=True), ZONES[1], web("low", "a1")], id="another rule rejects"),
        pytest.param([node("a1", zone="a")], id="a node fits"),
        pytest.param([*ZONES, pod("other", node="a1"), web("equal", "a1", 10)], id="the others do not count"),
    ],
)
def test_where_no_eviction_helps_nothing_is_said(objects: list[JsonObject]) -> None:
    assert sentences(*objects) == []


def test_a_plugin_that_cannot_be_used_chooses_no_victims() -> None:
    framework = World(profile=COMPLETE).framework

    assert (can_preempt(framework, ()), can_preempt(framework, {"DefaultPreemption"})) == (True, False)
