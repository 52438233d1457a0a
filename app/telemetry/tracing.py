"""Interface to OpenTelemetry spans: few, and none unless an endpoint is configured.

    incoming   a verb: the root of a trace, or part of the trace of the forwarding replica
    outgoing   a request sent by a traced verb: to the leader, or a write to the API server

OpenTelemetry is imported only when needed; ``app.telemetry.otlp`` is the implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from types import TracebackType
from typing import Final, Protocol, Self

Attributes = Mapping[str, str | int | bool]
Header = Callable[[str], str | None]
"""Returns the value of a request header; names are in lower case."""

EXTRA: Final = "pip install '.[otlp]' in Homeport's source"
_NEEDED: Final = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter")


class Span(Protocol):
    """Span and context manager: inside, it is the current span of its task and of tasks started there.

    An exception that leaves the context is recorded.
    """

    @property
    def headers(self) -> Mapping[str, str]:
        """W3C Trace Context headers for outgoing requests."""
        ...

    def tell(self, attributes: Attributes) -> None: ...

    def failed(self, cause: str) -> None:
        """Mark the span as failed."""
        ...

    def held_back(self) -> None:
        """Mark the request as not sent, which is no failure, even if an exception leaves the context."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_: TracebackType | None
    ) -> None: ...


class Tracing(Protocol):
    """Source of spans. Methods never block or raise."""

    def incoming(self, name: str, header: Header) -> Span | None:
        """Return a span for an incoming request, or ``None`` if it is not traced."""
        ...

    def outgoing(self, name: str) -> Span | None:
        """Return a span for an outgoing request, or ``None`` if the current request is not traced."""
        ...


def is_available() -> bool:
    """Return true if the extra is installed."""
    try:
        return all(find_spec(name) is not None for name in _NEEDED)
    except ModuleNotFoundError:
        return False
