"""A listener on loopback, for servers that a test or a bench runs itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from app.server.access import ListenerAccess
from app.server.listener import Listener, RejectionCallback, listen
from app.server.web import server


def _unheard(_listener: str, _cause: str) -> None:
    """Nobody counts."""


def on_loopback(
    web: Any, port: int = 0, *, most: int = 2000, turned_away: RejectionCallback = _unheard, gives_way: bool = False
) -> Listener:
    """Plain HTTP, for whoever asks this machine by its own name; port 0 takes a free one."""
    access = ListenerAccess("verbs", loopback=True)
    return Listener(listen("127.0.0.1", port), web, access, most=most, on_rejected=turned_away, gives_way=gives_way)


@asynccontextmanager
async def running(
    web: Any, listeners: Sequence[Listener], leave: Callable[[], Awaitable[None]] | None = None
) -> AsyncIterator[uvicorn.Server]:
    """A server of these listeners, from its start to its end."""
    found = server(web, listeners, leave)
    task = asyncio.create_task(found._serve())
    while not found.started:  # noqa: ASYNC110  # uvicorn tells nobody
        await asyncio.sleep(0.001)
    try:
        yield found
    finally:
        found.should_exit = True
        await asyncio.wait_for(task, 20)
