"""Requests of a preemption, and what their answers mean."""

from __future__ import annotations

import json
from typing import Any, Final

import httpx
import pytest

from app.cache.cluster import Cluster
from app.kube.meta_v1 import PREEMPTING
from app.writes.evictions import Eviction, Evictor
from tests.apiserver import client_of
from tests.builders import make_pod, pod_object

VICTIM: Final = make_pod("low", node="a1")
PATH: Final = "/api/v1/namespaces/default/pods/low"


def status(code: int, message: str = "no") -> httpx.Response:
    return httpx.Response(code, json={"kind": "Status", "status": "Failure", "code": code, "message": message})


class Server:
    """Answers with ``answers``, one after the other, and keeps the requests."""

    def __init__(self, *answers: httpx.Response, problem: str = "") -> None:
        self._answers = list(answers)
        self.requests: list[tuple[str, str, Any]] = []
        self.cluster = Cluster()
        self.evictor = Evictor(client_of(self._answer), self.cluster, lambda: problem, 1.0)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else None
        self.requests.append((request.method, request.url.raw_path.decode(), body))
        return self._answers.pop(0)


@pytest.mark.parametrize("dry_run", [False, True])
async def test_an_eviction_names_the_version_of_the_pod(dry_run: bool) -> None:
    server = Server(httpx.Response(201, json={"kind": "Status", "status": "Success"}))

    assert Eviction("evicted") == await server.evictor.evict(VICTIM, dry_run=dry_run)

    options = {"preconditions": {"uid": VICTIM.uid, "resourceVersion": VICTIM.resource_version}}
    expected = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": "default", "name": "low"},
        "deleteOptions": options,
    }
    assert [("POST", f"{PATH}/eviction{'?dryRun=All' if dry_run else ''}", expected)] == server.requests


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        pytest.param(status(404), "gone", id="404"),
        pytest.param(status(409), "changed", id="409"),
        pytest.param(status(429), "refused", id="429: a budget or a webhook"),
        pytest.param(status(403), "refused", id="403"),
        pytest.param(status(500), "unclear", id="500: several budgets, or anything else"),
    ],
)
async def test_what_an_answer_means(answer: httpx.Response, outcome: str) -> None:
    assert outcome == (await Server(answer).evictor.evict(VICTIM)).outcome


async def test_nothing_is_sent_without_leadership() -> None:
    server = Server(*[waiting("", "") for _ in range(5)], problem="another replica leads")

    assert Eviction("refused", "another replica leads") == await server.evictor.evict(VICTIM)
    assert "another replica leads" == await server.evictor.nominate(make_pod("low"), "a1")
    assert {"GET"} == {method for method, _, _ in server.requests}


async def test_a_pod_that_is_gone_leaves_the_snapshot() -> None:
    server = Server(status(404))
    server.cluster.upsert_pod(VICTIM)

    assert (None, None) == (await server.evictor.read(VICTIM), server.cluster.pod("default", "low"))


def waiting(nominated: str, marked: str) -> httpx.Response:
    marks = {PREEMPTING: marked} if marked else {}
    return httpx.Response(200, json=pod_object("low", nominated=nominated, annotations=marks))


@pytest.mark.parametrize(
    ("pod", "left"),
    [
        pytest.param(waiting("a1", "a1"), "", id="ours"),
        pytest.param(waiting("", "a1"), "", id="the scheduler cleared it"),
        pytest.param(waiting("a2", "a1"), "a2", id="another node"),
        pytest.param(waiting("a1", ""), None, id="not ours"),
    ],
)
async def test_only_our_nomination_is_cleared(pod: httpx.Response, left: str | None) -> None:
    server = Server(pod, httpx.Response(200, json={}), waiting("", ""))

    await server.evictor.clear(make_pod("low"), "a1")

    patches = [body for method, _, body in server.requests if method == "PATCH"]
    assert ([] if left is None else [left]) == [it["status"]["nominatedNodeName"] for it in patches]
    assert all(it["metadata"]["annotations"] == {PREEMPTING: None} for it in patches)


async def test_a_nomination_is_written_to_the_newest_version_of_the_pod() -> None:
    server = Server(waiting("", ""), status(409), waiting("", ""), httpx.Response(200, json={}), waiting("a1", "a1"))

    assert "" == await server.evictor.nominate(make_pod("low"), "a1")

    patches = [body for method, _, body in server.requests if method == "PATCH"]
    assert [{"nominatedNodeName": "a1"}] * 2 == [it["status"] for it in patches]
    assert [{PREEMPTING: "a1"}] * 2 == [it["metadata"]["annotations"] for it in patches]


async def test_another_nomination_is_not_overwritten() -> None:
    server = Server(waiting("a2", ""))

    assert "the pod has another nomination" == await server.evictor.nominate(make_pod("low"), "a1")
    assert ["GET"] == [method for method, _, _ in server.requests]
