"""httpx transport that can be retired: requests in flight continue, and the transport closes after the last of them.

After a network failure, a broken connection in the pool looks idle, and the next request on it waits until its timeout.
So if a response does not arrive, ``app.kube.transport`` retires the transport with all its connections, and creates a
new transport.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import httpx


class RetirableTransport(httpx.AsyncBaseTransport):
    """Transport that delegates to ``inner``. Once it is retired and all responses are closed, it closes ``inner``."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self._running = 0
        self._retired = False
        self._closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._running += 1
        try:
            response = await self._inner.handle_async_request(request)
        except BaseException:
            await self._request_done()
            raise
        response.stream = _CountedBody(cast("httpx.AsyncByteStream", response.stream), self)
        return response

    async def retire(self) -> None:
        """Close ``inner`` if no request is in flight; otherwise, the end of the last request closes it.

        The caller must not send further requests.
        """
        self._retired = True
        await self._close_if_done()

    async def aclose(self) -> None:
        """Close ``inner`` immediately, which aborts requests in flight."""
        if not self._closed:
            self._closed = True
            await self._inner.aclose()

    @property
    def closed(self) -> bool:
        """True once ``inner`` is closed or being closed."""
        return self._closed

    async def _request_done(self) -> None:
        self._running -= 1
        await self._close_if_done()

    async def _close_if_done(self) -> None:
        if self._retired and not self._running:
            await self.aclose()


class _CountedBody(httpx.AsyncByteStream):
    """Body of a response. When it is closed for the first time, its request is no longer in flight."""

    def __init__(self, body: httpx.AsyncByteStream, transport: RetirableTransport) -> None:
        self._body = body
        self._transport: RetirableTransport | None = transport

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._body:
            yield chunk

    async def aclose(self) -> None:
        transport, self._transport = self._transport, None
        try:
            await self._body.aclose()
        finally:
            if transport is not None:
                await transport._request_done()  # noqa: SLF001  # the two classes belong together
