"""Writes the Event ``SpreadBlocked``, with numbers of pods and nodes, on pods that topology spread keeps waiting.

A pod gets one Event for each verdict: the constraints that reject domains, and why the other domains do not take the
pod. A change of the numbers alone is no new verdict. No verb waits for this task. It evaluates the pods that filter
refused lately, at most one evaluation a second.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from time import thread_time
from typing import Final

from msgspec import Struct

from app.analysis.pending import inputs_of
from app.analysis.spread_blocks import SPREAD, SpreadBlock
from app.cache.cluster import Cluster
from app.controllers.fallbacks import SpreadFallbacks
from app.framework.background import next_delay
from app.framework.events import EventRecorder, Reference
from app.framework.handle import Clock
from app.kube.core_v1 import Pod
from app.kube.meta_v1 import ObjectKey
from app.memory.recent_refusals import RecentRefusals
from app.runtime.guard import PluginError
from app.verbs.outcome import VerbFailure
from app.verbs.stepwise import run_stepwise
from app.writes.events import IDLE_SECONDS

REASON: Final = "SpreadBlocked"
ACTION: Final = "Filtering"

TICK_SECONDS: Final = 1.0
"""Minimum seconds between two evaluations. The result of one is used for all equal pods."""

PAUSE_FACTOR: Final = 50.0
LONGEST_PAUSE: Final = 10.0
"""The pause after an evaluation is ``PAUSE_FACTOR`` times the processor time of the thread meanwhile, so that
evaluations take some 2 % of the time at most.

