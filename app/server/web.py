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
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from app.server.documentation import DOCS, documentation_router
from app.server.errors import (
    disconnected_response,
    failure_response,
    fault_response,
    http_error_response,
    invalid_response,
)
from app.server.incoming import Endpoint
from app.server.listener import Listener
from app.server.openapi import with_answers
from app.server.pages import PageQueues
from app.server.protocol import HttpProtocol
from app.server.root import root_router
from app.server.routes import verb_router
from app.telemetry.throttle import Throttle
from app.verbs.outcome import VerbFailure

_KEEP_ALIVE_SECONDS: Final = 120
"""Seconds after which an idle connection is closed: longer than the 90 s after which a Go client closes it.

If Homeport closed the connection first, a POST sent at that moment would fail, because Go does not retry a POST.
"""
CLOSE_SECONDS: Final = 14.0
"""Seconds from the first signal until unfinished requests are aborted.

But requests that are unfinished when ``leave`` has ended get at least one more second, and at most
``_MOST_CLOSE_SECONDS``. So they are aborted earlier if ``leave`` ends early.
"""

_MOST_CLOSE_SECONDS: Final = 10.0
"""Maximum seconds that unfinished requests get after ``leave`` has ended."""

_CLOSED: Final = "the handler is closed"
"""Part of the message with which uvloop raises ``RuntimeError`` for a write to a closed transport."""

_LOG: Final = structlog.get_logger(__name__)

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


class Web(FastAPI):
    """Application of one listener. ``direct``: endpoints of the verbs, by path; the fast path calls them too.

    ``pages``: queues for all other requests. ``throttle``: limits the log lines about failed pages.
    """

    direct: Mapping[str, Endpoint]
    pages: PageQueues
    throttle: Throttle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer verbs at once, and all other requests through the page queues, so that pages do not delay decisions.

        A HEAD request of a page is handled like a GET; uvicorn leaves the body out.
        """
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
        elif scope["method"] == "POST" and scope["path"] in self.direct:
            await self._answer(scope, receive, partial(_send_if_open, send))
        else:
            get_scope = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
            await self.pages(self._answer, get_scope, receive, partial(_send_if_open, send))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. After an unexpected exception, answer 500 and log the exception, at most once a minute per
        route.
        """
        try:
            await super().__call__(scope, receive, send)
        except Exception as fault:  # noqa: BLE001  # else uvicorn would log each one with its traceback
            path = str(getattr(scope.get("route"), "path", ""))
            if (held_back := self.throttle.admit(path)) is not None:
                trace = "".join(traceback.format_exception(fault))
                _LOG.error("page failed", path=path, traceback=trace, since_the_last_line=held_back)

    def openapi(self) -> dict[str, Any]:
        return with_answers(super().openapi())


async def _send_if_open(send: Send, message: Message) -> None:
    """Send a message, or drop it if the connection is closed.

    If uvicorn does not know yet that it is closed, uvloop raises an exception, which is ignored.
    """
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
    pages: PageQueues | None = None,
    documented: bool = True,
) -> Web:
    """Create the application of one listener.

    A process passes ``lifespan`` to only one of its applications, and the same ``pages`` to all. ``direct``: endpoints
    of verbs, by path. ``documented``: true to serve /docs and /openapi.json.
    """
    web = Web(
        title="Homeport",
        version=version,
        summary="A Kubernetes scheduler extender: replicas spread, machines come home.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json" if documented else None,
        exception_handlers={
            VerbFailure: failure_response,
            RequestValidationError: invalid_response,
            HTTPException: http_error_response,
            ClientDisconnect: disconnected_response,
            Exception: fault_response,
        },
    )
    web.direct = direct
    web.pages = pages or PageQueues()
    web.throttle = Throttle()
    pages_of_documentation = (documentation_router(),) if documented else ()
    for router in (verb_router(direct), *routers, *pages_of_documentation):
        web.include_router(router)
    web.include_router(root_router(version, partial(_pages_of, web), direct))
    return web


def _pages_of(web: FastAPI) -> dict[str, str]:
    """Return the summary of each page that a browser can open, by path; the documentation first, if it is served.

    Pages with a path parameter or a required query parameter are left out.
    """
    pages = {DOCS: "All endpoints, to read and to try"} if web.openapi_url else {}
    for path, methods in web.openapi()["paths"].items():
        page = methods.get("get")
        if page is not None and "{" not in path and not any(it["required"] for it in page.get("parameters", ())):
            pages[path] = page.get("summary", "")
    return pages


class _Server(uvicorn.Server):
    """Server that continues to serve after the first SIGINT or SIGTERM until ``leave`` has ended, then shuts down as
    uvicorn does.
    """

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
        """Start like uvicorn, but with a protocol, an application and TLS of its own for each listener."""
        self._loop = loop = asyncio.get_running_loop()
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            raise SystemExit(uvicorn.config.STARTUP_FAILURE)
        for listener in self._listeners:
            listener.serve(
                partial(HttpProtocol, listener, self.config, self.server_state, self.lifespan.state, _loop=loop)
            )
        self.servers = cast(
            "list[asyncio.Server]", list(self._listeners)
        )  # uvicorn closes listeners and waits for their end, as it does for asyncio servers
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down like uvicorn, within the time that ``CLOSE_SECONDS`` describes."""
        since = self._signalled_at or monotonic()
        left = CLOSE_SECONDS - (monotonic() - since)
        # uvicorn declares an int, but only passes the value to wait_for, which accepts fractions of a second.
        self.config.timeout_graceful_shutdown = max(1.0, min(left, _MOST_CLOSE_SECONDS))  # type: ignore[assignment]
        await super().shutdown(sockets)
        connections, requests = len(self.server_state.connections), len(self.server_state.tasks)
        _LOG.info("ended", seconds=round(monotonic() - since, 3), connections=connections, requests=requests)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal: begin to leave at the first one; shut down at once, like uvicorn, at a further one."""
        if self._loop is None or self._signalled_at is not None:
            super().handle_exit(sig, frame)
            return
        self._signalled_at = monotonic()
        self._loop.call_soon_threadsafe(
            self._begin_to_leave, sig
        )  # logs in the event loop, because the signal might have interrupted a write to the log

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
    """Serve until SIGINT or SIGTERM.

    ``web``: the application with the lifespan. ``leave``: called after the signal; requests are served until it has
    ended. Requests that are then unfinished get the time that ``CLOSE_SECONDS`` describes, and are aborted after it.
    """
    server(web, listeners, leave).run()


def server(
    web: FastAPI, listeners: Sequence[Listener], leave: Callable[[], Awaitable[None]] | None = None
) -> uvicorn.Server:
    """Create the HTTP server without starting it. Parameters are those of ``run``."""
    config = uvicorn.Config(
        web,
        loop="uvloop",
        http=HttpProtocol,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,  # Homeport's own logging formats uvicorn's lines
        log_level="error",  # the listener logs invalid requests, throttled
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        server_header=False,
        date_header=False,
        proxy_headers=False,
    )
    return _Server(config, listeners, leave)
