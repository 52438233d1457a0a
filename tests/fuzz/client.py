"""HTTP as bytes: what is sent is up to the caller, what comes back is read strictly."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import httpx
from msgspec import Struct

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.1 (\d{3}) [ -~]*")
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ([ -~]*)")
_ROOM: Final = 1 << 26
_NO_BODY: Final = (204, 304)


class NotHttp(Exception):
    """What came is no answer."""


class Listener(Struct, frozen=True):
    """An address of the service. ``tls``: what to speak it with, and who we are."""

    port: int
    host: str = "127.0.0.1"
    tls: ssl.SSLContext | None = None


class Answer(Struct, frozen=True):
    """Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def as_httpx(self) -> httpx.Response:
        return httpx.Response(self.status, headers=self.headers, content=self.body)


@asynccontextmanager
async def connected(to: Listener) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection, gone afterwards whatever is still under way on it."""
    reader, writer = await asyncio.open_connection(to.host, to.port, ssl=to.tls, limit=_ROOM)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


async def read_answer(reader: asyncio.StreamReader, *, to_head: bool = False) -> Answer | None:
    """The next answer, ``None`` at the end of the connection. Raises ``NotHttp`` and ``ConnectionError``.

    ``to_head``: the request was a HEAD, whose answer has no body.
    """
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as ended:
            if ended.partial:
                raise NotHttp(f"half a head: {ended.partial[:200]!r}") from None
            return None
        status, headers = _parsed(head)
        if status >= 200:
            break
    body = b"" if to_head or status in _NO_BODY else await _body(reader, headers)
    return Answer(status, headers, body)


def _parsed(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head[:-4].split(b"\r\n")
    matched = _STATUS_LINE.fullmatch(first)
    found = [_HEADER.fullmatch(line) for line in lines]
    if matched is None or None in found:
        raise NotHttp(f"no head: {head[:200]!r}")
    headers = {it[1].decode().lower(): it[2].decode() for it in found if it is not None}
    if len(headers) != len(lines):
        raise NotHttp(f"a header twice: {head[:200]!r}")
    return int(matched[1]), headers


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    try:
        if "content-length" in headers:
            return await reader.readexactly(int(headers["content-length"]))
        if headers.get("transfer-encoding") == "chunked":
            return b"".join([chunk async for chunk in _chunks(reader)])
        return await reader.read()
    except asyncio.IncompleteReadError as ended:
        raise NotHttp(f"half a body, {len(ended.partial)} bytes") from None


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int(await reader.readuntil(b"\r\n"), 16):
        yield (await reader.readexactly(size + 2))[:-2]
    await reader.readuntil(b"\r\n")


async def get(to: Listener, path: str) -> Answer:
    """A page. Raises ``NotHttp`` and ``OSError``."""
    async with connected(to) as (reader, writer):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {to.host}:{to.port}\r\n\r\n".encode())
        found = await read_answer(reader)
    if found is None:
        raise NotHttp(f"{path} was not answered")
    return found


async def post(to: Listener, path: str, body: bytes) -> Answer:
    """A call. Raises ``NotHttp`` and ``OSError``."""
    async with connected(to) as (reader, writer):
        writer.write(
            f"POST {path} HTTP/1.1\r\nHost: {to.host}:{to.port}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        )
        found = await read_answer(reader)
    if found is None:
        raise NotHttp(f"{path} was not answered")
    return found
