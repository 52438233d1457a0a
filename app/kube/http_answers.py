"""What an answer of the API server means: its body, its lines, or an error of ``app.kube.api_errors``."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from math import inf
from typing import Final

import httpx

from app.kube.api_errors import AnswerTooLong, ApiError, ApiSilent, ApiUnavailable, KubeError, UnknownOutcome
from app.kube.api_requests import Request
from app.kube.connections import Answered, BrokenConnection
from app.kube.streams import Silent, Stream

_SERVER_ERROR: Final = 500
_NEVER_SENT: Final = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)


async def whole_answer(response: httpx.Response, most: float = inf) -> Answered:
    """Return the whole answer, or raise ``AnswerTooLong`` for more bytes than ``most``.

    The body is not kept on the response. httpx's responses are reference cycles: without garbage collection, as in a
    first list, the bodies of all pages would pile up, 600 MB for 150,000 pods.
    """
    chunks: list[bytes] = []
    try:
        async for chunk in response.aiter_bytes():
            most -= len(chunk)
            if most < 0:
                raise AnswerTooLong("the answer is longer than what is read")
            chunks.append(chunk)
    finally:
        await response.aclose()
    return Answered(response.status_code, response.headers, b"".join(chunks))


def checked_body(request: Request, answered: Answered) -> bytes:
    if 200 <= answered.status < 300:
        return answered.body
    retry_after = _seconds(answered.headers.get("retry-after"))
    error = ApiError.parse(answered.body, status=answered.status, retry_after=retry_after)
    if request.writes and error.status >= _SERVER_ERROR:
        # A time-out of etcd, or a proxy that lost its peer, says nothing about what became of the write.
        raise UnknownOutcome(f"{request}: {error}") from error
    raise error


def failure_of(request: Request, error: httpx.HTTPError) -> KubeError:
    told = f"{type(error).__name__} {error}".strip()
    if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout) and not request.writes:
        return ApiSilent(f"{request}: {told}")
    return ApiUnavailable(f"{request}: {told}") if isinstance(error, _NEVER_SENT) else unanswered(request, told)


def unanswered(request: Request, told: str) -> KubeError:
    return UnknownOutcome(f"{request}: {told}") if request.writes else ApiUnavailable(f"{request}: {told}")


def _seconds(header: str | None) -> float | None:
    """``Retry-After`` as a number; its other form, a date, is not used by API servers."""
    return float(header) if header is not None and header.isdecimal() else None


async def lines_of(request: Request, response: httpx.Response) -> AsyncGenerator[bytes, None]:
    """Complete lines; what a broken connection leaves of the last one is dropped, the next watch brings it whole."""
    rest = b""
    try:
        async for chunk in response.aiter_bytes():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line:
                    yield line
    except httpx.HTTPError as error:
        raise failure_of(request, error) from error


async def lines_of_stream(request: Request, stream: Stream) -> AsyncGenerator[bytes, None]:
    try:
        while lines := await stream.lines():
            for line in lines:
                yield line
    except BrokenConnection as error:
        raise ApiUnavailable(f"{request}: {error}") from error
    except Silent as error:
        raise ApiSilent(f"{request}: {error}") from error
