"""A request to a verb as its endpoint sees it, whichever way it came in; and how a body is read up to a limit."""

from __future__ import annotations

import mmap
from collections.abc import Coroutine, Sequence
from typing import Any, Final, Protocol

from starlette.requests import Request

from app.verbs.outcome import VerbFailure
from app.wire.extender_answers import LongBody

ARRIVED: Final = "homeport.arrived"
"""Where the HTTP server leaves the time of a request's first byte in its scope, on ``time.monotonic``."""

FORWARDED: Final = "homeport-forwarded"
"""Header of a forwarded request: the seconds its caller still waits. A request that has it is not sent on again."""

_LONG: Final = 1 << 20

Headers = Sequence[tuple[bytes, bytes]]
"""Names in lower case."""


class Incoming(Protocol):
    """``arrived``: when its first byte was seen, on ``time.monotonic``; ``None`` where nobody looked."""

    @property
    def arrived(self) -> float | None: ...

    def header(self, name: str) -> str | None: ...

    def body(self, limit: int) -> Coroutine[Any, Any, bytes | memoryview]:
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
            raise _oversized(limit)
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


async def read_body(request: Request, limit: int) -> bytes | memoryview:
    """The whole body. Raises ``VerbFailure`` (``bad_request``) where it is larger than ``limit`` bytes.

    A declared length is judged before anything is read; the rest of a body that is too long is left unread.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _oversized(limit)
    if declared.isdecimal() and int(declared) > _LONG:
        return await _filled(request, _memory(int(declared)))
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise _oversized(limit)
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def _filled(request: Request, body: mmap.mmap) -> memoryview:
    """The body of a known length, each part put in its place as it comes: joining 60 MB takes 50 ms at once."""
    size = 0
    async for chunk in request.stream():
        body[size : size + len(chunk)] = chunk
        size += len(chunk)
    return memoryview(body)


def _memory(length: int) -> mmap.mmap:
    """Room that is made page by page as it is filled; a bytearray of 60 MB is touched as a whole first (30 ms)."""
    room = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        room.madvise(mmap.MADV_HUGEPAGE)
    return room


def _oversized(limit: int) -> VerbFailure:
    return VerbFailure("bad_request", f"homeport: the request body is larger than {limit} bytes")


class Endpoint(Protocol):
    """Answers a request, whichever way it came in."""

    async def answer(self, request: Incoming) -> tuple[int, bytes | LongBody]:
        """Status and JSON body. Raises ``ClientDisconnect``."""
        ...

    def forbidden(self, message: str) -> tuple[int, bytes]:
        """The same for a request that is not let through."""
        ...
