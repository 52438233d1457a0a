"""``GET /api/v1/pending``, and explanations of the pods of a workload."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest

from app.analysis import pending
from app.config.profile import Profile
from app.config.settings import Settings
from app.verbs import stepwise
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.api.contract import status_breaches
from tests.api.faulty import faulty, with_faulty
from tests.api.service import Api, serving
from tests.builders import JsonObject, constraint, container, controller, node_object, pod_object, taint

FULL: Final = Profile.model_validate({"schedulerName": "default-scheduler", "preset": "complete"})
ROOM: Final[JsonObject] = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}
LABELS: Final = {"app": "api", "pod-template-hash": "abc12"}
OWNER: Final = controller("ReplicaSet", "api-abc12")


def wants(name: str, cpu: str, created: str = "2026-11-02T08:00:00Z", **fields: Any) -> JsonObject:
    return pod_object(name, created=created, containers=[container(resources={"requests": {"cpu": cpu}})], **fields)


NODES: Final = [
    node_object("m1", zone="y1", status=ROOM),
    node_object("m2", zone="y2", status=ROOM, taints=[taint("example.com/gpu")]),
    node_object("m3", zone="y2", status=ROOM, taints=[taint("example.com/gpu")]),
]
PODS: Final = [
    wants("older", "8", "2026-11-01T08:00:00Z"),
    wants("gated", "1", "2026-11-03T08:00:00Z", more={"schedulingGates": [{"name": "example.com/wait"}]}),
    wants("other", "1", "2026-11-04T08:00:00Z", scheduler="volcano"),
    wants("api-1", "1", "2026-11-05T08:00:00Z", labels=LABELS, owner=OWNER, spread=[constraint(app="api")]),
    wants("api-2", "1", "2026-11-05T08:00:00Z", labels=LABELS, owner=OWNER, spread=[constraint(app="api")]),
    wants("api-0", "1", labels=LABELS, owner=OWNER, spread=[constraint(app="api")], node="m1"),
]


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*NODES, *PODS]}))
    settings = Settings(cluster=str(path), profiles=(FULL,))
    async with serving(settings, SHIPPED, DEFAULT_WEIGHTS) as api:
        yield api


async def items(api: Api) -> list[JsonObject]:
    return list((await api.get("/api/v1/pending"))["items"])


class TestPending:
    async def test_the_longest_wait_comes_first_with_the_reason_that_matters_most(self, api: Api) -> None:
        """Two nodes have a taint that alone keeps ``api`` away; on the third, only its constraint does."""
        told = {it["name"]: it for it in await items(api)}

        assert ["older", "gated", "other", "api-1", "api-2"] == [*told]
        assert ("NodeResourcesFit", 0) == (told["older"]["plugin"], told["older"]["feasible"])
        assert (True, "") == (told["gated"]["gated"], told["other"]["profile"])
        assert not told["other"]["judged"]
        assert ("TaintToleration", 2) == (told["api-1"]["plugin"], told["api-1"]["opens"])
        assert told["api-1"]["reasons"] == told["api-2"]["reasons"]

    async def test_equal_pods_are_judged_once_and_others_keep_their_last_verdict(
        self, api: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With one group a page, each page judges a group that no page has judged yet."""
        monkeypatch.setattr(pending, "MOST_JUDGED", 1)
        judged = []
        for _ in range(8):
            await api.get("/api/v1/pending")
            judged.append({it["name"] for it in await items(api) if it["judged"]})

        assert judged == sorted(judged, key=len)
        assert {"older", "gated", "api-1", "api-2"} == judged[-1]

    async def test_pages(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = await api.get("/api/v1/pending")
        monkeypatch.setattr(pending, "MOST_LISTED", 2)
        monkeypatch.setattr("app.server.pending.MOST_LISTED", 2)

        pages = [await api.get(f"/api/v1/pending?start={start}") for start in (0, 2, 4)]

        assert [2, 4, None] == [page["next"] for page in pages]
        assert whole["items"] == [{**it, "judgedSecondsAgo": 0.0} for page in pages for it in page["items"]]
        assert {5} == {page["total"] for page in (whole, *pages)}

    async def test_of_one_namespace(self, api: Api) -> None:
        assert ([], 0) == ((page := await api.get("/api/v1/pending?namespace=none"))["items"], page["total"])

    async def test_a_page_of_unlike_pods_is_made_in_short_steps(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Other requests can run between any two pods, if their inputs take long to compare."""
        monkeypatch.setattr(stepwise, "STEP_SECONDS", 0.0)
        monkeypatch.setattr(pending, "MOST_JUDGED", 0)
        turns = 0

        async def turn() -> None:
            nonlocal turns
            turns += 1

        pods = [wants(f"p-{number}", "1", labels={"part": f"{number}"}) for number in range(100)]
        path = tmp_path / "cluster.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*NODES, *pods]}))
        async with serving(Settings(cluster=str(path), profiles=(FULL,)), SHIPPED, DEFAULT_WEIGHTS) as api:
            monkeypatch.setattr(stepwise, "yield_to_loop", turn)
            page = await api.get("/api/v1/pending")

        assert (100, True) == (len(page["items"]), turns > 100)

    async def test_with_labels(self, api: Api) -> None:
        page = await api.get("/api/v1/pending?labelSelector=app%3Dapi")

        assert (["api-1", "api-2"], 2) == (sorted(it["name"] for it in page["items"]), page["total"])

    @pytest.mark.parametrize(
        "query", ["start=-1", "labelSelector=a==b==c", "start=x", "start=9999999", f"namespace={'n' * 64}"]
    )
    async def test_bad_queries(self, api: Api, query: str) -> None:
        assert 422 == (await api.http.get(f"/api/v1/pending?{query}")).status_code


class TestWorkloads:
    @pytest.mark.parametrize(
        "query",
        [
            pytest.param("kind=Deployment&name=api", id="a Deployment, by its ReplicaSet"),
            pytest.param("kind=ReplicaSet&name=api-abc12", id="a controller"),
            pytest.param(f"labelSelector={quote('app in (api), !canary')}", id="a label selector"),
        ],
    )
    async def test_equal_pods_are_explained_together(self, api: Api, query: str) -> None:
        told = await api.get(f"/api/v1/explain/default?{query}")

        waiting, bound = told["items"]
        assert ("ExplanationList", 3, ["api-1", "api-2"], ["api-0"]) == (
            told["kind"],
            told["total"],
            waiting["pods"],
            bound["pods"],
        )
        assert ("NoNodeFits", "Bound", "m1") == (
            waiting["explanation"]["verdict"],
            bound["explanation"]["verdict"],
            bound["explanation"]["nodeName"],
        )

    @pytest.mark.parametrize(
        ("query", "status"),
        [
            ("", 422),
            ("kind=Deployment", 422),
            ("kind=Deployment&name=api&labelSelector=app", 422),
            ("labelSelector=a==b==c", 422),
            (f"kind=Deployment&name={'n' * 300}", 422),
            ("kind=Deployment&name=ap", 404),
        ],
    )
    async def test_bad_queries(self, api: Api, query: str, status: int) -> None:
        answer = await api.http.get(f"/api/v1/explain/default?{query}")

        assert (status, []) == (answer.status_code, status_breaches(answer))

    async def test_pods_of_all_namespaces(self, api: Api) -> None:
        query = f"labelSelector={quote('app in (api), !canary')}"

        assert await api.get(f"/api/v1/explain/default?{query}") == await api.get(f"/api/v1/explain?{query}")
        assert [422, 422] == [
            (await api.http.get(f"/api/v1/explain{it}")).status_code for it in ("", "?labelSelector=a==b==c")
        ]

    async def test_no_pod_matches(self, api: Api) -> None:
        told = await api.get("/api/v1/explain/default?labelSelector=app%3Dnone")

        assert ([], 0) == (told["items"], told["total"])


class TestOneNode:
    async def test_every_plugin_and_its_score(self, api: Api) -> None:
        fits, rejected = [
            (await api.get(f"/api/v1/explain/default/gated?node={name}"))["node"] for name in ("m1", "m2")
        ]

        assert (True, True, True) == (fits["fits"], fits["total"] > 0, "NodeResourcesFit" in fits["scores"])
        assert {"Success"} == {it["code"] for it in fits["verdicts"]}
        assert (False, None, {}) == (rejected["fits"], rejected["total"], rejected["scores"])
        assert ["TaintToleration"] == [it["plugin"] for it in rejected["verdicts"] if it["code"] != "Success"]

    async def test_scores_of_plugins_that_only_the_scheduler_runs(self, tmp_path: Path) -> None:
        """They are not part of the total, which is that of the profile."""
        path = tmp_path / "cluster.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*NODES, *PODS]}))
        answers = []
        for explain in ("complete", "profile"):
            settings = Settings(cluster=str(path), profiles=(Profile(),), explain=explain)
            async with serving(settings, SHIPPED, DEFAULT_WEIGHTS) as api:
                answers.append((await api.get("/api/v1/explain/default/gated?node=m1"))["node"])

        whole, ours = answers
        added = {"NodeResourcesFit", "TaintToleration"}
        assert (added, set()) == (added & whole["scores"].keys(), added & ours["scores"].keys())
        assert ours["scores"].items() <= whole["scores"].items()
        assert ours["total"] == whole["total"]

    async def test_a_gated_pod_says_so_first(self, api: Api) -> None:
        told = await api.get("/api/v1/explain/default/gated")

        assert ("Gated", ["SchedulingGates"]) == (told["verdict"], [it["plugin"] for it in told["gate"]])

    async def test_no_such_node_and_no_such_pod(self, api: Api) -> None:
        node = await api.http.get("/api/v1/explain/default/gated?node=m9")
        pod = await api.http.get("/api/v1/explain/default/gatd")

        assert [404, 404] == [node.status_code, pod.status_code]
        assert "did you mean gated?" in pod.text
        assert "m9" in node.text


async def test_what_was_not_judged_is_said(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a pod that fits nowhere would be said to fit now."""
    unknown = {"NodeResourcesFit": "explain judges only the filters of the profile"}
    monkeypatch.setattr(api.service._explain, "not_judged", lambda *_: unknown)

    items = {it["name"]: it for it in (await api.get("/api/v1/pending"))["items"]}

    assert ["NodeResourcesFit"] == items["older"]["notJudged"]


async def test_a_plugin_that_fails_is_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*NODES, PODS[0]]}))
    settings = Settings(cluster=str(path), profiles=with_faulty())
    async with serving(settings, [*SHIPPED, faulty("filter")], DEFAULT_WEIGHTS) as api:
        (item,) = (await api.get("/api/v1/pending"))["items"]

    assert (0, "", 1) == (item["feasible"], item["plugin"], len(item["reasons"]))


async def test_a_pod_that_is_being_deleted_gets_no_remedies(tmp_path: Path) -> None:
    pod = wants("leaves", "8", terminating=True)
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*NODES, pod]}))
    async with serving(Settings(cluster=str(path), profiles=(FULL,)), SHIPPED, DEFAULT_WEIGHTS) as api:
        answer = await api.get("/api/v1/explain/default/leaves")

    assert ("Terminating", []) == (answer["verdict"], answer["remedies"])
