"""The sampling guard: a pod whose every shown node we refused is led to a node that it was not shown.

kube-scheduler shows a sample of the nodes. Where our filters pass few nodes, none of them may be among those: then the
pod waits although there is room for it. A ``nominatedNodeName`` makes the scheduler try that node first, sampled or
not. For one pod:

    refused on all shown --moments--> look at all nodes --+-- none would do: look again when asked again
                                          ^               |
                                          |           nominate
                                          |               |
                                          | back-off      |
                                          +-- refused ----+-- asked about that node alone, and we pass it: hit
                                              in-tree

A nomination that the scheduler sees is told by the pod in its next filter call: asked about the nominated node alone,
in-tree filters passed it; asked about others, they refused it. Written before the scheduler has dealt with our answer,
a nomination is cleared unseen: hence the moments.

A request says which pod to look at, and no more: who is led, and where, is decided by the pod of the picture.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Collection, Hashable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Literal

import structlog
from msgspec import Struct

from app.cache.cluster import Cluster
from app.controllers.attempts import Attempts, best, elsewhere, workload_of
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

REPEAT_SECONDS: Final = 1.0
"""Between two repeats, whosoever: a refused nomination costs the scheduler two cycles and wakes what it refused."""

LOOK_SECONDS: Final = 0.005
"""Between two looks at all nodes, each of which takes some 2 ms for 5,000 of them."""

DOUBT_SECONDS: Final = 0.25
"""After a refusal on all nodes until it is looked whether what it rested on has changed since."""

_SHORTEST_SECONDS: Final = 0.001
_FIRST_LOOK_SECONDS: Final = 0.5
_LONGEST_LOOK_SECONDS: Final = 15.0
_MOST_CASES: Final = 4096
_MOST_WORKLOADS: Final = 4096
_AT_ONCE: Final = 32

_LOG: Final = structlog.get_logger(__name__)

_WATCHED_SECONDS: Final = 0.25
_UNKNOWN_SECONDS: Final = 2.0
_LATEST_UNSEEN_SECONDS: Final = 0.1
_LOST_FREE: Final = 3

Effect = Literal["hit", "refused", "overtaken", "lost", "unanswered"]
"""``hit``: in-tree filters passed the node, and so did we · ``refused``: in-tree filters did not · ``overtaken``: we no
longer passed it, or the pod found a node in another way, or is gone · ``lost``: the scheduler cleared it unseen, since
it was just dealing with an earlier answer · ``unanswered``: nothing told what came of it."""


class CountedNominations:
    """The nominations that are ours, by pod UID; and the nominations that count, which ours do not.

    A lead reserves nothing: a filter that took the led pod to be there would refuse others for what may never come.
    bind checks hard constraints on the newest picture whatever filter said.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nodes: OrderedDict[str, str] = OrderedDict()

    def put(self, uid: str, node_name: str) -> None:
        self._nodes[uid] = node_name
        self._nodes.move_to_end(uid)
        if len(self._nodes) > _MOST_CASES:
            self._nodes.popitem(last=False)

    def drop(self, uid: str) -> None:
        self._nodes.pop(uid, None)

    def is_ours(self, pod: Pod) -> bool:
        """Whether the pod carries a nomination, and one of ours."""
        return bool(pod.nominated_node_name) and self._nodes.get(pod.uid) == pod.nominated_node_name

    def nominated(self, node_name: str) -> Collection[Pod]:
        """Pods whose nomination to the node counts."""
        return [pod for pod in self._cluster.nominated(node_name) if not self.is_ours(pod)]

    @property
    def nominated_nodes(self) -> Collection[str]:
        """Nodes to which a pod is nominated whose nomination counts."""
        return {name for name in self._cluster.nominated_nodes if self.nominated(name)}

    @property
    def generation(self) -> int:
        return self._cluster.generation


