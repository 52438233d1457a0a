"""One node with its pods, or one pod, read past the picture."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from app.feeds.uncached_reader import MOST_BYTES, ApiUncachedReader
from app.framework.parts import Part, extras_of
from app.kube.core_decoding import core_v1
from tests.builders import JsonObject, node_object, pod_object
from tests.unit.app.kube.scripted import Answer, Script, client_of, status

CORE = core_v1(extras_of((Part.RESOURCES,)))


def asks(cpu: str) -> JsonObject:
    return {"name": "main", "resources": {"requests": {"cpu": cpu}}}


def listed(*items: JsonObject) -> httpx.Response:
    return httpx.Response(200, json={"metadata": {"resourceVersion": "9"}, "items": list(items)})


NODE = listed(node_object("n1", status={"allocatable": {"cpu": "2"}}))
PODS = listed(
    pod_object("web-1", node="n1", containers=[asks("1")]), pod_object("web-2", node="n1", containers=[asks("500m")])
)


def reader(folder: Path, *answers: Answer) -> tuple[ApiUncachedReader, Script]:
    script = Script(*answers)
    return ApiUncachedReader(client_of(folder, script)), script


async def test_a_node_comes_with_the_pods_on_it(tmp_path: Path) -> None:
    """By the API server's own index, and by the right to list."""
    asked, script = reader(tmp_path, NODE, PODS)

    found = await asked.node(CORE, "n1")

    assert found is not None
    assert ({"cpu": 2000}, {"cpu": 1500}) == (found.allocatable, found.requested)
    assert [
        ("/api/v1/nodes", {"fieldSelector": "metadata.name=n1", "resourceVersion": "0"}),
        (
            "/api/v1/pods",
            {"fieldSelector": "spec.nodeName=n1,status.phase!=Succeeded,status.phase!=Failed", "resourceVersion": "0"},
        ),
    ] == [(it.url.path, dict(it.url.params)) for it in script.asked]


async def test_a_pod_has_all_its_parts(tmp_path: Path) -> None:
    asked, _ = reader(tmp_path, httpx.Response(200, json=pod_object("web-1", containers=[asks("1")])))

    found = await asked.pod(CORE, "default", "web-1")

    assert found is not None
    assert {"cpu": 1000} == found.spec.resources.requests


async def test_what_is_not_there(tmp_path: Path) -> None:
    assert await reader(tmp_path, listed())[0].node(CORE, "n1") is None
    assert await reader(tmp_path, status(404, "NotFound", "no"))[0].pod(CORE, "default", "web-1") is None


@pytest.mark.parametrize("name", ["", "../secrets", "n1,spec.nodeName=n2", "x" * 300])
async def test_what_no_node_is_called_is_not_asked_for(tmp_path: Path, name: str) -> None:
    asked, script = reader(tmp_path, NODE)

    assert await asked.node(CORE, name) is None
    assert [] == script.asked


@pytest.mark.parametrize(
    ("answers", "cause"),
    [
        pytest.param((status(403, "Forbidden", "may not"),), "may not", id="forbidden"),
        pytest.param((httpx.ReadTimeout("late"),), "late", id="silent"),
        pytest.param((NODE, httpx.Response(200, content=b"nonsense")), "list: ", id="nonsense"),
        pytest.param((NODE, listed({"metadata": []})), "Expected `object`", id="a pod that cannot be read"),
        pytest.param((listed(node_object("n2")),), "the answer is about n2", id="another node"),
        pytest.param(
            (NODE, httpx.Response(200, content=b" " * (MOST_BYTES + 1))), "exceeds the maximum size", id="too much"
        ),
    ],
)
async def test_what_cannot_be_said(tmp_path: Path, answers: tuple[Answer, ...], cause: str) -> None:
    with pytest.raises(OSError, match=cause):
        await reader(tmp_path, *answers)[0].node(CORE, "n1")


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        pytest.param(status(500, "InternalError", "broken"), "broken", id="refused"),
        pytest.param(
            httpx.Response(200, json=pod_object("web-2")), "the answer is about default/web-2", id="another pod"
        ),
        pytest.param(httpx.ConnectError("gone"), "gone", id="nobody there"),
    ],
)
async def test_a_pod_that_cannot_be_read(tmp_path: Path, answer: Answer, cause: str) -> None:
    with pytest.raises(OSError, match=cause):
        await reader(tmp_path, answer)[0].pod(CORE, "default", "web-1")
