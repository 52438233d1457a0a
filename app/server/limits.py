"""Reads a request body up to a limit."""

from __future__ import annotations

from starlette.requests import Request

from app.verbs.outcome import VerbFailure


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body. Raises ``VerbFailure`` (``bad_request``) where it is larger than ``limit`` bytes.

    A declared length is judged before anything is read; the rest of a body that is too long is left unread.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _oversized(limit)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise _oversized(limit)
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _oversized(limit: int) -> VerbFailure:
    return VerbFailure("bad_request", f"homeport: the request body is larger than {limit} bytes")
