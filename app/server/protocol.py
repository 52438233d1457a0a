"""HTTP/1.1 over a connection: uvicorn's protocol, bounded, with a short way for what kube-scheduler sends.

A stranger may open a connection and send what he likes, so whatever a connection holds is bounded from its first byte:
how many there are, how long it takes to a request's last header, how long that head is, how many requests wait behind
another, how long an answer is not fetched. What the listener does not let through is answered without its body having
been kept, and reaches nobody.

A request to a verb is mostly there as a whole as soon as it is there at all. It is answered without ASGI's scope and
messages, which cost such a call more than half of its time: the endpoint gets the body, and one write sends the answer.
Where its head is known (``heads``), that is not taken apart again; if the rest of the body is late, it is after all.
Whatever else comes (a body whose rest is late, or a long one, other routes, other methods, a request before the last
one is answered) goes uvicorn's way, on the same connection and in the order in which it came.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from time import monotonic
from typing import Any, ClassVar, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from app.server.access import WATCHED, CertificateNames, is_near
from app.server.deadlines import TimedProtocol
from app.server.heads import KnownHead, known_head, line_of
from app.server.incoming import ARRIVED, CompleteRequest, Endpoint, Headers
from app.server.listener import HEAD_SECONDS, AcceptedConnection, Listener
from app.server.tls import names_in
from app.wire.extender_answers import LongBody

GRACE_SECONDS: Final = 0.02
"""How long the rest of a body that has begun is waited for; then the endpoint reads it as it comes."""

MOST_BYTES: Final = 1 << 20
"""A longer body is read as it comes."""

MOST_HEAD_BYTES: Final = 64 << 10
"""Of a request line with its headers."""

MOST_HEADERS: Final = 100
"""Of one request: each is kept as objects, and small ones take 20 times their bytes."""

MOST_PIPELINED: Final = 32
"""Requests behind one that is not answered yet. Schedulers send none."""

LINGER_SECONDS: Final = 0.5
"""For a client that still sends while it is told that nobody listens."""

_TLS_HELLO: Final = b"\x16"
_FORBIDDEN: Final = 403
_TOO_LONG: Final = 431

_HEAD: Final = b"content-length: %d\r\ncontent-type: application/json\r\n%s\r\n"
_CLOSE: Final = b"connection: close\r\n"


class _Begun:
    """A request with a known head of whose body more is to come: ``lacking`` bytes. It begins at ``start``."""

    __slots__ = ("head", "lacking", "parts", "start")

    def __init__(self, head: KnownHead[Endpoint], start: int, lacking: int, parts: list[bytes]) -> None:
        self.head = head
        self.start = start
        self.lacking = lacking
        self.parts = parts


class _Exchange:
    """What uvicorn's protocol asks of the cycle that is under way on a connection, and no more."""

    __slots__ = ("disconnected", "keep_alive", "response_complete")

    message_event: ClassVar[asyncio.Event] = asyncio.Event()
    """Nobody waits for it."""

    def __init__(self, *, keep_alive: bool) -> None:
        self.keep_alive = keep_alive
        self.response_complete = False
        self.disconnected = False


