"""NodeResourcesFitArgs: kube-scheduler's defaults and limits."""

import pytest
from pydantic import ValidationError

from app.framework.allocation import CPU_AND_MEMORY
from plugins.in_tree.node_resources_fit.args import NodeResourcesFitArgs
from tests.builders import JsonObject

SHAPE: JsonObject = {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}


def strategy(kind: str, **more: object) -> JsonObject:
    return {"scoringStrategy": {"type": kind, **more}}


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"scoringStrategy": None}, id="null"),
        pytest.param(strategy("LeastAllocated", resources=[]), id="an empty list of resources"),
        pytest.param(strategy("LeastAllocated", resources=[{"name": "cpu"}, {"name": "memory", "weight": 0}]), id="0"),
    ],
)
def test_nodes_are_compared_by_free_cpu_and_memory_unless_something_else_is_said(given: JsonObject) -> None:
    found = NodeResourcesFitArgs.model_validate(given).strategy

    assert ("LeastAllocated", CPU_AND_MEMORY) == (found.type, found.resources)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (strategy("LeastAllocated", resources=[{"name": "cpu", "weight": 101}]), r"weight of cpu not in valid range"),
        (strategy("LeastAllocated", requestedToCapacityRatio=SHAPE), "must be absent when type is not"),
        (strategy("RequestedToCapacityRatio"), "must be specified when type is RequestedToCapacityRatio"),
        (
            strategy("RequestedToCapacityRatio", requestedToCapacityRatio={"shape": SHAPE["shape"][::-1]}),
            "sorted in increasing order",
        ),
        ({"ignoredResources": ["not a name"]}, "not a name: not a valid label name"),
        ({"ignoredResourceGroups": ["example.com/a"]}, "resource group name can't contain '/'"),
    ],
)
def test_what_kube_scheduler_refuses_is_refused(given: JsonObject, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        NodeResourcesFitArgs.model_validate(given)
