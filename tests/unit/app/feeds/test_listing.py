"""One listing of a cluster into a snapshot: every page, or the reason why not."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from app.cache.cluster import Cluster
from app.feeds import listing
from app.feeds.listing import ListingError, list_cluster
from app.kube.client import KubeClient
from app.kube.credentials import Access
from app.kube.kinds import NODES, PODS, SERVICES, Kind
from app.kube.resource_slices import decode_device_class
from tests.apiserver import ApiServer, Given, client_of
from tests.builders import JsonObject, node_object, pod_object, service_object

DEVICES: Kind[Any] = Kind("absent.example/v1", "DeviceClass", decode_device_class)
KINDS = (SERVICES, DEVICES)
STATUS = {"kind": "Status", "status": "Failure", "message": "no"}


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "PAGE", 2)


def api_with(*objects: JsonObject) -> ApiServer:
    return ApiServer(*objects, *(node_object(f"n{number}") for number in range(5)), pod_object("web", node="n1"))


async def loaded(server: Any) -> tuple[Cluster, list[tuple[Kind[Any], int]]]:
    """The snapshot, and the progress that was told."""
    cluster, told = Cluster(), list[tuple[Kind[Any], int]]()
    async with client_of(server) as client:
        number = await list_cluster(client, cluster, KINDS, lambda kind, count: told.append((kind, count)))
    assert told[-1][1] == number
    return cluster, told


async def refused(server: Any) -> str:
    with pytest.raises(ListingError) as raised:
        await loaded(server)
    return str(raised.value)


async def test_all_pages_of_what_is_served() -> None:
    cluster, told = await loaded(api_with(service_object("shop", {"app": "web"})))

    assert {f"n{number}" for number in range(5)} == set(cluster.nodes)
    assert [("default", "web")] == [it.key for it in cluster.pods()]
    assert 1 == cluster.count_of(SERVICES)
    assert [(NODES, 2), (NODES, 4), (NODES, 5), (PODS, 6), (SERVICES, 7)] == told


async def test_a_kind_is_listed_once_and_without_finished_pods() -> None:
    api = api_with()
    async with client_of(api) as client:
        await list_cluster(client, Cluster(), (PODS, NODES, SERVICES, SERVICES), lambda *_: None)

    lists = [it for it in api.requests if it.url.params.get("limit")]
    assert ["nodes", "nodes", "nodes", "pods", "services"] == [it.url.path.rpartition("/")[2] for it in lists]
    assert ["status.phase!=Succeeded,status.phase!=Failed"] == [
        it.url.params["fieldSelector"] for it in lists if it.url.path.endswith("pods")
    ]


async def test_the_next_page_is_requested_before_a_page_is_decoded() -> None:
    api = api_with()
    before: list[int] = []

    class Watched(Cluster):
        def upsert_node(self, node: Any) -> None:
            before.append(sum("/nodes" in it.url.path for it in api.requests))
            super().upsert_node(node)

    async with client_of(api) as client:
        await list_cluster(client, Watched(), (), lambda *_: None)

    assert [2, 2, 3, 3, 3] == before


class Odd:
    """An API server that answers some requests for a list of nodes in its own way. ``answers``: by number, from 0."""

    def __init__(self, answers: dict[int, httpx.Response], at: str = "/api/v1/nodes", **meanwhile: str) -> None:
        self.api = api_with()
        self._answers = answers
        self._at = at
        self._meanwhile = meanwhile
        self.lists = 0

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path != self._at:
            return await self.api(request)
        self.lists += 1
        answer = self._answers.get(self.lists - 1)
        if answer is None:
            return await self.api(request)
        for kind, name in self._meanwhile.items():
            self.api.delete(f"v1 {kind}", ("", name))
        self._meanwhile = {}
        return answer


def failure(status: int, message: str = "no", **headers: str) -> httpx.Response:
    return httpx.Response(status, json={**STATUS, "message": message, "code": status}, headers=headers)


async def test_a_list_whose_version_is_gone_is_repeated_and_nothing_of_before_stays() -> None:
    server = Odd({1: failure(410)}, Node="n0")
    cluster, _ = await loaded(server)

    assert {f"n{number}" for number in range(1, 5)} == set(cluster.nodes)


async def test_but_not_for_ever() -> None:
    server = Odd(dict.fromkeys((1, 3, 5), failure(410, "too old")))

    assert ("v1 Node: the API server refused: too old", 6) == (await refused(server), server.lists)


async def test_a_throttled_list_waits_as_long_as_the_server_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("app.feeds.listing.asyncio.sleep", sleep)
    server = Odd({0: failure(429, **{"Retry-After": "3"}), 1: failure(429, **{"Retry-After": "900"})})
    cluster, _ = await loaded(server)

    assert ([3.0, 10.0], 5) == ([it for it in slept if it], len(cluster.nodes))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            failure(429, "too many requests", **{"Retry-After": "0"}),
            "v1 Node: the API server refused: too many requests",
        ),
        (failure(500, "etcd is away"), "v1 Node: the API server refused: etcd is away"),
        (httpx.Response(200, html="<h1>hello</h1>"), "v1 Node: the API server (fake) does not answer: list: JSON is"),
        (httpx.Response(502, html="<h1>no</h1>"), "v1 Node: the API server refused: <h1>no</h1>"),
        (httpx.Response(200, content=b'{"metadata":{"resourceVersion":"7"},"items":[{'), "v1 Node: the API server (fa"),
    ],
)
async def test_an_api_server_that_gives_no_list(answer: httpx.Response, told: str) -> None:
    said = await refused(Odd(dict.fromkeys(range(9), answer)))

    assert said.replace("(kubeconfig )", "(fake)").startswith(told)


class Same(Given):
    """Credentials that are not read again."""

    async def renewed(self, rejected: Access) -> Access:
        return rejected


async def test_an_api_server_that_rejects_the_credentials() -> None:
    api = api_with()
    api.fail("GET", *(401,) * 2)
    async with KubeClient(Same(), transport=httpx.MockTransport(api)) as client:
        with pytest.raises(ListingError) as raised:
            await list_cluster(client, Cluster(), KINDS, lambda *_: None)

    assert "the API server (kubeconfig ) rejects the credentials: told to" == str(raised.value)


async def test_an_api_server_that_is_away() -> None:
    api = api_with()
    api.lose("refused")

    assert (await refused(api)).endswith("does not answer: GET /api/v1: ConnectError refused")


async def test_all_permissions_that_are_missing_are_named_at_once() -> None:
    api = api_with()

    async def forbidding(request: httpx.Request) -> httpx.Response:
        if request.url.path in ("/api/v1/nodes", "/api/v1/services"):
            return failure(403)
        return await api(request)

    assert "you have no permission to list nodes, services in all namespaces" == await refused(forbidding)


async def test_more_pods_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MOST_PODS", 2)
    api = ApiServer(node_object("n1"), *(pod_object(f"p{number}") for number in range(6)))

    assert "the cluster has more than 2 pods: use a Homeport that runs in the cluster" == await refused(api)


@pytest.mark.parametrize(
    ("bound", "most", "excess"),
    [
        ("MOST_OTHERS", 6, "6 objects besides its pods (Service was listed last)"),
        ("MOST_BYTES", 0, "0 MiB of objects (Node was listed last)"),
    ],
)
async def test_more_of_anything_than_the_bounds(
    monkeypatch: pytest.MonkeyPatch, bound: str, most: int, excess: str
) -> None:
    services = [service_object(f"s{number}", {"app": "web"}) for number in range(3)]
    monkeypatch.setattr(listing, bound, most)

    assert f"the cluster has more than {excess}: use a Homeport that runs in the cluster" == await refused(
        api_with(*services)
    )


async def test_the_bounds_are_of_all_kinds_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MOST_OTHERS", 6)  # five nodes and a service; the pod does not count

    cluster, _ = await loaded(api_with(service_object("shop", {"app": "web"})))
    assert (5, 1) == (len(cluster.nodes), cluster.count_of(SERVICES))


async def test_an_optional_kind_without_permission_is_left_out() -> None:
    api = api_with()
    api.down_at["/api/v1/services"] = 403
    denied: dict[Kind[Any], list[str]] = {SERVICES: []}
    async with client_of(api) as client:
        number = await list_cluster(client, Cluster(), (), lambda *_: None, denied)

    assert (6, {SERVICES: ["services"]}) == (number, denied)


async def test_a_cluster_without_nodes() -> None:
    assert "the cluster has no nodes: there is nothing to schedule to" == await refused(ApiServer(pod_object("web")))


async def test_an_object_that_cannot_be_decoded_hides_no_other() -> None:
    api = api_with()
    api.list_also("v1 Pod", [json.dumps({"metadata": {"namespace": "a", "name": "odd"}, "spec": 7}).encode()])

    cluster, _ = await loaded(api)

    assert ([("a", "odd")], 1) == ([*cluster.unreadable.of(PODS)], cluster.count_of(PODS))