It is at least ``TICK_SECONDS`` and at most ``LONGEST_PAUSE`` seconds. With 5,000 nodes, an evaluation takes some 30 ms.
"""

SEARCH_SECONDS: Final = 5.0
"""Minimum seconds between two searches for refused pods."""

FIRST_SECONDS: Final = 5.0
"""Minimum seconds from the search that finds a pod to its first evaluation. Most refused pods are bound before it."""

AGAIN_SECONDS: Final = 15.0
LONGEST_AGAIN_SECONDS: Final = 480.0
"""Seconds between two evaluations of a pod: first ``AGAIN_SECONDS``, then doubled up to ``LONGEST_AGAIN_SECONDS``,
because most verdicts never change. The option ``fallback`` and ``REST_SECONDS`` can shorten this time.
"""

REST_SECONDS: Final = IDLE_SECONDS + 1.0
"""Minimum seconds between two Events ``SpreadBlocked`` on a pod. Before that, a new Event would only increase the count
of the last one, which keeps its old note.
"""

MOST: Final = 1024
MOST_OF_NAMESPACE: Final = 128
"""Maximum number of refused pods that are kept for repeated evaluation: ``MOST`` in all, and ``MOST_OF_NAMESPACE`` in
a namespace, so that one tenant leaves room for others.
"""

_STEP: Final = 512
"""Number of refused pods that a search examines before other tasks can run."""


class _SpreadRefusal(Struct):
    """Pod that spread refused. ``not_before``: earliest time of its next evaluation. ``pause``: last delay of the
    back-off between evaluations; 0 before the first. ``reported``: verdict of the last Event, written at
    ``reported_at``; ``None`` before it.
    """

    key: ObjectKey
    not_before: float
    pause: float = 0.0
    reported: Hashable = None
    reported_at: float = 0.0


class SpreadEvents:
    """Background task for the leader. ``block_of``: returns why a pod waits, see ``SpreadBlocks.of``."""

    def __init__(
        self,
        cluster: Cluster,
        refused: Callable[[], RecentRefusals],
        block_of: Callable[[Pod], Awaitable[SpreadBlock | None]],
        events: EventRecorder,
        fallbacks: SpreadFallbacks,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._refused = refused
        self._block_of = block_of
        self._events = events
        self._fallbacks = fallbacks
        self._clock = clock
        self._pods: dict[str, _SpreadRefusal] = {}

    async def run(self) -> None:
        """Evaluate refused pods and write Events until cancelled. Each run begins with an empty memory."""
        self._pods = {}
        searched_at, taken = self._clock(), 0.0
        while True:
            await asyncio.sleep(max(TICK_SECONDS, min(PAUSE_FACTOR * taken, LONGEST_PAUSE)))
            if self._clock() - searched_at >= SEARCH_SECONDS:
                searched_at = self._clock()
                await run_stepwise(self._search())
            began = thread_time()
            await self._judge_next()
            taken = thread_time() - began

    def _search(self) -> Iterator[None]:
        """In steps, add pods that spread refused lately. Forget others, unless they wait with a relaxed constraint."""
        refused: dict[str, ObjectKey] = {}
        yield from self._refused().find(SPREAD, refused)
        known, self._pods = self._pods, {}
        for uid, refusal in known.items():
            pod = self._waiting(uid, refusal.key)
            if pod is not None and (uid in refused or self._fallbacks.is_observed(pod)):
                self._pods[uid] = refusal
            elif pod is not None:
                self._fallbacks.forget(uid)
        yield
        by_namespace = Counter(it.key[0] for it in self._pods.values())
        not_before = self._clock() + FIRST_SECONDS
        for number, (uid, key) in enumerate(refused.items()):
            if len(self._pods) >= MOST:
                return
            if number % _STEP == _STEP - 1:
                yield
            if uid in self._pods or by_namespace[key[0]] >= MOST_OF_NAMESPACE or self._waiting(uid, key) is None:
                continue
            by_namespace[key[0]] += 1
            self._pods[uid] = _SpreadRefusal(key, not_before)

    async def _judge_next(self) -> None:
        """Evaluate one pod whose time has come; pods that were not evaluated yet come first.

        The result applies to all equal pods whose time has come.
        """
        now = self._clock()
        due = {uid: it for uid, it in self._pods.items() if it.not_before <= now}
        waiting = (self._waiting(uid, due[uid].key) for uid in sorted(due, key=self._order))
        first = next(filter(None, waiting), None)
        if first is None:
            return
        equal = [other for other, it in due.items() if self._equals(first, other, it.key)]
        try:
            block = await self._block_of(first)
        except (PluginError, VerbFailure):
            block = None  # the guard has logged a fault, and a snapshot can be incomplete for a while
        self._report(equal, block)

    def _equals(self, pod: Pod, uid: str, key: ObjectKey) -> bool:
        """Return true if the pod ``uid`` still waits and its evaluation has the same inputs as that of ``pod``."""
        other = self._waiting(uid, key) if key[0] == pod.namespace else None
        return other is not None and inputs_of(other) == inputs_of(pod)

    def _order(self, uid: str) -> tuple[bool, float]:
        return self._pods[uid].pause > 0, self._pods[uid].not_before

    def _report(self, uids: Sequence[str], block: SpreadBlock | None) -> None:
        """Report an evaluation to the fallbacks, set the time of the next one, and write the Event on pods that wait.

        No Event is written if ``block`` is ``None``, or if the last Event has the same verdict or is too recent.
        """
        now = self._clock()
        for uid in uids:
            known = self._pods[uid]
            pod = self._waiting(uid, known.key)
            known.pause = next_delay(known.pause, AGAIN_SECONDS, LONGEST_AGAIN_SECONDS)
            known.not_before = now + known.pause
            if pod is None:
                continue
            self._fallbacks.judged(pod, frozenset() if block is None else block.alone)
            known.not_before = self._fallbacks.next_judgement(pod, known.not_before)
            if block is None or block.verdict == known.reported:
                continue
            if known.reported is not None and now - known.reported_at < REST_SECONDS:
                known.not_before = min(known.not_before, known.reported_at + REST_SECONDS)
                continue
            known.reported, known.reported_at = block.verdict, now
            self._events.event(Reference.to_pod(pod), None, "Normal", REASON, ACTION, block.note)

    def _waiting(self, uid: str, key: ObjectKey) -> Pod | None:
        """Return the cached pod; ``None`` if it no longer waits for a node."""
        pod = self._cluster.pod(*key)
        return pod if pod is not None and pod.uid == uid and not pod.node_name and not pod.terminating else None
