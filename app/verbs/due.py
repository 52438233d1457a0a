"""Lets filter wait a moment for a bind that is due.

kube-scheduler asks about the next pod while the bind of the last one is still on its way to us. Deciding without it
leads to a conflict at bind, and that costs the pod seconds of back-off. So: a pod that was told of a node in the last
moments and has no bind yet is *due*; a filter whose hard constraints depend on where it went waits for it, briefly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from app.framework.interface import Clock
from app.kube.core_v1 import Pod
from app.runtime.framework import Framework

_MOST_DUE: Final = 64


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

    async def wait(self, framework: Framework, pod: Pod) -> None:
        """Until no due bind matters to ``pod``, or the time is up. Ends before the decision, which reads anew."""
        if not self._due:
            return
        started = self._clock()
        deadline = started + self._wait_seconds
        while (until := self._matters_until(framework, pod)) and self._clock() < deadline:
            remaining = min(until, deadline) - self._clock()
            try:
                await asyncio.wait_for(self._changed.wait(), max(remaining, 0.0))
            except TimeoutError:
                continue
        waited = self._clock() - started
        self._observe(waited)

    def _matters_until(self, framework: Framework, pod: Pod) -> float:
        """When the last bind that matters stops being due; 0 if there is none."""
        now = self._clock()
        for uid in [uid for uid, (_, until) in self._due.items() if until <= now]:
            del self._due[uid]
        return max(
            (until for uid, (other, until) in self._due.items() if uid != pod.uid and framework.depends(pod, other)),
            default=0.0,
        )
