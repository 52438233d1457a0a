"""Each remedy was tried, and opens as many nodes as it says once it is carried out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import pytest

from app.analysis.judging import Judge, Judgement
from app.analysis.remedies import MOST_SHOWN, Remedies, Remedy, best
from app.kube.core_v1 import Pod
from tests.builders import ZONE, JsonObject, constraint, container, pod_object, taint, toleration
from tests.harness import World
from tests.unit.app.analysis.test_judging import COMPLETE, WEB, judged, node, pod


def searched(world: World, asked: Pod) -> tuple[list[Remedy], bool]:
    """The best remedies, and whether changes were left out."""
    found: list[Remedy] = []
    search = Remedies(world.cluster, partial(Judge, world.framework, world.cluster))
    for _ in search.steps(asked, judged(world, asked), found):
        pass
    return best(found), search.untried


def remedies(world: World, asked: Pod) -> list[Remedy]:
    return searched(world, asked)[0]


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


HONOR: Final[JsonObject] = {**SPREAD[0], "nodeTaintsPolicy": "Honor"}
OPEN_IN_Z1: Final = [node("o", zone="z1", cpu="0"), pod("w0", labels=WEB, node="o")]
CLOSED_IN_Z1: Final = node("a", zone="z1", unschedulable=True, taints=[CORDONED])
EMPTY_Z2: Final = node("e", zone="z2", cpu="0")


@pytest.mark.parametrize(
    ("objects", "spread", "opens"),
    [
        pytest.param([], [HONOR], False, id="a domain more would count"),
        pytest.param([*OPEN_IN_Z1, pod("w1", labels=WEB, node="a")], [HONOR], False, id="pods more would count"),
        pytest.param([*OPEN_IN_Z1, pod("b", node="a")], [HONOR], True, id="counts stay"),
        pytest.param([*OPEN_IN_Z1, EMPTY_Z2], [HONOR], False, id="counts stay and reject it"),
        pytest.param([], [{**HONOR, "whenUnsatisfiable": "ScheduleAnyway"}], True, id="a soft constraint"),
    ],
)
def test_a_node_is_uncordoned_where_its_counts_are_known(
    objects: Sequence[JsonObject], spread: Sequence[JsonObject], opens: bool
) -> None:
    """With ``nodeTaintsPolicy: Honor``, an uncordoned node counts, and an overlay does not show that."""
    world = World(CLOSED_IN_Z1, *objects, profile=COMPLETE)

    found = [it.change for it in remedies(world, world.pod(pod(labels=WEB, spread=[*spread])))]

    assert opens == ("uncordon a" in found)


def test_a_nominated_pod_takes_the_room_of_a_node_that_is_uncordoned() -> None:
    first = pod("first", cpu="3", priority=10, status={"nominatedNodeName": "a"})
    world = World(node("a", unschedulable=True, taints=[CORDONED]), first, profile=COMPLETE)

    assert [["uncordon a"], []] == [[it.change for it in remedies(world, world.pod(pod(cpu=cpu)))] for cpu in "12"]


def test_as_few_pods_more_as_open_a_node() -> None:
    """The zone without room holds the minimum at 0; the smaller of the others decides."""
    zones = [node("a", zone="z1"), node("b", zone="z2"), node("c", zone="z3", cpu="0")]
    running = [pod(f"a{it}", cpu="100m", labels=WEB, node="a") for it in range(4)]
    running += [pod(f"b{it}", cpu="100m", labels=WEB, node="b") for it in range(5)]
    world = World(*zones, *running, profile=COMPLETE)

    (found,) = (it for it in remedies(world, world.pod(pod(labels=WEB, spread=SPREAD))) if it.sort == "MaxSkew")

    assert (f"maxSkew: 5 in the constraint over {ZONE}", ("a",)) == (found.change, found.nodes)
    assert ["a"] == judged(world, world.pod(pod(labels=WEB, spread=[{**SPREAD[0], "maxSkew": 5}]))).feasible


def test_the_pod_that_makes_room_is_deleted_before_newer_ones() -> None:
    """The newest pods of the zone are on a node that is too small."""
    old = pod("old", cpu="3500m", labels=WEB, node="a", created="2026-01-01T00:00:00Z")
    new = [pod(f"w{it}", cpu="100m", labels=WEB, node="c", created="2026-02-01T00:00:00Z") for it in range(3)]
    zones = [node("a", zone="z1"), node("c", zone="z1", cpu="500m"), node("b", zone="z2", cpu="0")]
    world = World(*zones, *new, old, profile=COMPLETE)

    found = {it.sort: it for it in remedies(world, world.pod(pod(labels=WEB, spread=[{**SPREAD[0], "maxSkew": 4}])))}

    assert (("old",), ("a",)) == (found["FewerPods"].pods, found["FewerPods"].nodes)


def requesting(cpu: str, memory: str, **more: JsonObject) -> JsonObject:
    return pod_object("new", containers=[container(requests={"cpu": cpu, "memory": memory})], more=more)


@pytest.mark.parametrize(
    ("objects", "asked", "change", "nodes"),
    [
        pytest.param(
            [node("a", cpu="6"), pod("m", cpu="1", node="a"), pod("big", cpu="0", node="a"), node("b", cpu="2")],
            requesting("8", "1Gi"),
            "request 5 cpu instead of 8",
            ("a",),
            id="the most that is free",
        ),
        pytest.param(
            [
                node("a", cpu="6"),
                pod_object("m", containers=[container(requests={"memory": "7500Mi"})], node="a"),
                node("b", cpu="2"),
            ],
            requesting("8", "1Gi"),
            "request 2 cpu instead of 8",
            ("b",),
            id="not where another request does not fit",
        ),
        pytest.param(
            [node("a", cpu="4")],
            requesting("4", "1Gi", overhead={"cpu": "500m"}),
            "request 3500m cpu instead of 4",
            ("a",),
            id="the runtime class needs some too",
        ),
        pytest.param(
            [node("a", cpu="5"), node("b", cpu="3"), pod("n", cpu="3", priority=1, status={"nominatedNodeName": "a"})],
            requesting("6", "1Gi"),
            "request 3 cpu instead of 6",
            ("b",),
            id="not where a nominated pod needs it",
        ),
    ],
)
def test_the_smaller_request_is_one_that_is_proved(
    objects: Sequence[JsonObject], asked: JsonObject, change: str, nodes: tuple[str, ...]
) -> None:
    world = World(*objects, profile=COMPLETE)

    (found,) = remedies(world, world.pod(asked))

    assert (change, nodes) == (found.change, found.nodes)


def test_a_request_that_is_not_the_only_one_too_large_is_not_lowered() -> None:
    world = World(node("a", cpu="2"), profile=COMPLETE)

    assert ([], False) == searched(world, world.pod(requesting("4", "9Gi")))


def twice_tainted(count: int) -> list[JsonObject]:
    """Nodes that one toleration does not open."""
    return [node(f"n{it}", taints=[taint(f"example.com/{it}-{name}") for name in "ab"]) for it in range(count)]


def test_what_is_left_out_is_said() -> None:
    many, few = (World(*twice_tainted(count), profile=COMPLETE) for count in (3, 2))

    assert [([], True), ([], False)] == [searched(world, world.pod(pod())) for world in (many, few)]


def test_what_the_bound_of_all_changes_leaves_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(*twice_tainted(1), profile=COMPLETE)
    monkeypatch.setattr("app.analysis.remedies.MOST_TRIED", 1)

    assert ([], True) == searched(world, world.pod(pod()))
