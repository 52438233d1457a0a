"""Long work in short steps: the loop is never held up for longer than a few milliseconds.

A decision itself is one step. What it would have to count first (``Unprepared``) is counted before it, in slices; then
it is taken anew, on the picture as it is by then. In the usual case nothing is to be counted, and none of this runs.
Slices take turns, whosever they are: one in each round of the event loop, or many at once would hold it up together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from time import monotonic
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from app.cache.pins import PINS
from app.framework.counts import Unprepared

STEP_SECONDS: Final = 0.004
"""Work done before others get their turn."""

UNPINNED_ATTEMPTS: Final = 4
"""Counting again this often is usual; beyond that others may be taking away what was counted."""

T = TypeVar("T")


class LoopQueue:
    """One at a time, as they arrive, of one event loop: each turn is up to the next ``await`` of who has it."""

    def __init__(self) -> None:
        self._passing = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
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


async def _no_wait() -> None:
    """Where a verb is driven by hand, without an event loop."""


class _LoopState:
    """Of one event loop. ``pinning`` is held by the one call whose counts are not given up."""

    def __init__(self, wait: Callable[[], Awaitable[None]]) -> None:
        self.wait: Final = wait
        self.pinning: Final = asyncio.Lock()


_STATES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopState]] = WeakKeyDictionary()
_ALONE: Final = _LoopState(_no_wait)


def _state() -> _LoopState:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return _ALONE
    found = _STATES.get(loop)
    if found is None:
        found = _STATES[loop] = _LoopState(LoopQueue().wait)
    return found


async def yield_to_loop() -> None:
    """Before a slice of work, whosever: one in each round of the event loop."""
    await _state().wait()


async def decide_prepared(decide: Callable[[], T]) -> T:
    """What ``decide`` says once all that it rests on is counted. Nothing is awaited between its answer and the caller.

    What was counted stays: a call that runs out of time before its turn to decide is gone on with by the next one. Who
    counts again and again, since it asks for more than is kept or others need the room, waits in line for the pins:
    what it asks for from then on is there until it has decided.
    """
    for _ in range(UNPINNED_ATTEMPTS):
        try:
            return decide()
        except Unprepared as missing:
            steps = missing.steps
        await run_stepwise(steps)
    async with _state().pinning:
        try:
            return await _pinned(decide)
        finally:
            PINS.release()


async def _pinned(decide: Callable[[], T]) -> T:
    while True:
        try:
            with PINS.noted():
                return decide()
        except Unprepared as missing:
            steps = missing.steps
        await run_stepwise(steps)


async def run_stepwise(steps: Iterable[object]) -> None:
    """Take all steps, each of them short."""
    await yield_to_loop()
    until = monotonic() + STEP_SECONDS
    for _ in steps:
        if monotonic() > until:
            await yield_to_loop()
            until = monotonic() + STEP_SECONDS
