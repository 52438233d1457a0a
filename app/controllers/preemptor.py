"""State of one refused pod for which Homeport can evict others, and the Events about it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from app.framework.events import EventRecorder, Reference
from app.kube.core_v1 import Pod

_MOST_NAMED: Final = 5


class Preemptor:
    """Refused pod. ``names`` returns the nodes of the last filter request. Times are on the controller's clock.

    ``calls``: number of preempt calls in progress. ``helped``: true if the scheduler itself evicts pods for it.
    ``excluded``: nodes that are no candidates, each until a time. ``moved`` is set at each call for the pod. ``over``:
    true if the pod passed the filters.
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
        self.task: asyncio.Task[None] | None = None

    async def is_called(self, seconds: float) -> bool:
        """Wait for the next call for the pod; return false if none comes within ``seconds``."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.moved.wait(), seconds)
        return self.moved.is_set()

    def names_without_excluded(self, now: float) -> frozenset[str]:
        return frozenset(self.names()).difference(name for name, until in self.excluded.items() if until > now)


def record_victim(events: EventRecorder, pod: Pod, victim: Pod, node: str) -> None:
    """Record on a victim that it was evicted for ``pod``."""
    note = f"Preempted by pod {pod} on node {node}: only topology spread rejected that pod"
    events.event(Reference.to_pod(victim), Reference.to_pod(pod), "Normal", "Preempted", "Preempting", note)


def record_preemptor(events: EventRecorder, pod: Pod, node: str, victims: Sequence[Pod]) -> None:
    """Record on a pod that others were evicted for it."""
    named = ", ".join(map(str, victims[:_MOST_NAMED]))
    more = len(victims) - _MOST_NAMED
    named += f" and {more} more" if more > 0 else ""
    note = f"Evicted {named} on node {node}, because only topology spread rejected this pod there"
    related = Reference.to_pod(victims[0])
    events.event(Reference.to_pod(pod), related, "Normal", "Preempting", "Preempting", note)
