"""A listener goes on accepting connections whatever is raised while it accepts one, and reports it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.server.incoming import VerbRequest
from app.server.listener import AcceptedConnection
from app.server.web import create_web
from app.telemetry import background
from tests.listening import on_loopback, running


class Greeter(AcceptedConnection):
    """Sends a byte and closes."""

    def connection_made(self, transport: Any) -> None:
        transport.write(b"!")
        transport.close()


async def received(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("most", [pytest.param(1, id="taking a connection"), pytest.param(0, id="turning one away")])
async def test_a_fault_costs_one_connection_and_is_logged(
    most: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(background, "AGAIN_SECONDS", 0.01)
    accepted: list[bool] = []

    def fail_once(*_: object) -> None:
        accepted.append(True)
        if len(accepted) == 1:
            raise ZeroDivisionError("too bad")

    def connect() -> Greeter:
        fail_once()
        return Greeter()

    listener = on_loopback(None, most=most, turned_away=fail_once)
    listener.serve(connect)
    try:
        assert [b"", b"!" if most else b""] == [await received(listener.port) for _ in range(2)]
    finally:
        listener.close()
        await listener.wait_closed()

    told = capsys.readouterr().out
    assert (2, 1, True) == (len(accepted), told.count("background task ended"), "too bad" in told)


MOST = 6
ASK = b"POST /filter HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
PROBE = b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Held:
    """An endpoint whose answers wait until ``open`` is set."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.asked = asyncio.Event()

    async def answer(self, request: VerbRequest) -> tuple[int, bytes]:
        self.asked.set()
        await self.open.wait()
        return 200, b"{}"

    def forbidden(self, message: str) -> tuple[int, bytes]:
        return 403, message.encode()


class Line:
    """An open connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answered(self) -> bool:
        """Return whether an answer came, and not the end."""
        try:
            return (await asyncio.wait_for(self.reader.read(4096), 10)).startswith(b"HTTP/1.1 ")
        except ConnectionResetError:
            return False


class Served:
    """A listener that gives way, the endpoint behind it, and connections to it."""

    def __init__(self) -> None:
        self.held = Held()
        self.turned_away: list[str] = []
        web = create_web((), None, version="test", direct={"/filter": self.held})
        self.listener = on_loopback(
            web, most=MOST, turned_away=lambda _, cause: self.turned_away.append(cause), gives_way=True
        )
        self.web = web
        self.lines: list[Line] = []

    async def connect(self, first: bytes) -> Line:
        """Open a connection, send ``first`` and leave it open."""
        line = Line(*await asyncio.open_connection("127.0.0.1", self.listener.port))
        self.lines.append(line)
        line.writer.write(first)
        return line


@asynccontextmanager
async def giving_way() -> AsyncIterator[Served]:
    served = Served()
    async with running(served.web, [served.listener]):
        try:
            yield served
        finally:
            served.held.open.set()
            for line in served.lines:
                line.writer.close()


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(PROBE, id="that asked once"),
        pytest.param(b"", id="that say nothing"),
        pytest.param(b"GET /no", id="with half a head"),
        pytest.param(b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf", id="with half a body"),
    ],
)
async def test_idle_connections_never_keep_a_new_one_out(first: bytes) -> None:
    async with giving_way() as served:
        for _ in range(2 * MOST):
            stranger = await served.connect(first)
            assert first is not PROBE or await stranger.answered()
            assert await (await served.connect(PROBE)).answered()
        assert {"gave_way"} == {it for it in served.turned_away if it != "body_cut_off"}


@pytest.mark.parametrize("first", [PROBE, ASK, b"GET /no", b"", b"\xff\r\n\r\n"])
async def test_a_connection_that_ended_needs_no_garbage_collection(first: bytes) -> None:
    """What a long collection leaves is not looked at again: ``app.feeds.collecting``."""
    async with giving_way() as served:
        served.held.open.set()
        gc.collect()
        gc.disable()
        try:
            line = await served.connect(first)
            while not connections():  # noqa: ASYNC110  # nobody tells
                await asyncio.sleep(0.001)
            if first in (PROBE, ASK):
                assert await line.answered()
            line.writer.close()
            async with asyncio.timeout(10):
                while connections():  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
        finally:
            gc.enable()


def connections() -> int:
    """How many the server has, those included that ended and wait for a collection."""
    return sum(isinstance(it, AcceptedConnection) for it in gc.get_objects())


async def test_the_longest_idle_gives_way_and_no_request_that_is_worked_on() -> None:
    async with giving_way() as served:
        working = await served.connect(ASK)
        await served.held.asked.wait()
        idle = [await served.connect(PROBE) for _ in range(MOST - 1)]
        assert all([await it.answered() for it in idle])
        new = await served.connect(b"")
        assert not await idle[0].answered()
        others = [await served.connect(PROBE) for _ in range(MOST - 2)]
        assert all([await it.answered() for it in others])
        new.writer.write(PROBE)
        served.held.open.set()

        assert await working.answered()
        assert await new.answered()
        assert not any([await it.answered() for it in idle[1:]])


async def test_where_all_are_worked_on_a_new_one_is_turned_away() -> None:
    async with giving_way() as served:
        lines = []
        for _ in range(MOST):
            served.held.asked.clear()
            lines.append(await served.connect(ASK))
            await served.held.asked.wait()
        assert not await (await served.connect(PROBE)).answered()
        assert ["too_many_connections"] == served.turned_away
        served.held.open.set()
        assert all([await it.answered() for it in lines])
