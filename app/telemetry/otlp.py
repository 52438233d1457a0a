"""Implements tracing with OpenTelemetry's SDK.

A thread of the SDK sends the spans in batches to a collector, by OTLP over HTTP. Import this module only if the extra
``otlp`` is installed. Sampling is decided before a span is created, so an untraced request costs almost nothing: one
random number, or the parsing of the caller's trace header. If the collector is slow or unreachable, the newest 2,048
spans are queued, and older ones are dropped.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import Token
from random import random
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

import structlog
from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app.telemetry.logging import silence
from app.telemetry.tracing import Attributes, Header

PER_MILLION: Final = 1_000_000
STOP_SECONDS: Final = 0.5
"""Maximum seconds to send queued spans at shutdown."""

_EXPORT_SECONDS: Final = 5.0
"""Maximum seconds for sending one batch."""

_SAMPLED: Final = 1
_TRACES: Final = "/v1/traces"
_LOG: Final = structlog.get_logger(__name__)
_PROPAGATOR: Final = TraceContextTextMapPropagator()


class OtlpTracing:
    """Implements ``Tracing``.

    ``per_million``: number of requests in a million for which Homeport begins a trace. If the caller has begun a trace,
    the caller's sampling decision is used.
    """

    def __init__(self, exporter: SpanExporter, per_million: int, *, version: str, instance: str) -> None:
        resource = Resource.create(
            {"service.name": "homeport", "service.version": version, "service.instance.id": instance}
        )
        self._ratio = per_million / PER_MILLION
        self._provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(_LoggingExporter(exporter)))
        self._tracer = self._provider.get_tracer("homeport", version)

    def incoming(self, name: str, header: Header) -> _Span | None:
        given = header("traceparent")
        if given is None:
            return self._span(name, SpanKind.SERVER, context.Context()) if self._begins() else None
        carrier = {"traceparent": given, "tracestate": header("tracestate") or ""}
        parent = _PROPAGATOR.extract(carrier, context.Context())
        known = trace.get_current_span(parent).get_span_context()
        wanted = known.trace_flags.sampled if known.is_valid else self._begins()
        return self._span(name, SpanKind.SERVER, parent) if wanted else None

    def outgoing(self, name: str) -> _Span | None:
        if not trace.get_current_span().get_span_context().trace_flags.sampled:
            return None
        return self._span(name, SpanKind.CLIENT, context.get_current())

    async def stop(self) -> None:
        """Send queued spans for at most ``STOP_SECONDS``, then return without waiting for the rest."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(done.set)

        threading.Thread(target=shut_down, name="spans", daemon=True).start()
        with suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), STOP_SECONDS)

    def _begins(self) -> bool:
        """Decide at random: return True if Homeport begins a trace for a request whose caller has begun none."""
        return random() < self._ratio  # noqa: S311  # sampling needs no secret

    def _span(self, name: str, kind: SpanKind, parent: context.Context) -> _Span:
        return _Span(self._tracer.start_span(name, parent, kind))


def otlp(endpoint: str, per_million: int, *, version: str, instance: str) -> OtlpTracing:
    """Create a ``Tracing`` that sends spans to the collector at ``endpoint`` (see ``traces_url``)."""
    silence("opentelemetry")  # the library would log every failed batch; Homeport logs only the first
    exporter = OTLPSpanExporter(traces_url(endpoint), timeout=_EXPORT_SECONDS)
    return OtlpTracing(exporter, per_million, version=version, instance=instance)


def traces_url(endpoint: str) -> str:
    """Return the URL to which spans are sent: ``endpoint``, with ``/v1/traces`` appended if it has no path."""
    return endpoint if urlsplit(endpoint).path.strip("/") else endpoint.rstrip("/") + _TRACES


class _Span:
    """Implements ``app.telemetry.tracing.Span`` with a span of the OpenTelemetry SDK."""

    __slots__ = ("_held_back", "_span", "_token")

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self._held_back = False
        self._token: Token[context.Context] | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """W3C headers for outgoing requests; none if the SDK is disabled, because it then creates no IDs.

        The only flag is ``sampled``. The SDK would also set the flag for random IDs, which older parsers reject.
        """
        context_ = self._span.get_span_context()
        if not context_.is_valid:  # the variable OTEL_SDK_DISABLED is set
            return {}
        parent = f"00-{context_.trace_id:032x}-{context_.span_id:016x}-{_SAMPLED:02x}"
        state = context_.trace_state.to_header()
        return {"traceparent": parent, "tracestate": state} if state else {"traceparent": parent}

    def tell(self, attributes: Attributes) -> None:
        self._span.set_attributes(attributes)

    def failed(self, cause: str) -> None:
        self._span.set_status(Status(StatusCode.ERROR, cause))

    def held_back(self) -> None:
        self._held_back = True
        self._span.set_attribute("homeport.held_back", True)

    def __enter__(self) -> Self:
        self._token = context.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_: TracebackType | None
    ) -> None:
        if self._token is not None:
            context.detach(self._token)
        if error is not None and not self._held_back:
            self.failed(f"{type(error).__name__}: {error}")
        self._span.end()


class _LoggingExporter(SpanExporter):
    """Exporter that logs only the first of several failed exports in a row, and the first successful one after them."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._fails = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001  # any transport error loses only spans
            return self._lost(len(spans), f"{type(error).__name__}: {error}")
        if result is not SpanExportResult.SUCCESS:
            return self._lost(len(spans), "the collector rejected them")
        if self._fails:
            self._fails = False
            _LOG.info("spans exported again")
        return result

    def _lost(self, count: int, cause: str) -> SpanExportResult:
        if not self._fails:
            self._fails = True
            _LOG.warning("spans not exported", spans=count, cause=cause)
        return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return self._exporter.force_flush(timeout_millis)
