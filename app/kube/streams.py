"""An answer that goes on, line by line, on a connection of its own: a watch.

A general HTTP client awaits five times for a part of a body, each through layers of its own. Here what one read of the
socket brings is parsed at once, cut into lines, and handed over together.

Not here: what a line means, retries, credentials.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import httptools

from app.kube.connections import Answered, BrokenConnection, set_up

LONGEST_LINE: Final = 64 << 20
"""Bytes. The API server stores objects of 1.5 MiB, and some JSON is six times as long as what is stored."""

MOST_WAITING: Final = 1 << 20
"""Bytes of complete lines that nobody has taken; beyond, nothing is read from the socket."""

_MOST_BARREN: Final = 64 << 10
"""Bytes in a row that are neither a whole head nor a part of a body."""

_LONGEST_REFUSAL: Final = 1 << 20
_INFORMATIONAL: Final = range(100, 200)
_GOOD: Final = range(200, 300)
_TEXT: Final = "latin-1"


class Silent(Exception):
    """Nothing came for as long as was to be waited."""


class Stream(asyncio.Protocol):
    """Sends ``request`` as soon as it is connected. ``silence``: seconds without a byte that end it.

    Use ``answer`` first and once, then ``lines`` if that was a good one. ``close`` it in any case.
    """

    def __init__(self, request: bytes, silence: float) -> None:
        self._request = request
        self._silence = silence
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: Any = httptools.HttpResponseParser(self)
        self._status = 0
        self._headers: dict[str, str] = {}
        self._barren = 0
        self._lines: list[bytes] = []
        self._waiting = 0
        self._begun: list[bytes] = []
        self._begun_size = 0
        self._over = False
        self._fault: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._paused = False
        self._heard_at = 0.0
        self._alarm: asyncio.TimerHandle | None = None

    async def answer(self) -> Answered:
        """Status and headers; of what is no good answer the body too. Raises ``BrokenConnection`` and ``Silent``."""
        while not (self._over or self._status in _GOOD):
            await self._news()
        if self._fault is not None and self._status not in _GOOD:
            raise self._fault
        refusal = b"" if self._status in _GOOD else b"".join(self._begun)
        return Answered(self._status, self._headers, refusal)

    async def lines(self) -> list[bytes]:
        """What has come meanwhile, at least one; none at the end. What is left of an incomplete last line is dropped.

        Raises ``BrokenConnection`` where the connection ended before the answer did, and ``Silent``; what came before
        is told first.
        """
        while not (self._lines or self._over):
            await self._news()
        taken, self._lines, self._waiting = self._lines, [], 0
        self._go_on_if_paused()
        if not taken and self._fault is not None:
            raise self._fault
        return taken

    def close(self) -> None:
        """Give it up at once."""
        self._end(BrokenConnection("closed by us"))

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = set_up(transport)
        if self._over:
            self._transport.abort()
            return
        self._heard_at = self._loop.time()
        self._alarm = self._loop.call_later(self._silence, self._look)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        self._heard_at = self._loop.time()
        self._barren += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._end(BrokenConnection(f"what came is no HTTP: {error}"))
            return
        if self._barren > _MOST_BARREN:
            self._end(BrokenConnection(f"headers of more than {_MOST_BARREN} bytes"))
        elif self._lines:
            self._tell()
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
        elif not self._over:
            self._status, self._barren = status, 0
            self._tell()

    def on_body(self, body: bytes) -> None:
        if self._over:
            return
        self._barren = 0
        if self._status not in _GOOD:
            self._begin(body, _LONGEST_REFUSAL)
            return
        first, *more = body.split(b"\n")
        if more:
            self._complete(first)
            for line in more[:-1]:
                self._complete(line)
            first = more[-1]
        if first:
            self._begin(first, LONGEST_LINE)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() not in _INFORMATIONAL:
            self._end(None)

    # what becomes of it

    @property
    def _open(self) -> asyncio.Transport | None:
        """The transport, if it can still be told something."""
        return None if self._transport is None or self._transport.is_closing() else self._transport

    def _begin(self, part: bytes, most: int) -> None:
        """A part of what is not complete yet."""
        self._begun.append(part)
        self._begun_size += len(part)
        if self._begun_size > most:
            self._begun.clear()
            self._end(BrokenConnection(f"a line, or a refusal, of more than {most} bytes"))

    def _complete(self, line: bytes) -> None:
        if self._begun:
            line = b"".join((*self._begun, line))
            self._begun.clear()
            self._begun_size = 0
        if line:
            self._lines.append(line)
            self._waiting += len(line)

    def _end(self, fault: Exception | None) -> None:
        """It is over, in good order without a ``fault``; only the first end counts."""
        if not self._over:
            self._over, self._fault = True, fault
            if self._alarm is not None:
                self._alarm.cancel()
            self._tell()
        if self._transport is not None:
            self._transport.abort()

    def _pause_if_full(self) -> None:
        if self._waiting > MOST_WAITING and not self._paused and self._open is not None:
            self._paused = True
            self._open.pause_reading()

    def _go_on_if_paused(self) -> None:
        if self._paused and self._open is not None:
            self._paused = False
            self._open.resume_reading()

    async def _news(self) -> None:
        self._reader = self._loop.create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def _tell(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _look(self) -> None:
        """Whether it has been silent. While nobody reads, or what came waits to be read, the silence is not theirs."""
        if self._reader is None or self._reader.done():
            self._heard_at = self._loop.time()
        left = self._heard_at + self._silence - self._loop.time()
        if left > 0:
            self._alarm = self._loop.call_later(left, self._look)
        else:
            self._end(Silent(f"silent for {self._silence:g} s"))
