"""Pool of HTTP/1.1 connections for writes. Connections stay open, and each has one request in flight at a time.

A write that depends on a decision must be sent before another task can run, but a general HTTP client awaits before it
sends. So the caller first acquires a connection, and ``WriteConnection.send`` then sends the bytes without an
``await``. This needs only a quarter of the CPU time of a general client, which saves time for each bind.

``Connections.connect`` opens a connection outside the pool, for example for a watch. ``app.kube.transport`` adds
credentials and retries. ``app.server.forward`` uses the pool for requests to other replicas.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import Any, Final, TypeVar, cast
from urllib.parse import urlsplit

import httptools
from msgspec import Struct

CONNECT_SECONDS: Final = 3.0
"""Default timeout of the wait for a free slot of the pool, and of each connection attempt."""

MOST_OPEN: Final = 128
"""Default for the maximum number of connections in use. Further requests wait.

kube-scheduler does not limit its concurrent binds.
"""

_IDLE_SECONDS: Final = 30.0
"""Maximum idle seconds of a connection that is used again. A connection that was idle for longer is closed instead."""

_FINAL: Final = 200
"""Lowest status of a final answer. After a 1xx answer, the final answer follows."""

_TEXT: Final = "latin-1"
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}

P = TypeVar("P", bound=asyncio.Protocol)

# These options send small requests at once. They detect an unreachable peer within 50 seconds, even without a request.
SOCKET_OPTIONS: Final = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *((socket.IPPROTO_TCP, getattr(socket, name), value)
      for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000))
      if hasattr(socket, name)),
)  # fmt: skip


class NotConnected(Exception):
    """Raised if no connection can be used, so that the request was not sent."""


class BrokenConnection(Exception):
    """Raised if the connection ended, or received invalid HTTP, before the answer was complete."""


class HttpResponse(Struct, frozen=True):
    """Response to one request. Names in ``headers`` are in lower case. ``body``: empty for a stream with status 2xx."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class WriteConnection(asyncio.Protocol):
    """HTTP/1.1 connection for writes, with at most one request in flight."""

    def __init__(self) -> None:
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._answer: asyncio.Future[HttpResponse] | None = None
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []

    @property
    def usable(self) -> bool:
        """Return whether the connection is open and no request is in flight."""
        return self._transport is not None and not self._transport.is_closing() and self._answer is None

    def send(self, request: bytes) -> asyncio.Future[HttpResponse]:
        """Send a request at once and return the future of its answer.

        Raises ``NotConnected`` if the connection is closed or busy. The future can raise ``BrokenConnection``.
        """
        if self._transport is None or self._answer is not None:
            raise NotConnected("the connection is closed or busy")
        self._answer = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(request)
        return self._answer

    def close(self) -> None:
        """Abort the connection at once; a request in flight fails."""
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = set_socket_options(transport)

    def data_received(self, data: bytes) -> None:
        if self._answer is None:  # data without a request: the server is shutting down or has a defect
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"received invalid HTTP: {error}")
            self.close()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(str(exc) if exc is not None and str(exc) else "closed by the other side")

    def _fail(self, cause: str) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(BrokenConnection(cause))

    # httptools' callbacks

    def on_message_begin(self) -> None:
        if self._answer is None:  # a second answer to one request
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode(_TEXT).lower()] = value.decode(_TEXT)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        response = HttpResponse(self._parser.get_status_code(), self._headers, b"".join(self._body))
        self._headers, self._body = {}, []  # data that follows belongs to the next answer
        if response.status < _FINAL:
            return
        answer, self._answer = self._answer, None
        if answer is None or not self._parser.should_keep_alive():
            self.close()
        if answer is not None and not answer.done():
            answer.set_result(response)


def set_socket_options(transport: asyncio.BaseTransport) -> asyncio.Transport:
    """Set ``SOCKET_OPTIONS`` on the socket of a transport, and return the transport."""
    socket_ = transport.get_extra_info("socket")
    with suppress(OSError):  # if the socket is already closed, asyncio calls ``connection_lost``
        for level, name, value in SOCKET_OPTIONS if socket_ is not None else ():
            socket_.setsockopt(level, name, value)
    return cast("asyncio.Transport", transport)  # uvloop's transport has the methods, but another base class