class _Case:
    """One pod under guard. ``node`` is where it was led last; ``effect`` what came of it, while that is waited for.

    ``pod``: as the picture has it once it was ``seen`` there, which is waited for until ``unknown_until``.
    """

    __slots__ = (
        "asked",
        "counted",
        "effect",
        "looks",
        "lost",
        "node",
        "over",
        "pod",
        "refused_at",
        "seen",
        "shown",
        "taken_at",
        "task",
        "unknown_until",
        "unseen",
    )

    def __init__(self, pod: Pod, shown: int, now: float) -> None:
        self.pod = pod
        self.shown = shown
        self.seen = False
        self.unknown_until = now + _UNKNOWN_SECONDS
        self.refused_at = now
        self.asked = asyncio.Event()
        self.looks = 0
        self.counted = False
        self.lost = 0
        self.node = ""
        self.taken_at: float | None = None
        self.unseen = 0
        self.effect: asyncio.Future[Effect] | None = None
        self.over = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def hear(self, pod: Pod, only: str, outcome: Outcome, now: float) -> None:
        """A filter call for the pod was answered; ``only``: the node, if it asked about one."""
        passed = outcome == "feasible"
        if only and only == self.node:
            self._settle("hit" if passed else "overtaken")
        elif self.node and pod.nominated_node_name == self.node:
            self._settle("refused")
        if passed:
            self._settle("overtaken")
            self.over.set()
            self.asked.set()
        else:
            self.asked.set()
            self.refused_at = now
            self._miss(pod, now)

    def next_look(self) -> float:
        """Seconds to the next look after one more that found no node to lead to: ever more."""
        self.looks += 1
        return min(_FIRST_LOOK_SECONDS * 2.0 ** (self.looks - 1), _LONGEST_LOOK_SECONDS)

    def lead(self, node: str) -> asyncio.Future[Effect]:
        """A nomination is on its way; returns what will tell its effect."""
        self.node = node
        self.taken_at = None
        self.unseen = 0
        self.effect = asyncio.get_running_loop().create_future()
        return self.effect

    def _miss(self, pod: Pod, now: float) -> None:
        """One call without the nomination may have been under way when it was written; a later one tells it lost."""
        if self.taken_at is not None and not pod.nominated_node_name:
            self.unseen += 1
            if self.unseen > 1 or now > self.taken_at + _LATEST_UNSEEN_SECONDS:
                self._settle("lost")

    def _settle(self, effect: Effect) -> None:
        """The first word counts."""
        if self.effect is not None and not self.effect.done():
            self.effect.set_result(effect)


class _Turn:
    """Whose turn it is to be led to a node: first come, first served. ``users`` are all who wait, and who has it."""

    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class _Plan(Struct, frozen=True):
    """What to do next about a pod: lead it to ``node``, or look again, or (neither) leave it.

    ``wait``: seconds after which to look again. ``asked_wait``: seconds after which to do so if the pod is asked about,
    and refused, once more: something may have changed. 0 stands for never.
    """

    node: str = ""
    wait: float = 0.0
    asked_wait: float = 0.0


_LEAVE: Final = _Plan()


