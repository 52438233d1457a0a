"""The JSON of the page: overview, map, node, workload; lose and drain by GET."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.config.profile import Profile
from app.config.settings import Settings
from app.wire.overview_v1 import NodeDetail, NodeMap, Overview, WorkloadDetail
from tests.api.service import Api, serving
from tests.builders import node_object


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving() as api:
        yield api


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("overview", Overview),
        ("nodes", NodeMap),
        ("nodes/node-a1", NodeDetail),
        ("workloads/shop/Deployment/web", WorkloadDetail),
    ],
)
async def test_an_answer_is_as_documented(api: Api, path: str, model: type[Overview]) -> None:
    answer = await api.get(f"/api/v1/{path}")

    assert answer == json.loads(model.model_validate(answer).model_dump_json(by_alias=True))


async def test_the_overview_lists_what_waits_and_what_is_uneven_once(api: Api) -> None:
    overview = await api.get("/api/v1/overview")

    assert (6, ["virt-launcher-cache01-x7k2p", "virt-launcher-db01-x7k2p"]) == (
        overview["pending"]["total"],
        [it["name"] for it in overview["pending"]["items"][:2]],
    )
    assert [("cart", "kubernetes.io/hostname"), ("web", "topology.kubernetes.io/zone")] == [
        (it["name"], it["topologyKey"]) for it in overview["skews"]["items"]
    ]


async def test_a_node_has_its_fill_and_its_condition(tmp_path: Path) -> None:
    nodes = [
        node_object("cordoned", zone="b", unschedulable=True),
        node_object("lost", taints=[{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]),
        node_object("own", zone="a", taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]),
        node_object("plain", zone="a", taints=[{"key": "soft", "effect": "PreferNoSchedule"}]),
    ]
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes}))
    async with serving(Settings(cluster=str(file))) as api:
        zones = (await api.get("/api/v1/nodes"))["zones"]
        own = await api.get("/api/v1/nodes/own")

    assert {"": ["notReady"], "a": ["tainted", "ready"], "b": ["cordoned"]} == {
        it["name"]: [node[4] for node in it["nodes"]] for it in zones
    }
    assert (["gpu=yes:NoSchedule"], "a", "tainted") == (own["taints"], own["zone"], own["condition"])


async def test_the_fill_counts_requests_against_what_pods_can_use(api: Api) -> None:
    cells = {node[0]: node for zone in (await api.get("/api/v1/nodes"))["zones"] for node in zone["nodes"]}

    assert (["node-a1", 57, 2, 4, "ready"], ["node-a4", 0, 0, 0, "cordoned"]) == (cells["node-a1"], cells["node-a4"])


async def test_without_requests_the_fill_is_unknown() -> None:
    profiles = (Profile.model_validate({"schedulerName": "default-scheduler"}),)
    sample = Settings(cluster="examples/sample-cluster.yaml", profiles=profiles, explain="profile")
    async with serving(sample) as api:
        nodes = await api.get("/api/v1/nodes")
        node = await api.get("/api/v1/nodes/node-a1")

    assert {(None, None)} == {(it[1], it[2]) for zone in nodes["zones"] for it in zone["nodes"]}
    assert [] == node["resources"]


async def test_a_workload_has_its_pods_in_the_order_of_a_scale_down(api: Api) -> None:
    workload = await api.get("/api/v1/workloads/shop/Deployment/web")

    assert ("", 6) == (workload["pods"][0]["node"], sum(workload["nodes"].values()))
    assert {"topology.kubernetes.io/zone", "kubernetes.io/hostname"} == {it["topologyKey"] for it in workload["skews"]}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nodes/node-a9", 'node "node-a9" not found; did you mean node-a'),
        ("workloads/shop/Deployment/wbe", 'no pods of Deployment "wbe" found in namespace "shop"; did you mean web?'),
    ],
)
async def test_a_name_that_does_not_exist_is_offered_near_names(api: Api, path: str, message: str) -> None:
    response = await api.http.get(f"/api/v1/{path}")

    assert (404, True) == (response.status_code, response.json()["message"].startswith(message))


async def test_what_ifs_can_be_read_by_get(api: Api) -> None:
    by_get = await api.get("/api/v1/lose?key=topology.kubernetes.io/zone&value=eu-1a")
    body = {"key": "topology.kubernetes.io/zone", "value": "eu-1a"}
    by_post = (await api.http.post("/api/v1/lose", json=body)).json()
    drained = await api.get("/api/v1/drain?node=node-a1&node=node-a2")

    assert by_post["domains"] == by_get["domains"]
    assert ["node-a1", "node-a2"] == [it["node"] for it in drained["items"]]


@pytest.mark.parametrize("query", ["lose", "lose?key=", "lose?key=a&vlaue=b", "drain", "drain?node="])
async def test_a_wrong_query_is_a_mistake(api: Api, query: str) -> None:
    assert 422 == (await api.http.get(f"/api/v1/{query}")).status_code
