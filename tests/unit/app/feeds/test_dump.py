"""A dump reads every page of every kind that is served, or fails and says why."""

from __future__ import annotations

import io
import json
from typing import Any

import httpx
import pytest

from app.feeds.dump import DumpError, DumpSummary, dump_from
from app.kube.kinds import NODES, PODS, SERVICES, Kind
from app.kube.resource_slices import decode_device_class
from tests.apiserver import ApiServer, client_of
from tests.builders import JsonObject, node_object, pod_object, service_object

DEVICES: Kind[Any] = Kind("absent.example/v1", "DeviceClass", decode_device_class)
KINDS = (PODS, SERVICES, DEVICES)


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.feeds.dump._PAGE", 2)


def api_with(*objects: JsonObject) -> ApiServer:
    return ApiServer(*objects, *(node_object(f"n{number}") for number in range(5)), pod_object("web"))


async def dumped(server: Any) -> tuple[DumpSummary, list[tuple[str, str]]]:
    file = io.BytesIO()
    async with client_of(server) as client:
        result = await dump_from(client, KINDS, (), file)
    items = json.loads(file.getvalue())["items"]
    return result, [(it["kind"], it["metadata"]["name"]) for it in items]


NODES_AND_PODS = [*(("Node", f"n{number}") for number in range(5)), ("Pod", "web")]


async def test_all_pages_of_what_is_served() -> None:
    result, names = await dumped(api_with(service_object("shop", {"app": "web"})))

    assert [*NODES_AND_PODS, ("Service", "shop")] == names
    assert DumpSummary({NODES: 5, PODS: 1, SERVICES: 1}, (DEVICES,)) == result


async def test_a_cluster_without_objects_is_an_empty_list() -> None:
    assert (DumpSummary({NODES: 0, PODS: 0, SERVICES: 0}, (DEVICES,)), []) == await dumped(ApiServer())


class Refusing:
    """An API server that refuses some requests for lists."""

    def __init__(self, refused: dict[int, int]) -> None:
        """``refused``: number of the request to the status of its answer."""
        self.api = api_with()
        self._refused = refused
        self._lists = 0

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if "limit" in request.url.params:
            self._lists += 1
            if status := self._refused.get(self._lists):
                return httpx.Response(status, json={"kind": "Status", "code": status, "message": "not so"})
        return await self.api(request)


async def test_a_list_that_expires_is_begun_again() -> None:
    """What its first pages had is not written twice."""
    _, names = await dumped(Refusing({2: 410, 5: 410}))

    assert NODES_AND_PODS == names


@pytest.mark.parametrize(
    "refused", [pytest.param({4: 403}, id="a missing right"), pytest.param({4: 410, 5: 410, 6: 410}, id="expires ever")]
)
async def test_a_list_that_is_refused_fails_the_dump(refused: dict[int, int]) -> None:
    with pytest.raises(DumpError, match=r"^v1 Pod: the API server refused: not so"):
        await dumped(Refusing(refused))


async def test_an_api_server_that_does_not_answer() -> None:
    def unreachable(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused", request=request)

    with pytest.raises(DumpError, match=r"^v1 Node: the API server .* does not answer: "):
        await dumped(unreachable)
