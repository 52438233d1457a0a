"""The last resort, and callers that hang up."""

from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import Message
from structlog.testing import capture_logs

from app.server.admission import Admission
from app.server.routes import verb_endpoints
from app.server.web import create_web
from app.telemetry.metrics import Metrics
from app.verbs.outcome import Answer, Verb


async def _raises(body: bytes | memoryview, *_: float) -> Answer:
    raise RuntimeError("a screw is loose")


async def no_hosts(_body: bytes | memoryview) -> list[str]:
    return []


def admission() -> Admission:
    return Admission(5.0, 10, no_hosts)


def web(metrics: Metrics) -> FastAPI:
    verbs: tuple[Verb, ...] = ("filter", "prioritize", "preempt", "bind")
    endpoints = verb_endpoints({"": dict.fromkeys(verbs, _raises)}, metrics, admission(), max_body_bytes=10)
    return create_web((), None, version="test", direct=endpoints)


@pytest.mark.parametrize(
    ("verb", "status"),
    [
        pytest.param("filter", 200, id="filter"),
        pytest.param("prioritize", 500, id="prioritize"),
        pytest.param("preempt", 500, id="preempt"),
        pytest.param("bind", 200, id="bind"),
    ],
)
async def test_an_internal_error_is_answered_counted_and_logged_once(verb: Verb, status: int) -> None:
    metrics = Metrics()
    transport = httpx.ASGITransport(web(metrics))
    with capture_logs() as logged:
        async with httpx.AsyncClient(transport=transport, base_url="http://homeport") as http:
            response = await http.post(f"/{verb}")

    assert status == response.status_code
    assert (status == 200) == (b"homeport: internal error" in response.content)
    assert 1 == metrics.registry.get_sample_value("homeport_requests_total", {"verb": verb, "outcome": "fault"})
    ((level, event),) = [(it["log_level"], it["event"]) for it in logged]
    assert ("error", "internal error") == (level, event)
    assert "a screw is loose" in logged[0]["traceback"]


async def test_a_caller_that_hangs_up_is_neither_answered_nor_counted() -> None:
    metrics = Metrics()
    sent: list[Message] = []

    async def gone() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/filter", "headers": [], "query_string": b""}
    await web(metrics)(scope, gone, send)

    assert [499] == [message["status"] for message in sent if message["type"] == "http.response.start"]
    assert metrics.registry.get_sample_value("homeport_requests_total", {"verb": "filter", "outcome": "fault"}) is None
