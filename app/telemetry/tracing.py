"""Spans of OpenTelemetry, as the rest of Homeport sees them: few, and none at all unless an endpoint is configured.

    incoming   a verb: the root of a trace, or a part of the one that another replica began
    outgoing   what a verb that is traced asks of others: a hop to the leader, a write to the API server

Nothing of OpenTelemetry is imported before it is needed: ``app.telemetry.otlp`` is the implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from types import TracebackType
from typing import Final, Protocol, Self

Attributes = Mapping[str, str | int | bool]
Header = Callable[[str], str | None]
"""The value of a header of a request, by its name in lower case."""

EXTRA: Final = "pip install '.[otlp]' in Homeport's source"
_NEEDED: Final = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter")


class Span(Protocol):
    """As a context manager it is the current one of its task, and of tasks that begin in it, until it ends.

    An exception that leaves it is noted on it.
    """

    @property
    def headers(self) -> Mapping[str, str]:
        """W3C Trace Context, for who is asked."""
        ...

    def tell(self, attributes: Attributes) -> None: ...

    def failed(self, cause: str) -> None:
        """It did not do what it was to do."""
        ...

    def held_back(self) -> None:
        """It was not begun, which is no failure, whatever leaves it."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_: TracebackType | None
    ) -> None: ...


class Tracing(Protocol):
    """Where spans come from. Nothing here waits for anybody or raises."""

    def incoming(self, name: str, header: Header) -> Span | None:
        """``None``: this request is not traced."""
        ...

    def outgoing(self, name: str) -> Span | None:
        """``None``: nothing that is traced asks."""
        ...


def is_available() -> bool:
    """Whether the extra is installed."""
    try:
        return all(find_spec(name) is not None for name in _NEEDED)
    except ModuleNotFoundError:
        return False
