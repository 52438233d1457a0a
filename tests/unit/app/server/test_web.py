"""A process that is told to end first does what has to be done while it still serves."""

from __future__ import annotations

import asyncio
import signal

import httpx
from fastapi import FastAPI

from app.server.web import listen, server


async def test_it_serves_until_it_has_left() -> None:
    web, leaving, left = FastAPI(), asyncio.Event(), asyncio.Event()

    async def leave() -> None:
        leaving.set()
        await left.wait()

    listening = listen("127.0.0.1", 0)
    running = server(web, leave)
    serving = asyncio.create_task(running._serve(sockets=[listening]))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/nothing"
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


async def test_a_second_signal_does_not_wait() -> None:
    async def leave() -> None:
        await asyncio.Event().wait()

    listening = listen("127.0.0.1", 0)
    running = server(FastAPI(), leave)
    serving = asyncio.create_task(running._serve(sockets=[listening]))
    while not running.started:  # noqa: ASYNC110  # uvicorn tells nobody
        await asyncio.sleep(0.001)
    running.handle_exit(signal.SIGTERM, None)
    running.handle_exit(signal.SIGTERM, None)

    await serving
    assert running.should_exit
