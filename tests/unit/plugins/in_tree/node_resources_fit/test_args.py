"""NodeResourcesFitArgs: kube-scheduler's defaults and limits."""

import pytest
from pydantic import ValidationError

from app.framework.allocation import CPU_AND_MEMORY, ResourceSpec
from plugins.in_tree.node_resources_fit.args import NodeResourcesFitArgs
from tests.builders import JsonObject

SHAPE: JsonObject = {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}


def strategy(kind: str, **more: object) -> JsonObject:
    return {"scoringStrategy": {"type": kind, **more}}


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"scoringStrategy": None}, id="null"),
        pytest.param(strategy("LeastAllocated"), id="no resources"),
        pytest.param(strategy("LeastAllocated", resources=[]), id="an empty list of resources"),
        pytest.param(strategy("LeastAllocated", resources=[{"name": "cpu"}, {"name": "memory", "weight": 0}]), id="0"),
    ],
)
def test_nodes_are_compared_by_free_cpu_and_memory_unless_something_else_is_said(given: JsonObject) -> None:
    found = NodeResourcesFitArgs.model_validate(given).strategy

    assert ("LeastAllocated", CPU_AND_MEMORY) == (found.type, found.resources)


def test_all_can_be_said() -> None:
    more = {"resources": [{"name": "cpu", "weight": 100}], "requestedToCapacityRatio": SHAPE}
    given = {"ignoredResources": ["example.com/a"], "ignoredResourceGroups": ["example.com"]}
    found = NodeResourcesFitArgs.model_validate(given | strategy("RequestedToCapacityRatio", **more))

    assert (("example.com/a",), ("example.com",)) == (found.ignored_resources, found.ignored_resource_groups)
    assert (ResourceSpec(name="cpu", weight=100),) == found.strategy.resources
    assert found.strategy.ratio is not None
    assert [(0, 0), (100, 10)] == [(it.utilization, it.score) for it in found.strategy.ratio.shape]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (strategy("Random"), "LeastAllocated"),
        ({"scoringStrategy": {}}, "Field required"),
        (strategy("LeastAllocated", resources=[{"name": "cpu", "weight": 101}]), r"weight of cpu not in valid range"),
        (strategy("LeastAllocated", resources=[{"name": "cpu", "weight": -1}]), r"weight of cpu not in valid range"),
        (strategy("LeastAllocated", requestedToCapacityRatio=SHAPE), "must be absent when type is not"),
        (strategy("RequestedToCapacityRatio"), "must be specified when type is RequestedToCapacityRatio"),
        (strategy("RequestedToCapacityRatio", requestedToCapacityRatio={"shape": []}), "at least 1 item"),
        (
            strategy("RequestedToCapacityRatio", requestedToCapacityRatio={"shape": SHAPE["shape"][::-1]}),
            "sorted in increasing order",
        ),
        (
            strategy("RequestedToCapacityRatio", requestedToCapacityRatio={"shape": [{"utilization": 101}]}),
            "less than or equal to 100",
        ),
        (
            strategy("RequestedToCapacityRatio", requestedToCapacityRatio={"shape": [{"score": 11}]}),
            "less than or equal to 10",
        ),
        ({"ignoredResources": ["not a name"]}, "not a name: not a valid label name"),
        ({"ignoredResourceGroups": ["example.com/a"]}, "resource group name can't contain '/'"),
        ({"ignoredResourceGroups": ["?"]}, "not a valid label name"),
        ({"ignored": []}, "Extra inputs are not permitted"),
    ],
)
def test_what_kube_scheduler_refuses_is_refused(given: JsonObject, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        NodeResourcesFitArgs.model_validate(given)
