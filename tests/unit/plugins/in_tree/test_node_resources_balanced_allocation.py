"""What topic ``balanced`` of ``tests/conformance`` does not ask: arguments, and a profile without PreScore."""

from typing import Any, Final

import pytest
from pydantic import ValidationError

from app.framework.allocation import CPU_AND_MEMORY
from app.runtime.guard import PluginError
from plugins.in_tree.node_resources_balanced_allocation import NodeResourcesBalancedAllocationArgs
from tests.builders import JsonObject, container, node_object, pod_object
from tests.harness import World, only

BALANCE: Final = "NodeResourcesBalancedAllocation"
GPU: Final = "example.com/gpu"
NODE: Final = node_object("n1", status={"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "10"}})
CLASS: Final = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "fast"},
    "spec": {"extendedResourceName": GPU},
}


def profile(release: str = "1.36", **args: Any) -> JsonObject:
    return {**only(BALANCE, **{BALANCE: args}), "release": release}


def score(world: World, **requests: str) -> int:
    pending = world.pod(pod_object("pending", containers=[container(requests=requests)]))
    return world.score(pending)[BALANCE]["n1"]


def test_1_36_scores_what_the_pod_makes_of_the_node_and_1_35_what_it_is_then() -> None:
    assert [62, 75] == [score(World(NODE, profile=profile(it)), cpu="2") for it in ("1.36", "1.35")]


def test_without_its_pre_score_it_scores_the_same_and_such_a_pod_nothing() -> None:
    found = profile()
    found["plugins"]["preScore"] = {"disabled": [{"name": BALANCE}]}
    world = World(NODE, profile=found)

    assert [62, 0] == [score(world, cpu="2"), score(world)]


def test_nodes_are_not_compared_by_devices_of_a_class() -> None:
    resources = [{"name": "cpu"}, {"name": GPU}]
    new, old = (World(NODE, CLASS, profile=profile(it, resources=resources)) for it in ("1.36", "1.35"))

    with pytest.raises(PluginError, match="stands for devices of a DeviceClass"):
        score(new, **{"cpu": "2", GPU: "1"})
    assert 100 == score(old, **{"cpu": "2", GPU: "1"})


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


def test_an_empty_list_of_resources_means_cpu_and_memory() -> None:
    assert CPU_AND_MEMORY == NodeResourcesBalancedAllocationArgs.model_validate({"resources": []}).resources
