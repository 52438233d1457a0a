"""Requests nested as deeply as the API server stores objects are answered as if they were not."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Final

import pytest

from app.verbs.outcome import Verb
from tests.api.service import Api, example, serving
from tests.builders import JsonObject

REQUESTS: Final[dict[str, Verb]] = {"filter-spread": "filter", "prioritize-spread": "prioritize", "preempt": "preempt"}


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving() as api:
        yield api


def deep(asked: JsonObject, levels: int) -> bytes:
    asked["Pod"]["metadata"]["managedFields"] = [{"fieldsV1": "DEEP"}]
    return json.dumps(asked).replace('"DEEP"', '{"f:a":' * levels + "{}" + "}" * levels).encode()


@pytest.mark.parametrize("levels", [1_200, 9_000])
@pytest.mark.parametrize("name", REQUESTS)
async def test_a_deep_pod_is_judged_as_any_other(api: Api, name: str, levels: int) -> None:
    verb = REQUESTS[name]

    assert await api.post(verb, example(name)) == await api.post(verb, deep(example(name), levels))


@pytest.mark.parametrize("levels", [100_000])
async def test_a_deep_node_comes_back_without_its_depths(api: Api, levels: int) -> None:
    """And everything else that it was sent with."""
    metadata = {"name": "sent", "labels": {"a": "b"}, "managedFields": "DEEP"}
    node: JsonObject = {"metadata": metadata, "status": {"x": [1]}}
    asked = {"Pod": {"metadata": {"name": "p"}, "spec": {}}, "Nodes": {"items": [node]}, "NodeNames": None}
    text = json.dumps(asked).replace('"DEEP"', '{"f:a":' * levels + "{}" + "}" * levels)

    reply = await api.post("filter", text.encode())

    (sent,) = reply.answer["Nodes"]["items"]
    kept = sent["metadata"].pop("managedFields")
    depth = 0
    while kept is not None:
        kept, depth = kept["f:a"], depth + 1
    assert (59, {"metadata": {"name": "sent", "labels": {"a": "b"}}, "status": {"x": [1]}}) == (depth, sent)


@pytest.mark.parametrize("path", ["cycle", "explain"])
async def test_elsewhere_a_pod_is_read_and_what_else_is_deep_refused_in_words(api: Api, path: str) -> None:
    deep = "[" * 500 + "]" * 500
    pod = json.dumps({"pod": {"metadata": {"name": "p", "managedFields": "DEEP"}}}).replace('"DEEP"', deep)

    answered = await api.http.post(f"/api/v1/{path}", content=pod)
    refused = await api.http.post(f"/api/v1/{path}", content=f'{{"name": {deep}}}')

    assert (200, 422) == (answered.status_code, refused.status_code)
    assert "recursion limit exceeded" in refused.text
