"""Queues for pages: all requests other than verbs, probes and cycle. Pages are for people and scrapers, and must not
delay decisions much.

Decisions and pages run on the same event loop. The metrics of a large cluster take 8 ms, an explanation more. So each
queue computes one page at a time, and then pauses for several times the page's processor time. Only what-ifs need no
pause, because they are computed in a child process. A request is rejected if its queue is full.

Five queues exist: for scrapes, for other reads, for allow and reject of pods that wait at Permit, for what-ifs, and for
other requests with a body. A request is queued once its body is received, so that a slow client does not block others.
A second what-if is rejected at once while one is computed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import thread_time
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from app.server.bodies import BODY_SECONDS, MOST_BYTES
from app.server.failures import error_body

PAUSES: Final = 4.0
"""Pause after a page, as a multiple of the page's processor time. So the pages of a queue take at most a fifth of the
event loop's time, unless ``LONGEST_PAUSE_SECONDS`` shortens a pause.
"""

LONGEST_PAUSE_SECONDS: Final = 1.0
"""Maximum seconds of a pause after a page."""

LONGEST_PAGE_SECONDS: Final = 10.0
"""Maximum seconds to compute one page that is not a what-if, without the time in the queue."""

MOST_WAITING: Final = 64
"""Maximum number of pages that wait in a queue. In the queue of what-ifs, none waits."""

MOST_LONG_BODIES: Final = 4
"""Maximum number of requests with a long body that are read, queued or computed. Each body takes up to 4 MiB."""

LONG_BYTES: Final = 64 << 10
"""A body is long if it is chunked, or if its declared length is larger. uvicorn buffers this many bytes per connection
in any case.
"""

WHAT_IFS: Final = frozenset(f"/api/v1/{it}" for it in ("simulate", "drain", "lose", "rebalance"))
"""Paths of what-ifs, which are computed in a child process."""

LONGEST_WHAT_IF_SECONDS: Final = 65.0
"""Maximum seconds to compute a what-if; longer than the time after which the child process is ended."""

NOT_QUEUED: Final = frozenset({"/livez", "/readyz", "/api/v1/cycle"})
"""Paths that are not queued: probes, because they are cheap, and cycle, because it is a decision like a verb."""

_PERMIT_PATHS: Final = "/api/v1/waiting/"
"""Path prefix of allow and reject, for pods that wait at Permit."""

TOO_MANY: Final = "homeport: too many pages are requested at once"
ONE_AT_A_TIME: Final = "homeport: another what-if is computed now: try again in some seconds"
TOO_SLOW: Final = "homeport: the page was not ready in time"
_BUSY: Final = 503

Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class PageQueues:
    """Queues of a process, shared by its listeners. A page waits only for pages of its own queue.

    A request with a long body also waits until it is one of ``MOST_LONG_BODIES``.
    """

    def __init__(self) -> None:
        self._scrapes = _PageQueue()
        self._reads = _PageQueue()
        self._others = _PageQueue()
        self._permits = _PageQueue()
        self._what_ifs = _PageQueue(0, LONGEST_WHAT_IF_SECONDS, ONE_AT_A_TIME, pauses=0.0)
        self._long_bodies = asyncio.Semaphore(MOST_LONG_BODIES)

    async def __call__(self, application: Application, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request: at once if it is rejected or not queued, else when its turn in its queue comes."""
        if scope["path"] in NOT_QUEUED:
            await application(scope, receive, send)
        elif scope["method"] in ("GET", "HEAD"):
            await _send(
                await self._queue_of_read(scope["path"]).answer(application, scope, receive), scope, receive, send
            )
        elif (length := _declared(scope)) > MOST_BYTES:
            await application(scope, receive, send)  # the endpoint rejects it without reading the body
        else:
            await self._read_and_answer(length, application, scope, receive, send)

    async def _read_and_answer(
        self, length: int, application: Application, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Read the body, then queue the request. A request with an oversized or late body is not queued; the
        application rejects it at once.
        """
        queue = self._queue_of(scope["path"])
        try:
            async with self._place(length):
                repeat, is_whole = await _read_ahead(receive)
                if not is_whole:
                    await application(scope, repeat, send)
                    return
                answer = await queue.answer(application, scope, repeat)
        except TimeoutError:
            answer = TOO_MANY
        except ClientDisconnect:
            return
        await _send(answer, scope, receive, send)

    def _queue_of_read(self, path: str) -> _PageQueue:
        """Return the queue of a GET or HEAD request."""
        if path in WHAT_IFS:
            return self._what_ifs
        return self._scrapes if path == "/metrics" else self._reads

    def _queue_of(self, path: str) -> _PageQueue:
        """Return the queue of a request with any other method than GET and HEAD."""
        if path in WHAT_IFS:
            return self._what_ifs
        return self._permits if path.startswith(_PERMIT_PATHS) else self._others

    @asynccontextmanager
    async def _place(self, length: int) -> AsyncIterator[None]:
        """Hold one of the ``MOST_LONG_BODIES`` slots if the body is long.

        Raises ``TimeoutError`` if no slot becomes free within ``BODY_SECONDS``.
        """
        if length <= LONG_BYTES:
            yield
            return
        async with asyncio.timeout(BODY_SECONDS):
            await self._long_bodies.acquire()
        try:
            yield
        finally:
            self._long_bodies.release()


def _declared(scope: Scope) -> int:
    """Return the declared length of the body in bytes; ``MOST_BYTES`` for a chunked body, 0 if there is no body."""
    headers = Headers(scope=scope)
    length = headers.get("content-length", "")
    if length.isdecimal():
        return int(length)
    return MOST_BYTES if "transfer-encoding" in headers else 0


async def _read_ahead(receive: Receive) -> tuple[Receive, bool]:
    """Read the body within ``BODY_SECONDS``, up to about ``MOST_BYTES``. Return a receiver that repeats the body, and
    whether the body is complete.

    From that receiver, the application can read the rest of an oversized body. For a late body, the receiver raises
    ``TimeoutError``. This function raises ``ClientDisconnect``.
    """
    body = bytearray()
    more, late = True, False
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while more and len(body) <= MOST_BYTES:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                body += message.get("body", b"")
                more = message.get("more_body", False)
    except TimeoutError:
        late = True
    read: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": more}]

    async def repeat() -> Message:
        if read:
            return read.pop()
        if late:
            raise TimeoutError
        return await receive()

    return repeat, not more


async def _send(answer: list[Message] | str, scope: Scope, receive: Receive, send: Send) -> None:
    """Send the messages of a page, or 503 with a reason. The page has already left the queue, so a slow client does not
    block others.
    """
    if isinstance(answer, str):
        body = error_body(scope["path"], _BUSY, answer)
        await Response(body, _BUSY, {"Retry-After": "1"}, "application/json")(scope, receive, send)
        return
    for message in answer:
        await send(message)


class _PageQueue:
    """Queue that computes one page at a time, with a pause after each.

    ``most_waiting``: maximum number of further pages that wait. ``seconds``: maximum time to compute a page.
    ``too_many``: reason for a page that is rejected because the queue is full. ``pauses``: pause after a page, as a
    multiple of its processor time.
    """

    def __init__(
        self,
        most_waiting: int = MOST_WAITING,
        seconds: float = LONGEST_PAGE_SECONDS,
        too_many: str = TOO_MANY,
        pauses: float = PAUSES,
    ) -> None:
        self._pauses = pauses
        self._most_waiting = most_waiting
        self._seconds = seconds
        self._too_many = too_many
        self._waiting = 0
        self._free = asyncio.Lock()

    async def answer(self, application: Application, scope: Scope, receive: Receive) -> list[Message] | str:
        """Compute a page and return its ASGI messages, or the reason why it was not computed."""
        if self._free.locked() and self._waiting >= self._most_waiting:
            return self._too_many
        answer: list[Message] = []

        async def collect(message: Message) -> None:
            answer.append(message)

        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        started = thread_time()
        try:
            async with asyncio.timeout(self._seconds):
                await application(scope, receive, collect)
        except TimeoutError:
            answer.clear()
        finally:
            pause = min(self._pauses * (thread_time() - started), LONGEST_PAUSE_SECONDS)
            if pause:
                asyncio.get_running_loop().call_later(pause, self._free.release)
            else:
                self._free.release()
        return answer or TOO_SLOW
