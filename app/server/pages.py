"""Turns for what decides nothing: pages are for people and scrapers, and cost decisions as little as can be.

A page is made in one go on the loop that decides: metrics of a large cluster take 8 ms, an explanation more. So there
is one at a time, and before the next a pause that is some times as long as it took. Whoever finds too many waiting is
sent away. What anybody may read, what is asked with a body, which may come slowly, and what pods wait for have
queues of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import thread_time
from typing import Final

from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

PAUSES: Final = 4.0
"""Length of a pause by the time that the page took of the loop: pages get a fifth of it at the most."""

LONGEST_PAUSE_SECONDS: Final = 1.0
LONGEST_TURN_SECONDS: Final = 10.0
"""Of one page, the body of its request included."""

MOST_WAITING: Final = 64

NOT_PACED: Final = frozenset({"/livez", "/readyz", "/api/v1/cycle"})
"""Probes cost nothing, and a cycle is a decision."""

_SETTLING: Final = "/api/v1/waiting/"
"""Allow and reject: pods wait for these."""

TOO_MANY: Final = "homeport: too many pages are asked for at once"
TOO_SLOW: Final = "homeport: the page was not made in time"

Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class Pages:
    """The queues of a process; its listeners share them. Nobody's pages hold up what others may ask."""

    def __init__(self) -> None:
        self._scraping = _Turns()
        self._reading = _Turns()
        self._asking = _Turns()
        self._settling = _Turns()

    def _turns(self, scope: Scope) -> _Turns:
        if scope["method"] in ("GET", "HEAD"):
            return self._scraping if scope["path"] == "/metrics" else self._reading
        return self._settling if scope["path"].startswith(_SETTLING) else self._asking

    async def __call__(self, application: Application, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in NOT_PACED:
            await application(scope, receive, send)
        else:
            await self._turns(scope).serve(application, scope, receive, send)


class _Turns:
    def __init__(self) -> None:
        self._waiting = 0
        self._free = asyncio.Lock()

    async def serve(self, application: Application, scope: Scope, receive: Receive, send: Send) -> None:
        """The answer is sent once the turn is over: who fetches it slowly holds up nobody."""
        if self._waiting >= MOST_WAITING:
            await JSONResponse({"detail": TOO_MANY}, 503, {"Retry-After": "1"})(scope, receive, send)
            return
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
        if not answer:
            await JSONResponse({"detail": TOO_SLOW}, 503)(scope, receive, send)
        for message in answer:
            await send(message)
