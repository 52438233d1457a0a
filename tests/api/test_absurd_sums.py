"""Requests that overflow 64 bits on one node concern that node alone, and an early refusal keeps its reason."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from app.config.profile import Profile
from app.config.settings import Settings
from tests.api.service import Api, serving
from tests.builders import JsonObject, container, node_object, pod_object

ROOM: Final = {"cpu": "8", "memory": "8Gi", "pods": "110"}
SMALL: Final = [container(resources={"requests": {"cpu": "1", "memory": "1Gi"}})]
NODES: Final = ["n0", "n1", "n2"]


def settings(tmp_path: Path, memory: Sequence[str]) -> Settings:
    """Three nodes with room; a pod on n0 for each amount of ``memory``, and one small pod on n1."""
    items: list[JsonObject] = [node_object(name, status={"allocatable": ROOM}) for name in NODES]
    items += [
        pod_object(f"large-{place}", node="n0", containers=[container(resources={"requests": {"memory": amount}})])
        for place, amount in enumerate(memory)
    ]
    items.append(pod_object("small", node="n1", containers=SMALL))
    saved = tmp_path / "cluster.json"
    saved.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    profile = Profile.model_validate({"schedulerName": "default-scheduler", "preset": "complete", "pick": True})
    return Settings(cluster=str(saved), profiles=(profile,), max_priority=100)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with serving(settings(tmp_path, ["9223372036854775807", "1e18"])) as api:
        yield api


async def cycle(api: Api, pod: JsonObject) -> tuple[int, Any]:
    answer = await api.http.post("/api/v1/cycle", json={"pod": pod})
    return answer.status_code, answer.json()


async def test_a_node_whose_requests_overflow_scores_least_and_spoils_no_other(api: Api) -> None:
    pod = pod_object("new", containers=SMALL)
    asked = {"Pod": pod, "Nodes": None, "NodeNames": NODES}

    status, cycled = await cycle(api, pod)
    answer = await api.http.post("/prioritize", json=asked)
    ranked = {it["Host"]: it["Score"] for it in answer.json()}
    picked = (await api.http.post("/lean/filter", json=asked)).json()["NodeNames"]

    assert (200, 0) == (status, cycled["scores"]["n0"]["NodeResourcesFit"])
    assert (NODES[0], NODES[2], ["n2"]) == (min(ranked, key=ranked.__getitem__), cycled["node"], picked)
    assert 0 < ranked["n1"] < ranked["n2"]


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        pytest.param(
            {"volumes": [{"name": f"v{place}", "persistentVolumeClaim": {"claimName": "c"}} for place in range(1_900)]},
            "node(s) can't be judged: the pod's spec.volumes",
            id="1,900 volumes",
        ),
    ],
)
async def test_a_cycle_names_what_an_early_pre_filter_refused(api: Api, refused: JsonObject, reason: str) -> None:
    pod = pod_object("wide", containers=SMALL)
    pod["spec"] |= refused

    status, cycled = await cycle(api, pod)

    assert (200, None, True) == (status, cycled["node"], cycled["preFilter"]["reasons"][0].startswith(reason))
    assert ("Unschedulable", None) == (cycled["postFilter"]["code"], cycled["victims"])
