"""Assembles the HTTP application, and runs it."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from time import monotonic
from types import FrameType
from typing import Any, Final

import structlog
import uvicorn
from fastapi import APIRouter, FastAPI
from starlette.types import Receive, Scope, Send

from app.server.openapi import with_verbs
from app.server.protocol import Endpoint, HttpProtocol

_KEEP_ALIVE_SECONDS: Final = 120
"""Go drops an idle connection after 90 s and does not retry a POST on one that we dropped first."""
_BACKLOG: Final = 2048
_LOG: Final = structlog.get_logger(__name__)


Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


class _Web(FastAPI):
    direct: Mapping[str, Endpoint]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """POSTs to the verbs go straight to them: routes and middleware cost a call as much as its decision."""
        endpoint = self.direct.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        await (endpoint or super().__call__)(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """With the verbs, which are raw routes."""
        return with_verbs(super().openapi())


def create_web(
    routers: Iterable[APIRouter], lifespan: Lifespan, *, version: str, direct: Mapping[str, Endpoint]
) -> FastAPI:
    """The application with all its routes. ``direct``, by path: what a POST reaches without being routed."""
    web = _Web(
        title="Homeport",
        version=version,
        summary="A Kubernetes scheduler extender: replicas spread, machines come home.",
        lifespan=lifespan,
    )
    web.direct = direct
    for router in routers:
        web.include_router(router)
    return web


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises ``OSError`` with a sentence."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None


class _Server(uvicorn.Server):
    """On the first SIGINT or SIGTERM it serves on until ``leave`` has ended, and only then ends as uvicorn does."""

    def __init__(self, config: uvicorn.Config, leave: Callable[[], Awaitable[None]] | None) -> None:
        super().__init__(config)
        self._leave = leave
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._told = False
        self._ending_since: float | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets=sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        since = self._ending_since or monotonic()
        await super().shutdown(sockets)
        connections, requests = len(self.server_state.connections), len(self.server_state.tasks)
        _LOG.info("ended", seconds=round(monotonic() - since, 3), connections=connections, requests=requests)

    def _say_ending(self, sig: int) -> None:
        _LOG.info("ending", signal=signal.Signals(sig).name)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._loop is not None and self._ending_since is None:
            self._ending_since = monotonic()
            self._loop.call_soon_threadsafe(self._say_ending, sig)  # a handler may have broken into a line
        if self._leave is None or self._loop is None or self._told:
            super().handle_exit(sig, frame)
            return
        self._told = True
        self._loop.call_soon_threadsafe(self._begin_to_leave, self._leave, sig)

    def _begin_to_leave(self, leave: Callable[[], Awaitable[None]], sig: int) -> None:
        async def leave_and_end() -> None:
            try:
                await leave()
            finally:
                super(_Server, self).handle_exit(sig, None)

        self._leaving = asyncio.get_running_loop().create_task(leave_and_end())


def run(web: FastAPI, listening: socket.socket, leave: Callable[[], Awaitable[None]] | None = None) -> None:
    """Serve until SIGINT or SIGTERM; requests under way are finished. ``leave`` runs first, while it still serves."""
    server(web, leave).run(sockets=[listening])


def server(web: FastAPI, leave: Callable[[], Awaitable[None]] | None = None) -> uvicorn.Server:
    """The HTTP server, not yet running."""
    config = uvicorn.Config(
        web,
        loop="uvloop",
        http=HttpProtocol,
        lifespan="on",
        access_log=False,
        log_config=None,  # its lines leave as all others do
        log_level="warning",
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        backlog=_BACKLOG,
        server_header=False,
        date_header=False,
        proxy_headers=False,
    )
    return _Server(config, leave)
