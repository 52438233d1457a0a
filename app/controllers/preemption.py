"""Preemption for topology spread: evicts pods of lower priority for a pod that only topology spread rejects.

kube-scheduler does not preempt for constraints that Homeport judges, because Homeport returns the rejected nodes as
unresolvable. The controller handles pods that spread refuses in a profile with ``preemption: Own`` in these steps::

    refused --> quiet --> find victims --> plan in hand --> dry-run all evictions --> nominate the pod
                  ^            |                                                            |
                  |          none: wait longer                     evict one victim after the other, stop at a refusal
                  |                                                                         |
                  +---- clear the nomination, drop the plan <---- failed, or 10 s over <----+----> bound

kube-scheduler and this controller must not both evict pods for one pod. So a plan begins only if the scheduler's call
of preempt was answered with no node, or did not come. While a plan is in hand, preempt answers with no node.

Plans are made one at a time, on a snapshot that has everything that was written before. So budgets and other plans are
counted. If this process ends during a plan, the next leader finds the pod by an annotation. It keeps the nomination if
the pod fits the node now, and clears it otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from app.controllers.cases import is_settled
from app.controllers.nominations import CountedNominations
from app.controllers.preemption_steps import PLAN_SECONDS, PreemptionSteps, Result
from app.controllers.preemptor import LONGEST_DELAY_SECONDS, Preemptor, PriorityLock
from app.controllers.preemptors import MOST_CASES, Preemptors
from app.controllers.unshown import candidate_nodes
from app.controllers.victim_search import NONE, FoundVictims, find_victims, has_lower, victims_on
from app.framework.background import next_delay
from app.framework.events import EventRecorder
from app.framework.handle import Clock
from app.kube.core_v1 import Pod, PodSpec
from app.kube.memo import Newest
from app.kube.meta_v1 import PREEMPTING
from app.telemetry.metrics import Metrics
from app.verbs.context import VerbContext
from app.verbs.stepwise import run_stepwise
from app.writes.evictions import Evictor

FRESH_SECONDS: Final = 5.0
"""Maximum seconds to wait, between the two searches for victims, until the snapshot has all earlier writes."""

QUIET_SECONDS: Final = 0.01
"""Minimum seconds between a refusal and a plan. Meanwhile, the scheduler can call preempt, or filter again."""

_LOOK_SECONDS: Final = 0.05
"""Seconds between two looks into the cache while no call for the pod comes."""

_FIRST_DELAY_SECONDS: Final = 0.5
_UNKNOWN_SECONDS: Final = 2.0
"""Maximum number of seconds to wait for the watch to report a pod that filter was called for."""

_EXCLUDED_SECONDS: Final = 30.0
"""Seconds for which a node is no candidate for a pod after a plan failed there, unless it was ``not_nominated``."""

_MOST_REFUSED: Final = 3
"""A refused dry run excludes the node. Another one is tried without delay if at most this many are excluded."""

_MOST_DELAYS: Final = 4096
_STEP: Final = 2048
"""Number of pods that one step examines, which takes less than a millisecond."""

_FIRST: Final = 1 << 31
"""Priority in the lock, higher than any pod's. With it, a new leader settles the plans of its predecessor first."""

_LOG: Final = structlog.get_logger(__name__)


