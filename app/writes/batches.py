"""Has Bindings leave together where many leave.

What a Binding costs kube-apiserver and etcd depends on what comes with it: each that comes by itself wakes a dozen
threads of theirs, and those that come together share it. So once several have left within a moment, the next are held
until that moment is over, and leave at once; so do their answers come, and what schedulers write about them.

Nothing is held where few leave: a pod by itself is bound as ever. Nor while a bind waits for another to settle, or has
waited in the last moments: what would be held is what others wait for.
The decision is checked when a Binding leaves, not when it begins to be held (``bind_guard``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Final

from app.framework.interface import Clock

FEW: Final = 4
"""So many leave within a window without being held."""

MOST: Final = 16
"""So many are held at most; they leave before the window ends."""

PAUSE_SECONDS: Final = 1.0
"""For so long nothing is held once a bind has had to wait for another."""


class BindBatches:
    """``window``: for how long a Binding is held at most, in seconds; 0: never. ``held`` is told of each that is."""

    def __init__(self, window: float, clock: Clock, held: Callable[[], None] = lambda: None) -> None:
        self._window = window
        self._clock = clock
        self._tell = held
        self._left: deque[float] = deque(maxlen=FEW)
        self._waiting: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._awaited = 0
        self._from = -inf

    async def turn(self) -> None:
        """Until a Binding may leave."""
        if self._window:
            if self._waiting or (self._many() and not self._awaited):
                await self._held()
            self._left.append(self._clock())

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """While somebody waits for a bind to settle, and a moment longer: what is held leaves, and nothing is held."""
        self._awaited += 1
        self._release()
        try:
            yield
        finally:
            self._awaited -= 1
            self._from = self._clock() + PAUSE_SECONDS

    def _many(self) -> bool:
        now = self._clock()
        return len(self._left) == FEW and now - self._left[0] < self._window and now >= self._from

    async def _held(self) -> None:
        self._tell()
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if len(self._waiting) >= MOST:
            self._release()
        elif self._timer is None:
            self._timer = loop.call_later(self._left[-1] + self._window - self._clock(), self._release)
        await turn

    def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            if not turn.done():  # whose bind was given up
                turn.set_result(None)
