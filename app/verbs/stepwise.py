"""Runs long computations in short steps, so that the event loop is not blocked for more than a few milliseconds.

A decision is never interrupted. If it uses counts that are not cached, it raises ``Unprepared``. The counts are then
computed in steps, and the decision is repeated on the new snapshot. Usually all counts are cached.

Only one computation continues per event-loop iteration, for all calls together, so that many calls do not block the
loop.
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
"""Number of attempts to decide before counts are pinned in the cache.

Usually, all these attempts fail only if other calls repeatedly evict the counts that this decision uses.
"""

T = TypeVar("T")


class LoopQueue:
    """Queue of tasks before their next step. One task continues per event-loop iteration, in order of arrival."""

    def __init__(self) -> None:
        self._passing = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Return at once if no other task waits or has continued in this iteration; else wait for this task's turn."""
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
    """Return at once. Used without an event loop, by callers that run the coroutine of a verb themselves."""


class _LoopState:
    """State of an event loop. ``wait``: waits until a step can run. ``pinning``: lock held while a call pins counts."""

    def __init__(self, wait: Callable[[], Awaitable[None]]) -> None:
        self.wait: Final = wait
        self.pinning: Final = asyncio.Lock()


_STATES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopState]] = WeakKeyDictionary()
_ALONE: Final = _LoopState(_no_wait)
"""State for callers without an event loop."""


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
    """Wait, if needed, before a long computation continues, so that only one continues per event-loop iteration."""
    await _state().wait()


async def decide_prepared(decide: Callable[[], T]) -> T:
    """Call ``decide`` until all counts that it uses are cached, and return its result.

    Missing counts are computed between two calls. No other task runs between the decision and the return. Computed
    counts stay cached, so if this request times out, the next one needs less time. After ``UNPINNED_ATTEMPTS`` calls
    in vain, the counts are pinned under the lock ``pinning``: they are then not evicted until the decision.
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


async def run_stepwise(steps: Iterable[object], seconds: float | None = None) -> None:
    """Run all steps, which must be short. Other tasks can run before the first step.

    After every ``seconds`` (default ``STEP_SECONDS``), other tasks run before the next step.
    """
    between = STEP_SECONDS if seconds is None else seconds
    await yield_to_loop()
    until = monotonic() + between
    for _ in steps:
        if monotonic() > until:
            await yield_to_loop()
            until = monotonic() + between
