"""Connections for writes, against a server that answers as each test writes."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import pytest

from app.kube.connections import BrokenConnection, Connections, HttpResponse, NotConnected

OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Told: yes\r\n\r\n{}"
ANSWER: Final = HttpResponse(200, {"content-length": "2", "x-told": "yes"}, b"{}")
TLS: Final = ssl.create_default_context()

Serve = Callable[[int, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Calls ``serve`` with the number of the connection for every request; counts both."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self.opened = 0
        self.asked: list[tuple[int, bytes]] = []
        self.first = asyncio.Event()
        self.url = ""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        number = self.opened
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                self.asked.append((number, head + await reader.readexactly(length)))
                self.first.set()
                await self._serve(number, reader, writer)
        except asyncio.IncompleteReadError:
            return
        finally:
            writer.close()


@asynccontextmanager
async def served(serve: Serve, path: str = "", most: int = 8) -> AsyncIterator[tuple[Server, Connections]]:
    server = Server(serve)
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}{path}"
    connections = Connections(server.url, TLS, most=most)
    try:
        yield server, connections
    finally:
        connections.close()
        listening.close()


def says(*parts: bytes, closes: bool = False, first: int = 0) -> Serve:
    """Write these parts; to the first connections only if ``first`` is given, and ``OK`` to later ones."""

    async def serve(number: int, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        at_first = not first or number <= first
        for part in parts if at_first else (OK,):
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        if closes and at_first:
            writer.close()

    return serve


ok: Final = says(OK)


async def post(connections: Connections, body: bytes = b"{}") -> HttpResponse:
    async with connections.acquire() as connection:
        return await connection.send(connections.request("POST", "/x", {"Accept": "a"}, body))


async def test_a_request_and_its_answer() -> None:
    async with served(ok, path="/clusters/one/") as (server, connections):
        assert ANSWER == await post(connections, b"[1]")

    authority = server.url.partition("//")[2].partition("/")[0]
    expected = f"POST /clusters/one/x HTTP/1.1\r\nHost: {authority}\r\nAccept: a\r\nContent-Length: 3\r\n\r\n[1]"
    assert server.asked == [(1, expected.encode())]


async def test_requests_at_once_have_a_connection_each_up_to_a_limit() -> None:
    async with served(ok, most=2) as (server, connections):
        answers = await asyncio.gather(*(post(connections) for _ in range(6)))

    assert ([200] * 6, 2) == ([it.status for it in answers], server.opened)


CHUNKED: Final = {"transfer-encoding": "chunked"}
PIECES: Final = (
    b"HTTP/1.1 409 Con",
    b"flict\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc",
    b"\r\n1\r\nd\r\n0\r\n\r\n",
)
EARLY: Final = b"HTTP/1.1 103 Early Hints\r\nX-Early: yes\r\n\r\n"
ANOTHER: Final = b"HTTP/1.1 200 OK\r\nX-Other: yes\r\nContent-Length: 9\r\n\r\nnot"


@pytest.mark.parametrize(
    ("parts", "expected", "opened"),
    [
        pytest.param(PIECES, HttpResponse(409, CHUNKED, b"abcd"), 1, id="in chunks and pieces"),
        pytest.param([EARLY + OK], ANSWER, 1, id="announced"),
        pytest.param([OK + ANOTHER], ANSWER, 2, id="with something behind it"),
    ],
)
async def test_an_answer_in_another_form(parts: Sequence[bytes], expected: HttpResponse, opened: int) -> None:
    async with served(says(*parts)) as (server, connections):
        assert [expected] * 2 == [await post(connections), await post(connections)]

    assert opened == server.opened


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(OK[:-1], id="half an answer"),
        pytest.param(b"SSH-2.0-OpenSSH\r\n", id="another protocol"),
    ],
)
async def test_a_connection_that_breaks_says_so_and_the_next_request_has_another(said: bytes) -> None:
    async with served(says(said, closes=True, first=1)) as (server, connections):
        with pytest.raises(BrokenConnection):
            await post(connections)
        assert (await post(connections)).status == 200

    assert server.opened == 2


@pytest.mark.parametrize(
    ("said", "closes"),
    [
        pytest.param(OK.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"), False, id="one that announces its end"),
        pytest.param(OK + OK, False, id="one that answers twice"),
        pytest.param(OK + b"HTTP/1.1 ", False, id="one that begins to answer once more"),
        pytest.param(OK, True, id="an idle one that the server closes"),
    ],
)
async def test_a_connection_that_cannot_be_trusted_is_not_used_again(said: bytes, closes: bool) -> None:
    async with served(says(said, closes=closes)) as (server, connections):
        await post(connections)
        await asyncio.sleep(0.01)
        assert (await post(connections)).status == 200

    assert server.opened == 2


async def test_a_request_that_is_given_up_takes_its_connection_with_it() -> None:
    """Its answer would be acquire for that of the next one."""
    silent = asyncio.Event()

    async def serve(number: int, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if number == 1:
            await silent.wait()
        writer.write(OK)

    async with served(serve) as (server, connections):
        call = asyncio.create_task(post(connections))
        await server.first.wait()
        call.cancel()
        await asyncio.wait([call])
        assert (await post(connections)).status == 200
        silent.set()

    assert server.opened == 2


async def test_what_is_not_sent_leaves_the_connection_for_the_next() -> None:
    async with served(ok) as (server, connections):
        with pytest.raises(LookupError):
            async with connections.acquire():
                raise LookupError
        await post(connections)

    assert ([1], 1) == ([number for number, _ in server.asked], server.opened)


async def test_all_connections_busy() -> None:
    async with served(ok, most=1) as (_server, connections), connections.acquire():
        with pytest.raises(NotConnected, match="busy"):
            async with connections.acquire(seconds=0.01):
                pass


async def test_nobody_listens() -> None:
    with pytest.raises(NotConnected, match=re.escape("127.0.0.1:1")):
        await post(Connections("http://127.0.0.1:1", TLS))


async def test_a_server_that_speaks_no_tls() -> None:
    async with served(ok) as (server, _):
        with pytest.raises(NotConnected):
            await post(Connections(server.url.replace("http:", "https:"), TLS))


async def test_a_header_cannot_end_early() -> None:
    async with served(ok) as (_server, connections):
        with pytest.raises(ValueError, match="line break"):
            connections.request("POST", "/x", {"Authorization": "Bearer a\r\nX-Other: b"}, b"")


async def test_closing_ends_what_is_under_way() -> None:
    silent = asyncio.Event()

    async def serve(_number: int, _reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await silent.wait()

    async with served(serve) as (server, connections):
        call = asyncio.create_task(post(connections))
        await server.first.wait()
        connections.close()
        with pytest.raises(BrokenConnection):
            await call
        silent.set()
