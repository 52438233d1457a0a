"""Relaxes hard spread constraints that have kept pods waiting for long, for profiles with the option ``fallback``.

``spread_events`` repeatedly evaluates the pods that spread refuses, by all rules. A constraint becomes soft for a pod
once, in all evaluations over the configured time, a node would have fit without this constraint. Only one constraint of
a pod is soft at a time. The Event ``SpreadRelaxed`` names it, and the scheduler retries the pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from app.cache.cluster import Cluster
from app.framework.activation import Activate
from app.framework.events import EventRecorder, Reference
from app.framework.handle import Clock
from app.kube.core_v1 import Pod
from app.kube.durations import duration
from app.kube.meta_v1 import ObjectKey
from app.kube.names import shown
from app.memory.fallbacks import ANNOTATION, NEVER, FallbackTable

RELAXED: Final = "SpreadRelaxed"
UNKNOWN: Final = "FallbackUnknown"
ACTION: Final = "Filtering"

CHECK_SECONDS: Final = 1.0
"""Seconds between two checks, in ``run``, that the pods of the table can still be evaluated by all rules."""

LONGEST_PAUSE: Final = 60.0
"""Maximum seconds between two evaluations of a pod of a profile with ``fallback``."""


class SpreadFallbacks:
    """Writes the table of relaxed constraints while this replica leads.

    ``profile_of``: returns the name of the pod's profile, or "". ``not_usable``: returns why a pod of that profile
    cannot be evaluated by all rules now, or "".
    """

    def __init__(
        self,
        table: FallbackTable,
        cluster: Cluster,
        profile_of: Callable[[Pod], str],
        not_usable: Callable[[Pod, str], str],
        events: EventRecorder,
        activate: Activate,
        clock: Clock,
    ) -> None:
        self._table = table
        self._cluster = cluster
        self._profile_of = profile_of
        self._not_usable = not_usable
        self._events = events
        self._activate = activate
        self._clock = clock
        self._warned: set[str] = set()

    async def run(self) -> None:
        """Check each second which pods of the table can still be evaluated by all rules, until cancelled.

        While a pod cannot be evaluated, its constraints are hard again. If its relaxed constraint then becomes soft
        again, the pod is activated. On cancellation, the table is cleared, so that all constraints are hard.
        """
        try:
            while True:
                await asyncio.sleep(CHECK_SECONDS)
                again = self._table.refresh(self._usable)
                self._warned = {uid for uid in self._warned if self._table.has(uid)}
                self._activate([pod for key in again if (pod := self._cluster.pod(*key)) is not None])
        finally:
            self._table.clear()
            self._warned.clear()

    def judged(self, pod: Pod, alone: Collection[str]) -> None:
        """Record an evaluation by all rules.

        ``alone``: topology key of each constraint without which, all others unchanged, a node would fit the pod.
        """
        profile = self._profile_of(pod)
        after = self._table.after(profile)
        if after is None:
            return
        value = pod.annotations.get(ANNOTATION)
        if value is not None and value != NEVER and alone and pod.uid not in self._warned:
            self._warned.add(pod.uid)
            note = f"the annotation {ANNOTATION} is {shown(value)}; its only value is {NEVER}, so it is ignored"
            self._events.event(Reference.to_pod(pod), None, "Warning", UNKNOWN, ACTION, note)
        key = self._table.judged(pod, profile, () if value == NEVER else alone, self._clock())
        if key:
            cause = f"it alone kept the pod waiting for {duration(after)}"
            note = f"{key}: the constraint is soft for this pod from now on (fallback), because {cause}"
            self._events.event(Reference.to_pod(pod), None, "Normal", RELAXED, ACTION, note)
            self._activate((pod,))

    def is_observed(self, pod: Pod) -> bool:
        """Return true if a constraint is relaxed for the pod. The pod is then evaluated even without a refusal."""
        return self._table.has_relaxed(pod.uid)

    def forget(self, uid: str) -> None:
        """Forget a pod that is no longer evaluated."""
        self._table.forget(uid)

    def next_judgement(self, pod: Pod, planned: float) -> float:
        """Return the time of the next evaluation: ``planned``, or earlier if the profile has the option ``fallback``.

        Then it is at most ``LONGEST_PAUSE`` seconds from now, and not later than the time at which a constraint can
        become soft.
        """
        profile = self._profile_of(pod)
        if self._table.after(profile) is None:
            return planned
        end = self._table.next_end(pod, profile)
        latest = self._clock() + LONGEST_PAUSE
        return min(planned, latest) if end is None else min(planned, latest, end)

    def _usable(self, key: ObjectKey, uid: str) -> bool | None:
        """Return true if the pod can be evaluated by all rules now; ``None`` if it is bound, terminating or gone."""
        pod = self._cluster.pod(*key)
        if pod is None or pod.uid != uid or pod.terminating:
            return None
        if pod.node_name and self._cluster.assumed.get(uid) is None:
            return None  # bound; an assumed pod stays in the table, because its bind is checked under the same rule
        return not self._not_usable(pod, self._profile_of(pod))
