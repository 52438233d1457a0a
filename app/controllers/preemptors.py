"""Table of the refused pods for which Homeport can evict others, each with its task and its plan."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from app.controllers.nominations import CountedNominations
from app.controllers.preemptor import Preemptor
from app.framework.handle import Clock
from app.kube.core_v1 import Pod
from app.runtime.guard import PluginError

MOST_CASES: Final = 256
"""Maximum number of refused pods that are handled at a time. A further one can only replace one of lower priority.

Pods whose plans a previous leader left are always handled.
"""

Handle = Callable[[Preemptor], Awaitable[None]]


class Preemptors:
    """Implementation of ``PreemptionTracker``. ``handle`` handles a refused pod until it needs no eviction any more.

    While there is a plan for a pod, ``nominations`` counts the pod in the domains of the planned node. ``runs``: false
    if refused pods are ignored, because this process does not lead.
    """

    def __init__(self, handle: Handle, nominations: CountedNominations, clock: Clock) -> None:
        self._handle = handle
        self._nominations = nominations
        self._clock = clock
        self._cases: dict[str, Preemptor] = {}
        self._plans: dict[str, str] = {}
        self._evicting: set[str] = set()
        self.runs = False

    def planned(self, uid: str) -> str:
        return self._plans.get(uid, "")

    def is_evicting(self, uid: str) -> bool:
        return uid in self._evicting

    @contextmanager
    def evictions(self, uid: str) -> Iterator[None]:
        """Reject the pod on every node within this context, so that no eviction follows its bind."""
        self._evicting.add(uid)
        try:
            yield
        finally:
            self._evicting.discard(uid)

    def begin_plan(self, pod: Pod, node: str) -> None:
        self._plans[pod.uid] = node
        self._nominations.reserve(pod, node)

    def end_plan(self, uid: str) -> None:
        self._plans.pop(uid, None)
        self._nominations.release(uid)

    def refused(self, pod: Pod, names: Callable[[], Iterable[str]]) -> None:
        case = self._cases.get(pod.uid)
        if case is None:
            if not (self.runs and pod.uid) or pod.disruption.never_preempts or not self._has_room(pod):
                return
            case = self.begin(pod, names, self._handle)
        case.names, case.refused_at, case.helped, case.over = names, self._clock(), False, False
        case.moved.set()

    def passed(self, pod: Pod) -> None:
        case = self._cases.get(pod.uid)
        if case is not None:
            case.over = True
            case.moved.set()

    def preempt_begins(self, pod: Pod) -> None:
        case = self._cases.get(pod.uid)
        if case is not None:
            case.calls += 1

    def preempt_ends(self, pod: Pod, helped: bool) -> None:
        case = self._cases.get(pod.uid)
        if case is not None:
            case.calls = max(0, case.calls - 1)
            case.helped = case.helped or helped
            case.refused_at = self._clock()
            case.moved.set()

    def _has_room(self, pod: Pod) -> bool:
        """Return true if the pod can be handled. If ``MOST_CASES`` pods are handled already, end the case of a pod of
        lower priority without a plan: the one with the lowest priority. Return false if there is none.
        """
        if len(self._cases) < MOST_CASES:
            return True
        lowest = min(
            (it for it in self._cases.values() if it.pod.uid not in self._plans),
            key=lambda it: it.pod.spec.priority,
            default=None,
        )
        if lowest is None or lowest.pod.spec.priority >= pod.spec.priority:
            return False
        self._end(lowest)
        return True

    def begin(self, pod: Pod, names: Callable[[], Iterable[str]], handle: Handle) -> Preemptor:
        """Start a task that handles the pod, and return its state. An earlier task for the pod is cancelled."""
        earlier = self._cases.get(pod.uid)
        if earlier is not None:
            self._end(earlier)
        case = self._cases[pod.uid] = Preemptor(pod, names, self._clock())

        async def run() -> None:
            try:
                await handle(case)
            except PluginError:
                pass  # the plugins' guard has logged the fault, and the answer to filter reports it
            finally:
                if self._cases.get(pod.uid) is case:
                    del self._cases[pod.uid]

        case.task = asyncio.create_task(run())
        return case

    def _end(self, case: Preemptor) -> None:
        self._cases.pop(case.pod.uid, None)
        if case.task is not None:
            case.task.cancel()

    async def end_all(self) -> None:
        """Ignore refused pods from now on, cancel all tasks, wait until they have ended, and end all plans."""
        self.runs = False
        tasks = [case.task for case in self._cases.values() if case.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._cases.clear()
        for uid in tuple(self._plans):
            self.end_plan(uid)
