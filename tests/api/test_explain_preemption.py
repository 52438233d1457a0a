"""Explain says which evictions would let a pod in that topology spread keeps waiting, and who makes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from app.config.profile import Profile
from app.config.settings import Settings
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.api.service import serving
from tests.builders import JsonObject, constraint, node_object, pod_object

WEB: Final = {"app": "web"}
ROOM: Final = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}
OBJECTS: Final = [
    node_object("a1", zone="a", status=ROOM),
    node_object("b1", zone="b", unschedulable=True, status=ROOM),
    pod_object("batch", labels=WEB, node="a1", priority=0),
    pod_object("urgent", labels=WEB, priority=10, spread=[constraint(app="web")]),
]
SENTENCE: Final = "evicting default/batch on a1 would let the pod in; preemption is Never"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, [SENTENCE], id="delegated"),
        pytest.param({"preemption": "Own"}, [SENTENCE.replace("Never", "Own")], id="own"),
        pytest.param({"preset": "complete"}, [], id="complete: /api/v1/cycle names the victims"),
    ],
)
async def test_the_evictions_that_nobody_makes(tmp_path: Path, fields: dict[str, Any], expected: list[str]) -> None:
    path = tmp_path / "cluster.json"
    found: JsonObject = {"apiVersion": "v1", "kind": "List", "items": OBJECTS}
    path.write_text(json.dumps(found))
    profile = Profile.model_validate({"schedulerName": "*", **fields})

    settings = Settings(cluster=str(path), profiles=(profile,))
    async with serving(settings, SHIPPED, DEFAULT_WEIGHTS) as api:
        answer = await api.get("/api/v1/explain/default/urgent")

    assert (answer["verdict"], answer["impossible"]) == ("NoNodeFits", expected)
