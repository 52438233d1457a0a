"""Which way a request goes, and that whichever it goes, each is answered, once and in the order of arrival."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
import uvicorn
from fastapi import APIRouter, FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from app.server import protocol
from app.server.incoming import Incoming, Streamed
from app.server.protocol import GRACE_SECONDS, MOST_BYTES, HttpProtocol
from app.server.web import create_web, listen, server
from app.wire.extender_v1 import LongBody

ROOM = 1 << 26


class Echo:
    """Answers with the body it got. ``ways``: how each request came. Waits for ``open`` if told so."""

    def __init__(self) -> None:
        self.ways: list[str] = []
        self.headers: list[str | None] = []
        self.begun = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()
        self.left = 0

    async def answer(self, request: Incoming) -> tuple[int, bytes | LongBody]:
        self.ways.append("short")
        return await self._told(request)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.ways.append("asgi")
        try:
            _, body = await self._told(Streamed(Request(scope, receive)))
        except ClientDisconnect:
            self.left += 1
            return
        assert isinstance(body, bytes)
        headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _told(self, request: Incoming) -> tuple[int, bytes | LongBody]:
        assert request.arrived is not None
        self.headers.append(request.header("x-asked"))
        body = bytes(await request.body(ROOM))
        self.begun.set()
        await self.open.wait()
        return 200, LongBody((body, body), 2 * len(body)) if body == b"long" else body


class Served:
    """A server on loopback with one endpoint, and connections to it."""

    def __init__(self, echo: Echo, running: uvicorn.Server, port: int) -> None:
        self.echo = echo
        self.running = running
        self.port = port
        self.lines: list[Line] = []

    async def connect(self) -> Line:
        line = Line(*await asyncio.open_connection("127.0.0.1", self.port))
        self.lines.append(line)
        return line


class Line:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))

    async def answer(self) -> tuple[str, bytes]:
        """The head and the body of the next answer."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 10)
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return head.decode(), await asyncio.wait_for(self.reader.readexactly(length), 10)

    async def ends(self) -> bool:
        """Nothing more comes, and the other side hangs up."""
        return await asyncio.wait_for(self.reader.read(), 10) == b""


def post(body: bytes, *headers: str, path: str = "/lean/filter", version: str = "1.1") -> bytes:
    lines = (f"POST {path} HTTP/{version}", "Host: test", f"Content-Length: {len(body)}", *headers)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@asynccontextmanager
async def serving() -> AsyncIterator[Served]:
    echo, router = Echo(), APIRouter()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield

    web = create_web([router], lifespan, version="test", direct={"/lean/filter": echo})
    listening = listen("127.0.0.1", 0)
    running = server(web)
    task = asyncio.create_task(running._serve(sockets=[listening]))
    while not running.started:  # noqa: ASYNC110  # uvicorn tells nobody
        await asyncio.sleep(0.001)
    served = Served(echo, running, listening.getsockname()[1])
    try:
        yield served
    finally:
        echo.open.set()
        for line in served.lines:
            line.writer.close()
        running.should_exit = True
        await asyncio.wait_for(task, 10)


