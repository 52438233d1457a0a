"""Steps of one preemption plan: dry runs, nomination, evictions, and the wait until the pod is bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final, Literal

import structlog

from app.controllers.preemptor import record_preemptor, record_victim
from app.controllers.victim_search import FoundVictims, passes
from app.framework.background import next_delay
from app.framework.events import EventRecorder
from app.framework.handle import Clock
from app.kube.core_v1 import Pod
from app.runtime.framework import Framework
from app.runtime.guard import PluginError
from app.verbs.context import VerbContext
from app.verbs.stepwise import decide_prepared
from app.writes.evictions import Evictor

PLAN_SECONDS: Final = 10.0
"""Maximum duration of a plan. Then the nomination is cleared, and filter can pass other nodes for the pod again."""

_OVERTAKEN_SECONDS: Final = 1.0
"""After the evictions, a plan ends as ``overtaken`` if the node rejects the pod for more than this many seconds."""

_LOOK_SECONDS: Final = 0.05
_FIRST_DELAY_SECONDS: Final = 0.5
_LONGEST_DELAY_SECONDS: Final = 15.0
"""Maximum delay between two attempts to clear a nomination. It doubles from ``_FIRST_DELAY_SECONDS``."""

_EVICTION_ATTEMPTS: Final = 3
"""Maximum number of attempts to evict a victim that other clients change meanwhile."""

_TIME_IS_OVER: Final = "the time of the plan is over"

_LOG: Final = structlog.get_logger(__name__)

Result = Literal["bound", "refused", "not_nominated", "interrupted", "overtaken", "timed_out", "withdrawn"]
"""Result of a plan.

- ``bound``: the pod has a node. ``withdrawn``: the pod does not wait any more.
- ``refused``: a dry run was refused or failed. ``not_nominated``: the nomination failed. In both cases, nothing was
  evicted.
- ``interrupted``: an eviction was refused or failed after the nomination, or the process must not write any more.
- ``overtaken``: another pod took the place. ``timed_out``: the pod was not bound in time.
"""


class PreemptionSteps:
    """Carries out plans. ``stays``: returns why a pod must not be evicted, or an empty string.

    ``forget_guard``: called with a pod's UID before the pod is nominated, so that the nomination is not treated as one
    by the sampling guard.
    """

    def __init__(
        self,
        context: VerbContext,
        evictor: Evictor,
        stays: Callable[[Pod], str],
        clock: Clock,
        events: EventRecorder,
        forget_guard: Callable[[str], None],
    ) -> None:
        self._context = context
        self._cluster = context.cluster
        self._evictor = evictor
        self._stays = stays
        self._clock = clock
        self._events = events
        self._forget_guard = forget_guard

    @property
    def seconds(self) -> float:
        """Seconds after which a request that was sent can no longer take effect."""
        return self._evictor.seconds

    async def evict(self, pod: Pod, choice: FoundVictims, evicted: list[Pod], until: float) -> Result | None:
        """Dry-run the evictions, nominate the pod, and evict the victims. Return ``None`` if the pod can be bound once
        the victims are gone, else the result of the plan.

        ``evicted``: list to which the evicted victims are added. ``until``: end of the plan. No dry run or Eviction
        is sent whose time limit ends after then, and no nomination begins whose first request would do so.
        """
        node = choice.node
        for victim in choice.pods:
            if cause := await self._evicted(victim, until, dry_run=True):
                _LOG.info("victim cannot be evicted", pod=str(pod), victim=str(victim), cause=cause)
                return "refused"
        self._forget_guard(pod.uid)
        problem = await self._evictor.nominate(pod, node) if self._has_time(until) else _TIME_IS_OVER
        if problem:
            _LOG.warning("preemptor not nominated", pod=str(pod), node=node, cause=problem)
            return "not_nominated"
        for victim in choice.pods:
            ended = self._ended(pod) or (None if self._has_time(until) else "timed_out")
            if ended is not None:
                return ended
            framework = self._context.framework_for(pod)
            if framework is not None and await self.fits(framework, pod, node):
                break  # another pod has left meanwhile
            if cause := await self._evicted(victim, until):
                _LOG.warning("eviction refused", pod=str(pod), victim=str(victim), cause=cause)
                return "interrupted"
            evicted.append(victim)
            record_victim(self._events, pod, victim, node)
        if evicted:
            record_preemptor(self._events, pod, node, evicted)
        return None

    def _has_time(self, until: float) -> bool:
        return self._clock() + self._evictor.seconds <= until

    def _ended(self, preemptor: Pod) -> Result | None:
        """Return the result of the plan if the pod does not wait any more; else ``None``."""
        pod = self._cluster.pod(*preemptor.key)
        if pod is None or pod.uid != preemptor.uid or pod.terminating:
            return "withdrawn"
        return "bound" if pod.node_name else None

    async def _evicted(self, victim: Pod, until: float, *, dry_run: bool = False) -> str:
        """Evict a victim, or try its eviction in a dry run. Return why that failed, or an empty string."""
        cause = "the pod keeps changing"
        for _ in range(_EVICTION_ATTEMPTS):
            if not self._has_time(until):
                return _TIME_IS_OVER
            eviction = await self._evictor.evict(victim, dry_run=dry_run)
            if eviction.outcome == "refused":
                return eviction.cause
            if dry_run and eviction.outcome != "changed":
                return eviction.cause if eviction.outcome == "unclear" else ""
            if eviction.outcome == "unclear":
                await asyncio.sleep(self._evictor.seconds)  # until then, the request can still take effect
            try:
                newest = await self._evictor.read(victim)
            except OSError as unreadable:
                return "" if eviction.outcome == "evicted" else str(unreadable)
            if newest is None or newest.terminating:
                return ""
            if eviction.outcome != "changed" or newest.spec.priority != victim.spec.priority or self._must_stay(newest):
                return eviction.cause or "the pod is not terminating"
            victim, cause = newest, eviction.cause
        return cause

    async def until_bound(self, preemptor: Pod, node: str, until: float) -> Result:
        """Wait until the plan ends, and return its result."""
        rejected_since: float | None = None
        while (now := self._clock()) < until:
            if ended := self._ended(preemptor):
                return ended
            framework = self._context.framework_for(preemptor)
            if framework is not None and await self.fits(framework, preemptor, node):
                rejected_since = None
            elif rejected_since is None:
                rejected_since = now
            elif now > rejected_since + _OVERTAKEN_SECONDS:
                return "overtaken"
            await asyncio.sleep(_LOOK_SECONDS)
        return "timed_out"

    def _must_stay(self, pod: Pod) -> bool:
        try:
            return bool(self._stays(pod))
        except PluginError:  # the guard has logged it
            return True

    async def fits(self, framework: Framework, pod: Pod, node: str) -> bool:
        """Return true if the profile's filters pass the node; false also if a plugin fails."""
        try:
            return await decide_prepared(partial(passes, self._cluster, framework, pod, node))
        except PluginError:  # the guard has logged it
            return False

    async def clear(self, pod: Pod, node: str, attempts: float = inf) -> None:
        """Clear Homeport's nomination and its annotation. After a failure, try again: ``attempts`` attempts at most."""
        delay, number = 0.0, 0
        while True:
            try:
                await self._evictor.clear(pod, node)
            except OSError as cause:
                number += 1
                _LOG.warning("nomination not cleared", pod=str(pod), node=node, cause=str(cause))
                if number >= attempts:
                    return
                delay = next_delay(delay, _FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS)
                await asyncio.sleep(delay)
            else:
                return
