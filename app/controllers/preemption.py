"""Preemption for topology spread: evicts pods of lower priority for a pod that only topology spread rejects.

kube-scheduler does not preempt for constraints that Homeport judges, because an extender's rejections are final. The
controller handles each refused pod of a profile with ``preemption: Own`` in these steps::

    refused --> quiet --> find victims --> plan in hand --> dry-run all evictions --> nominate the pod
                  ^            |                                                            |
                  |          none: wait longer                     evict one victim after the other, stop at a refusal
                  |                                                                         |
                  +---- clear the nomination, drop the plan <---- failed, or 10 s over <----+----> bound

kube-scheduler and this controller must not both evict pods for one pod. So a plan begins only if the scheduler's call
of preempt was answered with no node, or did not come. While a plan is in hand, preempt answers with no node.

Plans are made one at a time, on a snapshot that has everything that was written before. So budgets and other plans are
counted. If this process ends during a plan, the next leader clears the nomination; its annotation marks it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from math import inf
from typing import Final

import structlog

from app.controllers.cases import is_settled
from app.controllers.nominations import CountedNominations
from app.controllers.preemption_steps import PLAN_SECONDS, PreemptionSteps
from app.controllers.preemptor import Preemptor
from app.controllers.victim_search import FoundVictims, find_victims
from app.framework.background import next_delay
from app.framework.events import EventRecorder
from app.framework.handle import Clock
from app.kube.core_v1 import Pod, PodSpec
from app.kube.memo import Newest
from app.kube.meta_v1 import PREEMPTING
from app.runtime.guard import PluginError
from app.telemetry.metrics import Metrics
from app.verbs.context import VerbContext
from app.verbs.stepwise import run_stepwise
from app.writes.evictions import Evictor

FRESH_SECONDS: Final = 5.0
"""Maximum time to wait until the snapshot has everything that was written before the plan."""

QUIET_SECONDS: Final = 0.01
"""Seconds after a refusal in which the scheduler can call preempt, or filter again, before a plan begins."""

_LOOK_SECONDS: Final = 0.05
"""Seconds between two looks into the cache for a pod that waits for a call."""

_FIRST_DELAY_SECONDS: Final = 0.5
_LONGEST_DELAY_SECONDS: Final = 15.0
"""Maximum delay between two searches for pods with the same spec. It doubles from ``_FIRST_DELAY_SECONDS``."""

_MOST_CASES: Final = 256
"""Maximum number of pods that are handled at once. Further refused pods wait for the scheduler's retry."""

_UNKNOWN_SECONDS: Final = 2.0
"""Maximum number of seconds to wait for the watch to report a pod that filter was called for."""

_EXCLUDED_SECONDS: Final = 30.0
"""Seconds for which a node is no candidate for a pod after a plan that failed there."""

_MOST_DELAYS: Final = 4096
_STEP: Final = 2048
"""Number of pods that one step examines, which takes less than a millisecond."""

_LOG: Final = structlog.get_logger(__name__)


