"""One at a time, in the order of arrival: many at once would hold up the event loop together."""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """Of one event loop: each turn is up to the next ``await`` of who has it."""

    def __init__(self) -> None:
        self._passing = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """At once for the only one; else in the order of arrival, one in each round of the event loop."""
        loop = asyncio.get_running_loop()
        if not self._passing:
            self._passing = True
            loop.call_soon(self._next)
            return
        place = loop.create_future()
        self._waiting.append(place)
        await place

    def _next(self) -> None:
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                asyncio.get_running_loop().call_soon(self._next)
                return
        self._passing = False
