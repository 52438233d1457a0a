"""What a stock kube-scheduler asked is answered on a cluster like the one it asked about."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.config.settings import Settings
from tests.api.contract import asked_names
from tests.api.recorded import CALLS, Call
from tests.api.service import Reply, serving
from tests.builders import JsonObject

LABELS = {"disk": "ssd", "kubernetes.io/os": "linux"}
WHOLE = json.loads(
    (Path(__file__).parents[1] / "conformance/wire/2-filter-prioritize-bind-nodes/01-filter.request.json").read_bytes()
)


def cluster_for(calls: list[Call]) -> list[JsonObject]:
    """The five nodes, and the pod of the talk as it waited; its victims where it was to evict some."""
    nodes: list[JsonObject] = [{"apiVersion": "v1", "kind": "Node", **node} for node in WHOLE["Nodes"]["items"]]
    pods = {
        call.asked["Pod"]["metadata"]["uid"]: {"apiVersion": "v1", "kind": "Pod", **call.asked["Pod"]}
        for call in calls
        if "Pod" in call.asked
    }
    return [*nodes, *pods.values()]


def talks() -> dict[str, list[Call]]:
    found: dict[str, list[Call]] = {}
    for call in CALLS:
        found.setdefault(call.name.partition("/")[0], []).append(call)
    return found


@pytest.mark.parametrize("calls", [pytest.param(calls, id=name) for name, calls in talks().items()])
async def test_a_recorded_talk(tmp_path: Path, calls: list[Call]) -> None:
    """All nodes pass (nothing else runs there), all victims stay, the bind succeeds."""
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": cluster_for(calls)}))

    async with serving(Settings(cluster=str(path))) as api:
        replies = [await api.post(call.verb, call.request) for call in calls]

    assert [expected(call) for call in calls] == replies


def expected(call: Call) -> Reply:
    asked = {key.lower(): value for key, value in call.asked.items()}
    match call.verb:
        case "filter":
            passed = {"Nodes": None, "NodeNames": asked["nodenames"]}
            if asked["nodes"]:
                passed = {"Nodes": {"metadata": {}, "items": asked["nodes"]["items"]}, "NodeNames": None}
            verdict = {**passed, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": ""}
            return Reply(200, verdict, "feasible")
        case "prioritize":
            score = 20 if asked["pod"]["spec"].get("topologySpreadConstraints") else 0
            return Reply(200, [{"Host": name, "Score": score} for name in asked_names(asked)], "scored")
        case "preempt":
            return Reply(200, call.answered, "candidates")
        case "bind":
            return Reply(200, {"Error": ""}, "bound")
    raise AssertionError(call.verb)