async def test_what_is_there_as_a_whole_goes_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what a connection hands over in several pieces, however long this process is not run in between."""
    monkeypatch.setattr(protocol, "GRACE_SECONDS", 60.0)
    async with serving() as served:
        line = await served.connect()
        for body in (b"{}", b"", b"x" * 300_000):
            line.send(post(body, "X-Asked: 1"))
            head, answer = await line.answer()

            assert answer == body
            assert head.startswith("HTTP/1.1 200 OK\r\n")
            assert "content-type: application/json\r\n" in head
            assert "connection:" not in head

        assert ["short"] * 3 == served.echo.ways
        assert ["1"] * 3 == served.echo.headers


async def test_the_rest_of_a_body_is_waited_for() -> None:
    async with serving() as served:
        line = await served.connect()
        whole = post(b"abcdef")
        line.send(whole[:-3])
        await line.writer.drain()
        await asyncio.sleep(GRACE_SECONDS / 10)
        line.send(whole[-3:])

        assert b"abcdef" == (await line.answer())[1]


async def test_a_rest_that_is_late_is_read_as_it_comes() -> None:
    async with serving() as served:
        line = await served.connect()
        whole = post(b"abcdef")
        line.send(whole[:-3])
        while not served.echo.ways:  # noqa: ASYNC110  # it tells nobody
            await asyncio.sleep(0.001)
        line.send(whole[-3:])
        assert b"abcdef" == (await line.answer())[1]

        line.send(post(b"again"))
        assert b"again" == (await line.answer())[1]
        assert ["asgi", "short"] == served.echo.ways


async def test_a_long_body_is_read_as_it_comes() -> None:
    async with serving() as served:
        line = await served.connect()
        body = b"y" * (3 * MOST_BYTES)
        line.send(post(body))

        assert body == (await line.answer())[1]
        assert ["asgi"] == served.echo.ways


@pytest.mark.parametrize("packets", [1, 4])
async def test_requests_that_do_not_wait_are_answered_in_order(packets: int) -> None:
    async with serving() as served:
        line = await served.connect()
        served.echo.open.clear()
        requests = [post(b"%d" % number) for number in range(4)]
        for packet in range(packets):
            line.send(*requests[packet::packets] if packets > 1 else requests)
            await line.writer.drain()
            await asyncio.sleep(0.005)
        await served.echo.begun.wait()
        served.echo.open.set()

        assert [b"0", b"1", b"2", b"3"] == [(await line.answer())[1] for _ in range(4)]
        assert 4 == len(served.echo.ways)


@pytest.mark.parametrize(
    ("request_", "way"),
    [
        pytest.param(
            b"POST /lean/filter HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "short",
            id="chunks",
        ),
        pytest.param(post(b"abc", path="/lean/filter?x=1"), "asgi", id="a query"),
        pytest.param(post(b"abc", path="/lean/%66ilter"), "asgi", id="escapes in the path"),
    ],
)
async def test_other_forms_are_answered_too(request_: bytes, way: str) -> None:
    async with serving() as served:
        line = await served.connect()
        line.send(request_)

        assert b"abc" == (await line.answer())[1]
        assert [way] == served.echo.ways


async def test_who_wants_another_protocol_is_answered_in_this_one() -> None:
    async with serving() as served:
        line = await served.connect()
        line.send(post(b"", "Connection: Upgrade", "Upgrade: h2c"))

        assert (await line.answer())[0].startswith("HTTP/1.1 200 OK\r\n")
        assert ["asgi"] == served.echo.ways


async def test_who_asks_first_whether_to_send_is_told_to() -> None:
    async with serving() as served:
        line = await served.connect()
        whole = post(b"abc", "Expect: 100-continue")
        line.send(whole[:-3])
        assert b"HTTP/1.1 100 Continue\r\n\r\n" == await asyncio.wait_for(line.reader.readuntil(b"\r\n\r\n"), 10)
        line.send(whole[-3:])

        assert b"abc" == (await line.answer())[1]


@pytest.mark.parametrize(
    "request_",
    [post(b"abc", "Connection: close"), post(b"abc", version="1.0")],
    ids=["asked to", "HTTP/1.0"],
)
async def test_the_connection_is_closed_after_the_answer(request_: bytes) -> None:
    async with serving() as served:
        line = await served.connect()
        line.send(request_)
        head, answer = await line.answer()

        assert b"abc" == answer
        assert "connection: close\r\n" in head
        assert await line.ends()
        assert ["short"] == served.echo.ways


async def test_another_method_is_none_of_the_endpoints_business() -> None:
    async with serving() as served, httpx.AsyncClient(trust_env=False) as http:
        url = f"http://127.0.0.1:{served.port}/lean/filter"

        assert 404 == (await http.get(url)).status_code
        assert 404 == (await http.put(url, content=b"x")).status_code
        assert [] == served.echo.ways


async def test_an_answer_in_parts_is_whole() -> None:
    async with serving() as served:
        line = await served.connect()
        line.send(post(b"long"))

        assert b"longlong" == (await line.answer())[1]


async def test_who_hangs_up_is_not_answered_and_others_are() -> None:
    async with serving() as served:
        served.echo.open.clear()
        gone, line = await served.connect(), await served.connect()
        gone.send(post(b"gone"))
        await served.echo.begun.wait()
        gone.writer.close()
        half = await served.connect()
        half.send(post(b"half")[:-2])
        await asyncio.sleep(GRACE_SECONDS / 4)
        half.writer.close()
        await asyncio.sleep(GRACE_SECONDS * 3)
        line.send(post(b"stays"))
        served.echo.open.set()

        assert b"stays" == (await line.answer())[1]
        assert served.echo.ways in (["short", "short"], ["short", "asgi", "short"])


async def test_nothing_is_kept_of_what_was_answered() -> None:
    async with serving() as served:
        line = await served.connect()
        line.send(post(b"z" * 900_000))
        assert 900_000 == len((await line.answer())[1])

        (kept,) = served.running.server_state.connections
        assert isinstance(kept, HttpProtocol)
        assert [] == kept._gathered


async def test_what_turns_out_to_be_no_http_reaches_no_endpoint() -> None:
    async with serving() as served:
        line = await served.connect()
        head = b"POST /lean/filter HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
        line.send(head, b"3\r\nabc\r\nnonsense\r\n")
        told, _ = await line.answer()
        await asyncio.sleep(GRACE_SECONDS * 2)

        assert told.startswith("HTTP/1.1 400 ")
        assert await line.ends()
        assert [] == served.echo.ways


async def test_what_is_under_way_is_finished_at_the_end() -> None:
    async with serving() as served:
        served.echo.open.clear()
        line, half, idle = await served.connect(), await served.connect(), await served.connect()
        line.send(post(b"under way"))
        half.send(post(b"halfway")[:-3])
        await served.echo.begun.wait()
        await asyncio.sleep(GRACE_SECONDS / 4)
        served.running.should_exit = True
        assert await idle.ends()
        half.send(post(b"halfway")[-3:])
        served.echo.open.set()

        for waiting, body in ((line, b"under way"), (half, b"halfway")):
            head, answer = await waiting.answer()
            assert body == answer
            assert "connection: close\r\n" in head
