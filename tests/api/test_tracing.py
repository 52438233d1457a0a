"""Spans of verbs: what they say, who gets them, and that nothing depends on anybody taking them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.config.sections import TracingConfiguration
from app.config.settings import Settings
from app.server.spans import answer_facts, request_facts
from app.verbs.outcome import Verb
from tests.api.service import SAMPLE, VERSION, Api, example, serving
from tests.collector import Collector, Seen

ALL = 1_000_000
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as found:
        yield found


@asynccontextmanager
async def traced(endpoint: str, rate: int = ALL) -> AsyncIterator[Api]:
    tracing = TracingConfiguration(endpoint=endpoint, sampling_rate_per_million=rate)
    async with serving(Settings(cluster=str(SAMPLE), tracing=tracing)) as api:
        yield api


async def spans_of(collector: Collector, count: int) -> list[Seen]:
    return await asyncio.to_thread(collector.wait_for, count)


async def test_each_verb_is_a_span_that_says_what_was_asked_and_answered(collector: Collector) -> None:
    requests: list[tuple[Verb, str]] = [
        ("filter", "filter-spread"),
        ("prioritize", "prioritize-spread"),
        ("preempt", "preempt"),
        ("bind", "bind-crowded"),
    ]
    async with traced(collector.url) as api:
        for verb, name in requests:
            await api.post(verb, example(name))
    found = {it.name: it for it in await spans_of(collector, 4)}

    assert {"/v1/traces"} == collector.paths
    assert {"filter", "prioritize", "preempt", "bind"} == found.keys()
    assert {("server", "", "")} == {(it.kind, it.parent, it.failed) for it in found.values()}
    assert 4 == len({it.trace for it in found.values()})
    meta = example("filter-spread")["Pod"]["metadata"]
    assert {
        "homeport.verb": "filter",
        "homeport.outcome": "feasible",
        "http.response.status_code": 200,
        "k8s.pod.name": meta["name"],
        "k8s.namespace.name": meta["namespace"],
        "k8s.pod.uid": meta["uid"],
        "k8s.pod.scheduler_name": "default-scheduler",
        "homeport.nodes.asked": 12,
        "homeport.nodes.answered": 4,
    } == found["filter"].attributes
    asked_for = example("bind-crowded")
    assert {
        "homeport.verb": "bind",
        "homeport.outcome": "bind_conflict",
        "http.response.status_code": 200,
        "k8s.pod.name": asked_for["PodName"],
        "k8s.namespace.name": asked_for["PodNamespace"],
        "k8s.pod.uid": asked_for["PodUID"],
        "k8s.node.name": asked_for["Node"],
    } == found["bind"].attributes
    counts = {name: it.attributes.get("homeport.nodes.answered") for name, it in found.items()}
    assert {"filter": 4, "prioritize": 12, "preempt": 1, "bind": None} == counts
    resource = found["filter"].resource
    assert ("homeport", VERSION) == (resource["service.name"], resource["service.version"])
    assert resource["service.instance.id"]


async def test_a_request_that_is_part_of_a_trace_is_followed_whatever_the_rate(collector: Collector) -> None:
    async with traced(collector.url, rate=0) as api:
        await api.post("filter", example("filter-home"))
        await api.post("filter", example("filter-home"), traceparent=PARENT[:-2] + "00")
        await api.post("filter", example("filter-home"), traceparent="nonsense")
        await api.post("filter", example("filter-home"), traceparent=PARENT, tracestate="a=b")
    (found,) = await spans_of(collector, 1)

    assert (PARENT.split("-")[1], PARENT.split("-")[2]) == (found.trace, found.parent)


async def test_a_failure_is_one(collector: Collector) -> None:
    async with traced(collector.url) as api:
        await api.post("filter", b"{")
        await api.post("bind", {**example("bind-spread"), "PodUID": "another"})
    found = {it.name: it for it in await spans_of(collector, 2)}

    assert {"filter": "bad_request", "bind": "bind_failed"} == {name: it.failed for name, it in found.items()}
    assert "k8s.pod.name" not in found["filter"].attributes


@pytest.mark.parametrize("status", [500, 404])
async def test_a_collector_that_refuses_costs_spans_and_nothing_else(collector: Collector, status: int) -> None:
    collector.status = status
    async with traced(collector.url) as api:
        for _ in range(20):
            assert ["node-b2"] == (await api.post("filter", example("filter-home"))).answer["NodeNames"]

    assert [] == collector.spans


async def test_nobody_waits_for_a_collector_that_is_silent(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More spans than are kept; and the end of the process."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "100")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "50")
    collector.released.clear()
    async with traced(collector.url) as api:
        body = json.dumps(example("filter-home")).encode()
        for _ in range(300):
            response = await api.http.post("/filter", content=body)
            assert 200 == response.status_code

    assert not collector.released.is_set()


async def test_nobody_waits_for_a_collector_that_is_not_there() -> None:
    async with traced("http://127.0.0.1:1") as api:
        assert ["node-b2"] == (await api.post("filter", example("filter-home"))).answer["NodeNames"]


async def test_without_an_endpoint_no_span_is_made_and_nothing_is_imported() -> None:
    code = (
        "import asyncio, sys\n"
        "from tests.api.service import example, serving\n"
        "async def main():\n"
        "    async with serving() as api:\n"
        "        await api.post('filter', example('filter-home'))\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))])\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    said, errors = await process.communicate()

    assert "[]" == said.decode().splitlines()[-1], errors


@pytest.mark.parametrize(
    ("body", "facts"),
    [
        pytest.param(
            {"Pod": {}, "NodeNames": None, "Nodes": {"items": [{}, {}]}}, {"homeport.nodes.asked": 2}, id="nodes"
        ),
        pytest.param({"NodeNameToVictims": {"a": {}, "b": {}}}, {"homeport.nodes.asked": 2}, id="victims"),
        pytest.param({"Pod": {"metadata": {"name": 5}}}, {}, id="nonsense"),
        pytest.param({"NodeNames": ["x" * (5 << 20)]}, {}, id="too long"),
    ],
)
def test_what_is_read_of_a_request(body: Any, facts: dict[str, Any]) -> None:
    assert facts == request_facts(json.dumps(body).encode())


@pytest.mark.parametrize(
    ("verb", "body", "facts"),
    [
        pytest.param("filter", {"Nodes": {"items": [{}]}}, {"homeport.nodes.answered": 1}, id="nodes"),
        pytest.param("filter", {"Error": "no"}, {"homeport.nodes.answered": 0}, id="an error"),
        pytest.param("preempt", {"NodeNameToMetaVictims": None}, {"homeport.nodes.answered": 0}, id="nobody"),
        pytest.param("prioritize", {}, {}, id="nonsense"),
        pytest.param("prioritize", ["x" * (5 << 20)], {}, id="too long"),
    ],
)
def test_what_is_read_of_an_answer(verb: Verb, body: Any, facts: dict[str, Any]) -> None:
    assert facts == answer_facts(verb, json.dumps(body).encode())
