"""How long a search for victims lasts, and that repeated searches reach every node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pytest

from app.controllers import victim_search
from app.controllers.victim_search import find_victims, has_lower
from app.kube.core_v1 import Pod
from tests.builders import constraint, encoded, node_object, pod_object
from tests.harness import World
from tests.unit.app.verbs.bench import WEB

NODES: Final = ("a1", "a2", "a3")
TIMES: Final = 60


def world(*low: str) -> tuple[World, Pod]:
    nodes = [node_object(name, zone="a") for name in NODES]
    pods = [pod_object(f"low-{name}", labels=WEB, node=name, priority=0) for name in low]
    closed = node_object("b1", zone="b", unschedulable=True)
    judges = World(*nodes, closed, *pods, profile={"schedulerName": "default-scheduler", "preemption": "Own"})
    spread = [constraint(app="web", skew=len(low))]
    high = judges.cluster.core.decode_pod(encoded(pod_object("high", labels=WEB, priority=10, spread=spread)))
    judges.cluster.upsert_pod(high)
    return judges, high


async def searches(low: Sequence[str], stays: Callable[[Pod], str] = lambda _: "") -> set[tuple[str, bool]]:
    """Node and completeness of the results of many searches."""
    judges, high = world(*low)
    choices = [await find_victims(judges.cluster, judges.framework, high, NODES, stays) for _ in range(TIMES)]
    assert all([f"low-{it.node}"] == [pod.name for pod in it.pods] for it in choices if it.node)
    return {(it.node, it.is_complete) for it in choices}


async def test_only_nodes_with_lower_pods_are_tried_and_the_result_is_complete() -> None:
    assert {("a2", True)} == await searches(["a2"])


async def test_a_search_without_time_tries_one_group_and_repeated_ones_reach_every_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(victim_search, "SEARCH_SECONDS", 0.0)
    monkeypatch.setattr(victim_search, "_AT_ONCE", 1)

    choices = await searches(NODES, lambda pod: "it has a hard home" if pod.name == "low-a1" else "")

    assert {("", False), ("a2", False), ("a3", False)} == choices


async def test_a_scan_without_time_ends_at_the_first_node_and_repeated_ones_reach_every_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(victim_search, "_SCAN_SECONDS", -1.0)
    monkeypatch.setattr(victim_search, "_STEP", 1)

    choices = await searches(["a1", "a3"])

    assert {("a1", False), ("a3", False)} == choices


@pytest.mark.parametrize(("low", "expected"), [([], False), (["a3"], True)])
async def test_pods_of_lower_priority_are_seen(low: list[str], expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(victim_search, "_STEP", 1)
    judges, high = world(*low)

    assert expected is await has_lower(judges.cluster, high)
