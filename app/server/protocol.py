"""HTTP/1.1 over a connection: uvicorn's protocol with limits, and a fast path for requests of kube-scheduler.

Any client can connect and send anything. So there are limits for the number of connections, the time until the last
header, the length of a head, pipelined requests, and unread answers. If the listener rejects a request, its body is
discarded and no verb runs.

A request to a verb is usually received completely in one piece. The fast path answers it without ASGI's scope and
messages, which would take more than half of the request's time. The endpoint gets the body, and one write sends the
answer, unless it is long. A cached head (``heads``) is usually not parsed again.

All other requests take uvicorn's normal path, on the same connection and in order. Examples are requests with late or
long bodies, with other paths or methods, and requests that arrive before the previous one is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import monotonic
from typing import Any, ClassVar, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from app.server.access import WATCHED, CertificateNames, is_local_client
from app.server.deadlines import TimedProtocol
from app.server.failures import error_body
from app.server.heads import KnownHead, known_head, line_of
from app.server.incoming import ARRIVED, CompleteRequest, Endpoint, Headers
from app.server.listener import HEAD_SECONDS, AcceptedConnection, Listener
from app.server.tls import names_in
from app.wire.extender_answers import LongBody

GRACE_SECONDS: Final = 0.02
"""Seconds to wait for the rest of a body. If the body is still incomplete, the request takes the normal path, where the
endpoint reads the body in chunks.
"""

MOST_BYTES: Final = 1 << 20
"""Bytes above which an incomplete body leaves the fast path, and is then read in chunks."""

MOST_HEAD_BYTES: Final = 64 << 10
"""Maximum bytes of a request line with its headers."""

MOST_HEADERS: Final = 100
"""Maximum number of headers of a request, because a short header occupies 20 times its length as Python objects."""

MOST_PIPELINED: Final = 32
"""Maximum number of requests that wait behind an unanswered one. A further request closes the connection. Schedulers do
not pipeline, so they never reach this limit.
"""

LINGER_SECONDS: Final = 0.5
"""Seconds between the rejection of a head that is too long and the end of the connection. Without this delay, a client
that is still sending would get a reset instead of the answer.
"""

_TLS_HELLO: Final = b"\x16"
"""First byte of a TLS handshake."""

_FORBIDDEN: Final = 403
_TOO_LONG: Final = 431

_HEAD: Final = b"content-length: %d\r\ncontent-type: application/json\r\n%s\r\n"
"""Format of an answer's headers. Takes the length of the body, and further headers or an empty text."""

_CLOSE: Final = b"connection: close\r\n"


class _IncompleteRequest:
    """Request with a cached head and an incomplete body.

    ``parts``: bytes received so far. ``start``: offset of the body in them. ``lacking``: number of missing bytes.
    """

    __slots__ = ("head", "lacking", "parts", "start")

    def __init__(self, head: KnownHead[Endpoint], start: int, lacking: int, parts: list[bytes]) -> None:
        self.head = head
        self.start = start
        self.lacking = lacking
        self.parts = parts


class _Exchange:
    """Replaces uvicorn's ``RequestResponseCycle`` on the fast path, with only the attributes that uvicorn uses."""

    __slots__ = ("disconnected", "keep_alive", "response_complete")

    message_event: ClassVar[asyncio.Event] = asyncio.Event()
    """Event that uvicorn sets when the connection is lost. On the fast path no task waits for the event."""

    def __init__(self, *, keep_alive: bool) -> None:
        self.keep_alive = keep_alive
        self.response_complete = False
        self.disconnected = False


