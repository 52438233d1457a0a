"""``GET /api/v1/skew``, and the metric of workloads above their maxSkew."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from app.analysis import skew, skew_estimate
from app.analysis.workloads import workload_of
from app.config.profile import Profile
from app.config.settings import Settings
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.api.service import Api, serving
from tests.builders import ZONE, JsonObject, constraint, controller, make_pod, node_object, pod_object, taint

HASH: Final = "abc12"
WEB: Final = {"app": "web", "pod-template-hash": HASH}
DB: Final = {"app": "db"}


def web(number: int, node: str, created: str = "2026-11-01T08:00:00Z", **fields: Any) -> JsonObject:
    return pod_object(
        f"web-{number}",
        labels=WEB,
        owner=controller("ReplicaSet", f"web-{HASH}"),
        spread=[constraint(app="web")],
        node=node,
        created=created,
        **fields,
    )


def db(number: int, node: str) -> JsonObject:
    spread = [constraint(app="db", soft=True)]
    return pod_object(f"db-{number}", labels=DB, owner=controller("StatefulSet", "db"), spread=spread, node=node)


NODES: Final = [node_object(f"n{number}", zone=f"z{number}") for number in range(3)]
PODS: Final = [web(0, "n0"), web(1, "n0"), web(2, "n0", "2099-11-02T08:00:00Z"), web(3, "n1"), db(0, "n0"), db(1, "n1")]
ALONE: Final = pod_object("alone", labels={"app": "alone"}, spread=[constraint(app="alone")], node="n0")


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*NODES, *PODS, ALONE]}))
    settings = Settings(cluster=str(path), profiles=(Profile.model_validate({"schedulerName": "default-scheduler"}),))
    async with serving(settings, SHIPPED, DEFAULT_WEIGHTS) as api:
        yield api


async def listed(api: Api, query: str = "") -> list[JsonObject]:
    return list((await api.get(f"/api/v1/skew{query}"))["items"])


async def test_a_workload_has_its_pods_by_domain(api: Api) -> None:
    """They are sorted by name. A pod without a controller is no workload."""
    second, first = sorted(await listed(api), key=lambda it: it["skew"])

    assert {
        "namespace": "default",
        "kind": "Deployment",
        "name": "web",
        "pods": 4,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "maxSkew": 1,
        "minimum": 0,
        "skew": 3,
        "above": True,
        "domains": [
            {"name": "z0", "nodes": 1, "pods": 3, "takes": False},
            {"name": "z1", "nodes": 1, "pods": 1, "takes": False},
            {"name": "z2", "nodes": 1, "pods": 0, "takes": True},
        ],
        "domainCount": 3,
        "removedFirst": "web-2",
    } == first
    assert ("StatefulSet", "db", "ScheduleAnyway", 1, False, "db-1") == tuple(
        second[it] for it in ("kind", "name", "whenUnsatisfiable", "skew", "above", "removedFirst")
    )
    assert [False, False, True] == [it["takes"] for it in second["domains"]]


async def test_the_list_can_be_narrowed_and_has_pages(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ["web"] == [it["name"] for it in await listed(api, "?above=true")]
    assert ["db"] == [it["name"] for it in await listed(api, "?kind=StatefulSet&name=db")]
    assert [] == await listed(api, "?namespace=other")
    monkeypatch.setattr(skew, "MOST_LISTED", 1)
    answer = await api.get("/api/v1/skew")
    assert (1, 2) == (answer["next"], answer["total"])
    assert ["db"] == [it["name"] for it in await listed(api, "?start=1")]


async def test_a_part_of_a_workload_stands_for_it(api: Api) -> None:
    assert ["web"] == [it["name"] for it in await listed(api, f"?kind=ReplicaSet&name=web-{HASH}")]
    assert ["web"] == [it["name"] for it in await listed(api, f"?above=true&kind=ReplicaSet&name=web-{HASH}")]
    assert [] == await listed(api, "?kind=ReplicaSet&name=web-other")
    assert [] == await listed(api, f"?kind=Job&name=web-{HASH}")
    assert [] == await listed(api, f"?namespace=other&kind=ReplicaSet&name=web-{HASH}")
    assert [] == await listed(api, "?kind=ReplicaSet")


async def test_workloads_are_counted_once_for_all_readers(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await listed(api)
    monkeypatch.setattr(skew_estimate, "workload_of", None)  # a second count would fail

    assert 2 == len(await listed(api))


@pytest.mark.parametrize(
    ("placed", "more", "expected"),
    [
        ((3, 1, 0), {}, {"web"}),
        ((2, 1, 1), {}, set()),
        ((1, 1, 1), {"min_domains": 4}, set()),
        ((2, 2, 2), {"min_domains": 4}, {"web"}),
        ((2, 0, 0), {"match_label_keys": ["pod-template-hash"]}, {"web"}),
        ((2, 0, 0), {"selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}, {"web"}),
        ((2, 0, 0), {"selector": None}, set()),
        ((2, 0, 0), {"affinity_policy": "Honor", "taints_policy": "Honor"}, {"web"}),
    ],
)
async def test_the_estimate_misses_no_workload_above_its_max_skew(
    placed: tuple[int, ...], more: JsonObject, expected: set[str], tmp_path: Path
) -> None:
    spread = [constraint(**{"app": "web", **more})]
    pods = [web(10 * zone + number, f"n{zone}") for zone, numbers in enumerate(placed) for number in range(numbers)]
    for pod in pods:
        pod["spec"]["topologySpreadConstraints"] = spread
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*NODES, *pods]}))
    async with serving(Settings(cluster=str(path)), SHIPPED, DEFAULT_WEIGHTS) as api:
        every = await listed(api)
        above = await listed(api, "?above=true")

    assert expected == {it["name"] for it in every if it["above"]} == {it["name"] for it in above}


@pytest.mark.parametrize("policy", ["of the pods", "of the profile"])
async def test_the_estimate_misses_no_skew_of_the_nodes_that_count(tmp_path: Path, policy: str) -> None:
    """The tainted node does not count, so its zone has no pods for the constraint."""
    is_own = policy == "of the pods"
    beyond = {} if is_own else {"beyond": {"defaults": {"nodeTaintsPolicy": "Honor"}}}
    args = [{"name": "PodTopologySpread", "args": beyond}]
    nodes = [
        node_object("t", zone="z0", taints=[taint("gpu")]),
        *(node_object(f"n{it}", zone=f"z{it}") for it in (0, 1)),
    ]
    pods = [web(number, "t" if number < 2 else "n1") for number in range(4)]
    for pod in pods:
        pod["spec"]["topologySpreadConstraints"] = [constraint(app="web", taints_policy="Honor" if is_own else None)]
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*nodes, *pods]}))
    profiles = [{"schedulerName": "*", "pluginConfig": args}]
    async with serving(Settings(cluster=str(path), profiles=profiles), SHIPPED, DEFAULT_WEIGHTS) as api:
        assert [2] == [it["skew"] for it in await listed(api, "?above=true")]


async def test_of_workloads_with_labels(api: Api) -> None:
    assert ["db"] == [it["name"] for it in await listed(api, "?labelSelector=app%3Ddb")]
    assert ["web"] == [it["name"] for it in await listed(api, "?above=true&labelSelector=app")]
    assert [] == await listed(api, "?above=true&labelSelector=app%3Ddb")
    assert 422 == (await api.http.get("/api/v1/skew?labelSelector=a==b==c")).status_code


async def test_the_metric_has_the_workloads_above_their_max_skew(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await listed(api)
    assert {f'{{namespace="default",topology_key="{ZONE}",workload="Deployment/web"}}': 3} == await api.samples(
        "homeport_workload_skew"
    )
    monkeypatch.setattr(skew, "LONGEST_AGE", -1.0)
    assert {} == await api.samples("homeport_workload_skew")


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("ReplicaSet", f"web-{HASH}", ("Deployment", "web")),
        ("ReplicaSet", "own", ("ReplicaSet", "own")),
        ("VirtualMachineInstance", "vm1", ("VirtualMachine", "vm1")),
        ("Job", "batch", ("Job", "batch")),
        ("Job", "batch-29892000", ("CronJob", "batch")),
        ("Job", "batch-20261124", ("Job", "batch-20261124")),
        ("Job", "batch-29892060", ("Job", "batch-29892060")),
    ],
)
def test_the_workload_of_a_pod(kind: str, name: str, expected: tuple[str, str]) -> None:
    created = "2026-11-01T08:00:30Z"  # 29,892,000 minutes after 1970
    pod = make_pod("p", labels=WEB, owner=controller(kind, name), created=created)

    assert expected == workload_of(pod)