class SamplingGuard:
    """Listens to what filter answers, looks for what it was not shown, and leads pods there."""

    def __init__(
        self,
        context: VerbContext,
        nominator: Nominator,
        leads: CountedNominations,
        clock: Clock,
        metrics: Metrics,
        events: EventRecorder = NO_EVENTS,
    ) -> None:
        self._events = events
        self._context = context
        self._cluster = context.cluster
        self._nominator = nominator
        self._leads = leads
        self._clock = clock
        self._metrics = metrics
        self._cases: dict[str, _Case] = {}
        self._doubted: dict[str, asyncio.TimerHandle] = {}
        self._workloads: OrderedDict[str, Attempts] = OrderedDict()
        self._turns: dict[str, _Turn] = {}
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._next_repeat = 0.0
        self._next_look = 0.0
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
        case = self._cases[pod.uid] = _Case(pod, shown, self._clock())
        case.task = asyncio.create_task(self._guard(case))

    def _doubt(self, pod: Pod, shown: int) -> None:
        """A refusal on all nodes may rest on a picture that is a moment behind the scheduler's.

        What would cure it has then woken the pod before it was refused, and nothing wakes it again for minutes.
        """
        if pod.uid in self._doubted or len(self._doubted) >= _MOST_CASES:
            return
        stamp = self._stamp(pod)
        if stamp is not None:
            later = asyncio.get_running_loop().call_later
            self._doubted[pod.uid] = later(DOUBT_SECONDS, self._look_back, pod, shown, stamp)

    def _look_back(self, pod: Pod, shown: int, stamp: Hashable) -> None:
        del self._doubted[pod.uid]
        if pod.uid not in self._cases and self._may_begin(pod) and self._stamp(pod) != stamp:
            self._begin(pod, shown)

    def _stamp(self, pod: Pod) -> Hashable | None:
        framework = self._context.framework_for(pod)
        try:
            return None if framework is None else tuple(framework.signatures(pod).items()) or None
        except PluginError:
            return None  # logged by the plugins' guard
        except Unprepared:
            return None  # its counts were given up: so much is asked for that others will wake the pod

    async def stop(self) -> None:
        """Leave all pods alone."""
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
        return not pod.nominated_node_name or self._leads.is_ours(pod)

    async def _guard(self, case: _Case) -> None:
        try:
            while not (case.over.is_set() or self._off):
                await self._quiet(case)
                held = self._held(self._attempts(case.pod)) if case.counted else 0.0
                if held > 0.0:
                    await self._pause(case, held)
                    continue
                await self._pause_between_looks(case)
                if case.counted and self._held(self._attempts(case.pod)) > 0.0:
                    continue  # somebody else went first: no need to look
                plan = await self._plan(case)
                if plan.node:
                    await self._lead(case, plan.node)
                elif not await self._rest(case, plan):
                    return
        finally:
            del self._cases[case.pod.uid]

    async def _pause(self, case: _Case, seconds: float) -> None:
        """Ends early when the pod needs no guard any more."""
        with suppress(TimeoutError):
            await asyncio.wait_for(case.over.wait(), max(seconds, _SHORTEST_SECONDS))

    async def _rest(self, case: _Case, plan: _Plan) -> bool:
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

    async def _quiet(self, case: _Case) -> None:
        latest = self._clock() + LONGEST_QUIET_SECONDS
        while not case.over.is_set():
            remaining = min(case.refused_at + QUIET_SECONDS, latest) - self._clock()
            if remaining <= 0.0:
                return
            await self._pause(case, remaining)

    async def _pause_between_looks(self, case: _Case) -> None:
        """Looks take their turns, so that a crowd of refused pods does not hold up the verbs."""
        now = self._clock()
        slot = max(now, self._next_look)
        self._next_look = slot + LOOK_SECONDS
        if slot > now:
            await self._pause(case, slot - now)

    async def _plan(self, case: _Case, turn: str = "") -> _Plan:
        """On the picture as it is at this moment. ``turn``: a node that is ours to lead to, if it is still good.

        Nodes are looked at in slices where a pod takes long to judge: a lead is a hint, and bind checks again.
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

    def _plan_among(self, case: _Case, framework: Framework, pod: Pod, names: Sequence[str], turn: str) -> _Plan:
        """Raises ``PluginError`` or ``Unprepared``."""
        with self._cluster.without(pod.uid, pod.key):
            known = self._cluster.nodes
            nodes = Candidates([name for name in names if name in known], known.__getitem__)
            if not len(nodes):
                return self._nowhere(case)
            self._count(case, pod, len(nodes))
            held = self._held(self._attempts(pod))
            return _Plan(wait=held) if held > 0.0 else self._choice(case, framework, pod, nodes, turn)

    def _nowhere(self, case: _Case) -> _Plan:
        return _Plan(asked_wait=case.next_look())

    def _choice(self, case: _Case, framework: Framework, pod: Pod, nodes: Candidates, turn: str) -> _Plan:
        """Any of the best nodes that were not refused lately; rather one never refused, that nobody else is led to."""
        now = self._clock()
        attempts = self._attempts(pod)
        refused = attempts.refused_at(now)
        possible = nodes.without(refused)
        if not len(possible):
            return _Plan(wait=min(refused[name] for name in nodes.names) - now, asked_wait=case.next_look())
        case.looks = 0
        for others in (self._turns.keys() - {turn}, attempts.refused):
            possible = rest if len(rest := possible.without(others)) else possible
        return _Plan(random.choice(best(framework, pod, possible)))  # noqa: S311  # no secret

    def _waiting(self, case: _Case) -> Pod | None:
        """The pod as the picture has it, if it waits for a node and nobody else has nominated it."""
        pod = self._cluster.pod(*case.pod.key)
        case.seen = case.seen or pod is not None
        if pod is None or pod.uid != case.pod.uid or _is_settled(pod):
            self._leads.drop(case.pod.uid)
            return None
        case.pod = pod
        if not pod.nominated_node_name:
            return pod
        return pod if self._leads.is_ours(pod) and not self._evicting(pod.nominated_node_name) else None

    def _evicting(self, node_name: str) -> bool:
        """Whether the scheduler may have taken our nomination over for a preemption; it asks the same of the node."""
        node = self._cluster.nodes.get(node_name)
        return node is not None and any(other.terminating for other in node.pods.values())

    def _attempts(self, pod: Pod) -> Attempts:
        key = workload_of(pod)
        found = self._workloads.setdefault(key, Attempts())
        found.forget(self._clock())
        self._workloads.move_to_end(key)
        if len(self._workloads) > _MOST_WORKLOADS:
            self._workloads.popitem(last=False)
        return found

    def _held(self, attempts: Attempts) -> float:
        """Seconds until the next attempt of a workload; 0 or less if it may be now."""
        repeat = self._next_repeat if attempts.repeats else 0.0
        return max(attempts.not_before, repeat) - self._clock()

    def _count(self, case: _Case, pod: Pod, nodes: int) -> None:
        if not case.counted:
            case.counted = True
            self._metrics.sampled_out.inc()
            _LOG.info("pod refused on every node shown, others would do", pod=str(pod), shown=case.shown, others=nodes)

    async def _lead(self, case: _Case, node: str) -> None:
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

    async def _try(self, case: _Case, node: str) -> None:
        attempts = self._attempts(case.pod)
        if attempts.repeats:
            self._next_repeat = self._clock() + REPEAT_SECONDS
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

    async def _nominate(self, case: _Case, node: str) -> Effect | Nominated:
        """Point the pod to the node and wait until the scheduler has been seen to try it, or not to."""
        uid = case.pod.uid
        told = case.lead(node)
        self._leads.put(uid, node)
        async with self._at_once:
            written = await self._nominator.nominate(case.pod, node)
        if written != "taken":
            self._leads.drop(uid)
            return written
        case.taken_at = self._clock()
        self._tell(case, node)
        effect = await self._effect(case, node, told)
        if effect == "hit":
            self._leads.drop(uid)
        return effect

    def _tell(self, case: _Case, node: str) -> None:
        to = Reference(NODES.api_version, NODES.kind, "", node)
        note = (
            f"refused on all {case.shown} nodes that the scheduler showed; led to {node}, which it did not show, by "
            "nominatedNodeName"
        )
        self._events.event(Reference.to_pod(case.pod), to, "Normal", "NominatedUnshown", "Nominating", note)

    async def _effect(self, case: _Case, node: str, told: asyncio.Future[Effect]) -> Effect:
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
