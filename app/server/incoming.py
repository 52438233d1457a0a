"""Verb requests as endpoints get them, independent of the HTTP server. Reads bodies up to a limit."""

from __future__ import annotations

import mmap
from collections.abc import Coroutine, Sequence
from typing import Any, Final, Protocol

from starlette.requests import Request

from app.verbs.outcome import VerbFailure
from app.wire.extender_answers import LongBody

ARRIVED: Final = "homeport.arrived"
"""Key in the ASGI scope whose value is the time of a request's first byte, on ``time.monotonic``."""

FORWARDED: Final = "homeport-forwarded"
"""Header of a forwarded request: seconds until the caller's deadline. A request with it is not forwarded again."""

_LONG: Final = 1 << 20
"""Length in bytes. A body with a larger declared length is read into one buffer."""

Headers = Sequence[tuple[bytes, bytes]]
"""Headers of a request: pairs of a name in lower case and a value."""


class VerbRequest(Protocol):
    """Request to a verb. ``arrived``: time of its first byte on ``time.monotonic``; ``None`` if unknown."""

    @property
    def arrived(self) -> float | None: ...

    def header(self, name: str) -> str | None: ...

    def body(self, limit: int) -> Coroutine[Any, Any, bytes | memoryview]:
        """Read and return the whole body.

        Raises ``VerbFailure`` (``bad_request``) above ``limit`` bytes, and ``ClientDisconnect``.
        """
        ...


class CompleteRequest:
    """Request that was received with its whole body."""

    __slots__ = ("_body", "_headers", "arrived")

    def __init__(self, headers: Headers, body: bytes, arrived: float | None) -> None:
        self._headers = headers
        self._body = body
        self.arrived = arrived

    def header(self, name: str) -> str | None:
        wanted = name.encode()
        return next((value.decode("latin-1") for given, value in self._headers if given == wanted), None)

    async def body(self, limit: int) -> bytes:
        if len(self._body) > limit:
            raise _oversized(limit)
        return self._body


class StreamedRequest:
    """Request whose body is possibly still being received."""

    __slots__ = ("_request",)

    def __init__(self, request: Request) -> None:
        self._request = request

    @property
    def arrived(self) -> float | None:
        seconds: float | None = self._request.scope.get(ARRIVED)
        return seconds

    def header(self, name: str) -> str | None:
        return self._request.headers.get(name)

    async def body(self, limit: int) -> bytes | memoryview:
        return await read_body(self._request, limit)


async def read_body(request: Request, limit: int) -> bytes | memoryview:
    """Read and return the whole body.

    Raises ``VerbFailure`` (``bad_request``) above ``limit`` bytes, and ``ClientDisconnect``. A declared length is
    checked before reading. The rest of an oversized body is not read.
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
    """Read a body of known length into one buffer. Joining the chunks of a 60 MB body would block the event loop for 50
    ms.
    """
    size = 0
    async for chunk in request.stream():
        body[size : size + len(chunk)] = chunk
        size += len(chunk)
    return memoryview(body)


def _memory(length: int) -> mmap.mmap:
    """Allocate memory that the kernel provides page by page. A bytearray of 60 MB would be zeroed at once, which takes
    30 ms.
    """
    room = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        room.madvise(mmap.MADV_HUGEPAGE)
    return room


def _oversized(limit: int) -> VerbFailure:
    return VerbFailure("bad_request", f"homeport: the request body is larger than {limit} bytes")


class Endpoint(Protocol):
    """Endpoint of one verb, independent of the HTTP server."""

    async def answer(self, request: VerbRequest) -> tuple[int, bytes | LongBody]:
        """Answer a request; return status and body: JSON or empty. Raises ``ClientDisconnect``."""
        ...

    def forbidden(self, message: str) -> tuple[int, bytes]:
        """Return status and body, JSON or empty, for a request that is not allowed."""
        ...
