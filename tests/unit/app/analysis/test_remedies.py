"""Each remedy was tried, and opens as many nodes as it says once it is carried out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import pytest

from app.analysis.judging import Judge, Judgement
from app.analysis.remedies import MOST_SHOWN, Remedies, Remedy, best
from app.kube.core_v1 import Pod
from tests.builders import (
    ZONE,
    JsonObject,
    constraint,
    taint,
    toleration,
)
from tests.harness import World
from tests.unit.app.analysis.test_judging import COMPLETE, WEB, judged, node, pod


def remedies(world: World, asked: Pod) -> list[Remedy]:
    found: list[Remedy] = []
    judge = partial(Judge, world.framework, world.cluster)
    for _ in Remedies(world.cluster, judge).steps(asked, judged(world, asked), found):
        pass
    return best(found)


CORDONED: Final = taint("node.kubernetes.io/unschedulable")
HOST: Final = "kubernetes.io/hostname"
SPREAD: Final = [constraint(app="web")]
ON_Z1: Final = [pod(f"w{number}", labels=WEB, node="a") for number in range(2)]
Z1_AND_Z2: Final = [node("a", zone="z1"), node("b", zone="z2", cpu="500m")]


@pytest.mark.parametrize(
    ("objects", "asked", "change", "nodes", "after", "asked_after"),
    [
        pytest.param(
            [node("a", unschedulable=True, taints=[CORDONED])],
            pod(),
            "uncordon a",
            ("a",),
            [node("a")],
            pod(),
            id="uncordon",
        ),
        pytest.param(
            [node("a", taints=[taint("example.com/gpu", value="yes")]), node("b", cpu="0")],
            pod(),
            "tolerate the taint example.com/gpu=yes:NoSchedule",
            ("a",),
            [],
            pod(tolerations=[toleration("example.com/gpu", "Equal", "yes", "NoSchedule")]),
            id="tolerate a taint",
        ),
        pytest.param(
            [node("a"), node("b", cpu="2"), pod("r", cpu="1", node="a")],
            pod(cpu="4"),
            "request 3 cpu instead of 4",
            ("a",),
            [],
            pod(cpu="3"),
            id="request less",
        ),
        pytest.param(
            [node("a", zone="z1"), node("b", zone="z2", cpu="0"), pod("w", labels=WEB, node="a")],
            pod(labels=WEB, spread=SPREAD),
            f"one pod less in {ZONE}=z1",
            ("a",),
            None,
            pod(labels=WEB, spread=SPREAD),
            id="a pod less in a domain",
        ),
        pytest.param(
            [
                node("a", zone="z1"),
                node("b", zone="z2", taints=[taint("example.com/gpu")]),
                pod("w", labels=WEB, node="a"),
            ],
            pod(labels=WEB, spread=SPREAD),
            f"nodeTaintsPolicy: Honor in the constraint over {ZONE}",
            ("a",),
            [],
            pod(labels=WEB, spread=[{**SPREAD[0], "nodeTaintsPolicy": "Honor"}]),
            id="a domain whose nodes are tainted",
        ),
        pytest.param(
            [node("a", zone="z1"), pod("w", labels=WEB, node="a")],
            pod(labels=WEB, spread=[constraint(app="web", min_domains=3)]),
            f"no minDomains in the constraint over {ZONE}",
            ("a",),
            [],
            pod(labels=WEB, spread=SPREAD),
            id="more domains than there are",
        ),
        pytest.param(
            [node("a"), node("b")],
            pod(node_selector={"disk": "ssd"}),
            "remove the pod's node selector and required node affinity",
            ("a", "b"),
            [],
            pod(),
            id="a selector that no node has",
        ),
    ],
)
def test_it_opens_what_it_says_once_it_is_carried_out(
    objects: Sequence[JsonObject],
    asked: JsonObject,
    change: str,
    nodes: tuple[str, ...],
    after: Sequence[JsonObject] | None,
    asked_after: JsonObject,
) -> None:
    """``after``: objects that the change adds or replaces; ``None``: the pods of the world are deleted."""
    world = World(*objects, profile=COMPLETE)

    proved = {it.change: it for it in remedies(world, world.pod(asked))}

    assert (change, nodes) == (change, proved[change].nodes), proved
    assert len(nodes) == proved[change].opens
    if after is None:
        changed = World(*(it for it in objects if it["kind"] != "Pod"), profile=COMPLETE)
    else:
        changed = World(*objects, profile=COMPLETE).add(*after)
    assert [] == judged(world, world.pod(asked)).feasible
    assert {*nodes} <= {*judged(changed, changed.pod(asked_after)).feasible}


def test_what_does_not_help_is_not_shown() -> None:
    """The zone without room holds the minimum at 0. The other zone needs two pods less, and one does not help."""
    world = World(*Z1_AND_Z2, *ON_Z1, profile=COMPLETE)

    pods = {it.change: it.pods for it in remedies(world, world.pod(pod(labels=WEB, spread=SPREAD)))}

    assert f"one pod less in {ZONE}=z1" not in pods
    assert {"w0", "w1"} == {*pods[f"2 pods less in {ZONE}=z1"]}


def test_a_deleted_pod_also_leaves_its_room() -> None:
    """The pod with most of the node's CPU is counted by the constraint too: without it, its own node fits as well."""
    zones = [node("a", zone="z1"), node("c", zone="z1"), node("b", zone="z2", cpu="500m")]
    world = World(*zones, pod("w", cpu="3500m", labels=WEB, node="a"), profile=COMPLETE)

    nodes = {it.change: it.nodes for it in remedies(world, world.pod(pod(labels=WEB, spread=SPREAD)))}

    assert ("a", "c") == nodes[f"one pod less in {ZONE}=z1"]


