"""Runs long computations in short steps, so that the event loop is not blocked for more than a few milliseconds.

A decision itself is not interrupted. If it uses counts that are not cached (``Unprepared``), these are computed in
steps first, and the decision is repeated on the snapshot of that time. Usually all counts are cached.

Only one of these steps runs per event-loop iteration, whichever call it belongs to. Otherwise the steps of many calls
together would block the loop.
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
"""Seconds after which a computation lets other tasks run, before its next step."""

UNPINNED_ATTEMPTS: Final = 4
"""Number of attempts to decide before counts are pinned. If so many fail, other calls evict the counts that this
decision uses.
"""

T = TypeVar("T")


class LoopQueue:
    """Queue from which one task continues per event-loop iteration, in order of arrival."""

    def __init__(self) -> None:
        self._passing = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Return at once if no other task has passed in this iteration and none waits; else wait in order."""
        loop = asyncio.get_running_loop()
        if not self._passing:
            self._passing = True
            loop.call_soon(self._next)
            return
        waiter = loop.create_future()
        self._waiting.append(waiter)
        await waiter

    def _next(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                asyncio.get_running_loop().call_soon(self._next)
                return
        self._passing = False


async def _no_wait() -> None:
    """Return at once. Used without an event loop, if a caller runs the coroutine of a verb step by step itself."""


class _LoopState:
    """State of one event loop. ``wait``: queue for steps. ``pinning``: lock of the one call that pins its counts."""

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
    state = _STATES.get(loop)
    if state is None:
        state = _STATES[loop] = _LoopState(LoopQueue().wait)
    return state


async def yield_to_loop() -> None:
    """Wait before a step of a long computation, so that only one of these steps runs per event-loop iteration."""
    await _state().wait()


async def decide_prepared(decide: Callable[[], T]) -> T:
    """Call ``decide`` until all counts that it uses are cached, and return its result.

    Missing counts are computed between two calls. The caller continues without an ``await`` after the decision.
    Computed counts stay cached, so the next request continues the work of one that timed out. If counts are evicted
    repeatedly, wait for the lock ``pinning``; then they are not evicted until the decision.
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
    """Run all steps; let other tasks run before the first one and after every ``STEP_SECONDS``. Each must be short."""
    await yield_to_loop()
    until = monotonic() + STEP_SECONDS
    for _ in steps:
        if monotonic() > until:
            await yield_to_loop()
            until = monotonic() + STEP_SECONDS
