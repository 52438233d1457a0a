"""Each filter's verdict on the node of a bound pod, and what follows."""

from __future__ import annotations

from typing import Any

import pytest

from app.analysis.bound import GONE, NOT_JUDGED, STAYS, UNREADABLE, BoundNode, bound_node, lasting_taints
from app.analysis.judging import Judgement
from app.kube.kinds import NODES
from tests.builders import JsonObject, constraint, taint, toleration
from tests.harness import World
from tests.unit.app.analysis.test_judging import COMPLETE, WEB, judged, node, pod


def described(world: World, asked: JsonObject) -> BoundNode:
    bound = world.pod(asked)
    return bound_node(
        bound, judged(world, world.pod({**asked, "spec": {**asked["spec"], "nodeName": ""}})), world.cluster
    )


@pytest.mark.parametrize(
    ("objects", "more", "violated", "note"),
    [
        pytest.param([node("a", cpu="1")], {}, [], "", id="it fills the node itself"),
        pytest.param([node("a", cpu="500m")], {}, ["NodeResourcesFit"], STAYS, id="the node has become smaller"),
        pytest.param(
            [node("a", unschedulable=True)], {}, ["NodeUnschedulable"], STAYS, id="the node has been cordoned"
        ),
        pytest.param(
            [node("a", taints=[taint("example.com/out", "NoExecute", "now")])],
            {},
            ["TaintToleration"],
            "Kubernetes evicts the pod for the taint example.com/out=now:NoExecute",
            id="a taint that evicts",
        ),
        pytest.param(
            [node("a", taints=[taint("example.com/out", "NoExecute")])],
            {"tolerations": [toleration("example.com/out", "Exists")]},
            [],
            "",
            id="a taint that it tolerates",
        ),
        pytest.param(
            [node("a", zone="z1"), node("b", zone="z2"), pod("w", labels=WEB, node="a")],
            {"labels": WEB, "spread": [constraint(app="web")]},
            ["PodTopologySpread"],
            STAYS,
            id="its zone has one pod too many",
        ),
        pytest.param(
            [node("a", zone="z1"), node("b", zone="z2")],
            {"labels": WEB, "spread": [constraint(app="web")]},
            [],
            "",
            id="it is not counted twice",
        ),
    ],
)
def test_verdicts(objects: list[JsonObject], more: dict[str, Any], violated: list[str], note: str) -> None:
    asked = pod(node="a", **more)
    world = World(*objects, asked, profile=COMPLETE)

    bound = described(world, asked)

    assert ("a", violated, note) == (bound.name, bound.violated, bound.note)
    assert {"NodeResourcesFit", "PodTopologySpread", "TaintToleration"} <= bound.verdicts.keys()


def test_a_node_that_is_gone_or_cannot_be_decoded() -> None:
    asked = pod(node="gone")
    world = World(node("a"), asked, profile=COMPLETE)

    assert BoundNode("gone", {}, GONE) == described(world, asked)
    world.cluster.mark_unreadable(NODES, ("", "gone"), "odd")
    assert BoundNode("gone", {}, UNREADABLE) == described(world, asked)


def test_a_node_that_was_not_reached_in_time() -> None:
    world = World(node("a"), asked := pod(node="a"), profile=COMPLETE)

    assert BoundNode("a", {}, NOT_JUDGED) == bound_node(world.pod(asked), Judgement(), world.cluster)


def test_taints_that_stay_after_an_uncordon() -> None:
    taints = [
        taint("node.kubernetes.io/unschedulable", "NoSchedule"),
        taint("dedicated", "NoSchedule", "gpu"),
        taint("old", "PreferNoSchedule"),
        taint("tolerated", "NoExecute"),
    ]
    world = World(node("a", taints=taints, unschedulable=True), profile=COMPLETE)
    waiting = world.pod(pod(tolerations=[toleration("tolerated", "Exists")]))

    assert ["dedicated=gpu:NoSchedule"] == lasting_taints(waiting, "a", world.cluster)
    assert [] == lasting_taints(waiting, "gone", world.cluster)
