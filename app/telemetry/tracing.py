"""Interface to OpenTelemetry spans. If an endpoint is configured, spans exist for two kinds of requests.

    incoming   a request to a verb: the root of a trace, or part of a trace that the caller has begun
    outgoing   a request that is sent for a traced verb: a forward to the leader, or a write to the API server

``app.telemetry.otlp`` implements the interface. It is imported only if tracing is configured, because it imports
OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from types import TracebackType
from typing import Final, Protocol, Self

Attributes = Mapping[str, str | int | bool]
Header = Callable[[str], str | None]
"""Function that returns the value of a request header, ``None`` if it is missing. Names are in lower case."""

EXTRA: Final = "pip install '.[otlp]' in Homeport's source"
"""Command that installs the OpenTelemetry packages, for messages."""

_NEEDED: Final = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter")


class Span(Protocol):
    """Span. As a context manager, it is the current span of the task, and of tasks that are started inside.

    An exception that leaves the context marks the span as failed.
    """

    @property
    def headers(self) -> Mapping[str, str]:
        """W3C Trace Context headers for outgoing requests, so that the receiver continues the trace."""
        ...

    def tell(self, attributes: Attributes) -> None:
        """Set attributes of the span."""
        ...

    def failed(self, cause: str) -> None:
        """Mark the span as failed because of ``cause``."""
        ...

    def held_back(self) -> None:
        """Record that the request was not sent.

        The span is then not marked as failed, even if an exception leaves the context.
        """
        ...

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_: TracebackType | None
    ) -> None: ...


class Tracing(Protocol):
    """Source of spans. Its methods never block and never raise an exception."""

    def incoming(self, name: str, header: Header) -> Span | None:
        """Return a span for an incoming request, or ``None`` if it is not traced."""
        ...

    def outgoing(self, name: str) -> Span | None:
        """Return a span for an outgoing request, or ``None`` if the current request is not traced."""
        ...


def is_available() -> bool:
    """Return true if the OpenTelemetry packages of the extra ``otlp`` are installed."""
    try:
        return all(find_spec(name) is not None for name in _NEEDED)
    except ModuleNotFoundError:
        return False
