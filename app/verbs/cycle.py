"""A whole scheduling cycle for one pod, for schedulers that are not kube-scheduler: PreEnqueue to the chosen node."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from app.framework.counts import Unprepared
from app.framework.cycle_state import CycleState
from app.framework.explanation import Explanation
from app.framework.node_info import Candidates, NodeInfo
from app.framework.points import PostFilterAnswer, PostFilterSteps, Victims
from app.framework.score_classes import ScoreClasses
from app.framework.status import SUCCESS, Code, Status
from app.kube.core_v1 import Pod
from app.memory.expected_binds import ExpectedPods
from app.runtime.framework import Framework
from app.runtime.guard import PluginError
from app.runtime.post_filters import advance
from app.runtime.read_only import read_only
from app.runtime.scoring import Scores
from app.verbs.candidates import asked_nodes, unreadable_nodes
from app.verbs.context import VerbContext, decided, require_room, require_snapshot
from app.verbs.outcome import VerbFailure
from app.verbs.slices import in_slices, prepared
from app.verbs.unserved import printable

_A_STEP: Final = 16
"""Nodes judged at a time: some tenths of a millisecond, or some milliseconds for the most constraints."""

_NO_SCORES = Scores((), {}, ScoreClasses((), {}), 0)


class Cycle(Struct, frozen=True):
    """What each extension point said. ``node`` is the best feasible one, by chance among equals; empty if none.

    ``pre_enqueue`` is anything but Success for a pod that is kept out: then no other point was asked. ``post_filter``
    is ``None`` where it was not asked: a node is feasible, there is none at all, or no plugin has that point.
    ``nominated`` is what it wants of ``status.nominatedNodeName``: a node, ``""`` to clear it, ``None`` to leave it;
    ``victims`` are the pods that would have to leave that node first. Nobody is evicted. ``profile`` and ``preset``: by
    whose plugins.
    """

    pre_filter: Status = SUCCESS
    statuses: Mapping[str, Status] = {}
    scores: Scores = _NO_SCORES
    node: str = ""
    pre_enqueue: Status = SUCCESS
    post_filter: Status | None = None
    nominated: str | None = None
    victims: Victims | None = None
    profile: str = ""
    preset: str = ""


class _Unfinished(Struct, frozen=True):
    """No node is feasible, and PostFilter is to be asked about it."""

    so_far: Cycle


class Explained(Struct, frozen=True):
    """Status of every plugin for every node, and the facts behind it. ``feasible`` are the nodes that pass all of them.

    ``profile`` and ``preset``: those of the plugins. ``not_judged``: filters of kube-scheduler's default profile that
    are not among the plugins: they can reject a feasible node.
    """

    pre_filter: Status
    nodes: Mapping[str, Mapping[str, Status]]
    feasible: Sequence[str]
    plugins: Mapping[str, Explanation]
    profile: str = ""
    preset: str = ""
    not_judged: Sequence[str] = ()


class CycleVerb:
    """Runs on the same picture and profiles as the extender's verbs, and holds its picks to be due at bind."""

    def __init__(self, context: VerbContext) -> None:
        self._context = context

    def known_pod(self, namespace: str, name: str) -> Pod:
        """A pod of the picture. Raises ``VerbFailure``."""
        require_snapshot(self._context.problem)
        pod = self._context.cluster.pod(namespace, name)
        if pod is None:
            raise VerbFailure("nothing_to_do", f'pods "{name}" not found in namespace "{namespace}"')
        return pod

    def next_of(self, pending: Sequence[tuple[Pod, float]]) -> Pod:
        """Of waiting pods, each with the time since when, the one that QueueSort puts first; of equals the first.

        Raises ``VerbFailure``, also where they are of several profiles: each has an order of its own.
        """
        require_snapshot(self._context.problem)
        frameworks = [self._framework(pod) for pod, _ in pending]
        framework = frameworks[0]
        if any(it is not framework for it in frameworks):
            raise VerbFailure("bad_request", "pods: they are of several profiles")
        chosen, since = pending[0]
        try:
            for pod, queued_at in pending[1:]:
                if framework.less(pod, queued_at, chosen, since):
                    chosen, since = pod, queued_at
        except PluginError as fault:
            raise VerbFailure("fault", fault.status.message) from fault
        return chosen

    def decode_pod(self, raw: bytes) -> Pod:
        """A pod that was sent, with all that the plugins read. Raises ``msgspec.DecodeError``."""
        return self._context.cluster.core.decode_pod(raw)

    async def run(self, pod: Pod, names: Sequence[str] | None = None) -> Cycle:
        """Judge ``names`` (all nodes if ``None``), score the feasible and choose. Raises ``VerbFailure``."""
        framework = await self._prepared(pod)
        try:
            found = await self._run(framework, pod, names)
        except PluginError as fault:
            raise VerbFailure("fault", fault.status.message) from fault
        return replace(found, profile=framework.scheduler_name, preset=framework.preset)

    async def _run(self, framework: Framework, pod: Pod, names: Sequence[str] | None) -> Cycle:
        """Raises ``PluginError``."""
        admitted = await prepared(partial(framework.pre_enqueue, pod))
        if not admitted.is_success:
            return Cycle(pre_enqueue=admitted)
        await self._context.due.wait(framework.filters.depends, pod)
        due = await self._context.due.wait(framework.scoring.score_depends_on, pod)
        return await self._decided(framework, pod, names, due)

    async def explain(self, pod: Pod) -> Explained:
        """Judge all nodes by every plugin and ask each what its answer rests on. Raises ``VerbFailure``.

        Nodes are judged some at a time, each on the picture as it is then: nothing is decided by it. Nothing is told or
        written either, whatever a plugin does.
        """
        judged = _Judged()
        with read_only():
            framework = await self._prepared(pod)
            try:
                plugins = await prepared(partial(self._explanations, framework, pod))
                await in_slices(self._judging(framework, pod, judged))
            except PluginError as fault:
                raise VerbFailure("fault", fault.status.message) from fault
            plugins = await framework.explain_later(plugins, judged.feasible)
        by = (framework.scheduler_name, framework.preset, framework.not_judged)
        return Explained(judged.pre_filter, judged.nodes, judged.feasible, plugins, *by)

    async def _prepared(self, pod: Pod) -> Framework:
        require_snapshot(self._context.problem)
        framework = self._framework(pod)
        await self._context.look_up_missing(framework, pod)
        return framework

    def _framework(self, pod: Pod) -> Framework:
        framework = self._context.framework_for(pod)
        if framework is None:
            name = printable(pod.spec.scheduler_name)
            raise VerbFailure("nothing_to_do", f'no profile for schedulerName "{name}"')
        return framework

    async def _decided(self, framework: Framework, pod: Pod, names: Sequence[str] | None, due: ExpectedPods) -> Cycle:
        """Raises ``PluginError``."""
        while True:
            found = await decided(self._context.due, pod, due, partial(self._cycle, framework, pod, names))
            if isinstance(found, Cycle):
                if found.node:
                    self._context.due.expect(pod, [found.node])
                return found
            ended: list[Cycle] = []
            try:
                await in_slices(self._post_filtering(framework, pod, found.so_far, ended))
            except Unprepared as missing:
                await in_slices(missing.steps)  # what it has tried is lost: it begins anew
                continue
            return ended[0]

    def _post_filtering(self, framework: Framework, pod: Pod, so_far: Cycle, ended: list[Cycle]) -> Iterator[None]:
        """PostFilter's steps, each on the picture as it is then. Raises ``PluginError`` or ``Unprepared``."""
        steps: PostFilterSteps | None = None
        while True:
            with self._context.cluster.without(pod.uid, pod.key):
                state = CycleState()
                prepared = framework.filters.pre_filter(state, pod).status
                if prepared.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE and prepared != so_far.pre_filter:
                    ended.append(replace(so_far, post_filter=prepared))  # by now nothing would help
                    return
                if steps is None:
                    steps = framework.post_filters.post_filter(state, pod, so_far.statuses)
                    over, answer = advance(steps, None)
                else:
                    over, answer = advance(steps, state)
            if over:
                ended.append(_post_filtered(so_far, answer))
                return
            yield

    def _cycle(
        self, framework: Framework, pod: Pod, names: Sequence[str] | None, due: ExpectedPods = ()
    ) -> Cycle | _Unfinished:
        """Raises ``PluginError``, ``Unprepared`` or ``Crowded``."""
        cluster = self._context.cluster
        with cluster.without(pod.uid, pod.key):
            names = list(cluster.nodes) if names is None else names
            asked = asked_nodes(names, None, cluster.nodes, unreadable_nodes(cluster))
            candidates = asked.candidates
            state = CycleState()
            found = framework.search.find_nodes_that_fit(pod, candidates, state)
            require_room(framework, state, pod, found.passed, due)
            rejected = found.rejected()
            statuses = {name: rejected.get(name, SUCCESS) for name in candidates.names} | dict(asked.unknown)
            feasible = candidates.among(found.passed)
            if not len(feasible):
                so_far = Cycle(found.pre_filter, statuses)
                return _Unfinished(so_far) if statuses else so_far
            scores = framework.scoring.score(CycleState(), pod, feasible)
        node = random.choice(scores.best)  # noqa: S311  # ties, no secret
        return Cycle(found.pre_filter, statuses, scores, node)

    def _explanations(self, framework: Framework, pod: Pod) -> Mapping[str, Explanation]:
        """Raises ``PluginError`` or ``Unprepared``."""
        with self._context.cluster.without(pod.uid, pod.key):
            return framework.explain(pod, Candidates.of(self._context.cluster.nodes))

    def _judging(self, framework: Framework, pod: Pod, judged: _Judged) -> Iterator[None]:
        """Some nodes at each step. Raises ``PluginError``."""
        cluster = self._context.cluster
        names = iter(tuple(cluster.nodes))
        some = list(islice(names, _A_STEP))
        while some:
            try:
                with cluster.without(pod.uid, pod.key):
                    nodes = [cluster.nodes[name] for name in some if name in cluster.nodes]
                    _judge(framework, pod, nodes, judged)
            except Unprepared as missing:
                yield from missing.steps
                continue
            if not judged.pre_filter.is_success:
                return
            some = list(islice(names, _A_STEP))
            yield
        while framework.filters.has_last_filters:
            try:
                with cluster.without(pod.uid, pod.key):
                    _judge_last(framework, pod, cluster.nodes, judged)
            except Unprepared as missing:
                yield from missing.steps
                continue
            return


