"""Long computations in short steps, so that the event loop is not blocked for more than a few milliseconds.

A decision is one step. If it needs counts that are not computed yet (``Unprepared``), these are computed in steps
first, and the decision is repeated on the current snapshot. Usually all counts exist, and no step is needed.

Only one step runs per round of the event loop, whichever call it belongs to. Otherwise many calls together would block
the loop.
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
"""Maximum seconds of work before other tasks run."""

UNPINNED_ATTEMPTS: Final = 4
"""Attempts before counts are pinned. More attempts mean that other calls evict the counts that this one needs."""

T = TypeVar("T")


class LoopQueue:
    """Queue of an event loop in which one waiter continues per round, in order of arrival."""

    def __init__(self) -> None:
        self._passing = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Return at once if there are no other waiters; else wait in order, one per round of the event loop."""
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
    """Replacement for ``LoopQueue.wait`` without an event loop, for verbs driven by hand."""


class _LoopState:
    """State of one event loop. ``pinning``: held by the one call whose counts must not be evicted."""

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
    """Wait before a step of work, so that only one step runs per round of the event loop."""
    await _state().wait()


async def decide_prepared(decide: Callable[[], T]) -> T:
    """Return the result of ``decide``, after all counts that it needs have been computed.

    The decision and the caller run without an ``await`` between them. Computed counts stay cached, so the next call
    continues the work of one that timed out. A call whose counts are evicted repeatedly waits for the lock on pins;
    then its counts are not evicted until it has decided.
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
    """Run all steps, each of them short, and let other tasks run in between."""
    await yield_to_loop()
    until = monotonic() + STEP_SECONDS
    for _ in steps:
        if monotonic() > until:
            await yield_to_loop()
            until = monotonic() + STEP_SECONDS