class Connections:
    """Pool of at most ``most`` connections to one server.

    ``server``: URL; its path is put before the path of each request. ``tls``: used only for an https URL.
    ``tls_server_name``: name in the server's certificate; empty for the host of the URL. Raises ``ValueError`` for a
    URL without a host or with an invalid port.
    """

    def __init__(
        self, server: str, tls: ssl.SSLContext | None = None, tls_server_name: str = "", *, most: int = MOST_OPEN
    ) -> None:
        parts = urlsplit(server)
        if not parts.hostname:
            raise ValueError(f"no host in {server}")
        self._host = parts.hostname
        self._port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
        self._tls = tls if parts.scheme == "https" else None
        self._tls_server_name = (tls_server_name or self._host) if self._tls is not None else None
        self._authority = parts.netloc.rpartition("@")[2]
        self._prefix = parts.path.rstrip("/")
        self._idle: list[WriteConnection] = []
        self._busy: set[WriteConnection] = set()
        self._slots = asyncio.Semaphore(most)
        self._retired = False

    def request(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
        """Return the bytes of a request.

        Raises ``ValueError`` for a line break in the path or a header, and for a character outside of Latin-1.
        """
        lines = [f"{method} {self._prefix}{path} HTTP/1.1", f"Host: {self._authority}"]
        lines += (f"{name}: {value}" for name, value in headers.items())
        lines.append(f"Content-Length: {len(body)}")
        head = "\r\n".join(lines)
        if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1:
            raise ValueError("a line break in the path or a header")
        return f"{head}\r\n\r\n".encode(_TEXT) + body

    @asynccontextmanager
    async def acquire(self, seconds: float = CONNECT_SECONDS) -> AsyncIterator[WriteConnection]:
        """Yield an open connection for one request. On exit, return it to the pool or close it, see ``_release``.

        Raises ``NotConnected`` if the connection attempt fails, or if the attempt or the wait for a free slot takes
        longer than ``seconds``.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._slots.acquire()
        except TimeoutError:
            raise NotConnected(f"all connections busy for {seconds:g} s") from None
        try:
            connection = self._take_idle() or await self.connect(WriteConnection, seconds)
            self._busy.add(connection)
            try:
                yield connection
            finally:
                self._busy.discard(connection)
                self._release(connection)
        finally:
            self._slots.release()

    async def connect(self, protocol: Callable[[], P], seconds: float = CONNECT_SECONDS) -> P:
        """Open a new connection within ``seconds``. It takes no slot of the pool. Raises ``NotConnected``."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                _, connection = await loop.create_connection(
                    protocol, self._host, self._port, ssl=self._tls, server_hostname=self._tls_server_name
                )
        except TimeoutError:
            raise NotConnected(f"{self._authority}: not connected within {seconds:g} s") from None
        except OSError as error:
            raise NotConnected(f"{self._authority}: {error}") from error
        return connection

    def close(self) -> None:
        """Close every connection of the pool; requests in flight fail."""
        self.close_idle()
        for connection in self._busy:
            connection.close()

    def retire(self) -> None:
        """Stop reusing connections: close idle connections now, and busy connections after their request."""
        self._retired = True
        self.close_idle()

    def close_idle(self) -> None:
        """Close idle connections. After a network failure, a request on such a connection would time out."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def _take_idle(self) -> WriteConnection | None:
        oldest = monotonic() - _IDLE_SECONDS
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and connection.idle_since >= oldest:
                return connection
            connection.close()
        return None

    def _release(self, connection: WriteConnection) -> None:
        """Return a connection to the pool, or close it if it is not usable or the pool is retired.

        A connection whose request was abandoned is not usable, because the answer can still arrive.
        """
        if connection.usable and not self._retired:
            connection.idle_since = monotonic()
            self._idle.append(connection)
        else:
            connection.close()