class PreemptionController:
    """Controller that receives the answers to filter and preempt. Implements ``PreemptionTracker``.

    ``catch_up``: waits until the snapshot has everything that was written before the call. ``stays``: returns why a
    pod must not be evicted, or an empty string. ``per_second``: maximum number of searches, and so of plans, in a
    second.
    """

    def __init__(
        self,
        context: VerbContext,
        evictor: Evictor,
        catch_up: Callable[[], Awaitable[None]],
        stays: Callable[[Pod], str],
        clock: Clock,
        metrics: Metrics,
        events: EventRecorder,
        nominations: CountedNominations,
        *,
        per_second: int,
    ) -> None:
        self._context = context
        self._cluster = context.cluster
        self._plans: dict[str, str] = {}
        self._nominations = nominations
        self._catch_up = catch_up
        self._stays = stays
        self._steps = PreemptionSteps(context, evictor, stays, clock, events)
        self._clock = clock
        self._metrics = metrics
        self._pause = 1.0 / per_second
        self._cases: dict[str, Preemptor] = {}
        self._delays = Newest[tuple[str, PodSpec], tuple[float, float]](_MOST_DELAYS)
        self._one_at_a_time = asyncio.Lock()
        self._next_at = 0.0
        self._runs = False

    # PreemptionTracker

    def planned(self, uid: str) -> str:
        return self._plans.get(uid, "")

    def refused(self, pod: Pod, names: Callable[[], Iterable[str]]) -> None:
        case = self._cases.get(pod.uid)
        if case is None:
            if not self._runs or len(self._cases) >= _MOST_CASES or not pod.uid or pod.disruption.never_preempts:
                return
            case = self._cases[pod.uid] = Preemptor(pod, names, self._clock())
            case.task = asyncio.create_task(self._handle(case))
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

    # background task

    async def run(self) -> None:
        """Clear what a previous leader left, then handle refused pods until cancelled."""
        try:
            async with self._one_at_a_time:
                self._runs = True  # from now on, because a pod is refused once its nomination is cleared
                # An Eviction of this process's last term can still arrive. Those of other leaders have had their time.
                await asyncio.sleep(max(0.0, self._steps.sent_at + self._steps.seconds - self._clock()))
                await self._settle_nominations()
            await asyncio.Event().wait()
        finally:
            self._runs = False
            tasks = [case.task for case in self._cases.values() if case.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _settle_nominations(self) -> None:
        """Keep the nominations of interrupted plans whose pods fit now, and clear the others."""
        left: list[Pod] = []
        await run_stepwise(self._interrupted(left))
        for pod in left:
            node = pod.annotations[PREEMPTING]
            framework = self._context.framework_for(pod)
            nominated = framework is not None and framework.preempts and pod.nominated_node_name == node
            if framework is not None and nominated and await self._steps.fits(framework, pod, node):
                self._begin_waiting(pod, node)
            else:
                await self._steps.clear(pod, node)

    def _interrupted(self, left: list[Pod]) -> Iterator[None]:
        """Add the waiting pods with a plan of an earlier leader, in steps."""
        for number, pod in enumerate(self._cluster.pods()):
            if PREEMPTING in pod.annotations and not is_settled(pod):
                left.append(pod)
            if not number % _STEP:
                yield

    def _begin_waiting(self, pod: Pod, node: str) -> None:
        case = self._cases[pod.uid] = Preemptor(pod, tuple, self._clock())
        self._begin_plan(pod, node)
        case.task = asyncio.create_task(self._finish(case, node))

    async def _finish(self, case: Preemptor, node: str) -> None:
        """Wait until the pod of an interrupted plan is bound, or clear its nomination."""
        try:
            result = await self._steps.until_bound(case.pod, node, self._clock() + PLAN_SECONDS)
            if result not in ("bound", "withdrawn"):
                await self._steps.clear(case.pod, node)
        finally:
            self._end_plan(case.pod.uid)
            self._cases.pop(case.pod.uid, None)

    async def _handle(self, case: Preemptor) -> None:
        try:
            while not case.over:
                await self._quiet(case)
                await self._until_turn(case)
                case.moved.clear()
                if self._may_plan(case) and not await self._attempt(case):
                    return
                case.over = not await self._is_due_again(case)
        except PluginError:
            pass  # the plugins' guard has logged the fault, and the answer to filter reports it
        finally:
            self._cases.pop(case.pod.uid, None)

    async def _is_due_again(self, case: Preemptor) -> bool:
        """Wait for the next call for the pod, until its nomination is cleared, or until a node is a candidate again.

        Return false if nothing of this happens within ``_LONGEST_DELAY_SECONDS``, or if the pod does not wait any more.
        The end of an exclusion is waited for longer, because the scheduler does not retry the pod for it.
        """
        now = self._clock()
        was_nominated = bool(case.pod.nominated_node_name)
        again = min((until for until in case.excluded.values() if until > now), default=inf)
        last = now + _LONGEST_DELAY_SECONDS if again == inf else inf
        while self._clock() < last and self._newest(case) is not None:
            is_cleared = was_nominated and not case.pod.nominated_node_name
            if is_cleared or case.moved.is_set() or self._clock() >= again:
                return True
            await case.is_called(_LOOK_SECONDS)
        return False

    async def _quiet(self, case: Preemptor) -> None:
        """Wait until the watch has reported the pod and the scheduler has probably ended the cycle of the refusal."""
        latest = self._clock() + _UNKNOWN_SECONDS
        while self._cluster.pod(*case.pod.key) is None and self._clock() < latest:  # noqa: ASYNC110  # the watch has no event
            await asyncio.sleep(QUIET_SECONDS)
        while (left := QUIET_SECONDS if case.calls else case.refused_at + QUIET_SECONDS - self._clock()) > 0:  # noqa: ASYNC110  # preempt can be called meanwhile
            await asyncio.sleep(left)

    async def _until_turn(self, case: Preemptor) -> None:
        """Wait until pods with this spec are searched for again after a search without result."""
        _, until = self._delays.get((case.pod.namespace, case.pod.spec)) or (0.0, 0.0)
        while (left := until - self._clock()) > 0:  # noqa: ASYNC110  # the clock can be that of a test
            await asyncio.sleep(left)

    def _may_plan(self, case: Preemptor) -> bool:
        return not (case.helped or case.calls) and self._waiting(case) is not None and not self._context.problem()

    def _newest(self, case: Preemptor) -> Pod | None:
        """Return the cached pod if it waits for a node; else ``None``."""
        pod = self._cluster.pod(*case.pod.key)
        if pod is None or pod.uid != case.pod.uid or is_settled(pod):
            return None
        case.pod = pod
        return pod

    def _waiting(self, case: Preemptor) -> Pod | None:
        """Return the cached pod if it waits for a node without a nomination; else ``None``."""
        pod = self._newest(case)
        return None if pod is None or pod.nominated_node_name else pod

    async def _attempt(self, case: Preemptor) -> bool:
        """Search for victims and carry out the plan. Return false if the pod needs no further attempt."""
        async with self._one_at_a_time:
            await asyncio.sleep(max(0.0, self._next_at - self._clock()))
            self._next_at = self._clock() + self._pause
            choice = await self._found(case)
            if choice is not None:
                choice = await self._found(case) if await self._is_fresh() else None
            if choice is None:
                self._postpone(case)
            if choice is None or not self._may_plan(case):
                return self._waiting(case) is not None
            self._begin_plan(case.pod, choice.node)
            until = self._clock() + PLAN_SECONDS
            try:
                evicted: list[Pod] = []
                result = await self._steps.evict(case.pod, choice, evicted)
            except BaseException:
                self._end_plan(case.pod.uid)
                raise
        try:
            result = result or await self._steps.until_bound(case.pod, choice.node, until)
        finally:
            self._end_plan(case.pod.uid)
        self._metrics.preemption_plans.labels(result).inc()
        _LOG.info("preemption", pod=str(case.pod), node=choice.node, victims=[str(it) for it in evicted], result=result)
        if result in ("bound", "withdrawn"):
            self._delays.pop((case.pod.namespace, case.pod.spec), None)
            return False
        case.excluded[choice.node] = self._clock() + _EXCLUDED_SECONDS
        if result == "refused":
            case.moved.set()  # another node can have victims that are not refused
        else:
            await self._steps.clear(case.pod, choice.node)
        return True

    def _begin_plan(self, pod: Pod, node: str) -> None:
        self._plans[pod.uid] = node
        self._nominations.reserve(pod, node)

    def _end_plan(self, uid: str) -> None:
        self._plans.pop(uid, None)
        self._nominations.release(uid)

    async def _found(self, case: Preemptor) -> FoundVictims | None:
        pod = self._waiting(case)
        framework = None if pod is None else self._context.framework_for(pod)
        if pod is None or framework is None or not framework.preempts:
            return None
        names = case.names_without_excluded(self._clock())
        return await find_victims(self._cluster, framework, pod, names, self._stays)

    async def _is_fresh(self) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(FRESH_SECONDS):
                await self._catch_up()
                return not self._context.problem()
        return False

    def _postpone(self, case: Preemptor) -> None:
        """Delay the next search for pods with this spec, longer each time."""
        key = (case.pod.namespace, case.pod.spec)
        delay, until = self._delays.get(key) or (0.0, 0.0)
        now = self._clock()
        if until <= now:
            delay = next_delay(delay, _FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS)
            self._delays.put(key, (delay, now + delay))
