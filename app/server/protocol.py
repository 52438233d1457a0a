"""HTTP/1.1 over a connection: uvicorn's protocol, with a short way for what kube-scheduler sends.

A request to a verb is mostly there as a whole as soon as it is there at all. It is answered without ASGI's messages,
which cost such a call more than half of its time: the endpoint gets the body, and one write sends the answer. Whatever
else comes (a body in pieces that are late, or a long one, other routes, other methods) goes uvicorn's way, on the same
connection and in the order in which it came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import monotonic
from typing import Any, Final, Protocol, cast

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from app.server.incoming import ARRIVED, Headers, Incoming, Whole
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


class HttpProtocol(HttpToolsProtocol):
    """``direct`` of the application, by path: what a POST reaches in the short way.

    It notes when a request's first byte was seen: its turn may come much later.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._direct: Mapping[str, Endpoint] = getattr(self.config.app, "direct", {})
        self._gathering: RequestResponseCycle | None = None
        self._grace: asyncio.TimerHandle | None = None

    def on_message_begin(self) -> None:
        super().on_message_begin()
        cast("dict[str, object]", self.scope)[ARRIVED] = monotonic()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Called as soon as a request's headers are read and its turn on the connection has come."""
        endpoint = self._direct.get(cycle.scope["path"]) if cycle.scope["method"] == "POST" else None
        if endpoint is None or app is not self.app or cycle.waiting_for_100_continue:
            super()._start_asgi_task(cycle, app)
        elif cycle.more_body:
            self._gathering = cycle
        else:
            self._start(cycle)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        cycle = self._gathering
        if cycle is not None and not cycle.more_body:
            self._gather_no_more()
            self._start(cycle)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        cycle = self._gathering
        if cycle is None:
            return
        if len(cycle.body) > MOST_BYTES:
            self._go_uvicorns_way()
        elif self._grace is None:
            self._grace = self.loop.call_later(GRACE_SECONDS, self._go_uvicorns_way)
        self.flow.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gather_no_more()
        super().connection_lost(exc)

    def _gather_no_more(self) -> None:
        self._gathering = None
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    def _go_uvicorns_way(self) -> None:
        cycle = self._gathering
        self._gather_no_more()
        if cycle is not None:
            super()._start_asgi_task(cycle, self.app)

    def _start(self, cycle: RequestResponseCycle) -> None:
        task = self.loop.create_task(self._serve(cycle))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    async def _serve(self, cycle: RequestResponseCycle) -> None:
        """Answer, and do what a cycle does at its end: then the connection's next request has its turn."""
        scope = cycle.scope
        arrived = cast("float | None", scope.get(ARRIVED))
        headers: Headers = cast("Headers", scope["headers"])
        try:
            status, body = await self._direct[scope["path"]].answer(Whole(headers, bytes(cycle.body), arrived))
            await self._send(cycle, status, body)
        finally:
            if not cycle.response_complete:
                self.transport.close()

    async def _send(self, cycle: RequestResponseCycle, status: int, body: bytes | LongBody) -> None:
        closing = b"" if cycle.keep_alive else _CLOSE
        length, chunks = (body.length, body.chunks()) if isinstance(body, LongBody) else (len(body), iter((body,)))
        begun = STATUS_LINE[status] + _HEAD % (length, closing)
        for chunk in chunks:
            if self.flow.write_paused:
                await self.flow.drain()
            if cycle.disconnected:
                return
            self.transport.write(begun + chunk)
            begun = b""
        cycle.response_complete = True
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