class HttpProtocol(TimedProtocol, AcceptedConnection):
    """Protocol of one connection. ``listener.web.direct``: endpoints, by path, for POST requests on the fast path.

    ``_arrived``: time of the first byte of a request. The request's deadline counts from this time, even if the
    endpoint is called much later.

    ``_messages`` and ``_ended``: numbers of requests that the parser has begun and completed. ``_head_size``: bytes of
    the parsed part of a head. ``_unparsed``: received bytes of an incomplete head. ``_body_bytes``: body bytes in the
    latest input. ``_idle``: bytes of input since the last body byte. ``_unparsed`` and ``_idle`` are limited too,
    because the parser reports neither incomplete headers nor chunk extensions.

    ``_refusal``: why the listener rejects the request; else empty. ``_endpoint`` and ``_gathered``: endpoint and body
    parts of a parsed request on the fast path. ``_begun``: request with a cached head and an incomplete body.
    """

    def __init__(self, listener: Listener, *args: Any, **kwargs: Any) -> None:
        super().__init__(listener, *args, **kwargs)
        self.app = listener.web
        direct: Mapping[str, Endpoint] = getattr(listener.web, "direct", {})
        self._direct = {path.encode(): endpoint for path, endpoint in direct.items()}
        self._names: CertificateNames | None = None
        self._is_local = False
        self._watched: dict[bytes, bytes] = {}
        self._refusal = ""
        self._messages = self._ended = self._body_bytes = self._idle = 0
        self._in_head = False
        self._head_size = self._unparsed = 0
        self._endpoint: Endpoint | None = None
        self._gathered: list[bytes] = []
        self._size = 0
        self._grace: asyncio.TimerHandle | None = None
        self._arrived = 0.0
        self._early = 0.0  # arrival of a request that is parsed late (``_parse_begun``); 0.0 for others
        self._heads = listener.heads
        self._cacheable = False
        self._begun: _IncompleteRequest | None = None

    # connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own type
        super().connection_made(transport)
        certificate = transport.get_extra_info("peercert")
        self._names = names_in(certificate) if certificate else None
        self._is_local = self.client is not None and is_local_client(self.client[0])
        self._wait_for_head(HEAD_SECONDS - (monotonic() - self._connected_at))

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.leave(self)
        if self._is_reading_body():
            self._listener.reject("body_cut_off", self.client)
        self._cancel_deadline()
        self._cancel_unread()
        self._take_gathered()
        self._begun = None
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # otherwise the timer would keep this object in memory
        self.headers = []

    # interface to the listener

    @property
    def answered(self) -> bool:
        return self._answered > 0

    @property
    def waiting_since(self) -> float | None:
        """Time since which the connection waits for its client; ``None`` while the answer to a complete request is
        computed or sent. A client that does not read the answer is waited for, too.

        It is the time of the first byte of the latest request, or of the accept if there was no request.
        """
        is_ours = not self._in_message and self._is_answering() and not self.flow.write_paused
        return None if is_ours else max(self._arrived, self._connected_at)

    def give_way(self) -> None:
        self._ignores_input = True
        if self.transport is not None:
            self.transport.abort()

    # state of the current request

    def _is_reading_body(self) -> bool:
        """Return true if a request without a complete answer still waits for the rest of its body."""
        gathering = self._begun is not None or self._endpoint is not None
        return gathering or (self._in_message and not self._in_head and self._is_answering())

    # callbacks of the parser

    def on_message_begin(self) -> None:
        self._arrived, self._early = self._early or monotonic(), 0.0
        self._messages += 1
        self._in_message = self._in_head = True
        self._head_size = self._unparsed = self._idle = 0
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
        if self._head_size > MOST_HEAD_BYTES or self._ignores_input:
            return
        self._refusal = self._listener.access.refusal(
            self._names, self.parser.get_method(), self.url.decode("latin-1"), self._watched, local=self._is_local
        )
        if self._refusal:
            self.headers = []
            if self.expect_100_continue:
                self._refuse(self._refusal)
            else:
                self._wait_for_head()  # on_body discards the body, within the time limit of a head
            return
        endpoint = self._direct.get(self.url)
        if endpoint is not None and self._can_take_fast_path():
            self._endpoint = endpoint
            self._cacheable = self.parser.should_keep_alive()  # read now, because the parser loses it after the body
        else:
            self._begin_cycle()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._refusal or self._ignores_input or self._head_size > MOST_HEAD_BYTES:
            return
        if self._endpoint is None:
            super().on_body(body)
        else:
            self._gathered.append(body)
            self._size += len(body)

    def on_message_complete(self) -> None:
        self._in_message = False
        self._ended += 1
        if self._ignores_input or self._head_size > MOST_HEAD_BYTES:
            return
        if self._refusal:
            self._cancel_deadline()
            self._refuse(self._refusal)
        elif self._endpoint is None:
            super().on_message_complete()
        else:
            keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
            self._start(self._endpoint, self.headers, self._take_gathered(), keep_alive=keep_alive)

    # callbacks of the transport

    def data_received(self, data: bytes) -> None:
        if self._ignores_input:
            return
        if self._begun is not None:
            self._continue_begun(self._begun, data)
        elif not self._handle_cached_head(data):
            self._read(data)

    def _handle_cached_head(self, data: bytes) -> bool:
        """Try the fast path for a request with a cached head; return false, without side effects, if it is impossible.

        It is possible if no request is in progress, access is allowed, no bytes follow the body, and the body has at
        most ``MOST_BYTES``. The request then starts at once, or as soon as the rest of its body arrives.
        """
        head = self._heads.get(line_of(data)) if self._is_idle() else None
        if head is None:
            return False
        body = head.body(data)
        if body is None:
            return False
        start, length = body
        if not len(data) - start <= length <= MOST_BYTES or not self._is_still_allowed(head):
            return False
        self._unset_keepalive_if_required()
        self._cancel_deadline()
        self._arrived = monotonic()
        if len(data) - start == length:
            self._start(head.endpoint, head.headers, data[start:], keep_alive=True)
        else:
            self._begun = _IncompleteRequest(head, start, start + length - len(data), [data])
            self._grace = self.loop.call_later(GRACE_SECONDS, self._grace_expired)
        return True

    def _is_idle(self) -> bool:
        """Return true if no request is in progress and the connection is not closing, so that a request can begin."""
        return not (self._in_message or self._is_answering() or self.transport.is_closing())

    def _is_still_allowed(self, head: KnownHead[Endpoint]) -> bool:
        """Return true if access is still allowed. Access that depends on a certificate is checked again, because the
        accepted names can change while the connection stays open.
        """
        access = self._listener.access
        if not access.certified:
            return True  # access depends only on the head, which is unchanged
        return not access.refusal(self._names, b"POST", head.url, head.watched, local=self._is_local)

    def _continue_begun(self, begun: _IncompleteRequest, data: bytes) -> None:
        begun.parts.append(data)
        begun.lacking -= len(data)
        if begun.lacking < 0:
            self._parse_begun(begun)
        elif begun.lacking == 0:
            head = begun.head
            self._start(head.endpoint, head.headers, self._take_begun(begun)[begun.start :], keep_alive=True)

    def _take_begun(self, begun: _IncompleteRequest) -> bytes:
        """Stop collecting the body; return the head and the part of the body that were received."""
        self._begun = None
        self._take_gathered()
        return b"".join(begun.parts)

    def _parse_begun(self, begun: _IncompleteRequest) -> None:
        """Parse all bytes received so far, including the head, as for a request without a cached head."""
        self._early = self._arrived
        self._read(self._take_begun(begun))

    def _grace_expired(self) -> None:
        if self._begun is not None:
            self._parse_begun(self._begun)
        self._take_normal_path()

    def _read(self, data: bytes) -> None:
        """Parse input. If it is one request that takes the fast path, cache its head."""
        at_rest, messages, self._cacheable = not self._in_message, self._messages, False
        self._feed(data)
        if self._cacheable and at_rest and self._messages - messages == 1:
            head = known_head(data, self.url, self.headers, self._direct[self.url], self._watched)
            if head is not None:
                self._heads[line_of(data)] = head

    def _feed(self, data: bytes) -> None:
        """Parse input and set deadlines. Reject TLS, and a head or chunk extensions above ``MOST_HEAD_BYTES``."""
        if not self._arrived and data.startswith(_TLS_HELLO):
            self._ignores_input = True
            self._listener.reject("tls_on_a_plain_port", self.client, "the client speaks TLS, this listener does not")
            self.transport.close()
            return
        ended, self._body_bytes = self._ended, 0
        super().data_received(data)
        if self._in_head:
            self._unparsed += len(data) if ended == self._ended else 0
            self._wait_for_head()
        elif self._in_message:
            self._idle = 0 if self._body_bytes else self._idle + len(data)
        elif not self._is_answering():
            self._wait_for_head()  # after blank lines, for which uvicorn has cancelled its own timer
        undecided = self._unparsed if self._in_head else self._idle if self._in_message else 0
        if max(self._head_size, undecided) > MOST_HEAD_BYTES and not self._ignores_input:
            self._refuse_head()
        elif self._endpoint is not None:
            self._gather()

    def _gather(self) -> None:
        """Wait briefly for the rest of a body on the fast path; use the normal path if the body is too long."""
        if self.transport.is_closing():  # after invalid HTTP, which has been answered
            self._take_gathered()
        elif self._size > MOST_BYTES:
            self._take_normal_path()
        elif self._grace is None:
            self._grace = self.loop.call_later(GRACE_SECONDS, self._grace_expired)

    def shutdown(self) -> None:
        self._grace_expired()
        super().shutdown()

    # rejected requests

    def _refuse_head(self) -> None:
        self._listener.reject("head_too_long", self.client)
        self._answer_and_close(_TOO_LONG, b"", LINGER_SECONDS)

    def _refuse(self, message: str) -> None:
        """Answer a request that access control rejects, and close the connection."""
        self._listener.reject("forbidden", self.client, message)
        path = httptools.parse_url(self.url).path or b""
        endpoint = self._direct.get(path)
        if endpoint is not None:
            self._answer_and_close(*endpoint.forbidden(message))
        else:
            self._answer_and_close(_FORBIDDEN, error_body(path.decode("latin-1"), _FORBIDDEN, message))

    def _answer_and_close(self, status: int, body: bytes, linger: float = 0.0) -> None:
        """Answer a rejected request, then close the connection.

        If an earlier request is still being answered, the rejected one gets no answer, and that answer can be cut off.
        ``linger``: seconds for which input is discarded before closing, see ``LINGER_SECONDS``.
        """
        self._ignores_input = True
        self._take_gathered()
        if not self._is_answering():
            self.transport.write(STATUS_LINE[status] + _HEAD % (len(body), _CLOSE) + body)
        if linger:
            self._cancel_deadline()
            self._deadline = self.loop.call_later(linger, self.transport.close)
        else:
            self.transport.close()
        self._watch_unread()

    # fast path

    def _can_take_fast_path(self) -> bool:
        return (
            self.parser.get_method() == b"POST"
            and not self.expect_100_continue
            and not self.parser.should_upgrade()
            and not self._is_answering()
        )

    def _take_gathered(self) -> bytes:
        """Stop collecting the body; return the part of the body that was received."""
        body = self._gathered[0] if len(self._gathered) == 1 else b"".join(self._gathered)
        self._endpoint, self._gathered, self._size = None, [], 0
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None
        return body

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
        """Send the answer, then end the cycle as uvicorn does, so that the next request can begin.

        No other task runs meanwhile, unless the client reads slowly.
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

    # normal path

    def _take_normal_path(self) -> None:
        """If a request's body is incomplete, pass the request to uvicorn's normal path, where the endpoint reads the
        rest in chunks.
        """
        if self._endpoint is None:
            return
        begun = self._take_gathered()
        self._begin_cycle()
        if begun and not self._ignores_input:
            super().on_body(begun)

    def _begin_cycle(self) -> None:
        """Pass a request with its headers to uvicorn, or close the connection if too many pipelined requests wait."""
        if len(self.pipeline) >= MOST_PIPELINED:
            self._ignores_input = True
            self._listener.reject("too_many_pipelined", self.client)
            self.transport.close()
            return
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers[:] = headers
        cast("dict[str, object]", self.scope)[ARRIVED] = self._arrived
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """End a request as uvicorn does; close the connection if the body of the request is not complete."""
        self._answered += 1
        self._watch_unread()
        current: object = self.cycle
        if isinstance(current, RequestResponseCycle) and current.response_complete and current.more_body:
            self.transport.close()
        super().on_response_complete()
