"""Has Bindings leave together where many leave.

What a Binding costs kube-apiserver and etcd depends on what comes with it: each that comes by itself wakes a dozen
threads of theirs, and those that come together share it. So once several have left within a moment, the next are held
until that moment is over, and leave one right after the other; so do their answers come, and what schedulers write
about them.

Nothing is held where few leave: a pod by itself is bound as ever. Nor while anybody waits for a bind to settle, or has
waited in the last moments: what would be held is what others wait for. Who binds one pod after the other has nobody to
leave with: that is noticed by nobody joining twice, and then nothing is held for a while either.

The decision is checked when a Binding leaves, not when it begins to be held (``bind_guard``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Final

from app.framework.handle import Clock

FEW: Final = 4
"""So many leave within a window without being held."""

MOST: Final = 16
"""So many leave together at most; they do before the window ends."""

PAUSE_SECONDS: Final = 1.0
"""For so long nothing is held once a bind has had to wait for another, or nobody has joined two held in a row."""

_SILENCE: Final = 0.5
"""Part of the window for which nobody joins: then nobody is to be expected."""


class BindBatches:
    """``window``: for how long a Binding is held at most, in seconds; 0: never.

    ``observe`` is told for how many seconds each was that was held.
    """

    def __init__(self, window: float, clock: Clock, observe: Callable[[float], None] = lambda _: None) -> None:
        self._window = window
        self._clock = clock
        self._observe = observe
        self._left: deque[float] = deque(maxlen=FEW)
        self._held: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._ends = self._joined = self._from = -inf
        self._awaited = self._alone = 0

    async def turn(self, seconds_left: float = inf) -> None:
        """Until a Binding may leave. None is held whose bind may not take that long any more."""
        if not self._window:
            return
        if seconds_left > self._window and (self._held or self._many()):
            await self._hold()
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
        recent = len(self._left) == FEW and now - self._left[0] < self._window
        return recent and not self._awaited and now >= self._from

    async def _hold(self) -> None:
        began = self._joined = self._clock()
        if not self._held:
            self._ends = self._left[-1] + self._window
        if len(self._held) + 1 >= MOST:
            self._release()
            return
        turn = asyncio.get_running_loop().create_future()
        self._held.append(turn)
        if self._timer is None:
            self._look_again()
        try:
            await turn
        finally:
            if turn in self._held:  # its bind is given up
                self._held.remove(turn)
        self._observe(self._clock() - began)

    def _look_again(self) -> None:
        """Let them go when the window ends, or nobody has joined for long; until then a timer comes back here."""
        now = self._clock()
        until = min(self._ends, self._joined + self._window * _SILENCE)
        if now < until:
            self._timer = asyncio.get_running_loop().call_later(until - now, self._look_again)
            return
        self._alone = self._alone + 1 if len(self._held) == 1 else 0
        if self._alone > 1:  # once may be a scheduler that pauses
            self._alone, self._from = 0, now + PAUSE_SECONDS
        self._release()

    def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held, self._held = self._held, []
        for turn in held:
            if not turn.done():  # else its bind was given up in this very step
                turn.set_result(None)
