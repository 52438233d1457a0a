"""Pods are placed one after the other by whole cycles; the source of the copy does not change."""

from __future__ import annotations

from app.kube.deletion_cost import NO_COST
from app.whatif.placing import Placement, Placer, recreated
from app.whatif.scratch import ScratchCluster
from tests.builders import ZONE, JsonObject, constraint, controller, encoded
from tests.harness import World
from tests.unit.app.whatif.scratches import COMPLETE, decoded, node, pod, scratch_of

WEB = {"app": "web"}


def placed(scratch: ScratchCluster, *objects: JsonObject, preempts: bool = False) -> dict[str, Placement]:
    placements: list[Placement] = []
    for _ in Placer(scratch, preempts=preempts).placing(decoded(scratch, *objects), placements):
        pass
    return {it.pod.name: it for it in placements}


def nodes(placements: dict[str, Placement]) -> dict[str, str]:
    return {name: it.node for name, it in placements.items()}


def test_each_pod_takes_room_from_the_next() -> None:
    scratch = scratch_of(node("a", cpu="2"), node("b", cpu="1"))

    found = placed(scratch, pod("one"), pod("two"), pod("three"), pod("four"))

    assert {"a": 2, "b": 1, "": 1} == {it: list(nodes(found).values()).count(it) for it in ("a", "b", "")}
    assert "" == found["four"].node
    assert [(("Insufficient cpu",), 2)] == [(status.reasons, count) for status, count in found["four"].rejections]


def test_replicas_are_spread() -> None:
    """The pods placed before count for the constraint of the next pod."""
    spread = [constraint(ZONE, app="web")]
    scratch = scratch_of(*(node(name, zone=name[0]) for name in ("a1", "a2", "b1")))

    found = placed(scratch, *(pod(f"web-{number}", cpu="100m", labels=WEB, spread=spread) for number in range(4)))

    assert {"a": 2, "b": 2} == {zone: sum(it[:1] == zone for it in nodes(found).values()) for zone in "ab"}


def test_a_pod_of_higher_priority_is_tried_first() -> None:
    scratch = scratch_of(node("a", cpu="1"))

    found = placed(scratch, pod("low"), pod("high", priority=10))

    assert ["high", "low"] == list(found)
    assert {"high": "a", "low": ""} == nodes(found)


def test_a_waiting_pod_is_tried_again_after_others_are_placed() -> None:
    """The first pod needs a pod of the app beside it, which only comes later."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": WEB}}
    beside = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    scratch = scratch_of(node("a"))

    found = placed(scratch, pod("needs-web", affinity=beside), pod("web", labels=WEB))

    assert {"web": "a", "needs-web": "a"} == nodes(found)


def test_nodes_with_the_same_score_are_counted() -> None:
    scratch = scratch_of(node("c"), node("a"), node("b"))

    found = placed(scratch, pod("new"))["new"]

    assert ("a", 2) == (found.node, found.ties)


def test_preemption_is_reported() -> None:
    scratch = scratch_of(node("a", cpu="1"), pod("old", node="a", priority=1))

    found = placed(scratch, pod("new", priority=10))["new"]

    assert ("", "a", ["old"]) == (found.node, found.nominated, [it.name for it in found.victims])
    assert "a" == scratch.cluster.place_of("", ("default", "old"))


def test_preemption_is_played() -> None:
    """A victim with a controller comes back and waits; one without a controller is gone."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
    old = [pod("kept", node="a", priority=1, owner=owner), pod("bare", node="a", priority=1)]
    scratch = scratch_of(node("a", cpu="2"), *old)

    found = placed(scratch, pod("new", cpu="2", priority=10), preempts=True)

    assert {"new": "a", "kept-again": ""} == nodes(found)
    assert {"kept", "bare"} == {it.name for it in found["new"].victims}


def test_a_victim_of_a_pod_that_is_tried_again_comes_back_too() -> None:
    """The first pod needs a pod of the app beside it; once that is placed, it evicts one of lower priority."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": WEB}}
    beside = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    owner = controller("ReplicaSet", "low")
    scratch = scratch_of(node("a", cpu="2"), pod("low", node="a", owner=owner))

    high = pod("high", affinity=beside, priority=9)
    found = placed(scratch, high, pod("web", labels=WEB, priority=9), preempts=True)

    assert {"high": "a", "web": "a", "low-again": ""} == nodes(found)


def test_a_gated_pod_is_not_placed() -> None:
    scratch = scratch_of(node("a"))

    found = placed(scratch, pod("gated", gated=True))["gated"]

    assert ("", False) == (found.node, found.gate.is_success)


def test_the_source_does_not_change() -> None:
    world = World(node("a"), pod("old", node="a"), profile=COMPLETE)
    scratch = ScratchCluster(world.cluster, scratch_of(node("x"))._profiles, "*")
    for _ in scratch.copying():
        pass
    before = world.cluster.generation

    placed(scratch, pod("new"))
    scratch.cluster.delete_node("a")

    assert before == world.cluster.generation
    assert [] == scratch.cluster.check()
    assert {"old"} == {it.name for it in world.cluster.pods()}


def test_pods_get_the_deletion_costs_that_a_bind_would_set() -> None:
    """Each zone gets two pods, of ranks 0 and 1. A pod that comes back has no rank yet."""
    beyond = {"beyond": {"scaleDown": "Spread"}}
    profile = {**COMPLETE, "pluginConfig": [{"name": "PodTopologySpread", "args": beyond}]}
    owner = controller("ReplicaSet", "web")
    spread = [constraint(ZONE, app="web")]
    scratch = scratch_of(*(node(name, zone=name[0]) for name in ("a1", "b1")), profile=profile)
    pods = [pod(f"web-{it}", cpu="100m", labels=WEB, spread=spread, owner=owner) for it in range(4)]

    made = [scratch.cluster.core.decode_pod(encoded(it)) for it in pods]
    placements: list[Placement] = []
    for _ in Placer(scratch).placing(made, placements):
        pass

    bound = [scratch.cluster.pod(*it.key) for it in made]
    costs = sorted((it.node_name, it.deletion_cost.value) for it in bound if it is not None)
    assert [("a1", -1), ("a1", 0), ("b1", -1), ("b1", 0)] == costs
    assert {NO_COST} == {recreated(it).deletion_cost for it in bound if it is not None}
