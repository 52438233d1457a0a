"""The sampling guard: a pod whose every shown node we refused is nominated to a node that it was not shown.

kube-scheduler shows a sample of the nodes. Where our filters pass few nodes, none of them may be among those: then the
pod waits although there is room for it. A ``nominatedNodeName`` makes the scheduler try that node first, sampled or
not. For one pod:

    refused on all shown --moments--> look at all nodes --+-- none would do: look again when asked again
                                          ^               |
                                          |           nominate
                                          |               |
                                          | back-off      |
                                          +-- rejected ---+-- asked about that node alone, and we pass it: hit
                                              in-tree

A nomination that the scheduler sees is told by the pod in its next filter call: asked about the nominated node alone,
in-tree filters passed it; asked about others, they rejected it. Written before the scheduler has dealt with our answer,
a nomination is cleared unseen: hence the moments.

A request says which pod to look at, and no more: who is nominated, and where to, is decided by the pod of the picture.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Hashable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import structlog
from msgspec import Struct

from app.controllers.cases import Case, Effect
from app.controllers.nominations import CountedNominations
from app.controllers.pacing import Pacing
from app.controllers.unshown import best, elsewhere
from app.framework.events import NO_EVENTS, EventRecorder, Reference
from app.framework.interface import Clock, Unprepared
from app.framework.node_info import Candidates
from app.kube.core_v1 import Pod
from app.kube.kinds import NODES
from app.runtime.framework import Framework
from app.runtime.guard import PluginError
from app.telemetry.metrics import Metrics
from app.verbs.context import VerbContext
from app.verbs.outcome import Outcome
from app.verbs.slices import prepared
from app.writes.nominator import Nominated, Nominator

QUIET_SECONDS: Final = 0.01
"""From our last refusal to the patch: the scheduler has then dealt with the answer, and mostly with the retry that its
own condition update causes 6 ms later."""

LONGEST_QUIET_SECONDS: Final = 0.1
"""A pod that is asked about without a pause is nominated all the same."""

ANSWER_SECONDS: Final = 5.0
"""How long a nomination is given to show an effect. A scheduler with a full queue takes its time."""

DOUBT_SECONDS: Final = 0.25
"""After a refusal on all nodes until it is looked whether what it rested on has changed since."""

_SHORTEST_SECONDS: Final = 0.001
_MOST_CASES: Final = 4096
_AT_ONCE: Final = 32

_LOG: Final = structlog.get_logger(__name__)

_WATCHED_SECONDS: Final = 0.25
_LOST_FREE: Final = 3


class _Turn:
    """Whose turn it is to be nominated to a node: first come, first served. ``users``: all who wait, and who has it."""

    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class _Plan(Struct, frozen=True):
    """What to do next about a pod: nominate it to ``node``, or look again, or (neither) leave it.

    ``wait``: seconds after which to look again. ``asked_wait``: seconds after which to do so if the pod is asked about,
    and refused, once more: something may have changed. 0 stands for never.
    """

    node: str = ""
    wait: float = 0.0
    asked_wait: float = 0.0


_LEAVE: Final = _Plan()


class SamplingGuard:
    """Listens to what filter answers, looks for what was not shown, and nominates pods to it."""

    def __init__(
        self,
        context: VerbContext,
        nominator: Nominator,
        nominations: CountedNominations,
        clock: Clock,
        metrics: Metrics,
        events: EventRecorder = NO_EVENTS,
    ) -> None:
        self._events = events
        self._context = context
        self._cluster = context.cluster
        self._nominator = nominator
        self._nominations = nominations
        self._clock = clock
        self._metrics = metrics
        self._cases: dict[str, Case] = {}
        self._doubted: dict[str, asyncio.TimerHandle] = {}
        self._pacing = Pacing(clock)
        self._turns: dict[str, _Turn] = {}
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._off = False

    def answered(self, pod: Pod, shown: int, only: str, outcome: Outcome) -> None:
        """Told of every filter answer. A pod that is under guard, or need not be, costs a look into a dict."""
        case = self._cases.get(pod.uid)
        if case is not None and case.pod.key == pod.key:
            case.hear(pod, only, outcome, self._clock())
        elif case is None and outcome == "no_fit" and self._may_begin(pod):
            if shown < len(self._cluster.nodes):
                self._begin(pod, shown)
            else:
                self._doubt(pod, shown)

    def _begin(self, pod: Pod, shown: int) -> None:
        case = self._cases[pod.uid] = Case(pod, shown, self._clock())
        case.task = asyncio.create_task(self._guard(case))

    def _doubt(self, pod: Pod, shown: int) -> None:
        """A refusal on all nodes may rest on a picture that is a moment behind the scheduler's.

        What would cure it has then woken the pod before it was refused, and nothing wakes it again for minutes.
        """
        if pod.uid in self._doubted or len(self._doubted) >= _MOST_CASES:
            return
        signatures = self._signatures(pod)
        if signatures is not None:
            later = asyncio.get_running_loop().call_later
            self._doubted[pod.uid] = later(DOUBT_SECONDS, self._look_back, pod, shown, signatures)

    def _look_back(self, pod: Pod, shown: int, signatures: Hashable) -> None:
        del self._doubted[pod.uid]
        if pod.uid not in self._cases and self._may_begin(pod) and self._signatures(pod) != signatures:
            self._begin(pod, shown)

    def _signatures(self, pod: Pod) -> Hashable | None:
        framework = self._context.framework_for(pod)
        try:
            return None if framework is None else tuple(framework.signatures(pod).items()) or None
        except PluginError:
            return None  # logged by the plugins' guard
        except Unprepared:
            return None  # its counts were given up: so much is asked for that others will wake the pod

    async def run(self) -> None:
        """Until cancelled: then all pods are left alone."""
        try:
            await asyncio.Event().wait()
        finally:
            await self.leave_all()

    async def leave_all(self) -> None:
        """No pod is under guard any more; what was nominated stays so."""
        for handle in self._doubted.values():
            handle.cancel()
        self._doubted.clear()
        tasks = [case.task for case in self._cases.values() if case.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _may_begin(self, pod: Pod) -> bool:
        """Not for a pod that somebody else has nominated: an eviction may be under way for it."""
        if self._off or not pod.uid or len(self._cases) >= _MOST_CASES:
            return False
        return not pod.nominated_node_name or self._nominations.is_ours(pod)

    async def _guard(self, case: Case) -> None:
        try:
            while not (case.over.is_set() or self._off):
                await self._quiet(case)
                held = self._pacing.held(case.pod) if case.counted else 0.0
                if held > 0.0:
                    await self._pause(case, held)
                    continue
                await self._pause_between_looks(case)
                if case.counted and self._pacing.held(case.pod) > 0.0:
                    continue  # somebody else went first: no need to look
                plan = await self._plan(case)
                if plan.node:
                    await self._nominate_in_turn(case, plan.node)
                elif not await self._rest(case, plan):
                    return
        finally:
            del self._cases[case.pod.uid]

    async def _pause(self, case: Case, seconds: float) -> None:
        """Ends early when the pod needs no guard any more."""
        with suppress(TimeoutError):
            await asyncio.wait_for(case.over.wait(), max(seconds, _SHORTEST_SECONDS))

    async def _rest(self, case: Case, plan: _Plan) -> bool:
        """Until it is time to look again; ``False`` if it is not worth it."""
        until = self._clock() + plan.wait
        case.asked.clear()
        if plan.asked_wait:
            await self._pause(case, plan.asked_wait)
            if not plan.wait:
                return case.asked.is_set()
            with suppress(TimeoutError):
                await asyncio.wait_for(case.asked.wait(), max(until - self._clock(), 0.0))
        elif plan.wait:
            await self._pause(case, plan.wait)
        return plan.wait > 0.0

    async def _quiet(self, case: Case) -> None:
        latest = self._clock() + LONGEST_QUIET_SECONDS
        while not case.over.is_set():
            remaining = min(case.refused_at + QUIET_SECONDS, latest) - self._clock()
            if remaining <= 0.0:
                return
            await self._pause(case, remaining)

    async def _pause_between_looks(self, case: Case) -> None:
        """Looks take their turns, so that a crowd of refused pods does not hold up the verbs."""
        until = self._pacing.until_look()
        if until > 0.0:
            await self._pause(case, until)

    async def _plan(self, case: Case, turn: str = "") -> _Plan:
        """On the picture as it is at this moment. ``turn``: the node whose turn is ours, if it is still good.

        Nodes are looked at in slices where a pod takes long to judge: a nomination is a hint, and bind checks again.
        """
        pod = self._waiting(case)
        if pod is None and not case.seen and self._clock() < case.unknown_until:
            return _Plan(wait=_WATCHED_SECONDS)
        framework = None if pod is None else self._context.framework_for(pod)
        if pod is None or framework is None or case.over.is_set() or self._context.problem():
            return _LEAVE
        try:
            names = await elsewhere(self._cluster, framework, pod)
            return await prepared(partial(self._plan_among, case, framework, pod, names, turn))
        except PluginError:
            return _LEAVE  # logged by the plugins' guard; filter says so to the pod

    def _plan_among(self, case: Case, framework: Framework, pod: Pod, names: Sequence[str], turn: str) -> _Plan:
        """Raises ``PluginError`` or ``Unprepared``."""
        with self._cluster.without(pod.uid, pod.key):
            known = self._cluster.nodes
            nodes = Candidates([name for name in names if name in known], known.__getitem__)
            if not len(nodes):
                return self._nowhere(case)
            self._count(case, pod, len(nodes))
            held = self._pacing.held(pod)
            return _Plan(wait=held) if held > 0.0 else self._choice(case, framework, pod, nodes, turn)

    def _nowhere(self, case: Case) -> _Plan:
        return _Plan(asked_wait=case.next_look())

    def _choice(self, case: Case, framework: Framework, pod: Pod, nodes: Candidates, turn: str) -> _Plan:
        """Any of the best nodes not rejected lately; rather one never rejected, that nobody else is nominated to."""
        now = self._clock()
        attempts = self._pacing.attempts(pod)
        rejected = attempts.rejected_at(now)
        possible = nodes.without(rejected)
        if not len(possible):
            return _Plan(wait=min(rejected[name] for name in nodes.names) - now, asked_wait=case.next_look())
        case.looks = 0
        for others in (self._turns.keys() - {turn}, attempts.rejected):
            possible = rest if len(rest := possible.without(others)) else possible
        return _Plan(random.choice(best(framework, pod, possible)))  # noqa: S311  # no secret

    def _waiting(self, case: Case) -> Pod | None:
        """The pod as the picture has it, if it waits for a node and nobody else has nominated it."""
        pod = self._cluster.pod(*case.pod.key)
        case.seen = case.seen or pod is not None
        if pod is None or pod.uid != case.pod.uid or _is_settled(pod):
            self._nominations.drop(case.pod.uid)
            return None
        case.pod = pod
        if not pod.nominated_node_name:
            return pod
        return pod if self._nominations.is_ours(pod) and not self._evicting(pod.nominated_node_name) else None

    def _evicting(self, node_name: str) -> bool:
        """Whether the scheduler may have taken our nomination over for a preemption; it asks the same of the node."""
        node = self._cluster.nodes.get(node_name)
        return node is not None and any(other.terminating for other in node.pods.values())

    def _count(self, case: Case, pod: Pod, nodes: int) -> None:
        if not case.counted:
            case.counted = True
            self._metrics.sampled_out.inc()
            _LOG.info("pod refused on every node shown, others would do", pod=str(pod), shown=case.shown, others=nodes)

    async def _nominate_in_turn(self, case: Case, node: str) -> None:
        """One pod at a time to each node: two that are nominated to it count against each other in-tree."""
        turn = self._turns.setdefault(node, _Turn())
        queued = turn.lock.locked()
        turn.users += 1
        try:
            async with turn.lock:
                if not queued or (await self._plan(case, node)).node == node:
                    await self._try(case, node)
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[node]

    async def _try(self, case: Case, node: str) -> None:
        attempts = self._pacing.begin(case.pod)
        effect = await self._nominate(case, node)
        self._metrics.nominations.labels(effect).inc()
        _LOG.info("pod led to a node it was not shown", pod=str(case.pod), node=node, result=effect)
        if effect == "hit":
            attempts.hit(node)
        elif effect == "gone":
            case.over.set()
        elif effect == "forbidden":
            self._off = True
            _LOG.warning("sampling guard off: patching pods/status is forbidden, see homeport rbac")
        elif effect == "lost" and case.lost < _LOST_FREE:
            case.lost += 1
        elif not case.over.is_set():
            attempts.missed(node, self._clock(), in_tree=effect in ("refused", "unanswered"))

    async def _nominate(self, case: Case, node: str) -> Effect | Nominated:
        """Point the pod to the node and wait until the scheduler has been seen to try it, or not to."""
        uid = case.pod.uid
        told = case.nominate(node)
        self._nominations.put(uid, node)
        async with self._at_once:
            written = await self._nominator.nominate(case.pod, node)
        if written != "taken":
            self._nominations.drop(uid)
            return written
        case.taken_at = self._clock()
        self._tell(case, node)
        effect = await self._effect(case, node, told)
        if effect == "hit":
            self._nominations.drop(uid)
        return effect

    def _tell(self, case: Case, node: str) -> None:
        to = Reference(NODES.api_version, NODES.kind, "", node)
        note = (
            f"refused on all {case.shown} nodes that the scheduler showed; led to {node}, which it did not show, by "
            "nominatedNodeName"
        )
        self._events.event(Reference.to_pod(case.pod), to, "Normal", "NominatedUnshown", "Nominating", note)

    async def _effect(self, case: Case, node: str, told: asyncio.Future[Effect]) -> Effect:
        """By a filter call; else by what the watch shows of the pod."""
        until = self._clock() + ANSWER_SECONDS
        while self._clock() < until:
            done, _ = await asyncio.wait({told}, timeout=_WATCHED_SECONDS)
            if done:
                return told.result()
            pod = self._waiting(case)
            if pod is None:
                case.over.set()
                return "overtaken"
            if pod.nominated_node_name != node:
                return "lost" if case.unseen else "refused"  # cleared without a call: no node at all passed in-tree
        return "unanswered"


def _is_settled(pod: Pod) -> bool:
    """Whether it does not wait for a node, or not any more."""
    return bool(pod.node_name) or pod.terminating or pod.finished or pod.spec.gated