class PreemptionController:
    """Controller that evicts pods for refused pods. ``preemptors``: receives the answers to filter and preempt.

    ``catch_up``: waits until the snapshot has everything that was written before the call. ``stays``: returns why a
    pod must not be evicted, or an empty string. ``is_sample``: returns true if a request with the given number of nodes
    can lack nodes that the scheduler's filters pass. ``per_second``: maximum number of attempts at a plan in a second.
    """

    def __init__(
        self,
        context: VerbContext,
        evictor: Evictor,
        catch_up: Callable[[], Awaitable[None]],
        stays: Callable[[Pod], str],
        is_sample: Callable[[int], bool],
        clock: Clock,
        metrics: Metrics,
        events: EventRecorder,
        nominations: CountedNominations,
        *,
        per_second: int,
    ) -> None:
        self._context = context
        self._cluster = context.cluster
        self._catch_up = catch_up
        self._stays = stays
        self._is_sample = is_sample
        self._steps = PreemptionSteps(context, evictor, stays, clock, events, nominations.drop)
        self._clock = clock
        self._metrics = metrics
        self._pause = 1.0 / per_second
        self.preemptors = Preemptors(self._handle, nominations, clock)
        self._delays = Newest[tuple[str, PodSpec], tuple[float, float]](_MOST_DELAYS)
        self._one_at_a_time = PriorityLock()
        self._next_at = 0.0

    async def run(self) -> None:
        """Settle the plans that a previous leader left, and handle refused pods, until cancelled."""
        try:
            async with self._one_at_a_time.held(_FIRST):
                self.preemptors.runs = True  # now, so that refusals of pods whose nomination is cleared are handled
                # An Eviction that was sent before this term can still take effect, until its time limit.
                await asyncio.sleep(self._steps.seconds)
                left: list[Pod] = []
                await run_stepwise(self._interrupted(left))
                await self._settle([pod for pod in left if pod.nominated_node_name == pod.annotations[PREEMPTING]])
            others = [pod for pod in left if pod.nominated_node_name != pod.annotations[PREEMPTING]]
            await self._settle(others[:MOST_CASES])
            await asyncio.Event().wait()
        finally:
            await self.preemptors.end_all()

    async def _settle(self, left: Iterable[Pod]) -> None:
        """Keep the nominations of interrupted plans whose pods fit now, and clear the others. If a pod has another
        nomination by now, or none, only the annotation is removed, so that the scheduler tries the pod again.
        """
        for known in left:
            pod, node = self._cluster.pod(*known.key), known.annotations[PREEMPTING]
            if pod is None or pod.uid != known.uid or is_settled(pod) or self.preemptors.planned(pod.uid):
                continue
            framework = self._context.framework_for(pod)
            is_nominated = framework is not None and framework.preempts and pod.nominated_node_name == node
            if framework is not None and is_nominated and await self._steps.fits(framework, pod, node):
                self.preemptors.begin(pod, tuple, partial(self._finish, node))
                self.preemptors.begin_plan(pod, node)
            else:
                await self._steps.clear(pod, node, attempts=1)

    def _interrupted(self, left: list[Pod]) -> Iterator[None]:
        """Append to ``left`` the waiting pods for which an earlier leader had a plan, in steps."""
        for number, pod in enumerate(self._cluster.pods()):
            if PREEMPTING in pod.annotations and not is_settled(pod):
                left.append(pod)
            if not number % _STEP:
                yield

    async def _finish(self, node: str, case: Preemptor) -> None:
        """Wait until an interrupted plan ends. Clear the nomination, unless the pod is bound or no longer waits."""
        try:
            result = await self._steps.until_bound(case.pod, node, self._clock() + PLAN_SECONDS)
        finally:
            self.preemptors.end_plan(case.pod.uid)
        if result not in ("bound", "withdrawn"):
            await self._steps.clear(case.pod, node)

    async def _handle(self, case: Preemptor) -> None:
        await self._until_known(case)
        if not await has_lower(self._cluster, case.pod):
            return
        while True:
            await self._quiet(case)
            await self._until_turn(case)
            case.moved.clear()
            case.retry_at = None
            if self._may_plan(case):
                await self._attempt(case)
            if not await self._is_due_again(case):
                return

    async def _is_due_again(self, case: Preemptor) -> bool:
        """Wait for the next call for the pod, until its nomination is cleared, or until the next attempt is due.

        Return false if the pod passed the filters or does not wait any more. Without a next attempt, return false after
        ``LONGEST_DELAY_SECONDS``.
        """
        until = self._clock() + LONGEST_DELAY_SECONDS
        was_nominated = bool(case.pod.nominated_node_name)
        while self._newest(case) is not None and not case.over:
            now = self._clock()
            if case.moved.is_set() or (was_nominated and not case.pod.nominated_node_name):
                return True
            if now >= (until if case.retry_at is None else case.retry_at):
                return case.retry_at is not None
            await case.is_called(_LOOK_SECONDS)
        return False

    async def _until_known(self, case: Preemptor) -> None:
        """Wait until the watch has reported the pod, at most ``_UNKNOWN_SECONDS``."""
        latest = self._clock() + _UNKNOWN_SECONDS
        while self._cluster.pod(*case.pod.key) is None and self._clock() < latest:  # noqa: ASYNC110  # there is no event
            await asyncio.sleep(QUIET_SECONDS)

    async def _quiet(self, case: Preemptor) -> None:
        """Wait until the scheduler has probably ended the cycle in which the pod was refused."""
        while True:
            left = QUIET_SECONDS if case.calls else case.refused_at + QUIET_SECONDS - self._clock()
            if left <= 0:
                return
            await asyncio.sleep(left)

    async def _until_turn(self, case: Preemptor) -> None:
        """Wait while searches for pods of this namespace and spec are postponed: the last one found no victims."""
        while (left := self._postponed_until(case) - self._clock()) > 0:  # noqa: ASYNC110  # the clock can be a test's
            await asyncio.sleep(left)

    def _postponed_until(self, case: Preemptor) -> float:
        return (self._delays.get((case.pod.namespace, case.pod.spec)) or (0.0, 0.0))[1]

    def _may_plan(self, case: Preemptor) -> bool:
        """Return true if a plan can begin. If only an unusable snapshot prevents it, schedule another attempt."""
        if case.over or case.helped or case.calls or self._waiting(case) is None:
            return False
        if self._context.problem():
            case.retry_later(self._clock())
            return False
        return True

    def _newest(self, case: Preemptor) -> Pod | None:
        """Return the cached pod if it waits for a node, and store it in ``case``; else return ``None``."""
        pod = self._cluster.pod(*case.pod.key)
        if pod is None or pod.uid != case.pod.uid or is_settled(pod):
            return None
        case.pod = pod
        return pod

    def _waiting(self, case: Preemptor) -> Pod | None:
        """Return the cached pod if it waits for a node and has no nomination; else ``None``."""
        pod = self._newest(case)
        return None if pod is None or pod.nominated_node_name else pod

    async def _attempt(self, case: Preemptor) -> None:
        """Search for victims and carry out the plan. Other searches and plans wait until the evictions are over."""
        uid = case.pod.uid
        async with self._one_at_a_time.held(case.pod.spec.priority):
            if self._postponed_until(case) > self._clock():
                case.moved.set()  # meanwhile, the search for an equal pod had no result
                return
            await asyncio.sleep(max(0.0, self._next_at - self._clock()))
            self._next_at = self._clock() + self._pause
            choice = await self._choice(case)
            if not choice.pods or not self._may_plan(case):
                return
            self.preemptors.begin_plan(case.pod, choice.node)
            evicted: list[Pod] = []
            until = self._clock() + PLAN_SECONDS
            try:
                with self.preemptors.evictions(uid):
                    result = await self._steps.evict(case.pod, choice, evicted, until)
            except BaseException:
                self.preemptors.end_plan(uid)
                raise
        try:
            result = result or await self._steps.until_bound(case.pod, choice.node, until)
        finally:
            self.preemptors.end_plan(uid)
        self._metrics.preemption_plans.labels(result).inc()
        _LOG.info("preemption", pod=str(case.pod), node=choice.node, victims=[str(it) for it in evicted], result=result)
        await self._ended(case, choice.node, result)

    async def _ended(self, case: Preemptor, node: str, result: Result) -> None:
        """After a plan that failed, clear the nomination, exclude the node for a while, and prepare the next attempt.

        After ``refused``, there is no nomination to clear; after ``not_nominated``, the node is not excluded. After
        ``bound`` or ``withdrawn``, only forget the delay of searches.
        """
        if result in ("bound", "withdrawn"):
            self._delays.pop((case.pod.namespace, case.pod.spec), None)
            return
        if result != "refused":
            await self._steps.clear(case.pod, node)
        now = self._clock()
        if result != "not_nominated":
            case.excluded[node] = now + _EXCLUDED_SECONDS
        if result == "refused" and len(case.excluded_now(now)) <= _MOST_REFUSED:
            case.moved.set()  # the dry runs on another node can succeed
        else:
            case.retry_later(now)

    async def _choice(self, case: Preemptor) -> FoundVictims:
        """Search for victims. Once the snapshot has all earlier writes, search again, only on the chosen node.

        The result has no pods if a search finds none, or if the snapshot does not get the writes in time.
        """
        choice = await self._found(case)
        if not choice.pods:
            if choice.is_complete:
                self._postpone(case)
            if not choice.is_complete or case.excluded_now(self._clock()):
                case.retry_later(self._clock())
            return NONE
        if not await self._is_fresh():
            case.retry_later(self._clock())
            return NONE
        pod, framework = self._waiting(case), self._context.framework_for(case.pod)
        if pod is None or framework is None:
            return NONE
        names = frozenset(case.names())
        newest = await victims_on(self._cluster, framework, pod, choice.node, names, self._stays)
        if not newest.pods:
            case.retry_later(self._clock())
        return newest

    async def _found(self, case: Preemptor) -> FoundVictims:
        pod = self._waiting(case)
        framework = None if pod is None else self._context.framework_for(pod)
        if pod is None or framework is None or not framework.preempts:
            return NONE
        names = frozenset(case.names())
        if self._is_sample(len(names)) and await candidate_nodes(self._cluster, framework, pod):
            return NONE  # a node outside the sample passes, and the sampling guard nominates the pod to it
        excluded = case.excluded_now(self._clock())
        return await find_victims(self._cluster, framework, pod, names, self._stays, excluded)

    async def _is_fresh(self) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(FRESH_SECONDS):
                await self._catch_up()
                return not self._context.problem()
        return False

    def _postpone(self, case: Preemptor) -> None:
        """Delay the next search for pods of this namespace and spec, each time longer, to ``LONGEST_DELAY_SECONDS``."""
        key = (case.pod.namespace, case.pod.spec)
        delay, until = self._delays.get(key) or (0.0, 0.0)
        now = self._clock()
        if until <= now:
            delay = next_delay(delay, _FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS)
            self._delays.put(key, (delay, now + delay))
