"""A request to a verb as its endpoint sees it, whichever way it came in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from starlette.requests import Request

from app.server.limits import oversized, read_body

ARRIVED: Final = "homeport.arrived"
"""Where the HTTP server leaves the time of a request's first byte in its scope, on ``time.monotonic``."""

Headers = Sequence[tuple[bytes, bytes]]
"""Names in lower case."""


class Incoming(Protocol):
    """``arrived``: when its first byte was seen, on ``time.monotonic``; ``None`` where nobody looked."""

    @property
    def arrived(self) -> float | None: ...

    def header(self, name: str) -> str | None: ...

    async def body(self, limit: int) -> bytes | memoryview:
        """The whole body. Raises ``VerbFailure`` (``bad_request``) beyond ``limit`` bytes, ``ClientDisconnect``."""
        ...


class Whole:
    """A request that is there with its whole body."""

    __slots__ = ("_body", "_headers", "arrived")

    def __init__(self, headers: Headers, body: bytes, arrived: float | None) -> None:
        self._headers = headers
        self._body = body
        self.arrived = arrived

    def header(self, name: str) -> str | None:
        asked = name.encode()
        return next((value.decode("latin-1") for given, value in self._headers if given == asked), None)

    async def body(self, limit: int) -> bytes:
        if len(self._body) > limit:
            raise oversized(limit)
        return self._body


class Streamed:
    """A request whose body is read as it comes."""

    __slots__ = ("_request",)

    def __init__(self, request: Request) -> None:
        self._request = request

    @property
    def arrived(self) -> float | None:
        found: float | None = self._request.scope.get(ARRIVED)
        return found

    def header(self, name: str) -> str | None:
        return self._request.headers.get(name)

    async def body(self, limit: int) -> bytes | memoryview:
        return await read_body(self._request, limit)
