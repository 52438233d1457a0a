"""Connections for reads and watches that can be retired: what runs on them goes on, nothing new is sent over them.

A kept connection whose peer went away without a word looks like one that is idle: the next request on it waits until
its time is up, and so does one on the next, for as many as were kept.

Not here: when connections are no longer to be trusted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import httpx


class Retiring(httpx.AsyncBaseTransport):
    """Passes requests to ``inner``, which is closed once this is retired and the last answer was read or given up."""

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
            await self._one_less()
            raise
        response.stream = _Counted(cast("httpx.AsyncByteStream", response.stream), self)
        return response

    async def retire(self) -> None:
        """Nothing new comes from now on."""
        self._retired = True
        await self._close_if_done()

    async def aclose(self) -> None:
        """Close now, with whatever is under way."""
        if not self._closed:
            self._closed = True
            await self._inner.aclose()

    @property
    def closed(self) -> bool:
        return self._closed

    async def _one_less(self) -> None:
        self._running -= 1
        await self._close_if_done()

    async def _close_if_done(self) -> None:
        if self._retired and not self._running:
            await self.aclose()


class _Counted(httpx.AsyncByteStream):
    """The body of an answer; its end is told, once."""

    def __init__(self, body: httpx.AsyncByteStream, transport: Retiring) -> None:
        self._body = body
        self._transport: Retiring | None = transport

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._body:
            yield chunk

    async def aclose(self) -> None:
        transport, self._transport = self._transport, None
        try:
            await self._body.aclose()
        finally:
            if transport is not None:
                await transport._one_less()  # noqa: SLF001  # the two halves of one count
