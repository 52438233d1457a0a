"""Turns for requests that decide nothing. Pages are for people and scrapers; they must cost decisions little.

A page is made in one go on the event loop that decides: metrics of a large cluster take 8 ms, an explanation more. So
one page of a queue is made at a time, followed by a pause some times as long. A request that finds too many waiting is
turned away. Scrapes, reads, requests with a body, and requests that pods wait for have queues of their own. A request
with a body waits for its turn only once the body is there: a client that sends slowly holds up no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import thread_time
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from app.server.bodies import BODY_SECONDS, MOST_BYTES

PAUSES: Final = 4.0
"""Length of a pause as a multiple of the page's processor time: pages get a fifth of the loop at most."""

LONGEST_PAUSE_SECONDS: Final = 1.0
LONGEST_TURN_SECONDS: Final = 10.0
"""Maximum duration of one page, from the beginning of its turn."""

MOST_WAITING: Final = 64

MOST_LONG_BODIES: Final = 4
"""Maximum number of requests with a long body that are read, wait or take their turn: each is up to 4 MiB of memory."""

LONG_BYTES: Final = 64 << 10
"""Length beyond which a body is long. uvicorn buffers as much of a body for each connection anyway."""

NOT_PACED: Final = frozenset({"/livez", "/readyz", "/api/v1/cycle"})
"""Probes cost nothing, and a cycle is a decision."""

_SETTLING: Final = "/api/v1/waiting/"
"""Allow and reject: pods wait for these."""

TOO_MANY: Final = "homeport: too many pages are asked for at once"
TOO_SLOW: Final = "homeport: the page was not made in time"

Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class Pages:
    """The queues of a process; its listeners share them. Pages of one queue never hold up those of another."""

    def __init__(self) -> None:
        self._scraping = _Turns()
        self._reading = _Turns()
        self._asking = _Turns()
        self._settling = _Turns()
        self._long_bodies = asyncio.Semaphore(MOST_LONG_BODIES)

    async def __call__(self, application: Application, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in NOT_PACED:
            await application(scope, receive, send)
        elif scope["method"] in ("GET", "HEAD"):
            turns = self._scraping if scope["path"] == "/metrics" else self._reading
            await _send(await turns.answer(application, scope, receive), scope, receive, send)
        elif (length := _declared(scope)) > MOST_BYTES:
            await application(scope, receive, send)  # refuses it unread
        else:
            await self._read_and_answer(length, application, scope, receive, send)

    async def _read_and_answer(
        self, length: int, application: Application, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Read the body, then take a turn. A body that is not whole takes none: the application refuses it."""
        turns = self._settling if scope["path"].startswith(_SETTLING) else self._asking
        try:
            async with self._place(length):
                repeat, is_whole = await _read_ahead(receive)
                if not is_whole:
                    await application(scope, repeat, send)
                    return
                answer = await turns.answer(application, scope, repeat)
        except TimeoutError:
            answer = TOO_MANY
        except ClientDisconnect:
            return
        await _send(answer, scope, receive, send)

    @asynccontextmanager
    async def _place(self, length: int) -> AsyncIterator[None]:
        """Hold one of the few places for long bodies if the body is long. Raises ``TimeoutError``."""
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
    """Return the length of the body; the greatest that is read where the client does not declare it."""
    headers = Headers(scope=scope)
    length = headers.get("content-length", "")
    if length.isdecimal():
        return int(length)
    return MOST_BYTES if "transfer-encoding" in headers else 0


async def _read_ahead(receive: Receive) -> tuple[Receive, bool]:
    """Read the body in ``BODY_SECONDS``; return what repeats it, and whether it is whole. Raises ``ClientDisconnect``.

    The application reads more of a body that is too long, and gets a ``TimeoutError`` from one that is late.
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
    """Send an answer after its turn, so that a client that reads slowly holds up no other."""
    if isinstance(answer, str):
        await JSONResponse({"detail": answer}, 503, {"Retry-After": "1"})(scope, receive, send)
        return
    for message in answer:
        await send(message)


class _Turns:
    def __init__(self) -> None:
        self._waiting = 0
        self._free = asyncio.Lock()

    async def answer(self, application: Application, scope: Scope, receive: Receive) -> list[Message] | str:
        """Return the messages of the answer, or why there is none."""
        if self._waiting >= MOST_WAITING:
            return TOO_MANY
        answer: list[Message] = []

        async def keep(message: Message) -> None:
            answer.append(message)

        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        started = thread_time()
        try:
            async with asyncio.timeout(LONGEST_TURN_SECONDS):
                await application(scope, receive, keep)
        except TimeoutError:
            answer.clear()
        finally:
            pause = min(PAUSES * (thread_time() - started), LONGEST_PAUSE_SECONDS)
            asyncio.get_running_loop().call_later(pause, self._free.release)
        return answer or TOO_SLOW
