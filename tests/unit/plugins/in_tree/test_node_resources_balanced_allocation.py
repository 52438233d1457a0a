"""Rules of NodeResourcesBalancedAllocation."""

from typing import Any, Final

import pytest
from pydantic import ValidationError

from app.framework.allocation import CPU_AND_MEMORY
from app.runtime.guard import PluginError
from plugins.in_tree.node_resources_balanced_allocation import (
    NodeResourcesBalancedAllocation,
    NodeResourcesBalancedAllocationArgs,
)
from tests.builders import JsonObject, container, node_object, pod_object
from tests.harness import World, only

BALANCE: Final = "NodeResourcesBalancedAllocation"
GPU: Final = "example.com/gpu"


def profile(release: str = "1.36", **args: Any) -> JsonObject:
    return {**only(BALANCE, **{BALANCE: args}), "release": release}


def node(**there: str) -> JsonObject:
    return node_object("n1", status={"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "10", **there}})


def pod(name: str = "pending", node_name: str = "", **requests: str) -> JsonObject:
    containers = [container(requests=requests)]
    return (
        pod_object(name, node=node_name, containers=containers)
        if node_name
        else pod_object(name, containers=containers)
    )


def score(pending: JsonObject, *objects: JsonObject, release: str = "1.36", **args: Any) -> int | None:
    world = World(*objects, profile=profile(release, **args))
    assert isinstance(world.framework.plugins[BALANCE], NodeResourcesBalancedAllocation)
    return world.score(world.pod(pending)).get(BALANCE, {}).get("n1")


@pytest.mark.parametrize(
    ("running", "pending", "improvement", "after"),
    [
        pytest.param({}, {"cpu": "2", "memory": "2Gi"}, 75, 100, id="it stays even"),
        pytest.param({}, {"cpu": "2"}, 62, 75, id="it becomes uneven"),
        pytest.param({"cpu": "2"}, {"memory": "2Gi"}, 87, 100, id="it becomes even"),
        pytest.param({"cpu": "8"}, {"memory": "1Gi"}, 81, 62, id="nothing is taken more than whole"),
    ],
)
def test_1_36_scores_what_the_pod_makes_of_the_node_and_1_35_what_it_is_then(
    running: dict[str, str], pending: dict[str, str], improvement: int, after: int
) -> None:
    objects = (node(), pod("running", "n1", **running))
    found = [score(pod(**pending), *objects, release=it) for it in ("1.36", "1.35")]

    assert [improvement, after] == found


def test_without_its_pre_score_it_scores_the_same_and_such_a_pod_nothing() -> None:
    found = profile()
    found["plugins"]["preScore"] = {"disabled": [{"name": BALANCE}]}
    world = World(node(), profile=found)

    assert [{"n1": 62}, {"n1": 0}] == [world.score(world.pod(it))[BALANCE] for it in (pod(cpu="2"), pod())]


def test_nodes_are_not_compared_by_devices_of_a_class() -> None:
    it = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "fast"}}
    device_class = {**it, "spec": {"extendedResourceName": GPU}}
    resources = [{"name": "cpu"}, {"name": GPU}]

    with pytest.raises(PluginError, match="stands for devices of a DeviceClass"):
        score(pod(**{"cpu": "2", GPU: "1"}), node(), device_class, resources=resources)
    assert 100 == score(pod(**{"cpu": "2", GPU: "1"}), node(), device_class, release="1.35", resources=resources)


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        ([{"name": "cpu", "weight": 2}], "cpu: weight must be 1"),
        ([{"name": "cpu"}, {"name": "cpu"}], "cpu: is named more than once"),
    ],
)
def test_what_kube_scheduler_refuses_is_refused(resources: list[JsonObject], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        NodeResourcesBalancedAllocationArgs.model_validate({"resources": resources})


def test_cpu_and_memory_unless_something_else_is_said() -> None:
    given: list[JsonObject] = [{}, {"resources": []}]

    assert [CPU_AND_MEMORY] * 2 == [NodeResourcesBalancedAllocationArgs.model_validate(it).resources for it in given]
