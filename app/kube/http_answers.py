"""Conversion of HTTP responses to the body, the lines of a watch, or an error of ``app.kube.api_errors``."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from math import inf
from typing import Final

import httpx

from app.kube.api_errors import AnswerTooLong, ApiError, ApiSilent, ApiUnavailable, KubeError, UnknownOutcome
from app.kube.api_requests import Request
from app.kube.connections import BrokenConnection, HttpResponse
from app.kube.streams import Silent, Stream

_SERVER_ERROR: Final = 500
_NEVER_SENT: Final = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)
"""Errors after which the server cannot have received the request."""


async def whole_answer(response: httpx.Response, most: float = inf) -> HttpResponse:
    """Read the whole response, then close it. Raises ``httpx.HTTPError``, or ``AnswerTooLong`` above ``most`` bytes.

    The body is not stored in httpx's response, because such a response is a reference cycle. Garbage collection is
    disabled during initial lists, so the bodies of all pages would stay in memory: 600 MB for 150,000 pods.
    """
    chunks: list[bytes] = []
    try:
        async for chunk in response.aiter_bytes():
            most -= len(chunk)
            if most < 0:
                raise AnswerTooLong("the response exceeds the maximum size")
            chunks.append(chunk)
    finally:
        await response.aclose()
    return HttpResponse(response.status_code, response.headers, b"".join(chunks))


def checked_body(request: Request, response: HttpResponse) -> bytes:
    """Return the body of a 2xx response. Otherwise raise ``ApiError``, or ``UnknownOutcome`` for a 5xx to a write."""
    if 200 <= response.status < 300:
        return response.body
    retry_after = _seconds(response.headers.get("retry-after"))
    error = ApiError.parse(response.body, status=response.status, retry_after=retry_after)
    if request.writes and error.status >= _SERVER_ERROR:
        # The write might have been executed, for example if etcd timed out or a proxy lost its connection.
        raise UnknownOutcome(f"{request}: {error}") from error
    raise error


def error_of(request: Request, error: httpx.HTTPError) -> KubeError:
    """Convert an error of httpx.

    A write that the server might have received becomes ``UnknownOutcome``. A read that timed out on an open connection
    becomes ``ApiSilent``. All other errors become ``ApiUnavailable``.
    """
    cause = f"{type(error).__name__} {error}".strip()
    if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout) and not request.writes:
        return ApiSilent(f"{request}: {cause}")
    return ApiUnavailable(f"{request}: {cause}") if isinstance(error, _NEVER_SENT) else no_response(request, cause)


def no_response(request: Request, cause: str) -> KubeError:
    """Return the error for a request that was sent but has no complete response: for a write, ``UnknownOutcome``."""
    return UnknownOutcome(f"{request}: {cause}") if request.writes else ApiUnavailable(f"{request}: {cause}")


def _seconds(header: str | None) -> float | None:
    """Return the seconds in ``Retry-After``; ``None`` if it is absent or a date. API servers send only seconds."""
    return float(header) if header is not None and header.isdecimal() else None


async def lines_of(request: Request, response: httpx.Response) -> AsyncGenerator[bytes, None]:
    """Yield the complete lines of a watch. Raises ``ApiSilent`` or ``ApiUnavailable``.

    An incomplete last line is dropped: the next watch gets the event again.
    """
    rest = b""
    try:
        async for chunk in response.aiter_bytes():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line:
                    yield line
    except httpx.HTTPError as error:
        raise error_of(request, error) from error


async def lines_of_stream(request: Request, stream: Stream) -> AsyncGenerator[bytes, None]:
    """Yield the complete lines of a watch, like ``lines_of``, but from a ``Stream``."""
    try:
        while lines := await stream.lines():
            for line in lines:
                yield line
    except BrokenConnection as error:
        raise ApiUnavailable(f"{request}: {error}") from error
    except Silent as error:
        raise ApiSilent(f"{request}: {error}") from error
