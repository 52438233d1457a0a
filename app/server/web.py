"""Assembles the HTTP application, and runs it."""

from __future__ import annotations

import asyncio
import signal
import socket
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from time import monotonic
from types import FrameType
from typing import Any, Final, cast

import structlog
import uvicorn
from fastapi import APIRouter, FastAPI
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from app.server.documentation import DOCS, documentation_router
from app.server.errors import disconnected_response, failure_response
from app.server.incoming import Endpoint
from app.server.listener import Listener
from app.server.openapi import with_answers
from app.server.pages import Pages
from app.server.protocol import HttpProtocol
from app.server.root import root_router
from app.server.routes import verb_router
from app.telemetry.throttle import Throttle
from app.verbs.outcome import VerbFailure

_KEEP_ALIVE_SECONDS: Final = 120
"""Go drops an idle connection after 90 s and does not retry a POST on one that we dropped first."""
CLOSE_SECONDS: Final = 14.0
"""From the first signal until what clients have not finished by then is given up."""

_MOST_CLOSE_SECONDS: Final = 10.0
_CLOSED: Final = "the handler is closed"
"""End of uvloop's message about a write to a transport that is closed."""

_LOG: Final = structlog.get_logger(__name__)

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


class Web(FastAPI):
    """An application with all its routes. ``direct``, by path: what a POST reaches in the short way too."""

    direct: Mapping[str, Endpoint]
    pages: Pages
    throttle: Throttle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """All but calls of the verbs takes turns: no page is worth a decision that is late.

        HEAD is answered wherever GET is; uvicorn, which knows what was asked, leaves the body out.
        """
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
        elif scope["method"] == "POST" and scope["path"] in self.direct:
            await self._answer(scope, receive, partial(_send_if_open, send))
        else:
            asked = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
            await self.pages(self._answer, asked, receive, partial(_send_if_open, send))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. An unexpected fault is answered with 500 and logged, each route's once a minute."""
        try:
            await super().__call__(scope, receive, send)
        except Exception as fault:  # noqa: BLE001  # uvicorn would log each with its traceback, however often it is caused
            path = str(getattr(scope.get("route"), "path", ""))
            if (held_back := self.throttle.admit(path)) is not None:
                trace = "".join(traceback.format_exception(fault))
                _LOG.error("page failed", path=path, traceback=trace, since_the_last_line=held_back)

    def openapi(self) -> dict[str, Any]:
        return with_answers(super().openapi())


async def _send_if_open(send: Send, message: Message) -> None:
    """Send to a connection. One that closed without a word to uvicorn yet makes uvloop raise; there is no reader."""
    try:
        await send(message)
    except RuntimeError as error:
        if _CLOSED not in str(error):
            raise


def create_web(
    routers: Iterable[APIRouter],
    lifespan: Lifespan | None,
    *,
    version: str,
    direct: Mapping[str, Endpoint],
    pages: Pages | None = None,
    documented: bool = True,
) -> Web:
    """The application of a listener. One of them has the lifespan; ``pages`` is shared by those of a process.

    ``direct``: the verbs' endpoints by path. ``documented``: with /docs and /openapi.json.
    """
    web = Web(
        title="Homeport",
        version=version,
        summary="A Kubernetes scheduler extender: replicas spread, machines come home.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json" if documented else None,
        exception_handlers={VerbFailure: failure_response, ClientDisconnect: disconnected_response},
    )
    web.direct = direct
    web.pages = pages or Pages()
    web.throttle = Throttle()
    pages_of_documentation = (documentation_router(),) if documented else ()
    for router in (verb_router(direct), *routers, *pages_of_documentation):
        web.include_router(router)
    web.include_router(root_router(version, partial(_pages_of, web), direct))
    return web


def _pages_of(web: FastAPI) -> dict[str, str]:
    """What a person can open, by path: its summary. First the documentation of all of it, if it is there."""
    found = {DOCS: "All endpoints, to read and to try"} if web.openapi_url else {}
    for path, methods in web.openapi()["paths"].items():
        if "get" in methods and "{" not in path:
            found[path] = methods["get"].get("summary", "")
    return found


class _Server(uvicorn.Server):
    """On the first SIGINT or SIGTERM it serves on until ``leave`` has ended, and only then ends as uvicorn does."""

    def __init__(
        self, config: uvicorn.Config, listeners: Sequence[Listener], leave: Callable[[], Awaitable[None]] | None
    ) -> None:
        super().__init__(config)
        self._listeners = listeners
        self._leave = leave
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._signalled_at: float | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, with a protocol, an application and TLS for each listener."""
        self._loop = loop = asyncio.get_running_loop()
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            raise SystemExit(uvicorn.config.STARTUP_FAILURE)
        for it in self._listeners:
            it.serve(partial(HttpProtocol, it, self.config, self.server_state, self.lifespan.state, _loop=loop))
        self.servers = cast("list[asyncio.Server]", list(self._listeners))  # closed, and waited for, as servers are
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        since = self._signalled_at or monotonic()
        left = CLOSE_SECONDS - (monotonic() - since)
        # It is handed to wait_for, which takes parts of a second too.
        self.config.timeout_graceful_shutdown = max(1.0, min(left, _MOST_CLOSE_SECONDS))  # type: ignore[assignment]
        await super().shutdown(sockets)
        connections, requests = len(self.server_state.connections), len(self.server_state.tasks)
        _LOG.info("ended", seconds=round(monotonic() - since, 3), connections=connections, requests=requests)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._loop is None or self._signalled_at is not None:
            super().handle_exit(sig, frame)
            return
        self._signalled_at = monotonic()
        self._loop.call_soon_threadsafe(self._begin_to_leave, sig)  # a handler may have broken into a line of the log

    def _begin_to_leave(self, sig: int) -> None:
        _LOG.info("ending", signal=signal.Signals(sig).name)
        self._leaving = asyncio.get_running_loop().create_task(self._leave_and_end(sig))

    async def _leave_and_end(self, sig: int) -> None:
        try:
            if self._leave is not None:
                await self._leave()
        finally:
            super().handle_exit(sig, None)


def run(web: FastAPI, listeners: Sequence[Listener], leave: Callable[[], Awaitable[None]] | None = None) -> None:
    """Serve until SIGINT or SIGTERM; requests under way are finished, until ``CLOSE_SECONDS`` after it.

    ``web`` has the lifespan. ``leave`` runs first, while all is still served.
    """
    server(web, listeners, leave).run()


def server(
    web: FastAPI, listeners: Sequence[Listener], leave: Callable[[], Awaitable[None]] | None = None
) -> uvicorn.Server:
    """The HTTP server, not yet running."""
    config = uvicorn.Config(
        web,
        loop="uvloop",
        http=HttpProtocol,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,  # its lines leave as all others do
        log_level="error",  # what strangers send is told by the listener, now and then
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        server_header=False,
        date_header=False,
        proxy_headers=False,
    )
    return _Server(config, listeners, leave)
