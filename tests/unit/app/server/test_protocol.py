"""Which way a request goes, and that whichever it goes, each is answered, once and in the order of arrival."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.requests import ClientDisconnect

from app.server import deadlines, pages, protocol
from app.server.access import WRONG_NAME, ListenerAccess
from app.server.incoming import CompleteRequest, VerbRequest
from app.server.listener import Listener
from app.server.protocol import GRACE_SECONDS, MOST_BYTES, MOST_HEAD_BYTES, MOST_HEADERS, MOST_PIPELINED, HttpProtocol
from app.server.web import create_web
from app.wire.extender_answers import LongBody
from tests.listening import on_loopback, running

ROOM = 1 << 26
KNOWN = False


class Echo:
    """Answers with the body it got. ``ways``: how each request came. Waits for ``open`` if told so."""

    def __init__(self) -> None:
        self.ways: list[str] = []
        self.headers: list[str | None] = []
        self.arrived: list[float] = []
        self.begun = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()
        self.left = 0

    async def answer(self, request: VerbRequest) -> tuple[int, bytes | LongBody]:
        self.ways.append("short" if isinstance(request, CompleteRequest) else "asgi")
        try:
            return await self._told(request)
        except ClientDisconnect:
            self.left += 1
            raise

    def forbidden(self, message: str) -> tuple[int, bytes]:
        return 200, message.encode()

    async def _told(self, request: VerbRequest) -> tuple[int, bytes | LongBody]:
        assert request.arrived is not None
        self.arrived.append(request.arrived)
        self.headers.append(request.header("x-asked"))
        body = bytes(await request.body(ROOM))
        self.begun.set()
        await self.open.wait()
        return 200, LongBody((body, body), 2 * len(body)) if body == b"long" else body


class Served:
    """A server on loopback with one endpoint, and connections to it."""

    def __init__(self, echo: Echo, running: uvicorn.Server, listener: Listener, turned_away: list[str]) -> None:
        self.echo = echo
        self.running = running
        self.listener = listener
        self.port = listener.port
        self.turned_away = turned_away
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


async def until(holds: Callable[[], object]) -> None:
    """Of what tells nobody. Raises ``TimeoutError``."""
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110  # it tells nobody
            await asyncio.sleep(0.001)


def post(body: bytes, *headers: str, path: str = "/lean/filter", version: str = "1.1") -> bytes:
    lines = (f"POST {path} HTTP/{version}", "Host: localhost", f"Content-Length: {len(body)}", *headers)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@pytest.fixture(autouse=True, params=["a new head", "a known head"])
def _known(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a client sends, it is answered alike where the head of ``post`` is known from another connection."""
    monkeypatch.setattr(sys.modules[__name__], "KNOWN", request.param == "a known head")


async def _make_known(served: Served) -> None:
    line = await served.connect()
    line.send(post(b""))
    await line.answer()
    line.writer.close()
    await until(lambda: not served.running.server_state.connections)
    assert 1 == len(served.listener.heads)
    served.lines.clear()
    served.echo.ways.clear()
    served.echo.headers.clear()
    served.echo.begun.clear()


@asynccontextmanager
async def serving(most: int = 100) -> AsyncIterator[Served]:
    echo = Echo()
    web = create_web((), None, version="test", direct={"/lean/filter": echo})
    turned_away: list[str] = []
    listener = on_loopback(web, most=most, turned_away=lambda _, cause: turned_away.append(cause))
    async with running(web, [listener]) as found:
        served = Served(echo, found, listener, turned_away)
        if KNOWN:
            await _make_known(served)
        try:
            yield served
        finally:
            echo.open.set()
            for line in served.lines:
                line.writer.close()


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


async def test_a_rest_that_is_late_is_read_as_it_comes() -> None:
    async with serving() as served:
        line = await served.connect()
        whole = post(b"abcdef")
        line.send(whole[:-3])
        await until(lambda: served.echo.ways)
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
            b"POST /lean/filter HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
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
    "request_", [post(b"abc", "Connection: close"), post(b"abc", version="1.0")], ids=["asked to", "HTTP/1.0"]
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

        assert [] == connection_of(served)._gathered


async def test_what_turns_out_to_be_no_http_reaches_no_endpoint() -> None:
    async with serving() as served:
        line = await served.connect()
        head = b"POST /lean/filter HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
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


