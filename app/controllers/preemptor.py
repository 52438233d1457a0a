"""State of refused pods for which Homeport can evict others, their order, and the Events about them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from heapq import heappop, heappush
from itertools import count
from typing import Final

from app.framework.background import next_delay
from app.framework.events import EventRecorder, Reference
from app.kube.core_v1 import Pod

_MOST_NAMED: Final = 5
_FIRST_DELAY_SECONDS: Final = 0.5
LONGEST_DELAY_SECONDS: Final = 15.0
"""Maximum delay between two attempts to evict others for a pod. It doubles from ``_FIRST_DELAY_SECONDS``."""

_MOST_RETRIES: Final = 20
"""Maximum number of attempts that ``retry_later`` schedules for a pod. Their delays add up to four minutes.
kube-scheduler itself retries the pod after five.
"""


class Preemptor:
    """Refused pod. ``names`` returns the nodes of the last refused request. Times are on the controller's clock.

    ``calls``: number of preempt calls in progress. ``helped``: true if the scheduler itself evicts pods for it.
    ``excluded``: nodes that are no candidates, each until a time. ``moved`` is set after each call for the pod, and for
    another attempt at once. ``over``: true if the pod passed the filters. ``retry_at``: time of the next attempt if no
    call comes; ``None`` for none.
    """

    def __init__(self, pod: Pod, names: Callable[[], Iterable[str]], now: float) -> None:
        self.pod = pod
        self.names = names
        self.refused_at = now
        self.calls = 0
        self.helped = False
        self.over = False
        self.excluded: dict[str, float] = {}
        self.moved = asyncio.Event()
        self.retry_at: float | None = None
        self.task: asyncio.Task[None] | None = None
        self._delay = 0.0
        self._retries = 0

    async def is_called(self, seconds: float) -> bool:
        """Wait until ``moved`` is set; return false if it is not set within ``seconds``."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.moved.wait(), seconds)
        return self.moved.is_set()

    def excluded_now(self, now: float) -> set[str]:
        return {name for name, until in self.excluded.items() if until > now}

    def retry_later(self, now: float) -> None:
        """Set the time of another attempt, because the cause of a failed one can pass without a call for the pod. After
        ``_MOST_RETRIES`` calls of this method, no attempt follows.
        """
        self._retries += 1
        self._delay = next_delay(self._delay, _FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS)
        self.retry_at = now + self._delay if self._retries <= _MOST_RETRIES else None


class PriorityLock:
    """Lock that goes to the waiting task with the highest priority; among equals, to the one that waits longest."""

    def __init__(self) -> None:
        self._is_held = False
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._number = count()

    @asynccontextmanager
    async def held(self, priority: int) -> AsyncIterator[None]:
        if self._is_held:
            turn = asyncio.get_running_loop().create_future()
            heappush(self._waiting, (-priority, next(self._number), turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._release()
                raise
        self._is_held = True
        try:
            yield
        finally:
            self._release()

    def _release(self) -> None:
        while self._waiting:
            _, _, turn = heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)  # the lock stays held: it passes to the task of ``turn``
                return
        self._is_held = False


def record_victim(events: EventRecorder, pod: Pod, victim: Pod, node: str) -> None:
    """Write an Event on a victim that was evicted for ``pod``."""
    note = f"Preempted by pod {pod} on node {node}: only topology spread rejected that pod"
    events.event(Reference.to_pod(victim), Reference.to_pod(pod), "Normal", "Preempted", "Preempting", note)


def record_preemptor(events: EventRecorder, pod: Pod, node: str, victims: Sequence[Pod]) -> None:
    """Write an Event on the pod for which others were evicted. ``victims`` must not be empty."""
    named = ", ".join(map(str, victims[:_MOST_NAMED]))
    more = len(victims) - _MOST_NAMED
    named += f" and {more} more" if more > 0 else ""
    note = f"Evicted {named} on node {node}, because only topology spread rejected this pod there"
    related = Reference.to_pod(victims[0])
    events.event(Reference.to_pod(pod), related, "Normal", "Preempting", "Preempting", note)
