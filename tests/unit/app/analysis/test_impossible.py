"""What an explanation says cannot work, for pods that fit no node."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from app.analysis.impossible import Impossibilities
from app.analysis.judging import Judge
from app.kube.core_v1 import Pod
from tests.builders import ZONE, JsonObject, constraint, taint
from tests.harness import World
from tests.unit.app.analysis.test_judging import COMPLETE, WEB, judged, node, pod

TAINTED = taint("example.com/gpu")
ZONES = [node("a", zone="z1"), node("b", zone="z2")]


TEAM = {"team": "t"}
NO_SINGLE_CHANGE = "each node is rejected by 2 or more plugins; NodeResourcesFit and TaintToleration reject 1 node"


def impossible(world: World, asked: Pod, *, has_remedy: bool = False) -> list[str]:
    sentences: list[str] = []
    judge = partial(Judge, world.framework, world.cluster)
    for _ in Impossibilities(world.cluster, judge).steps(asked, judged(world, asked), has_remedy, sentences):
        pass
    return sentences


def min_domains(usable: int) -> str:
    each = "of which each takes at most 1 of the selected pods until there are more"
    return f"{ZONE}: minDomains is 3, and the pod can use {usable} domains, {each}"


@pytest.mark.parametrize(
    ("objects", "asked", "expected"),
    [
        pytest.param(
            [node("a", cpu="2"), node("b", cpu="4")],
            pod(cpu="5"),
            ["no node is large enough: the pod requests 5 cpu, and the largest node, b, has 4"],
            id="larger than each node",
        ),
        pytest.param([node("a", cpu="2"), pod("w", cpu="2", node="a")], pod(cpu="2"), [], id="a full node is enough"),
        pytest.param(
            [*ZONES, *(pod(name, labels=WEB, node=name) for name in "ab")],
            pod(labels=WEB, spread=[constraint(app="web", min_domains=3)]),
            [min_domains(2)],
            id="fewer domains than minDomains",
        ),
        pytest.param(
            [*ZONES, node("c", zone="z3", taints=[TAINTED]), *(pod(name, labels=WEB, node=name) for name in "ab")],
            pod(labels=WEB, spread=[{**constraint(app="web", min_domains=3), "nodeTaintsPolicy": "Honor"}]),
            [min_domains(2)],
            id="a tainted domain does not count if taints are honoured",
        ),
        pytest.param(
            [*ZONES, pod("w", labels=WEB, node="a"), pod("t", labels=TEAM, node="b")],
            pod(labels={**WEB, **TEAM}, spread=[constraint(app="web"), constraint(selector={"matchLabels": TEAM})]),
            [f"the constraints exclude each other: each alone accepts nodes, together none ({ZONE} 1, {ZONE} 1)"],
            id="constraints that exclude each other",
        ),
        pytest.param(
            [node("a", cpu="1", taints=[TAINTED]), pod("w", cpu="1", node="a")],
            pod(cpu="1"),
            [NO_SINGLE_CHANGE],
            id="two plugins reject each node",
        ),
    ],
)
def test_it_says_what_cannot_work(objects: Sequence[JsonObject], asked: JsonObject, expected: list[str]) -> None:
    world = World(*objects, profile=COMPLETE)

    assert expected == impossible(world, world.pod(asked))


@pytest.mark.parametrize(
    ("objects", "asked"),
    [
        ([node("a", unschedulable=True, taints=[taint("node.kubernetes.io/unschedulable")])], pod()),
        (
            [node("a"), node("b")],
            pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "none"}}]),
        ),
        (
            [*ZONES, *(pod(name, labels=WEB, node=name) for name in "ab")],
            pod(labels=TEAM, spread=[constraint(app="web", min_domains=3)]),
        ),
    ],
    ids=["one cordon, two plugins", "one missing claim, several plugins", "a pod that its constraint does not select"],
)
def test_it_says_nothing_where_one_cause_is_enough(objects: Sequence[JsonObject], asked: JsonObject) -> None:
    world = World(*objects, profile=COMPLETE)

    assert [] == impossible(world, world.pod(asked))


def test_beside_a_remedy_it_says_only_what_the_remedy_does_not_change() -> None:
    world = World(node("a", cpu="1", taints=[TAINTED]), pod("w", cpu="1", node="a"), profile=COMPLETE)

    assert [] == impossible(world, world.pod(pod(cpu="1")), has_remedy=True)
    assert 1 == len(impossible(world, world.pod(pod(cpu="2")), has_remedy=True))
