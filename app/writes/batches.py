"""Delays Bindings under load so that they are sent in batches.

Bindings that are sent together cost kube-apiserver and etcd less CPU: each single Binding wakes a dozen of their
threads, and the Bindings of a batch share this cost. If four Bindings were sent within a window, the next ones are held
until the window ends, their batch is full, or no further Binding joins it. Then they are sent one directly after the
other. Their answers, and the writes of schedulers that follow, arrive together too.

At a low rate, Bindings are sent at once. They are also sent at once while a request waits for a bind, because a held
Binding would delay that request. A client that binds one pod after the other gains nothing from batches. So after two
batches of one Binding in a row, Bindings are sent at once for one second.

The decision is checked when the Binding is sent, after any delay here (``bind_guard``).
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
"""Number of Bindings that must be sent within a window before the next ones are held."""

MOST: Final = 16
"""Maximum number of Bindings in a batch. A full batch is sent before its window ends."""

PAUSE_SECONDS: Final = 1.0
"""Seconds during which no Binding is held after two batches of one Binding in a row."""

_SILENCE: Final = 0.5
"""Fraction of the window. If no Binding joins a batch for this fraction, the batch is sent before its window ends."""


class BindBatches:
    """Delays Bindings and releases them in batches.

    ``window`` is the maximum delay of a Binding in seconds; 0 disables batches. ``observe`` is called with the delay of
    each held Binding, in seconds.
    """

    def __init__(self, window: float, clock: Clock, observe: Callable[[float], None] = lambda _: None) -> None:
        self._window = window
        self._clock = clock
        self._observe = observe
        self._sent: deque[float] = deque(maxlen=FEW)
        self._held: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._window_ends = self._joined = self._holds_from = -inf
        self._awaited = self._single_batches = 0

    async def wait_for_batch(self, seconds_left: float = inf) -> None:
        """Wait until the Binding may be sent.

        ``seconds_left`` is the time left until the deadline of the bind. If it is not longer than the window, the call
        returns at once.
        """
        if not self._window:
            return
        if seconds_left > self._window and (self._held or self._many()):
            await self._hold()
        self._sent.append(self._clock())

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """Context in which a request waits for a bind. Held Bindings are released, and no Binding is held within it."""
        self._awaited += 1
        if self._held:
            self._release_batch()
        try:
            yield
        finally:
            self._awaited -= 1

    def _many(self) -> bool:
        now = self._clock()
        recent = len(self._sent) == FEW and now - self._sent[0] < self._window
        return recent and not self._awaited and now >= self._holds_from

    async def _hold(self) -> None:
        """Hold one Binding until its batch is released. If this Binding fills the batch, release the batch at once."""
        began = self._joined = self._clock()
        if not self._held:
            self._window_ends = self._sent[-1] + self._window
        if len(self._held) + 1 >= MOST:
            self._single_batches = 0
            self._release()
            return
        released = asyncio.get_running_loop().create_future()
        self._held.append(released)
        if self._timer is None:
            self._look_again()
        try:
            await released
        finally:
            if released in self._held:  # only if this bind was cancelled, because a release empties the list
                self._held.remove(released)
        self._observe(self._clock() - began)

    def _look_again(self) -> None:
        """Release the batch if its window has ended or no Binding joined for half a window; else check again later."""
        now = self._clock()
        until = min(self._window_ends, self._joined + self._window * _SILENCE)
        if now < until:
            self._timer = asyncio.get_running_loop().call_later(until - now, self._look_again)
            return
        self._release_batch()

    def _release_batch(self) -> None:
        """Release the batch. After two batches of one Binding in a row, also stop holding for ``PAUSE_SECONDS``."""
        self._single_batches = self._single_batches + 1 if len(self._held) == 1 else 0
        if (
            self._single_batches > 1
        ):  # one batch of a single Binding is tolerated, because the scheduler might have paused
            self._single_batches, self._holds_from = 0, self._clock() + PAUSE_SECONDS
        self._release()

    def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held, self._held = self._held, []
        for released in held:
            if not released.done():  # done if its bind was cancelled in this event-loop iteration
                released.set_result(None)