class HttpProtocol(TimedProtocol, AcceptedConnection):
    """``listener.web`` has ``direct``, by path: what a POST reaches in the short way.

    It notes when a request's first byte was seen: its turn may come much later.
    """

    def __init__(self, listener: Listener, *args: Any, **kwargs: Any) -> None:
        super().__init__(listener, *args, **kwargs)
        self.app = listener.web
        direct: Mapping[str, Endpoint] = getattr(listener.web, "direct", {})
        self._direct = {path.encode(): endpoint for path, endpoint in direct.items()}
        self._names: CertificateNames | None = None
        self._near = False
        self._watched: dict[bytes, bytes] = {}
        self._refusal = ""
        self._messages = self._ended = self._taken = self._idle = 0
        self._in_head = False
        self._head_size = self._undecided = 0
        self._endpoint: Endpoint | None = None
        self._gathered: list[bytes] = []
        self._size = 0
        self._grace: asyncio.TimerHandle | None = None
        self._arrived = 0.0
        self._early = 0.0  # when the message arrived that is to begin now, where it was held back
        self._heads = listener.heads
        self._to_be_known = False
        self._begun: _Begun | None = None

    # the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        found = transport.get_extra_info("peercert")
        self._names = names_in(found) if found else None
        self._near = self.client is not None and is_near(self.client[0])
        self._wait_for_head(HEAD_SECONDS - (monotonic() - self._connected_at))

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.leave(self)
        if self._is_reading_body():
            self._listener.turn_away("body_cut_off", self.client)
        self._cancel_deadline()
        self._cancel_unread()
        self._gather_no_more()
        self._begun = None
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn leaves it where the connection was reset, and all of us with it
        self.headers = []

    # what the listener asks

    @property
    def answered(self) -> bool:
        return self._answered > 0

    @property
    def waiting_since(self) -> float | None:
        """Of a request that has begun, or was answered, its first byte counts."""
        is_ours = not self._in_message and self._is_answering() and not self.flow.write_paused
        return None if is_ours else max(self._arrived, self._connected_at)

    def give_way(self) -> None:
        self._deaf = True
        if self.transport is not None:
            self.transport.abort()

    # the connection

    def _is_reading_body(self) -> bool:
        """Return whether the rest of a body is awaited by a request that has no complete answer."""
        gathering = self._begun is not None or self._endpoint is not None
        return gathering or (self._in_message and not self._in_head and self._is_answering())

    # what the parser tells

    def on_message_begin(self) -> None:
        self._arrived, self._early = self._early or monotonic(), 0.0
        self._messages += 1
        self._in_message = self._in_head = True
        self._head_size = self._undecided = self._idle = 0
        self._refusal = ""
        self._watched = {}
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_url(self, url: bytes) -> None:
        self._head_size += len(url)
        if self._head_size <= MOST_HEAD_BYTES:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_size += len(name) + len(value) + 4
        if len(self.headers) >= MOST_HEADERS:
            self._head_size = MOST_HEAD_BYTES + 1
        if self._head_size > MOST_HEAD_BYTES:
            return
        super().on_header(name, value)
        lowered = self.headers[-1][0]
        if lowered in WATCHED:
            self._watched[lowered] = value

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._cancel_deadline()
        if self._head_size > MOST_HEAD_BYTES or self._deaf:
            return
        self._refusal = self._listener.access.refusal(
            self._names, self.parser.get_method(), self.url.decode("latin-1"), self._watched, near=self._near
        )
        if self._refusal:
            self.headers = []
            if self.expect_100_continue:
                self._refuse(self._refusal)
            else:
                self._wait_for_head()  # its body is not kept, but it may take no longer than a head
            return
        endpoint = self._direct.get(self.url)
        if endpoint is not None and self._may_be_short():
            self._endpoint = endpoint
            self._to_be_known = self.parser.should_keep_alive()  # the parser has forgotten it once the body is read
        else:
            self._begin_cycle()

    def on_body(self, body: bytes) -> None:
        self._taken += len(body)
        if self._refusal or self._deaf or self._head_size > MOST_HEAD_BYTES:
            return
        if self._endpoint is None:
            super().on_body(body)
        else:
            self._gathered.append(body)
            self._size += len(body)

    def on_message_complete(self) -> None:
        self._in_message = False
        self._ended += 1
        if self._deaf or self._head_size > MOST_HEAD_BYTES:
            return
        if self._refusal:
            self._cancel_deadline()
            self._refuse(self._refusal)
        elif self._endpoint is None:
            super().on_message_complete()
        else:
            keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
            self._start(self._endpoint, self.headers, self._gather_no_more(), keep_alive=keep_alive)

    # what the transport tells

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if self._begun is not None:
            self._go_on(self._begun, data)
        elif not self._took_by_known_head(data):
            self._read(data)

    def _took_by_known_head(self, data: bytes) -> bool:
        """Whether it begins with a known head: then so much of the body as is there is taken, mostly all of it."""
        head = self._heads.get(line_of(data)) if self._is_at_rest() else None
        if head is None:
            return False
        found = head.body(data)
        if found is None:
            return False
        start, length = found
        if not len(data) - start <= length <= MOST_BYTES or not self._is_let_through_again(head):
            return False
        self._unset_keepalive_if_required()
        self._cancel_deadline()
        self._arrived = monotonic()
        if len(data) - start == length:
            self._start(head.endpoint, head.headers, data[start:], keep_alive=True)
        else:
            self._begun = _Begun(head, start, start + length - len(data), [data])
            self._grace = self.loop.call_later(GRACE_SECONDS, self._too_late_for_short)
        return True

    def _is_at_rest(self) -> bool:
        """Nothing is there of a request whose answer is not complete, and another one may come."""
        return not (self._in_message or self._is_answering() or self.transport.is_closing())

    def _is_let_through_again(self, head: KnownHead[Endpoint]) -> bool:
        """What lets a certificate through may change, and the connection stays."""
        access = self._listener.access
        if not access.certified:
            return True  # what counted is in the head
        return not access.refusal(self._names, b"POST", head.url, head.watched, near=self._near)

    def _go_on(self, begun: _Begun, data: bytes) -> None:
        begun.parts.append(data)
        begun.lacking -= len(data)
        if begun.lacking < 0:
            self._read_after_all(begun)
        elif begun.lacking == 0:
            head = begun.head
            self._start(head.endpoint, head.headers, self._begin_no_more(begun)[begun.start :], keep_alive=True)

    def _begin_no_more(self, begun: _Begun) -> bytes:
        """What has come so far."""
        self._begun = None
        self._gather_no_more()
        return b"".join(begun.parts)

    def _read_after_all(self, begun: _Begun) -> None:
        """Take apart what has come so far, as if its head were not known."""
        self._early = self._arrived
        self._read(self._begin_no_more(begun))

    def _too_late_for_short(self) -> None:
        if self._begun is not None:
            self._read_after_all(self._begun)
        self._go_uvicorns_way()

    def _read(self, data: bytes) -> None:
        at_rest, messages, self._to_be_known = not self._in_message, self._messages, False
        self._feed(data)
        if self._to_be_known and at_rest and self._messages - messages == 1:
            found = known_head(data, self.url, self.headers, self._direct[self.url], self._watched)
            if found is not None:
                self._heads[line_of(data)] = found

    def _feed(self, data: bytes) -> None:
        if not self._arrived and data.startswith(_TLS_HELLO):
            self._deaf = True
            self._listener.turn_away(
                "tls_on_a_plain_port", self.client, "the client speaks TLS, this listener does not"
            )
            self.transport.close()
            return
        ended, self._taken = self._ended, 0
        super().data_received(data)
        if self._in_head:
            self._undecided += len(data) if ended == self._ended else 0
            self._wait_for_head()
        elif self._in_message:
            self._idle = 0 if self._taken else self._idle + len(data)
        elif not self._is_answering():
            self._wait_for_head()  # blank lines: uvicorn has put its own clock away for them
        undecided = self._undecided if self._in_head else self._idle if self._in_message else 0
        if max(self._head_size, undecided) > MOST_HEAD_BYTES and not self._deaf:
            self._refuse_head()
        elif self._endpoint is not None:
            self._gather()

    def _gather(self) -> None:
        if self.transport.is_closing():  # what came was no HTTP, and was told so
            self._gather_no_more()
        elif self._size > MOST_BYTES:
            self._go_uvicorns_way()
        elif self._grace is None:
            self._grace = self.loop.call_later(GRACE_SECONDS, self._too_late_for_short)

    def shutdown(self) -> None:
        self._too_late_for_short()
        super().shutdown()

    # what is not let through

    def _refuse_head(self) -> None:
        self._listener.turn_away("head_too_long", self.client)
        self._answer_and_close(_TOO_LONG, b"", LINGER_SECONDS)

    def _refuse(self, message: str) -> None:
        self._listener.turn_away("forbidden", self.client, message)
        endpoint = self._direct.get(httptools.parse_url(self.url).path or b"")
        if endpoint is not None:
            self._answer_and_close(*endpoint.forbidden(message))
        else:
            self._answer_and_close(_FORBIDDEN, json.dumps({"detail": message}).encode())

    def _answer_and_close(self, status: int, body: bytes, linger: float = 0.0) -> None:
        """Nothing more is kept. An answer that is under way on this connection is lost with it.

        ``linger``: seconds for which what still comes is taken in, as a client that is cut off sees no answer.
        """
        self._deaf = True
        self._gather_no_more()
        if not self._is_answering():
            self.transport.write(STATUS_LINE[status] + _HEAD % (len(body), _CLOSE) + body)
        if linger:
            self._cancel_deadline()
            self._deadline = self.loop.call_later(linger, self.transport.close)
        else:
            self.transport.close()
        self._watch_unread()

    # the short way

    def _may_be_short(self) -> bool:
        return (
            self.parser.get_method() == b"POST"
            and not self.expect_100_continue
            and not self.parser.should_upgrade()
            and not self._is_answering()
        )

    def _gather_no_more(self) -> bytes:
        """What was gathered."""
        found = self._gathered[0] if len(self._gathered) == 1 else b"".join(self._gathered)
        self._endpoint, self._gathered, self._size = None, [], 0
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None
        return found

    def _start(self, endpoint: Endpoint, headers: Headers, body: bytes, *, keep_alive: bool) -> None:
        exchange: Any = _Exchange(keep_alive=keep_alive)
        self.cycle = exchange
        whole = CompleteRequest(headers, body, self._arrived)
        task = self.loop.create_task(self._serve(endpoint, whole, exchange))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    async def _serve(self, endpoint: Endpoint, request: CompleteRequest, exchange: _Exchange) -> None:
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
        if begun and not self._deaf:
            super().on_body(begun)

    def _begin_cycle(self) -> None:
        if len(self.pipeline) >= MOST_PIPELINED:
            self._deaf = True
            self._listener.turn_away("too_many_pipelined", self.client)
            self.transport.close()
            return
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers[:] = headers
        cast("dict[str, object]", self.scope)[ARRIVED] = self._arrived
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """A request that was answered before its end gets no more time for the rest of it."""
        self._answered += 1
        self._watch_unread()
        under_way: object = self.cycle
        if isinstance(under_way, RequestResponseCycle) and under_way.response_complete and under_way.more_body:
            self.transport.close()
        super().on_response_complete()
