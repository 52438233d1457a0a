"""Second looks: activates a refused pod if Homeport's snapshot was older than the scheduler's at the refusal.

kube-scheduler can receive an event, activate a pod and call filter before the event reaches Homeport. One event
activates the pod only once. A refusal based on the older snapshot would then last until another event, or for five
minutes. So Homeport looks at its snapshot again after ``DELAY_SECONDS``. If the state behind the refusal has changed,
and a node passes now, Homeport activates the pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Final

from app.controllers.pacing import LOOK_SECONDS
from app.controllers.unshown import candidate_nodes
from app.framework.activation import Activate
from app.framework.counts import Unprepared
from app.kube.core_v1 import Pod
from app.runtime.guard import PluginError
from app.verbs.context import VerbContext

DELAY_SECONDS: Final = 0.25
"""Seconds between a refusal and the second look. By then, Homeport usually has all events the scheduler had seen."""

_MOST: Final = 4096
"""Maximum number of pods that wait for a second look. Further refused pods wait for the scheduler's retry."""


class SecondLooks:
    """Controller that evaluates all nodes again for pods whose refusal is outdated.

    It receives the refusals by filter, except those of pods that the sampling guard handles.
    """

    def __init__(self, context: VerbContext, activate: Activate) -> None:
        self._context = context
        self._activate = activate
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._changed: asyncio.Queue[Pod] = asyncio.Queue()
        """Pods to evaluate. The entry of a pod in ``_timers`` remains until its evaluation, so that no pod is queued
        twice.
        """

    def refused(self, pod: Pod) -> None:
        """Schedule a second look at a refused pod, unless one is scheduled, ``_MOST`` pods wait, or no change of the
        state behind the refusal could be detected.
        """
        if pod.uid in self._timers or len(self._timers) >= _MOST:
            return
        signatures = self._signatures(pod)
        if signatures is not None:
            later = asyncio.get_running_loop().call_later
            self._timers[pod.uid] = later(DELAY_SECONDS, self._compare, pod, signatures)

    def look(self, pod: Pod) -> None:
        """Queue a refused pod for a second look without delay, unless one is scheduled, or ``_MOST`` pods wait."""
        if pod.uid not in self._timers and len(self._timers) < _MOST:
            later = asyncio.get_running_loop().call_later
            self._timers[pod.uid] = later(0, self._changed.put_nowait, pod)

    def _compare(self, pod: Pod, signatures: Hashable) -> None:
        if self._signatures(pod) != signatures:
            self._changed.put_nowait(pod)
        else:
            del self._timers[pod.uid]

    def _signatures(self, pod: Pod) -> Hashable | None:
        framework = self._context.framework_for(pod)
        try:
            return None if framework is None else tuple(framework.search.signatures(pod).items()) or None
        except PluginError:
            return None  # the plugins' guard has logged the fault
        except Unprepared:
            return None  # counts are missing only for constraints that many events concern; these activate the pod

    async def run(self) -> None:
        """Evaluate queued pods one at a time and activate those that fit a node now, until cancelled."""
        try:
            while True:
                pod = await self._changed.get()
                del self._timers[pod.uid]
                if await self._passes(pod):
                    self._activate((pod,))
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()
            self._changed = asyncio.Queue()

    async def _passes(self, pod: Pod) -> bool:
        """Return true if the pod waits and ``candidate_nodes`` returns a node; false also if it cannot be evaluated."""
        known = self._context.cluster.pod(*pod.key)
        framework = self._context.framework_for(pod)
        if known is None or known.uid != pod.uid or known.node_name or framework is None or self._context.problem():
            return False
        try:
            return bool(await candidate_nodes(self._context.cluster, framework, known))
        except PluginError:
            return False  # the plugins' guard has logged the fault
