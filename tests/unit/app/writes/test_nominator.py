"""A nomination is one small patch; a pod that is gone, a permission that is missing and a fault are told apart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.cache.cluster import Cluster
from app.feeds.saved import MemoryNominator
from app.writes.nominator import ApiNominator, Nominated, nomination
from tests.apiserver import ApiServer, Fault, client_of
from tests.builders import make_pod, pod_object

PATCH = "PATCH /api/v1/namespaces/default/pods/web-1/status"


class Nomination:
    """A nominator and the API server it talks to."""

    def __init__(self, server: ApiServer, nominator: ApiNominator) -> None:
        self.server = server
        self.nominator = nominator

    @property
    def node(self) -> str:
        found = self.server.get("Pod", "web-1")
        return "" if found is None else found["status"].get("nominatedNodeName", "")


@pytest.fixture
async def written(tmp_path: Path) -> AsyncIterator[Nomination]:
    server = ApiServer(pod_object("web-1"))
    async with client_of(server) as client:
        yield Nomination(server, ApiNominator(client))


def test_what_is_patched() -> None:
    """The UID is a precondition; a version would meet every condition that the scheduler writes."""
    pod = make_pod("web-1", uid="u", resource_version="7")

    assert {"metadata": {"uid": "u"}, "status": {"nominatedNodeName": "n1"}} == nomination(pod, "n1")


async def test_taken(written: Nomination) -> None:
    assert "taken" == await written.nominator.nominate(make_pod("web-1"), "n1")
    assert ([PATCH], "n1") == (written.server.log, written.node)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        pytest.param(403, "forbidden", id="a permission is missing"),
        pytest.param(404, "gone", id="the pod is gone"),
        pytest.param(422, "failed", id="the API server would not"),
        pytest.param(500, "failed", id="an answer that says nothing"),
        pytest.param("lost", "failed", id="no answer"),
        pytest.param("unreachable", "failed", id="no API server"),
    ],
)
async def test_not_taken(written: Nomination, fault: Fault, expected: Nominated) -> None:
    written.server.fail("PATCH", fault)

    assert expected == await written.nominator.nominate(make_pod("web-1"), "n1")
    assert ([PATCH], "") == (written.server.log, written.node)


async def test_another_pod_of_the_same_name_is_not_nominated(written: Nomination) -> None:
    assert "gone" == await written.nominator.nominate(make_pod("web-1", uid="before"), "n1")
    assert "" == written.node


@pytest.mark.parametrize(("uid", "expected", "nodes"), [("uid-default-web-1", "taken", ["n1"]), ("before", "gone", [])])
async def test_in_memory(uid: str, expected: Nominated, nodes: list[str]) -> None:
    cluster = Cluster()
    cluster.upsert_pod(make_pod("web-1"))

    assert expected == await MemoryNominator(cluster).nominate(make_pod("web-1", uid=uid), "n1")
    assert nodes == list(cluster.nominated_nodes)
