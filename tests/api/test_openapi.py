"""The OpenAPI document: all there is, well formed, and every example works as printed on the sample cluster."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final

import pytest
from starlette.routing import BaseRoute, Route

from app.config.settings import Settings
from app.main import HomeportService
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.api.service import SAMPLE, Api, serving

DOCUMENT: Final[dict[str, Any]] = (
    HomeportService(Settings(cluster=str(SAMPLE)), SHIPPED, DEFAULT_WEIGHTS, version="1").web().openapi()
)
VERBS: Final = ("/filter", "/prioritize", "/preempt", "/bind")


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(method, path, operation)."""
    for path, found in DOCUMENT["paths"].items():
        for method, operation in found.items():
            yield method, path, operation


def examples() -> Iterator[Any]:
    """Path, request, and the answer where the document shows one."""
    for method, path, operation in operations():
        if "requestBody" not in operation:
            continue
        asked = operation["requestBody"]["content"]["application/json"]["examples"]
        answered = operation["responses"]["200"]["content"]["application/json"].get("examples", {})
        for name, it in asked.items():
            answer = answered.get(name, {"value": None})["value"]
            yield pytest.param(path, it["value"], answer, id=f"{method} {path} {name}")


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving() as api:
        yield api


@pytest.mark.parametrize(("path", "asked", "answer"), list(examples()))
async def test_an_example_works_as_printed(api: Api, path: str, asked: Any, answer: Any) -> None:
    response = await api.http.post(path.replace("{uid}", "none"), json=asked)

    assert response.status_code in ((200,) if "{uid}" not in path else (404,))
    assert answer is None or answer == response.json()


@pytest.mark.parametrize("path", VERBS)
def test_every_verb_has_examples_of_request_and_answer(path: str) -> None:
    shown = [it.values for it in examples() if it.values[0] == path]

    assert shown
    assert [] == [asked for _, asked, answer in shown if answer is None]


def test_every_route_is_in_the_document() -> None:
    web = HomeportService(Settings(cluster=str(SAMPLE)), SHIPPED, DEFAULT_WEIGHTS, version="1").web()
    own = {"/", web.openapi_url, "/docs", "/docs/start.js", "/docs/{name}", "/ui", "/ui/{name}"}
    served = {
        (method.lower(), route.path)
        for route in routes(web.routes)
        if route.path not in own
        for method in (route.methods or set()) - {"HEAD"}
    }

    assert served == {(method, path) for method, path, _ in operations()}


def routes(found: Sequence[BaseRoute]) -> Iterator[Route]:
    """Also those of the routers that are included, which FastAPI keeps as such."""
    for it in found:
        if isinstance(it, Route):
            yield it
        else:
            yield from routes(getattr(it, "original_router", it).routes)  # type: ignore[union-attr]  # it has them


@pytest.mark.parametrize(
    ("method", "path", "operation"), [pytest.param(*it, id=f"{it[0]} {it[1]}") for it in operations()]
)
def test_an_operation_says_what_it_is_for(method: str, path: str, operation: dict[str, Any]) -> None:
    assert operation["summary"]
    assert operation["tags"]
    assert "200" in operation["responses"]
    assert [] == [code for code, it in operation["responses"].items() if not it["description"]]
    assert ("requestBody" in operation) == (method == "post")


def test_errors_below_the_api_are_described_as_what_they_are() -> None:
    described = {
        (path, code): answer.get("content", {}).get("application/json", {}).get("schema", {}).get("$ref")
        for _, path, operation in operations()
        if path.startswith("/api/v1/")
        for code, answer in operation["responses"].items()
        if code != "200"
    }

    assert {("/api/v1/cycle", "500"), ("/api/v1/homes", "422"), ("/api/v1/waiting/{uid}/allow", "409")} <= set(
        described
    )
    assert {"#/components/schemas/FailureStatus"} == set(described.values())


def test_every_reference_leads_somewhere() -> None:
    targets = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(DOCUMENT)))
    assert targets

    assert targets <= DOCUMENT["components"]["schemas"].keys()
