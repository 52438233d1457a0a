"""A process that is told to end first does what has to be done while it still serves."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from app.server.incoming import Incoming
from app.server.pages import Application, Pages
from app.server.web import create_web, server
from tests.listening import on_loopback


async def test_it_serves_until_it_has_left() -> None:
    web, leaving, left = FastAPI(), asyncio.Event(), asyncio.Event()

    async def leave() -> None:
        leaving.set()
        await left.wait()

    listener = on_loopback(web)
    running = server(web, [listener], leave)
    serving = asyncio.create_task(running._serve())
    url = f"http://127.0.0.1:{listener.port}/nothing"
    while not running.started:  # noqa: ASYNC110  # uvicorn tells nobody
        await asyncio.sleep(0.001)
    running.handle_exit(signal.SIGTERM, None)
    await leaving.wait()
    async with httpx.AsyncClient(trust_env=False) as http:
        assert 404 == (await http.get(url)).status_code
    assert not running.should_exit

    left.set()
    await serving
    assert running.should_exit


@pytest.mark.parametrize("leave", [None, lambda: asyncio.sleep(0)])
async def test_the_end_is_told(leave: Callable[[], Awaitable[None]] | None) -> None:
    """The signal, and at the end how long it took and what was left."""
    web = FastAPI()
    running = server(web, [on_loopback(web)], leave)
    with capture_logs() as logs:
        serving = asyncio.create_task(running._serve())
        while not running.started:  # noqa: ASYNC110  # uvicorn tells nobody
            await asyncio.sleep(0.001)
        running.handle_exit(signal.SIGTERM, None)
        await serving

    ending, ended = logs
    assert {"log_level": "info", "event": "ending", "signal": "SIGTERM"} == ending
    assert 0 <= ended.pop("seconds")
    assert {"log_level": "info", "event": "ended", "connections": 0, "requests": 0} == ended


async def test_a_second_signal_does_not_wait() -> None:
    async def leave() -> None:
        await asyncio.Event().wait()

    web = FastAPI()
    running = server(web, [on_loopback(web)], leave)
    serving = asyncio.create_task(running._serve())
    while not running.started:  # noqa: ASYNC110  # uvicorn tells nobody
        await asyncio.sleep(0.001)
    running.handle_exit(signal.SIGTERM, None)
    running.handle_exit(signal.SIGTERM, None)

    await serving
    assert running.should_exit


class Endpoint:
    async def answer(self, request: Incoming) -> tuple[int, bytes]:
        return 200, b"{}"

    def forbidden(self, message: str) -> tuple[int, bytes]:
        return 403, message.encode()


class Queue(Pages):
    """Notes who takes a turn, and lets him through."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[str, str]] = []

    async def __call__(self, application: Application, scope: Scope, receive: Receive, send: Send) -> None:
        self.taken.append((scope["method"], scope["path"]))
        await application(scope, receive, send)


async def test_a_call_of_a_verb_waits_for_no_page() -> None:
    """Only the call itself: who asks for a verb as for a page takes his turn."""
    pages = Queue()
    web = create_web((), None, version="test", direct={"/filter": Endpoint()}, pages=pages)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://homeport") as http:
        told = [
            (await http.request(method, path)).status_code
            for method, path in (("POST", "/filter"), ("GET", "/filter"), ("HEAD", "/"), ("GET", "/nothing"))
        ]

    assert [200, 405, 200, 404] == told
    assert [("GET", "/filter"), ("GET", "/"), ("GET", "/nothing")] == pages.taken
