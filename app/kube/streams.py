"""Streamed response (a watch) on its own connection, read line by line.

A general HTTP client awaits five times for each part of a body, which takes time. Here, the data of one socket read is
parsed in one step, split into lines, and returned as a batch.

``app.kube.transport`` adds credentials and retries.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import httptools

from app.kube.connections import BrokenConnection, HttpResponse, set_socket_options

LONGEST_LINE: Final = 64 << 20
"""Maximum bytes of a line. An object has at most 1.5 MiB in etcd, and escapes make its JSON up to six times as long."""

MOST_WAITING: Final = 1 << 20
"""Maximum bytes of complete lines that wait for the reader. If there are more, reading from the socket is paused."""

_MOST_UNPRODUCTIVE: Final = 64 << 10
"""Maximum number of bytes received in a row that neither complete the headers nor contain data of the body."""

_LONGEST_ERROR_BODY: Final = 1 << 20
"""Maximum bytes of the body of an error response."""

_INFORMATIONAL: Final = range(100, 200)
_SUCCESS: Final = range(200, 300)
_TEXT: Final = "latin-1"


class Silent(Exception):
    """Raised if no data arrived for the ``silence`` of a ``Stream`` while a reader was waiting."""


class Stream(asyncio.Protocol):
    """Connection that sends ``request`` when it opens.

    The stream ends if a reader waits and no data arrives for ``silence`` seconds.

    First call ``answer`` once, then call ``lines`` if the status is 2xx. Always call ``close`` at the end.
    """

    def __init__(self, request: bytes, silence: float) -> None:
        self._request = request
        self._silence = silence
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: Any = httptools.HttpResponseParser(self)
        self._status = 0
        self._headers: dict[str, str] = {}
        self._unproductive = 0
        self._lines: list[bytes] = []
        self._waiting = 0
        self._partial: list[bytes] = []
        self._partial_size = 0
        self._ended = False
        self._fault: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._paused = False
        self._last_data_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def answer(self) -> HttpResponse:
        """Wait for the headers and, unless the status is 2xx, for the body. Return status, headers and body.

        Raises ``BrokenConnection`` or ``Silent``.
        """
        while not (self._ended or self._status in _SUCCESS):
            await self._wait_for_data()
        if self._fault is not None and self._status not in _SUCCESS:
            raise self._fault
        refusal = b"" if self._status in _SUCCESS else b"".join(self._partial)
        return HttpResponse(self._status, self._headers, refusal)

    async def lines(self) -> list[bytes]:
        """Wait for at least one line and return all lines that have arrived. At the end, return an empty list.

        An incomplete last line is dropped. If the connection ends before the end of the response, or is silent, the
        lines that have arrived are returned first. The next call raises ``BrokenConnection`` or ``Silent``.
        """
        while not (self._lines or self._ended):
            await self._wait_for_data()
        taken, self._lines, self._waiting = self._lines, [], 0
        self._resume_if_paused()
        if not taken and self._fault is not None:
            raise self._fault
        return taken

    def close(self) -> None:
        """Abort the connection immediately."""
        self._end(BrokenConnection("closed by us"))

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = set_socket_options(transport)
        if self._ended:
            self._transport.abort()
            return
        self._last_data_at = self._loop.time()
        self._timer = self._loop.call_later(self._silence, self._check_silence)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        self._last_data_at = self._loop.time()
        self._unproductive += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._end(BrokenConnection(f"received invalid HTTP: {error}"))
            return
        if self._unproductive > _MOST_UNPRODUCTIVE:
            self._end(BrokenConnection(f"headers of more than {_MOST_UNPRODUCTIVE} bytes"))
        elif self._lines:
            self._wake_reader()
            self._pause_if_full()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end(BrokenConnection(str(exc) if exc is not None and str(exc) else "closed by the other side"))

    # httptools' callbacks

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode(_TEXT).lower()] = value.decode(_TEXT)

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status in _INFORMATIONAL:
            self._headers = {}
        elif not self._ended:
            self._status, self._unproductive = status, 0
            self._wake_reader()

    def on_body(self, body: bytes) -> None:
        if self._ended:
            return
        self._unproductive = 0
        if self._status not in _SUCCESS:
            self._append_partial(body, _LONGEST_ERROR_BODY)
            return
        first, *more = body.split(b"\n")
        if more:
            self._complete(first)
            for line in more[:-1]:
                self._complete(line)
            first = more[-1]
        if first:
            self._append_partial(first, LONGEST_LINE)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() not in _INFORMATIONAL:
            self._end(None)

    # state, and hand-over of lines to the reader

    @property
    def _open(self) -> asyncio.Transport | None:
        """Transport of the connection; ``None`` if the connection is not open yet, closing or closed."""
        return None if self._transport is None or self._transport.is_closing() else self._transport

    def _append_partial(self, part: bytes, most: int) -> None:
        """Buffer part of a line or error body. End the stream if the line or body exceeds ``most`` bytes."""
        self._partial.append(part)
        self._partial_size += len(part)
        if self._partial_size > most:
            self._partial.clear()
            self._end(BrokenConnection(f"a line or an error body of more than {most} bytes"))

    def _complete(self, line: bytes) -> None:
        if self._partial:
            line = b"".join((*self._partial, line))
            self._partial.clear()
            self._partial_size = 0
        if line:
            self._lines.append(line)
            self._waiting += len(line)

    def _end(self, fault: Exception | None) -> None:
        """End the stream, successfully if ``fault`` is ``None``, and abort the connection. The first result stays."""
        if not self._ended:
            self._ended, self._fault = True, fault
            if self._timer is not None:
                self._timer.cancel()
            self._wake_reader()
        if self._transport is not None:
            self._transport.abort()

    def _pause_if_full(self) -> None:
        if self._waiting > MOST_WAITING and not self._paused and self._open is not None:
            self._paused = True
            self._open.pause_reading()

    def _resume_if_paused(self) -> None:
        if self._paused and self._open is not None:
            self._paused = False
            self._open.resume_reading()

    async def _wait_for_data(self) -> None:
        self._reader = self._loop.create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _check_silence(self) -> None:
        """End the stream if a reader waits now and no data has arrived for ``silence`` seconds; else check again later.

        If no reader waits now, the ``silence`` seconds begin again.
        """
        if self._reader is None or self._reader.done():
            self._last_data_at = self._loop.time()
        left = self._last_data_at + self._silence - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._check_silence)
        else:
            self._end(Silent(f"silent for {self._silence:g} s"))
