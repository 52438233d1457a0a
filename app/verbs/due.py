"""Lets a decision wait a moment for a bind that is due.

kube-scheduler asks about the next pod while the bind of the last one is still on its way to us. Deciding without it
leads to a conflict at bind, which costs the pod seconds of back-off, and to scores that pile up pods. So: a pod that
was told of a node in the last moments and has no bind yet is *due*; a filter whose hard constraints depend on where it
went waits for it, briefly, and so does a prioritize whose scores do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from app.framework.interface import Clock
from app.kube.core_v1 import Pod

_MOST_DUE: Final = 64

Matters = Callable[[Pod, Pod], bool]
"""Whether where the second pod runs may matter to the decision about the first."""


class DueBinds:
    """``wait_seconds``: the longest one call waits; 0 switches waiting off. A bind is due for twice that time."""

    def __init__(self, clock: Clock, *, wait_seconds: float, observe: Callable[[float], None]) -> None:
        self._clock = clock
        self._wait_seconds = wait_seconds
        self._due: dict[str, tuple[Pod, float]] = {}
        self._changed = asyncio.Event()
        self._observe = observe

    def expect(self, pod: Pod) -> None:
        """The pod was told of a node it may use: its bind is due."""
        if self._wait_seconds and pod.uid:
            if len(self._due) >= _MOST_DUE:
                self._due.pop(next(iter(self._due)))
            self._due[pod.uid] = (pod, self._clock() + 2 * self._wait_seconds)

    def arrived(self, uid: str) -> None:
        """The pod is placed in the picture, or will not be: nobody needs to wait for it."""
        if self._due.pop(uid, None) is not None:
            self._changed.set()
            self._changed = asyncio.Event()

    def expects(self, matters: Matters, pod: Pod) -> bool:
        """Whether ``wait`` would wait."""
        return bool(self._due) and self._matters_until(matters, pod) > 0

    async def wait(self, matters: Matters, pod: Pod) -> None:
        """Until no due bind that matters to ``pod`` is left, or the time is up; the decision then reads anew."""
        if not self._due:
            return
        started = self._clock()
        deadline = started + self._wait_seconds
        while (until := self._matters_until(matters, pod)) and self._clock() < deadline:
            remaining = min(until, deadline) - self._clock()
            try:
                await asyncio.wait_for(self._changed.wait(), max(remaining, 0.0))
            except TimeoutError:
                continue
        waited = self._clock() - started
        self._observe(waited)

    def _matters_until(self, matters: Matters, pod: Pod) -> float:
        """When the last bind that matters stops being due; 0 if there is none."""
        now = self._clock()
        for uid in [uid for uid, (_, until) in self._due.items() if until <= now]:
            del self._due[uid]
        return max(
            (until for uid, (other, until) in self._due.items() if uid != pod.uid and matters(pod, other)),
            default=0.0,
        )
