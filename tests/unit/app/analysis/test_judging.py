"""A judge gives all rejections of a node, and finds the nodes that a decision finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest

from app.analysis.judging import Judge, Judgement
from app.framework.cycle_state import CycleState
from app.framework.node_info import Candidates
from app.kube.core_v1 import Pod
from tests.builders import ZONE, JsonObject, constraint, container, node_object, pod_object, taint
from tests.harness import World

COMPLETE: Final = {"schedulerName": "default-scheduler", "preset": "complete"}
ROOM: Final[JsonObject] = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}
WEB: Final = {"app": "web"}


def node(name: str, cpu: str = "4", **fields: Any) -> JsonObject:
    return node_object(name, status={"allocatable": {**ROOM["allocatable"], "cpu": cpu}}, **fields)


def pod(name: str = "new", cpu: str = "1", **fields: Any) -> JsonObject:
    return pod_object(name, containers=[container(resources={"requests": {"cpu": cpu}})], **fields)


def judged(world: World, asked: Pod, *ignored: str, names: Sequence[str] | None = None) -> Judgement:
    judgement = Judgement()
    for _ in Judge(world.framework, world.cluster, ignored).steps(asked, judgement, names):
        pass
    return judgement


def plugins(judgement: Judgement) -> dict[str, list[str]]:
    """Names of the plugins that reject, by node."""
    return {name: [it.plugin for it in statuses] for name, statuses in judgement.rejected.items()}


def test_all_reasons_of_a_node() -> None:
    """A node that fails for several reasons is one node with several reasons."""
    world = World(
        node("open"),
        node("bad", cpu="500m", unschedulable=True, taints=[taint("example.com/gpu")]),
        node("full", cpu="500m"),
        profile=COMPLETE,
    )

    judgement = judged(world, world.pod(pod()))

    assert (["open"], 3) == (judgement.feasible, judgement.total)
    assert {
        "bad": ["NodeUnschedulable", "TaintToleration", "NodeResourcesFit"],
        "full": ["NodeResourcesFit"],
    } == plugins(judgement)


@pytest.mark.parametrize(("allowed", "feasible"), [("a", ["a"]), ("gone", [])])
def test_a_rejection_by_prefilter_hides_no_filter(allowed: str, feasible: list[str]) -> None:
    """NodeAffinity allows one node by name, in kube-scheduler's words; the cordon of the others is shown too."""
    fields = [{"key": "metadata.name", "operator": "In", "values": [allowed]}]
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": fields}]}
        }
    }
    world = World(node("a"), node("b", unschedulable=True), profile=COMPLETE)

    judgement = judged(world, world.pod(pod(affinity=affinity)))

    assert feasible == judgement.feasible
    assert ["NodeAffinity", "NodeUnschedulable"] == plugins(judgement)["b"]
    assert ("node(s) didn't satisfy plugin(s) [NodeAffinity]",) == judgement.rejected["b"][0].reasons


def test_a_plugin_without_its_objects_is_left_out() -> None:
    world = World(node("a", unschedulable=True), node("b", cpu="0"), profile=COMPLETE)

    judgement = judged(world, world.pod(pod()), "NodeUnschedulable")

    assert (["a"], {"b": ["NodeResourcesFit"]}) == (judgement.feasible, plugins(judgement))
    assert "NodeUnschedulable" not in judgement.plugins


def test_nominated_pods_take_their_room() -> None:
    nominated = pod("first", cpu="3", priority=10, status={"nominatedNodeName": "a"})
    world = World(node("a"), node("b"), nominated, profile=COMPLETE)

    assert {"a": ["NodeResourcesFit"]} == plugins(judged(world, world.pod(pod(cpu="2"))))


def test_some_nodes_alone() -> None:
    world = World(node("a"), node("b"), profile=COMPLETE)

    assert ["b"] == judged(world, world.pod(pod()), names=["b", "gone"]).feasible


@pytest.mark.parametrize("cpu", ["500m", "2", "5"])
@pytest.mark.parametrize(
    "spread", [[], [constraint(app="web")], [constraint(app="web", soft=True)]], ids=["no", "hard", "soft"]
)
def test_it_finds_the_nodes_that_a_decision_finds(cpu: str, spread: list[JsonObject]) -> None:
    """Over more nodes than one step judges; each rejected node names the plugin that rejects it first in a decision."""
    nodes = [
        node(
            f"n{number:03}",
            cpu=str(1 + number % 4),
            zone=f"z{number % 3}",
            unschedulable=number % 7 == 0,
            taints=[taint("example.com/gpu")] if number % 5 == 0 else [],
        )
        for number in range(150)
    ]
    running = [pod(f"r{number}", labels=WEB, node=f"n{number * 3:03}") for number in range(20)]
    world = World(*nodes, *running, profile=COMPLETE)
    asked = world.pod(pod(cpu=cpu, labels=WEB, spread=spread))

    judgement = judged(world, asked)

    outcome = world.framework.filters.feasible(CycleState(), asked, Candidates.of(world.cluster.nodes))
    assert {*world.cluster.nodes} - outcome.rejected.keys() == {*judgement.feasible}
    assert outcome.rejected == {name: statuses[0] for name, statuses in judgement.rejected.items()}
    assert ZONE in {it.topology_key for it in asked.spec.spread} or not spread