def test_a_pod_that_two_constraints_count_opens_more_than_its_domain() -> None:
    world = World(
        node("a", zone="z1"),
        node("c", zone="z1"),
        pod("w", labels=WEB, node="a"),
        profile=COMPLETE,
    )
    both: list[JsonObject] = [constraint(HOST, app="web"), {**SPREAD[0], "minDomains": 2}]

    nodes = {it.change: it.nodes for it in remedies(world, world.pod(pod(labels=WEB, spread=both)))}

    assert ("a", "c") == nodes[f"one pod less in {HOST}=a"]


def test_without_a_selector_more_domains_count() -> None:
    """With the selector there is one zone of two, so that the minimum is 0 and the node in it is rejected too."""
    world = World(
        node("a", zone="z1", labels={"disk": "ssd"}),
        node("b", zone="z2"),
        *(pod(f"w-{name}", labels=WEB, node=name) for name in "ab"),
        profile=COMPLETE,
    )
    asked = pod(labels=WEB, node_selector={"disk": "ssd"}, spread=[{**SPREAD[0], "minDomains": 2}])

    nodes = {it.sort: it.nodes for it in remedies(world, world.pod(asked))}

    assert ("a", "b") == nodes["NodeAffinity"]


def test_with_a_toleration_more_domains_count() -> None:
    world = World(
        node("a", zone="z1"),
        node("b", zone="z2", taints=[taint("example.com/gpu")]),
        *(pod(f"w-{name}", labels=WEB, node=name) for name in "ab"),
        profile=COMPLETE,
    )
    honor: list[JsonObject] = [{**SPREAD[0], "minDomains": 2, "nodeTaintsPolicy": "Honor"}]

    nodes = {it.sort: it.nodes for it in remedies(world, world.pod(pod(labels=WEB, spread=honor)))}

    assert ("a", "b") == nodes["Tolerate"]


def test_best_first_and_never_more_than_five() -> None:
    nodes = [node(f"c{number}", unschedulable=True) for number in range(9)]
    tainted = [node(f"t{number}", taints=[taint("example.com/gpu")]) for number in range(3)]
    world = World(*nodes, *tainted, profile=COMPLETE)

    found = remedies(world, world.pod(pod()))

    assert MOST_SHOWN == len(found)
    assert ("Tolerate", 3) == (found[0].sort, found[0].opens)
    assert ["Uncordon"] * 4 == [it.sort for it in found[1:]]


def test_counts_are_as_before() -> None:
    """Trying changes leaves no trace in the snapshot."""
    world = World(*Z1_AND_Z2, *ON_Z1, profile=COMPLETE)
    asked = world.pod(pod(labels=WEB, spread=SPREAD))
    before: Judgement = judged(world, asked)

    assert remedies(world, asked)

    assert (before.rejected, before.feasible) == (judged(world, asked).rejected, judged(world, asked).feasible)
    assert [] == world.cluster.check()


def test_a_change_of_taints_is_not_tried_where_counts_depend_on_them() -> None:
    """With ``nodeTaintsPolicy: Honor``, an uncordoned node would count as a new domain."""
    honor: list[JsonObject] = [{**SPREAD[0], "nodeTaintsPolicy": "Honor"}]
    world = World(node("a", zone="z1", unschedulable=True, taints=[CORDONED]), profile=COMPLETE)

    assert "Uncordon" not in [it.sort for it in remedies(world, world.pod(pod(labels=WEB, spread=honor)))]
