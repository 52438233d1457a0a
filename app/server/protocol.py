"""HTTP/1.1 over a connection: uvicorn's protocol, with a short way for what kube-scheduler sends.

A request to a verb is mostly there as a whole as soon as it is there at all. It is answered without ASGI's scope and
messages, which cost such a call more than half of its time: the endpoint gets the body, and one write sends the answer.
Whatever else comes (a body whose rest is late, or a long one, other routes, other methods, a request before the last
one is answered) goes uvicorn's way, on the same connection and in the order in which it came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import monotonic
from typing import Any, ClassVar, Final, Protocol, cast

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from app.server.incoming import ARRIVED, Incoming, Whole
from app.wire.extender_v1 import LongBody

GRACE_SECONDS: Final = 0.02
"""How long the rest of a body that has begun is waited for; then the endpoint reads it as it comes."""

MOST_BYTES: Final = 1 << 20
"""A longer body is read as it comes."""

_HEAD: Final = b"content-length: %d\r\ncontent-type: application/json\r\n%s\r\n"
_CLOSE: Final = b"connection: close\r\n"


class Endpoint(Protocol):
    """Answers both ways: an ASGI application, and for a request that is there as a whole."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    async def answer(self, request: Incoming) -> tuple[int, bytes | LongBody]:
        """Status and JSON body."""
        ...


class _Exchange:
    """What uvicorn's protocol asks of the cycle that is under way on a connection, and no more."""

    __slots__ = ("disconnected", "keep_alive", "response_complete")

    message_event: ClassVar[asyncio.Event] = asyncio.Event()
    """Nobody waits for it."""

    def __init__(self, *, keep_alive: bool) -> None:
        self.keep_alive = keep_alive
        self.response_complete = False
        self.disconnected = False


class HttpProtocol(HttpToolsProtocol):
    """``direct`` of the application, by path: what a POST reaches in the short way.

    It notes when a request's first byte was seen: its turn may come much later.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        direct: Mapping[str, Endpoint] = getattr(self.config.app, "direct", {})
        self._direct = {path.encode(): endpoint for path, endpoint in direct.items()}
        self._endpoint: Endpoint | None = None
        self._gathered: list[bytes] = []
        self._size = 0
        self._grace: asyncio.TimerHandle | None = None
        self._arrived = 0.0

    # what the parser tells

    def on_message_begin(self) -> None:
        self._arrived = monotonic()
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_headers_complete(self) -> None:
        endpoint = self._direct.get(self.url)
        if endpoint is not None and self._may_be_short():
            self._endpoint = endpoint
        else:
            self._begin_cycle()

    def on_body(self, body: bytes) -> None:
        if self._endpoint is None:
            super().on_body(body)
        else:
            self._gathered.append(body)
            self._size += len(body)

    def on_message_complete(self) -> None:
        if self._endpoint is None:
            super().on_message_complete()
        else:
            self._start()

    # what the transport tells

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._endpoint is None:
            return
        if self.transport.is_closing():  # what came was no HTTP, and was told so
            self._gather_no_more()
        elif self._size > MOST_BYTES:
            self._go_uvicorns_way()
        elif self._grace is None:
            self._grace = self.loop.call_later(GRACE_SECONDS, self._go_uvicorns_way)

    def connection_lost(self, exc: Exception | None) -> None:
        self._gather_no_more()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        self._go_uvicorns_way()
        super().shutdown()

    # the short way

    def _may_be_short(self) -> bool:
        under_way: RequestResponseCycle | None = self.cycle
        return (
            self.parser.get_method() == b"POST"
            and not self.expect_100_continue
            and not self.parser.should_upgrade()
            and (under_way is None or under_way.response_complete)
        )

    def _gather_no_more(self) -> bytes:
        """What was gathered."""
        found = self._gathered[0] if len(self._gathered) == 1 else b"".join(self._gathered)
        self._endpoint, self._gathered, self._size = None, [], 0
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None
        return found

    def _start(self) -> None:
        endpoint = cast("Endpoint", self._endpoint)
        body = self._gather_no_more()
        exchange = _Exchange(keep_alive=self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive())
        self.cycle = cast("RequestResponseCycle", exchange)
        whole = Whole(self.headers, body, self._arrived)
        task = self.loop.create_task(self._serve(endpoint, whole, exchange))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    async def _serve(self, endpoint: Endpoint, request: Whole, exchange: _Exchange) -> None:
        try:
            status, body = await endpoint.answer(request)
            await self._send(exchange, status, body)
        finally:
            if not exchange.response_complete:
                self.transport.close()

    async def _send(self, exchange: _Exchange, status: int, body: bytes | LongBody) -> None:
        """Send, and then do what uvicorn does at the end of a cycle: the connection's next request has its turn.

        In one step, unless the client is slow to read: a request of a megabyte has no answer of many.
        """
        closing = b"" if exchange.keep_alive else _CLOSE
        length, chunks = (body.length, body.chunks()) if isinstance(body, LongBody) else (len(body), iter((body,)))
        begun = STATUS_LINE[status] + _HEAD % (length, closing)
        for chunk in chunks:
            if self.flow.write_paused:
                await self.flow.drain()
            if exchange.disconnected:
                return
            self.transport.write(begun + chunk)
            begun = b""
        exchange.response_complete = True
        if not exchange.keep_alive:
            self.transport.close()
        self.on_response_complete()

    # uvicorn's way

    def _go_uvicorns_way(self) -> None:
        """From here on, what is gathered is the beginning of a body that the endpoint reads as it comes."""
        if self._endpoint is None:
            return
        begun = self._gather_no_more()
        self._begin_cycle()
        if begun:
            super().on_body(begun)

    def _begin_cycle(self) -> None:
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers[:] = headers
        cast("dict[str, object]", self.scope)[ARRIVED] = self._arrived
        super().on_headers_complete()