class _Judged(Struct):
    """Every plugin's word on the nodes so far."""

    pre_filter: Status = SUCCESS
    nodes: dict[str, Mapping[str, Status]] = {}
    feasible: list[str] = []


def _judge(framework: Framework, pod: Pod, nodes: Sequence[NodeInfo], judged: _Judged) -> None:
    """Raises ``PluginError`` or ``Unprepared``."""
    state = CycleState()
    prepared = framework.filters.pre_filter(state, pod)
    judged.pre_filter = prepared.status
    if not prepared.status.is_success:
        judged.nodes, judged.feasible = {}, []
        return
    outside = prepared.outside(Candidates.of({it.name: it for it in nodes}))
    for it in nodes:
        if it.name in outside:
            judged.nodes[it.name] = {"": outside[it.name]}
            continue
        judged.nodes[it.name] = framework.filters.statuses(state, pod, it)
        if framework.filters.filter_node(state, pod, it).is_success:
            judged.feasible.append(it.name)


def _judge_last(framework: Framework, pod: Pod, known: Mapping[str, NodeInfo], judged: _Judged) -> None:
    """What follows from which nodes pass, as far as they are still there. Raises ``PluginError`` or ``Unprepared``."""
    state = CycleState()
    if not framework.filters.pre_filter(state, pod).status.is_success:
        return  # by now: what was said of the nodes is what was asked
    nodes = Candidates([name for name in judged.nodes if name in known], known.__getitem__)
    passed = [name for name in judged.feasible if name in known]
    rejected = framework.filters.filter_last(state, pod, nodes, passed)
    for name, status in rejected.items():
        judged.nodes[name] = {**judged.nodes[name], status.plugin: status}
    judged.feasible = [name for name in passed if name not in rejected]


def _post_filtered(found: Cycle, answer: PostFilterAnswer) -> Cycle:
    result, status = answer
    asked = status if status.plugin else None
    if result is None:
        return replace(found, post_filter=asked)
    return replace(found, post_filter=asked, nominated=result.nominated_node_name, victims=result.victims)
