"""The sampling guard: if Homeport refuses all nodes of a sample, nominates the pod to a node outside the sample.

kube-scheduler stops looking for feasible nodes once it has enough of them, at least 100, and sends only those to
extenders. If Homeport's filters pass few nodes, perhaps none of these is in the sample. The pod then waits, although it
fits a node. ``nominatedNodeName`` makes the scheduler try that node first. The guard handles each pod in these steps:

    refused on a sample --delay--> evaluate all nodes --+-- none passes: evaluate again after the next filter call
                                     ^                  |
                                     |           run in-tree filters for a node that passes
                                     |                  |
                                     +--- rejected -----+-- passed: nominate
                                     |                          |
                                     +-------- failed ----------+-- call for that node alone, and passes: hit

A request lacks a node either because of the sample or because an in-tree filter rejected the node; it does not say
which. So in-tree filters are run before a nomination, and a rejected node is excluded until the node or its pods
change. A refused or unanswered nomination excludes the node too, because Homeport cannot run all in-tree filters.

The next filter call shows the effect of a nomination. A call for the nominated node alone means that in-tree filters
passed the node. A call for other nodes, in which the pod has the nomination, means that in-tree filters rejected it.
The patch is delayed, because kube-scheduler clears a nomination if Homeport's answer is not processed yet.

A request only selects the pod to evaluate. The evaluation and the nomination use the cached pod.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from app.controllers.cases import LEAVE, Case, Effect, NominationStep, is_settled
from app.controllers.nominations import CountedNominations
from app.controllers.pacing import Excluded, Pacing, shape_of
from app.controllers.unshown import InTree, best, candidate_nodes
from app.framework.events import NO_EVENTS, EventRecorder, Reference
from app.framework.handle import Clock
from app.framework.node_info import Candidates
from app.kube.core_v1 import Pod
from app.kube.kinds import NODES
from app.runtime.framework import Framework
from app.runtime.guard import PluginError
from app.telemetry.metrics import Metrics
from app.verbs.context import VerbContext
from app.verbs.outcome import Outcome
from app.verbs.stepwise import decide_prepared
from app.writes.nominator import Nominated, Nominator

ANSWER_SECONDS: Final = 5.0
"""Seconds to wait for the effect of a nomination. A scheduler with a long queue can take seconds to try the node."""

_MOST_CASES: Final = 4096
"""Maximum number of pods that the guard handles at once. Further refused pods wait for the scheduler's retry."""

_WATCHED_SECONDS: Final = 0.25
"""Seconds between two looks into the cache for a pod that is nominated, or that the cache does not have yet."""

_LOST_FREE: Final = 3
"""Number of lost nominations of a pod that cause no back-off. Each further lost nomination does."""

_LOG: Final = structlog.get_logger(__name__)