class TestBounds:
    """Whatever is sent, a connection holds little, and not for long."""

    @pytest.fixture
    def hurried(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """No test waits ten seconds."""
        monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.05)
        monkeypatch.setattr(protocol.HttpProtocol._wait_for_head, "__defaults__", (0.05,))

    @pytest.mark.parametrize(
        "head",
        [
            pytest.param(b"POST /" + b"x" * MOST_HEAD_BYTES, id="a request line without end"),
            pytest.param(b"POST /filter HTTP/1.1\r\nX: " + b"y" * MOST_HEAD_BYTES, id="a header without end"),
            pytest.param(b"POST /filter HTTP/1.1\r\n" + b"x: y\r\n" * (MOST_HEAD_BYTES // 4), id="headers without end"),
            pytest.param(b"POST /filter HTTP/1.1\r\n" + b"x: y\r\n" * (MOST_HEADERS + 2), id="many small headers"),
            pytest.param(
                post(b"", "Transfer-Encoding: chunked", version="1.1").replace(b"Content-Length: 0\r\n", b"")
                + b"0\r\n"
                + b"x: y\r\n" * (MOST_HEAD_BYTES // 4),
                id="trailers without end",
            ),
        ],
    )
    @pytest.mark.parametrize("parts", [1, 40])
    async def test_a_head_beyond_the_limit_is_not_read(self, head: bytes, parts: int) -> None:
        async with serving() as served:
            line = await served.connect()
            size = len(head) // parts + 1
            for start in range(0, len(head), size):
                line.send(head[start : start + size])
                await asyncio.sleep(0)
            told = await asyncio.wait_for(line.reader.read(), 10)

            assert told.startswith(b"HTTP/1.1 431 ")
            assert [] == served.echo.ways
            assert ["head_too_long"] == served.turned_away

    async def test_a_head_up_to_the_limit_is_read_behind_a_long_body(self) -> None:
        async with serving() as served:
            line = await served.connect()
            long = "X: " + "y" * (MOST_HEAD_BYTES - 500)
            line.send(post(b"z" * 700_000), post(b"{}", long), post(b"1", long))

            assert [700_000, 2, 1] == [len((await line.answer())[1]) for _ in range(3)]

    async def test_a_trailer_without_end_is_not_kept(self) -> None:
        """Nor where the request is refused, and its body only waited for."""
        async with serving() as served:
            for header in ("X: y", "Origin: http://evil.example"):
                line = await served.connect()
                chunked = post(b"", "Transfer-Encoding: chunked", header).replace(b"Content-Length: 0\r\n", b"")
                line.send(chunked + b"0\r\nX: ")
                for _ in range(8):
                    line.send(b"y" * 10_000)
                    await asyncio.sleep(0)
                told = await asyncio.wait_for(line.reader.read(), 10)

                assert told.startswith(b"HTTP/1.1 431 ")
            assert ["head_too_long"] * 2 == served.turned_away

    @pytest.mark.parametrize(
        "behind",
        [
            pytest.param(b"\x00\r\n\r\n", id="nonsense"),
            pytest.param(post(b"{}", "X: " + "y" * MOST_HEAD_BYTES), id="a long head, with a body"),
        ],
    )
    async def test_nothing_is_answered_in_the_place_of_another(self, behind: bytes) -> None:
        """A bind that is carried out is not told that it was malformed."""
        async with serving() as served:
            served.echo.open.clear()
            line = await served.connect()
            line.send(post(b"{}"))
            await served.echo.begun.wait()
            line.send(behind)

            assert await line.ends()

    async def test_a_connection_that_was_reset_leaves_nothing_behind(self) -> None:
        async with serving() as served:
            line = await served.connect()
            line.send(post(b"{}"))
            await line.answer()
            kept = connection_of(served)
            timer = kept.timeout_keep_alive_task
            plug = line.writer.get_extra_info("socket")
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            line.writer.transport.abort()
            await until(lambda: not served.running.server_state.connections)

            assert timer is not None
            assert timer.cancelled()
            assert [] == kept.headers

    @pytest.mark.usefixtures("hurried")
    @pytest.mark.parametrize(
        ("begun", "cause"),
        [
            pytest.param(b"", [], id="nothing"),
            pytest.param(b"PO", ["head_too_slow"], id="half a request line"),
            pytest.param(post(b"{}") + b"POST /le", ["head_too_slow"], id="a request, and half of one"),
        ],
    )
    async def test_half_a_head_is_not_waited_for(self, begun: bytes, cause: list[str]) -> None:
        async with serving() as served:
            line = await served.connect()
            line.send(begun)
            told = await asyncio.wait_for(line.reader.read(), 10)

            assert told.endswith(b"{}") == (b"{}" in begun)
            assert cause == served.turned_away

    @pytest.mark.usefixtures("hurried")
    async def test_blank_lines_keep_no_connection(self) -> None:
        async with serving() as served:
            line = await served.connect()
            line.send(post(b"{}"))
            assert b"{}" == (await line.answer())[1]
            line.send(b"\r\n")

            assert await line.ends()

    @pytest.mark.usefixtures("hurried")
    async def test_a_request_that_is_late_on_a_kept_connection_is_no_slow_head(self) -> None:
        async with serving() as served:
            line = await served.connect()
            for _ in range(3):
                line.send(post(b"{}"))
                assert b"{}" == (await line.answer())[1]
                await asyncio.sleep(0.1)

            assert [] == served.turned_away

    async def test_a_request_that_is_answered_before_its_end_gets_no_more_time(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pages, "BODY_SECONDS", 0.05)
        async with serving() as served:
            line = await served.connect()
            line.send(b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")

            assert (await line.answer())[0].startswith("HTTP/1.1 404 ")
            assert await line.ends()

    async def test_an_answer_that_is_not_fetched_is_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(deadlines, "UNREAD_SECONDS", 0.05)
        async with serving() as served:
            line = await served.connect()
            line.reader._transport.pause_reading()  # type: ignore[attr-defined]
            while not served.turned_away:
                line.send(post(b"x" * 900_000))
                await asyncio.sleep(0.01)

            assert "answer_not_fetched" == served.turned_away[0]

    async def test_nor_is_one_whose_connection_is_to_be_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What is left fits into the buffer of the transport, which tells nobody."""
        monkeypatch.setattr(deadlines, "UNREAD_SECONDS", 0.05)
        async with serving() as served:
            line = await served.connect()
            line.reader._transport.pause_reading()  # type: ignore[attr-defined]
            kept = connection_of(served)
            kept.transport.set_write_buffer_limits(high=1 << 30)
            line.send(post(b"x" * 900_000) * 20, post(b"x", "Connection: close"))

            await until(lambda: not served.running.server_state.connections)
            assert ["answer_not_fetched"] == served.turned_away

    async def test_connections_beyond_the_limit_are_closed_and_others_live(self) -> None:
        async with serving(most=2) as served:
            first, second, third = [await served.connect() for _ in range(3)]

            assert await third.ends()
            for line in (first, second):
                line.send(post(b"{}"))
                assert b"{}" == (await line.answer())[1]
            assert ["too_many_connections"] == served.turned_away

            first.writer.close()
            await first.writer.wait_closed()
            fourth = await served.connect()
            fourth.send(post(b"{}"))
            assert b"{}" == (await fourth.answer())[1]

    async def test_requests_behind_one_that_is_not_answered_are_few(self) -> None:
        async with serving() as served:
            served.echo.open.clear()
            line = await served.connect()
            line.send(post(b"{}") * (MOST_PIPELINED + 2))

            assert await line.ends()
            assert ["too_many_pipelined"] == served.turned_away

    @pytest.mark.parametrize(
        ("sent", "cause"),
        [
            pytest.param(bytes.fromhex("16030100a5010000a10303"), "tls_on_a_plain_port", id="TLS"),
            pytest.param(b"\x00\x01nonsense\r\n\r\n", "no_http", id="nonsense"),
        ],
    )
    async def test_what_is_no_http_is_told_in_the_log_and_reaches_nobody(self, sent: bytes, cause: str) -> None:
        async with serving() as served:
            line = await served.connect()
            line.send(sent)
            await asyncio.wait_for(line.reader.read(), 10)

            assert [cause] == served.turned_away
            assert [] == served.echo.ways


class TestForbidden:
    """What a listener does not let through reaches nobody, and is told in the words of who asked."""

    @pytest.mark.parametrize(
        "request_",
        [
            pytest.param(post(b"{}", "Origin: http://evil.example"), id="at once"),
            pytest.param(post(b"{}", "Origin: http://evil.example", path="/lean/filter?x=1"), id="with a query"),
        ],
    )
    async def test_a_verb_answers_as_a_verb(self, request_: bytes) -> None:
        async with serving() as served:
            line = await served.connect()
            line.send(request_)

            assert b"homeport: requests from pages of other sites are rejected" == (await line.answer())[1]
            assert await line.ends()
            assert ([], ["forbidden"]) == (served.echo.ways, served.turned_away)

    async def test_who_asks_first_whether_to_send_is_told_not_to(self) -> None:
        async with serving() as served:
            line = await served.connect()
            line.send(post(b"{}", "Origin: http://evil.example", "Expect: 100-continue")[:-2])

            assert b"homeport: requests from pages of other sites are rejected" == (await line.answer())[1]
            assert await line.ends()

    async def test_its_body_is_read_and_not_kept(self) -> None:
        """Else the caller would see a broken connection instead of the answer."""
        async with serving() as served:
            line = await served.connect()
            whole = post(b"x" * 5_000_000, "Origin: http://evil.example")
            line.send(whole[:-3])
            await line.writer.drain()
            kept = connection_of(served)
            assert [] == kept._gathered
            line.send(whole[-3:])

            assert b"homeport: requests from pages of other sites are rejected" == (await line.answer())[1]


class TestKnownHeads:
    """The parser is not asked about what it has said before."""

    @pytest.fixture
    def read(self, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
        """What was taken apart."""
        found: list[bytes] = []
        feed = HttpProtocol._feed

        def noted(self: HttpProtocol, data: bytes) -> None:
            found.append(data)
            feed(self, data)

        monkeypatch.setattr(HttpProtocol, "_feed", noted)
        return found

    async def test_a_head_is_taken_apart_once(self, read: list[bytes]) -> None:
        async with serving() as served:
            for _ in range(2):
                line = await served.connect()
                for body in (b"a", b"", b"b" * 12_345):
                    line.send(post(body, "X-Asked: 1"))
                    assert body == (await line.answer())[1]

            assert [post(b"a", "X-Asked: 1")] == read[-1:]
            assert ["short"] * 6 == served.echo.ways
            assert ["1"] * 6 == served.echo.headers

    async def test_the_rest_of_a_body_is_added(self, read: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(protocol, "GRACE_SECONDS", 60.0)
        async with serving() as served:
            line = await served.connect()
            line.send(post(b"x"))
            await line.answer()
            read.clear()
            whole = post(b"abcdef" * 1000)
            for start in range(0, len(whole), 1500):
                line.send(whole[start : start + 1500])
                await line.writer.drain()
                await asyncio.sleep(GRACE_SECONDS / 20)

            assert b"abcdef" * 1000 == (await line.answer())[1]
            assert ["short", "short"] == served.echo.ways
            assert [] == read

    async def test_a_body_is_no_head(self) -> None:
        """Of a request that came in pieces, the second of which looks like a request."""
        async with serving() as served:
            line = await served.connect()
            inner = post(b"inner", "X-Asked: inner")
            outer = post(inner, "X-Asked: outer")
            line.send(outer[: -len(inner)])
            await line.writer.drain()
            await asyncio.sleep(GRACE_SECONDS / 10)
            line.send(inner, post(b"next", "X-Asked: next"))

            assert inner == (await line.answer())[1]
            assert b"next" == (await line.answer())[1]
            assert all(b"inner" not in it.before + it.after for it in served.listener.heads.values())

    async def test_who_is_let_in_by_a_certificate_is_asked_each_time(
        self, read: list[bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys.modules[__name__], "KNOWN", False)
        names, ours = frozenset({"homeport"}), {"homeport"}
        others = frozenset({"scheduler"})
        access = ListenerAccess(
            "verbs", loopback=True, certified=True, allowed=others, our_names=lambda: frozenset(ours)
        )
        async with serving() as served:
            served.listener.access = access
            line = await served.connect()
            await until(lambda: served.running.server_state.connections)
            connection_of(served)._names = names
            for _ in range(2):
                line.send(post(b"abc"))
                assert b"abc" == (await line.answer())[1]
            assert [post(b"abc")] == read
            ours.clear()
            line.send(post(b"abc"))

            assert WRONG_NAME.encode() == (await line.answer())[1]
            assert await line.ends()

    async def test_more_than_the_body_is_another_request(self, read: list[bytes]) -> None:
        async with serving() as served:
            line = await served.connect()
            line.send(post(b"known"))
            await line.answer()
            read.clear()
            line.send(post(b"first")[:-2])
            await until(lambda: connection_of(served)._begun)
            line.send(post(b"first")[-2:], post(b"second"), post(b"third")[:-1])
            assert b"first" == (await line.answer())[1]
            assert b"second" == (await line.answer())[1]
            line.send(b"d")

            assert b"third" == (await line.answer())[1]
            assert [post(b"first") + post(b"second") + post(b"third")[:-1], b"d"] == read

    async def test_a_request_arrived_with_its_first_byte(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also where its head was known, and the rest of its body was late."""
        async with serving() as served:
            line = await served.connect()
            line.send(post(b"known"))
            await line.answer()
            now = [100.0]
            monkeypatch.setattr(protocol, "monotonic", lambda: now[0])
            line.send(post(b"late")[:-1])
            await until(lambda: connection_of(served)._begun)
            now[0] = 200.0
            await until(lambda: served.echo.ways[1:])
            line.send(b"e")
            assert b"late" == (await line.answer())[1]
            line.send(post(b"next", "X-Asked: next"))
            assert b"next" == (await line.answer())[1]

            assert [100.0, 200.0] == served.echo.arrived[-2:]
            assert "asgi" == served.echo.ways[1]


def connection_of(served: Served) -> HttpProtocol:
    """The only one."""
    (found,) = served.running.server_state.connections
    assert isinstance(found, HttpProtocol)
    return found
