"""What is asked of the API server, and what its discovery says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.kube.api_errors import ApiError
from app.kube.api_requests import Resource
from tests.unit.app.kube.scripted import PODS, Script, client_of, status


@pytest.mark.parametrize("name", ["", ".", "..", "../kube-system", "a/b", "a%2fb", "%2e%2e", "a" * 254])
@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda client, it: client.get(PODS, "ns", it), id="a name that is read"),
        pytest.param(lambda client, it: client.patch(PODS, it, "web", {}, subresource="status"), id="a namespace"),
        pytest.param(lambda client, it: client.resolve(f"{it}/v1", "Web"), id="a group"),
    ],
)
async def test_what_cannot_be_a_name_is_never_asked_for(tmp_path: Path, ask: Callable[..., Any], name: str) -> None:
    """The API server takes a path apart after it has decoded it: ``..`` and an escaped slash mean another one there."""
    script = Script(httpx.Response(200, json={}))
    async with client_of(tmp_path, script) as client:
        with pytest.raises(ApiError, match="cannot be a name") as refused:
            await ask(client, name)

    assert (400, []) == (refused.value.status, script.asked)


SERVED = {
    "resources": [
        {"name": "pods/binding", "kind": "Pod", "namespaced": True},
        {"name": "pods", "kind": "Pod", "namespaced": True},
    ]
}


@pytest.mark.parametrize(
    ("kind", "answer", "expected"),
    [
        pytest.param("Pod", httpx.Response(200, json=SERVED), PODS, id="subresources are passed over"),
        pytest.param("Job", httpx.Response(200, json=SERVED), None, id="the group lacks the kind"),
        pytest.param("Pod", httpx.Response(200, json={"resources": None}), None, id="an empty group"),
        pytest.param("Pod", status(404, "NotFound", "no such group"), None, id="no such group"),
    ],
)
async def test_resolve(kind: str, answer: httpx.Response, expected: Resource | None, tmp_path: Path) -> None:
    async with client_of(tmp_path, Script(answer)) as client:
        assert expected == await client.resolve("v1", kind)


async def test_a_kind_is_not_called_absent_because_discovery_failed(tmp_path: Path) -> None:
    async with client_of(tmp_path, Script(status(503, "ServiceUnavailable", "starting"))) as client:
        with pytest.raises(ApiError, match="starting"):
            await client.resolve("v1", "Pod")