class _NodeLock:
    """Lock of one node, so that pods are nominated to it one at a time: in-tree filters count all nominated pods.

    ``users`` is the number of cases that hold the lock or wait for it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class SamplingGuard:
    """Controller that receives every filter answer and nominates refused pods, with one task per pod.

    ``is_sample`` returns true if a request with that number of node names can be a sample. ``in_tree`` returns, for a
    schedulerName, the in-tree filters to run in addition to the profile's filters.
    """

    def __init__(
        self,
        context: VerbContext,
        nominator: Nominator,
        nominations: CountedNominations,
        in_tree: Callable[[str], InTree],
        is_sample: Callable[[int], bool],
        clock: Clock,
        metrics: Metrics,
        events: EventRecorder = NO_EVENTS,
    ) -> None:
        self._events = events
        self._context = context
        self._cluster = context.cluster
        self._nominator = nominator
        self._nominations = nominations
        self._in_tree = in_tree
        self._is_sample = is_sample
        self._clock = clock
        self._metrics = metrics
        self._cases: dict[str, Case] = {}
        self._pacing = Pacing(clock)
        self._excluded = Excluded(context.cluster.node_stamp)
        self._node_locks: dict[str, _NodeLock] = {}
        self._nominating = asyncio.Lock()
        self._off = False

    def answered(self, pod: Pod, shown: int, only: str, outcome: Outcome) -> bool:
        """Process a filter answer; return true if the guard handles the pod. For most pods it costs one dict lookup.

        ``shown`` is the number of node names in the request; ``only`` is the name if there is just one, else empty.
        """
        case = self._cases.get(pod.uid)
        if case is not None:
            if case.pod.key == pod.key:
                case.process_answer(pod, only, outcome, self._clock())
            return True
        is_probe = bool(only) and only == pod.nominated_node_name
        if outcome != "no_fit" or is_probe or not self._is_sample(shown) or not self._may_begin(pod):
            return False
        case = self._cases[pod.uid] = Case(pod, shown, self._clock())
        case.task = asyncio.create_task(self._guard(case))
        return True

    async def run(self) -> None:
        """Wait until cancelled, then end all cases. Cases themselves are started by ``answered``."""
        try:
            await asyncio.Event().wait()
        finally:
            await self.leave_all()

    async def leave_all(self) -> None:
        """End all cases. Nominations that were written stay on the pods."""
        tasks = [case.task for case in self._cases.values() if case.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _may_begin(self, pod: Pod) -> bool:
        """Return true if the guard is on and has room for the pod, and no scheduler has nominated the pod.

        A scheduler that nominated the pod might be preempting other pods for it.
        """
        if self._off or not pod.uid or len(self._cases) >= _MOST_CASES:
            return False
        return not pod.nominated_node_name or self._nominations.is_ours(pod)

    async def _guard(self, case: Case) -> None:
        try:
            while not (case.over.is_set() or self._off):
                await case.quiet(self._clock)
                held = self._held(case)
                if held > 0.0:
                    await case.pause(held)
                    continue
                await case.pause(self._pacing.until_look())
                if self._held(case) > 0.0:
                    continue  # a nomination of another pod with the same shape has failed meanwhile
                plan = await self._plan(case)
                if plan.node:
                    await self._nominate_exclusively(case, plan.node)
                elif not await self._rest(case, plan):
                    return
        finally:
            del self._cases[case.pod.uid]

    def _held(self, case: Case) -> float:
        return 0.0 if case.shape is None else self._pacing.held(case.shape)

    async def _rest(self, case: Case, plan: NominationStep) -> bool:
        """Wait until the pod must be evaluated again; return false if it needs no further evaluation."""
        until = self._clock() + plan.wait
        case.called.clear()
        if plan.wait_if_called:
            await case.pause(plan.wait_if_called)
            if not plan.wait:
                return case.called.is_set()
            with suppress(TimeoutError):
                await asyncio.wait_for(case.called.wait(), max(until - self._clock(), 0.0))
        elif plan.wait:
            await case.pause(plan.wait)
        return plan.wait > 0.0

    async def _plan(self, case: Case, locked: str = "") -> NominationStep:
        """Evaluate the pod on the current snapshot. ``locked`` is the node whose lock the case holds, or empty.

        The snapshot can change during a long evaluation, which yields to requests. That is harmless, because a
        nomination is only a hint, and bind checks again.
        """
        pod = self._waiting(case)
        if pod is None and not case.seen and self._clock() < case.unknown_until:
            return NominationStep(wait=_WATCHED_SECONDS)
        framework = None if pod is None else self._context.framework_for(pod)
        if pod is None or framework is None or case.over.is_set() or self._context.problem():
            return LEAVE
        try:
            names = await candidate_nodes(self._cluster, framework, pod)
            return await decide_prepared(partial(self._plan_among, case, framework, pod, names, locked))
        except PluginError:
            return LEAVE  # the plugins' guard has logged the fault, and the filter answer reports it

    def _plan_among(
        self, case: Case, framework: Framework, pod: Pod, names: Sequence[str], locked: str
    ) -> NominationStep:
        """Choose the next step; ``names`` are the candidate nodes. Raises ``PluginError`` or ``Unprepared``."""
        with self._cluster.without(pod.uid, pod.key):
            known = self._cluster.nodes
            nodes = Candidates([name for name in names if name in known], known.__getitem__)
            case.shape = shape_of(pod, nodes.names)
            held = self._pacing.held(case.shape)
            return NominationStep(wait=held) if held > 0.0 else self._choice(case, framework, pod, nodes, locked)

    def _choice(self, case: Case, framework: Framework, pod: Pod, nodes: Candidates, locked: str) -> NominationStep:
        """Choose randomly among the best of the nodes that are not excluded and, if possible, not locked by others."""
        possible = nodes.without(frozenset(name for name in nodes.names if self._excluded.has(case.spec, name)))
        if not len(possible):
            return NominationStep(wait_if_called=case.next_look())
        case.look_pause = 0.0
        possible = rest if len(rest := possible.without(self._node_locks.keys() - {locked})) else possible
        return NominationStep(random.choice(best(framework, pod, possible)))  # noqa: S311  # not for a secret

    def _waiting(self, case: Case) -> Pod | None:
        """Return the cached pod if it waits and no scheduler nominated it or preempts for it; else ``None``."""
        pod = self._cluster.pod(*case.pod.key)
        case.seen = case.seen or pod is not None
        if pod is None or pod.uid != case.pod.uid or is_settled(pod):
            self._nominations.drop(case.pod.uid)
            return None
        case.pod = pod
        if not pod.nominated_node_name:
            return pod
        return pod if self._nominations.is_ours(pod) and not self._evicting(pod.nominated_node_name) else None

    def _evicting(self, node_name: str) -> bool:
        """Return true if a pod on the node is terminating, perhaps preempted for a pod nominated to the node."""
        node = self._cluster.nodes.get(node_name)
        return node is not None and any(other.terminating for other in node.pods.values())

    async def _nominate_exclusively(self, case: Case, node: str) -> None:
        """Once no other case uses the node, nominate the pod if the node is still its choice, see ``_NodeLock``."""
        node_lock = self._node_locks.setdefault(node, _NodeLock())
        queued = node_lock.lock.locked()
        node_lock.users += 1
        try:
            async with node_lock.lock:
                if not queued or (await self._plan(case, node)).node == node:
                    await self._try(case, node)
        finally:
            node_lock.users -= 1
            if not node_lock.users:
                del self._node_locks[node]

    async def _try(self, case: Case, node: str) -> None:
        """Run in-tree filters and nominate the pod, one case at a time; then wait for the effect and process it."""
        async with self._nominating:
            stamp = self._cluster.node_stamp(node)
            if case.over.is_set() or self._off or self._held(case) > 0.0 or await self._refuses(case, node, stamp):
                return
            await case.pause(self._pacing.until_nomination())
            if case.over.is_set():
                return
            pending_effect = case.nominate(node)
            written = await self._write(case, node)
        effect = await self._effect(case, node, pending_effect) if written == "taken" else written
        self._metrics.nominations.labels(effect).inc()
        _LOG.info("pod nominated to a node outside the request", pod=str(case.pod), node=node, result=effect)
        self._settle(case, node, stamp, effect)

    async def _refuses(self, case: Case, node: str, stamp: Hashable) -> bool:
        """Return true if the pod has no profile, the node is excluded, or in-tree filters reject the node. Exclude a
        rejected node for the pod spec.
        """
        framework = self._context.framework_for(case.pod)
        if framework is None:
            return True
        in_tree = self._in_tree(framework.scheduler_name)
        if case.whole is None or case.whole.resource_version != case.pod.resource_version:
            case.whole = await in_tree.whole(case.pod) or case.whole
        if self._excluded.has(case.spec, node):
            return True
        if case.whole is None or not (await in_tree.verdict(case.whole, node)).reasons:
            return False
        self._excluded.add(case.spec, node, stamp)
        return True

    async def _write(self, case: Case, node: str) -> Nominated:
        uid = case.pod.uid
        self._nominations.put(uid, node)
        written = await self._nominator.nominate(case.pod, node)
        if written != "taken":
            self._nominations.drop(uid)
            return written
        case.taken_at = self._clock()
        if not case.counted:
            case.counted = True
            self._metrics.sampled_out.inc()
        self._record_event(case, node)
        return written

    def _settle(self, case: Case, node: str, stamp: Hashable, effect: Effect | Nominated) -> None:
        attempts = None if case.shape is None else self._pacing.attempts(case.shape)
        if effect == "hit":
            self._nominations.drop(case.pod.uid)
            if attempts is not None:
                attempts.hit()
        elif effect == "gone":
            case.over.set()
        elif effect == "forbidden":
            self._off = True
            _LOG.warning("sampling guard off: patching pods/status is forbidden, see homeport rbac")
        elif effect == "lost" and case.lost < _LOST_FREE:
            case.lost += 1
        elif not case.over.is_set():
            if effect in ("refused", "unanswered"):
                self._excluded.add(case.spec, node, stamp)
            if attempts is not None:
                attempts.missed(self._clock())

    def _record_event(self, case: Case, node: str) -> None:
        to = Reference(NODES.api_version, NODES.kind, "", node)
        note = (
            f"Homeport refused all {case.shown} nodes of the scheduler's request; nominated the pod to {node}, which "
            "was not among them: the scheduler tries it next"
        )
        self._events.event(Reference.to_pod(case.pod), to, "Normal", "NominatedUnshown", "Nominating", note)

    async def _effect(self, case: Case, node: str, pending_effect: asyncio.Future[Effect]) -> Effect:
        """Wait for the effect of a nomination. A filter call shows it, or else a change of the cached pod."""
        until = self._clock() + ANSWER_SECONDS
        while self._clock() < until:
            done, _ = await asyncio.wait({pending_effect}, timeout=_WATCHED_SECONDS)
            if done:
                return pending_effect.result()
            pod = self._waiting(case)
            if pod is None:
                case.over.set()
                return "overtaken"
            if pod.nominated_node_name != node:
                return "lost" if case.unseen else "refused"  # no call came, because in-tree filters passed no node
        return "unanswered"
