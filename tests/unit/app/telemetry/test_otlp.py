"""Spans: which traces begin, what goes on to others, and what is said of a collector that takes none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from structlog.testing import capture_logs

from app.kube.api_requests import Resource
from app.kube.client import KubeClient
from app.telemetry import otlp, tracing
from app.telemetry.otlp import OtlpTracing
from tests.apiserver import Given

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
ALL = otlp.PER_MILLION
PODS = Resource("", "v1", "pods", "Pod", namespaced=True)


class Spans:
    """Tracing, and what has ended."""

    def __init__(self, per_million: int = ALL) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracing = OtlpTracing(self.exporter, per_million, version="1", instance="here")

    def ended(self) -> Sequence[ReadableSpan]:
        self.tracing._provider.force_flush()
        return self.exporter.get_finished_spans()


@pytest.fixture
def spans() -> Iterator[Spans]:
    found = Spans()
    yield found
    found.tracing._provider.shutdown()


def nothing(_name: str) -> str | None:
    return None


def sent(flags: str, state: str = "") -> Callable[[str], str | None]:
    return {"traceparent": f"00-{TRACE}-{PARENT}-{flags}", "tracestate": state}.get


@pytest.mark.parametrize("rate", [0, ALL // 4, ALL])
def test_so_many_of_a_million_begin(rate: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter(number / 1000 for number in range(1000))
    monkeypatch.setattr("app.telemetry.otlp.random", lambda: next(drawn))
    tracing_ = Spans(rate).tracing

    assert rate * 1000 // ALL == sum(tracing_.incoming("filter", nothing) is not None for _ in range(1000))


@pytest.mark.parametrize(
    ("header", "rate", "follows", "begins"),
    [
        (sent("01"), 0, True, True),
        (sent("00"), ALL, True, False),
        ({"traceparent": "nonsense"}.get, ALL, False, True),
        ({"traceparent": "x" * 100_000}.get, 0, False, False),
    ],
)
def test_who_is_part_of_a_trace(header: Callable[[str], str | None], rate: int, follows: bool, begins: bool) -> None:
    found = Spans(rate)
    span = found.tracing.incoming("bind", header)

    assert begins is (span is not None)
    if span is not None:
        with span:
            pass
        (ended,) = found.ended()
        assert follows is (ended.parent is not None and ended.parent.span_id == int(PARENT, 16))


def test_where_the_sdk_is_switched_off_nothing_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """``OTEL_SDK_DISABLED``: a header of zeros is one that readers refuse."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    found = Spans()
    span = found.tracing.incoming("bind", nothing)
    assert span is not None

    with span:
        span.tell({"homeport.verb": "bind"})
        assert {} == span.headers
        assert found.tracing.outgoing("POST pods/binding") is None
    assert () == found.ended()


async def test_what_goes_on_is_the_child_of_what_is_under_way_in_tasks_too(spans: Spans) -> None:
    async def later() -> dict[str, str]:
        span = spans.tracing.outgoing("POST pods/binding")
        assert span is not None
        with span:
            return dict(span.headers)

    assert spans.tracing.outgoing("nobody asks") is None
    root = spans.tracing.incoming("bind", sent("01", "vendor=1"))
    assert root is not None
    with root:
        headers = await asyncio.create_task(later())
    assert spans.tracing.outgoing("it is over") is None

    write, verb = spans.ended()
    assert {"traceparent": f"00-{TRACE}-{write.context.span_id:016x}-01", "tracestate": "vendor=1"} == headers
    assert write.parent is not None
    assert write.parent.span_id == verb.context.span_id


@pytest.mark.parametrize("held", [False, True])
def test_what_leaves_a_span_is_its_failure_unless_it_was_held_back(spans: Spans, held: bool) -> None:
    span = spans.tracing.incoming("bind", nothing)
    assert span is not None

    def fails() -> None:
        with span:
            if held:
                span.held_back()
            raise LookupError("no")

    with pytest.raises(LookupError):
        fails()
    (ended,) = spans.ended()
    assert (
        (StatusCode.UNSET, None)
        if held
        else (StatusCode.ERROR, "LookupError: no") == (ended.status.status_code, ended.status.description)
    )


async def test_a_write_carries_the_trace_on_and_a_read_or_an_untraced_one_does_not(spans: Spans) -> None:
    asked: list[tuple[str, str | None]] = []

    def server(request: httpx.Request) -> httpx.Response:
        asked.append((request.method, request.headers.get("traceparent")))
        return httpx.Response(200, json={})

    client = KubeClient(Given(), transport=httpx.MockTransport(server), tracing=spans.tracing)
    async with client:
        await client.post(PODS.path("ns", "web", "binding"), {})
        root = spans.tracing.incoming("bind", nothing)
        assert root is not None
        with root:
            await client.get(PODS, "ns", "web")
            await client.post(PODS.path("ns", "web", "binding"), {})
            await client.patch(PODS, "ns", "web", {}, subresource="status")

    names = [it.name for it in spans.ended()]
    assert ["POST pods/binding", "PATCH pods/status", "bind"] == names
    ids = [f"00-{it.context.trace_id:032x}-{it.context.span_id:016x}-01" for it in spans.ended()]
    assert [("POST", None), ("GET", None), ("POST", ids[0]), ("PATCH", ids[1])] == asked


class Unwilling(SpanExporter):
    def __init__(self, *answers: SpanExportResult | Exception) -> None:
        self._answers = list(answers)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_collector_that_takes_nothing_is_told_of_once() -> None:
    good, bad = SpanExportResult.SUCCESS, SpanExportResult.FAILURE
    told = otlp._LoggingExporter(Unwilling(good, bad, OSError("reset"), good, good, OSError("reset")))

    with capture_logs() as said:
        results = [told.export(()) for _ in range(6)]

    assert [good, bad, bad, good, good, bad] == results
    assert [
        ("spans not exported", "the collector rejected them"),
        ("spans exported again", None),
        ("spans not exported", "OSError: reset"),
    ] == [(line["event"], line.get("cause")) for line in said]


async def test_the_end_does_not_wait_for_an_export_under_way() -> None:
    released = threading.Event()

    class Silent(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            released.wait()
            return SpanExportResult.SUCCESS

    tracing_ = OtlpTracing(Silent(), ALL, version="1", instance="here")
    span = tracing_.incoming("filter", nothing)
    assert span is not None
    with span:
        pass

    await tracing_.stop()

    assert not released.is_set()
    released.set()


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://c:4318", "http://c:4318/v1/traces"),
        ("http://c:4318/", "http://c:4318/v1/traces"),
        ("https://c/otlp/v1/traces", "https://c/otlp/v1/traces"),
    ],
)
def test_where_spans_go(endpoint: str, url: str) -> None:
    assert url == otlp.traces_url(endpoint)


def test_the_extra_is_installed_here() -> None:
    assert tracing.is_available()
