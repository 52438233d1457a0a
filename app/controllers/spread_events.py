"""Writes the Event ``SpreadBlocked`` on pods that topology spread constraints keep waiting, with the numbers.

A pod gets one Event for each verdict: the constraints that reject domains, and why the other domains do not take the
pod. A number that changes is no new verdict. No verb waits for this task: it looks at the pods that filter refused
lately, one judgement a second.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Final

from msgspec import Struct

from app.analysis.pending import inputs_of
from app.analysis.spread_blocks import SPREAD, SpreadBlock
from app.cache.cluster import Cluster
from app.framework.background import next_delay
from app.framework.events import EventRecorder, Reference
from app.framework.handle import Clock
from app.kube.core_v1 import Pod
from app.kube.meta_v1 import ObjectKey
from app.memory.recent_refusals import RecentRefusals
from app.runtime.guard import PluginError
from app.verbs.outcome import VerbFailure
from app.writes.events import IDLE_SECONDS

REASON: Final = "SpreadBlocked"
ACTION: Final = "Filtering"

TICK_SECONDS: Final = 1.0
"""Seconds between two judgements, each of them for all equal pods. One takes some 10 ms for 5,000 nodes."""

SEARCH_SECONDS: Final = 2.0
"""Seconds between two searches for refused pods."""

FIRST_SECONDS: Final = 8.0
"""Seconds from the search that finds a pod to its first judgement: most refused pods are bound before."""

AGAIN_SECONDS: Final = 15.0
LONGEST_AGAIN_SECONDS: Final = 480.0
"""Minimum and maximum seconds between two judgements of a pod. They double, because most verdicts never change."""

REST_SECONDS: Final = IDLE_SECONDS + 1.0
"""Minimum seconds between two Events on a pod. An earlier one would join the series of the last, with its old note."""

MOST: Final = 1024
MOST_OF_NAMESPACE: Final = 128
"""Maximum number of pods that are judged, in all and for each namespace, so that a tenant leaves room for others."""


class _SpreadRefusal(Struct):
    """Pod that spread refused. ``not_before``: time of its next judgement. ``told``: verdict of the last Event."""

    key: ObjectKey
    not_before: float
    pause: float = 0.0
    told: Hashable = None
    told_at: float = 0.0


class SpreadEvents:
    """Background task for the leader. ``block_of``: returns what keeps a pod waiting (``SpreadBlocks.of``)."""

    def __init__(
        self,
        cluster: Cluster,
        refused: Callable[[], RecentRefusals],
        block_of: Callable[[Pod], Awaitable[SpreadBlock | None]],
        events: EventRecorder,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._refused = refused
        self._block_of = block_of
        self._events = events
        self._clock = clock
        self._pods: dict[str, _SpreadRefusal] = {}

    async def run(self) -> None:
        """Judge refused pods and write Events until cancelled. Each run begins without memory of the last one."""
        self._pods = {}
        searched_at = self._clock()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            if self._clock() - searched_at >= SEARCH_SECONDS:
                searched_at = self._clock()
                self._search()
            await self._judge_next()

    def _search(self) -> None:
        """Add the pods that spread refused lately, and forget those that it no longer refuses."""
        refused = self._refused().by_plugins((SPREAD,))
        self._pods = {uid: it for uid, it in self._pods.items() if uid in refused}
        by_namespace = Counter(it.key[0] for it in self._pods.values())
        not_before = self._clock() + FIRST_SECONDS
        for uid, key in refused.items():
            if len(self._pods) >= MOST:
                return
            if uid in self._pods or by_namespace[key[0]] >= MOST_OF_NAMESPACE:
                continue
            by_namespace[key[0]] += 1
            self._pods[uid] = _SpreadRefusal(key, not_before)

    async def _judge_next(self) -> None:
        """Judge the pod that is due, those without a judgement first, and with it all due pods with equal inputs."""
        now = self._clock()
        due = [uid for uid, it in self._pods.items() if it.not_before <= now]
        waiting = {uid: pod for uid in due if (pod := self._waiting(uid)) is not None}
        for uid in due:
            if uid not in waiting:
                del self._pods[uid]
        if not waiting:
            return
        first = waiting[min(waiting, key=self._order)]
        inputs = inputs_of(first)
        equal = [uid for uid, pod in waiting.items() if inputs_of(pod) == inputs]
        try:
            block = await self._block_of(first)
        except (PluginError, VerbFailure):
            block = None  # the guard has logged a fault, and a snapshot can be incomplete for a while
        self._tell(equal, block)

    def _order(self, uid: str) -> tuple[bool, float]:
        return self._pods[uid].pause > 0, self._pods[uid].not_before

    def _tell(self, uids: Sequence[str], block: SpreadBlock | None) -> None:
        """Write the Event on pods that still wait, unless the last Event has the same verdict, or is too recent."""
        now = self._clock()
        for uid in uids:
            known, pod = self._pods[uid], self._waiting(uid)
            known.pause = next_delay(known.pause, AGAIN_SECONDS, LONGEST_AGAIN_SECONDS)
            known.not_before = now + known.pause
            if pod is None or block is None or block.verdict == known.told:
                continue
            if known.told is not None and now - known.told_at < REST_SECONDS:
                known.not_before = known.told_at + REST_SECONDS
                continue
            known.told, known.told_at = block.verdict, now
            self._events.event(Reference.to_pod(pod), None, "Normal", REASON, ACTION, block.note)

    def _waiting(self, uid: str) -> Pod | None:
        """Return the newest version of a pod; ``None`` if it no longer waits for a node."""
        pod = self._cluster.pod(*self._pods[uid].key)
        return pod if pod is not None and pod.uid == uid and not pod.node_name and not pod.terminating else None
