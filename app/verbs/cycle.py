"""Scheduling cycle of one pod, from PreEnqueue to the chosen node, for clients other than kube-scheduler."""

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
from app.verbs.candidates import requested_nodes, unreadable_nodes
from app.verbs.context import VerbContext, decide_beside_pending, require_room, require_snapshot
from app.verbs.outcome import VerbFailure
from app.verbs.stepwise import decide_prepared, run_stepwise
from app.verbs.unserved import printable

_NODES_PER_STEP: Final = 16
"""Number of nodes evaluated per step. A step takes some tenths of a millisecond, or some milliseconds with the maximum
of constraints.
"""

_NO_SCORES = Scores((), {}, ScoreClasses((), {}), 0)


class Cycle(Struct, frozen=True):
    """Result of a scheduling cycle at each extension point.

    ``pre_enqueue``: if it is not Success, the pod is gated and no other extension point ran. ``statuses``: status of
    each node after Filter. ``node``: best feasible node, chosen at random among equals; empty if no node is feasible.

    ``post_filter``: status of the plugin that ended PostFilter; ``None`` if PostFilter did not run or has no plugins.
    ``nominated``: requested ``status.nominatedNodeName``; ``""`` clears it, ``None`` leaves it unchanged. ``victims``:
    pods to evict from that node first; Homeport does not evict them.

    ``profile`` and ``preset``: schedulerName and preset of the profile that ran.
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
    """Cycle without a feasible node, for which PostFilter must still run."""

    so_far: Cycle


class Explained(Struct, frozen=True):
    """Explanation of a pod: status of each plugin for each node (``nodes``), and the facts behind them (``plugins``).

    ``feasible``: nodes that pass all filters. ``profile`` and ``preset``: schedulerName and preset of the profile that
    ran. ``not_judged``: filters of kube-scheduler's default profile that this profile does not run; they can reject a
    feasible node.
    """

    pre_filter: Status
    nodes: Mapping[str, Mapping[str, Status]]
    feasible: Sequence[str]
    plugins: Mapping[str, Explanation]
    profile: str = ""
    preset: str = ""
    not_judged: Sequence[str] = ()


class CycleVerb:
    """Runs cycles and explanations with the verbs' snapshot and profiles. The node that a cycle chooses is registered
    as an expected bind.
    """

    def __init__(self, context: VerbContext) -> None:
        self._context = context

    def known_pod(self, namespace: str, name: str) -> Pod:
        """Return a pod of the snapshot. Raises ``VerbFailure`` if it has no such pod, or is not ready."""
        require_snapshot(self._context.problem)
        pod = self._context.cluster.pod(namespace, name)
        if pod is None:
            raise VerbFailure("nothing_to_do", f'pods "{name}" not found in namespace "{namespace}"')
        return pod

    def next_of(self, pending: Sequence[tuple[Pod, float]]) -> Pod:
        """Return the pod that QueueSort puts first; among equals, the first of ``pending``.

        ``pending``: pods, each with the time at which it was queued. Raises ``VerbFailure``, also for pods of several
        profiles, because each profile has its own order.
        """
        require_snapshot(self._context.problem)
        frameworks = [self._framework(pod) for pod, _ in pending]
        framework = frameworks[0]
        if any(it is not framework for it in frameworks):
            raise VerbFailure("bad_request", "pods: they belong to several profiles")
        chosen, since = pending[0]
        try:
            for pod, queued_at in pending[1:]:
                if framework.less(pod, queued_at, chosen, since):
                    chosen, since = pod, queued_at
        except PluginError as fault:
            raise VerbFailure("fault", fault.status.message) from fault
        return chosen

    def decode_pod(self, raw: bytes) -> Pod:
        """Decode a pod from JSON, with all parts that the plugins read. Raises ``msgspec.DecodeError``."""
        return self._context.cluster.core.decode_pod(raw)

    async def run(self, pod: Pod, names: Sequence[str] | None = None) -> Cycle:
        """Run a cycle: filter ``names`` (all nodes if ``None``), score the feasible nodes and choose one of them.

        Raises ``VerbFailure``.
        """
        framework = await self._prepared(pod)
        try:
            result = await self._run_points(framework, pod, names)
        except PluginError as fault:
            raise VerbFailure("fault", fault.status.message) from fault
        return replace(result, profile=framework.scheduler_name, preset=framework.preset)

    async def _run_points(self, framework: Framework, pod: Pod, names: Sequence[str] | None) -> Cycle:
        """Run PreEnqueue, wait for expected binds that can affect the pod, then run the rest of the cycle.

        Raises ``PluginError``.
        """
        admitted = await decide_prepared(partial(framework.pre_enqueue, pod))
        if not admitted.is_success:
            return Cycle(pre_enqueue=admitted)
        await self._context.due.wait(framework.filters.depends, pod)
        due = await self._context.due.wait(framework.scoring.score_depends_on, pod)
        return await self._decide(framework, pod, names, due)

    async def explain(self, pod: Pod) -> Explained:
        """Evaluate all nodes with every plugin, and collect the plugins' explanations. Raises ``VerbFailure``.

        Nodes are evaluated in steps, each on the snapshot of its time, because no decision depends on a consistent
        result. Events and writes of plugins are suppressed.
        """
        explained = _ExplainedNodes()
        with read_only():
            framework = await self._prepared(pod)
            try:
                plugins = await decide_prepared(partial(self._explain_plugins, framework, pod))
                await run_stepwise(self._evaluate_all(framework, pod, explained))
            except PluginError as fault:
                raise VerbFailure("fault", fault.status.message) from fault
            plugins = await framework.explain_later(plugins, explained.feasible)
        by = (framework.scheduler_name, framework.preset, framework.not_judged)
        return Explained(explained.pre_filter, explained.nodes, explained.feasible, plugins, *by)

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

    async def _decide(self, framework: Framework, pod: Pod, names: Sequence[str] | None, due: ExpectedPods) -> Cycle:
        """Choose a node and expect a bind to it, or run PostFilter if no node is feasible. Raises ``PluginError``."""
        while True:
            result = await decide_beside_pending(
                self._context.due, pod, due, partial(self._cycle, framework, pod, names)
            )
            if isinstance(result, Cycle):
                if result.node:
                    self._context.due.expect(pod, [result.node])
                return result
            ended: list[Cycle] = []
            try:
                await run_stepwise(self._post_filter_steps(framework, pod, result.so_far, ended))
            except Unprepared as missing:
                await run_stepwise(missing.steps)  # then the cycle starts again
                continue
            return ended[0]

    def _post_filter_steps(self, framework: Framework, pod: Pod, so_far: Cycle, ended: list[Cycle]) -> Iterator[None]:
        """Run PostFilter stepwise, each step on the snapshot of its time; append the result to ``ended``.

        Raises ``PluginError`` or ``Unprepared``.
        """
        steps: PostFilterSteps | None = None
        while True:
            with self._context.cluster.without(pod.uid, pod.key):
                state = CycleState()
                prepared = framework.filters.pre_filter(state, pod).status
                if prepared.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE and prepared != so_far.pre_filter:
                    ended.append(replace(so_far, post_filter=prepared))  # PreFilter now rejects the pod on every node
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
        """Run PreFilter, Filter and Score without an ``await``, and choose a node.

        Raises ``PluginError``, ``Unprepared`` or ``PendingBindsConflict``.
        """
        cluster = self._context.cluster
        with cluster.without(pod.uid, pod.key):
            names = list(cluster.nodes) if names is None else names
            requested = requested_nodes(names, None, cluster.nodes, unreadable_nodes(cluster))
            candidates = requested.candidates
            state = CycleState()
            search = framework.search.find_nodes_that_fit(pod, candidates, state)
            require_room(framework, state, pod, search.passed, due)
            rejected = search.rejected()
            statuses = {name: rejected.get(name, SUCCESS) for name in candidates.names} | dict(requested.unknown)
            feasible = candidates.among(search.passed)
            if not len(feasible):
                so_far = Cycle(search.pre_filter, statuses)
                return _Unfinished(so_far) if statuses else so_far
            scores = framework.scoring.score(CycleState(), pod, feasible)
        node = random.choice(scores.best)  # noqa: S311  # only breaks ties
        return Cycle(search.pre_filter, statuses, scores, node)

    def _explain_plugins(self, framework: Framework, pod: Pod) -> Mapping[str, Explanation]:
        """Return the explanation of each plugin. Raises ``PluginError`` or ``Unprepared``."""
        with self._context.cluster.without(pod.uid, pod.key):
            return framework.explain(pod, Candidates.of(self._context.cluster.nodes))

    def _evaluate_all(self, framework: Framework, pod: Pod, explained: _ExplainedNodes) -> Iterator[None]:
        """Evaluate ``_NODES_PER_STEP`` nodes per step, then run the filters that need the result for all nodes.

        Raises ``PluginError``.
        """
        cluster = self._context.cluster
        names = iter(tuple(cluster.nodes))
        some = list(islice(names, _NODES_PER_STEP))
        while some:
            try:
                with cluster.without(pod.uid, pod.key):
                    nodes = [cluster.nodes[name] for name in some if name in cluster.nodes]
                    _evaluate(framework, pod, nodes, explained)
            except Unprepared as missing:
                yield from missing.steps
                continue
            if not explained.pre_filter.is_success:
                return
            some = list(islice(names, _NODES_PER_STEP))
            yield
        while framework.filters.has_last_filters:
            try:
                with cluster.without(pod.uid, pod.key):
                    _evaluate_last(framework, pod, cluster.nodes, explained)
            except Unprepared as missing:
                yield from missing.steps
                continue
            return


class _ExplainedNodes(Struct):
    """Status of each plugin for the nodes evaluated so far."""

    pre_filter: Status = SUCCESS
    nodes: dict[str, Mapping[str, Status]] = {}
    feasible: list[str] = []


def _evaluate(framework: Framework, pod: Pod, nodes: Sequence[NodeInfo], explained: _ExplainedNodes) -> None:
    """Evaluate nodes and add their statuses to ``explained``; drop all statuses if PreFilter rejects the pod.

    Raises ``PluginError`` or ``Unprepared``.
    """
    state = CycleState()
    prepared = framework.filters.pre_filter(state, pod)
    explained.pre_filter = prepared.status
    if not prepared.status.is_success:
        explained.nodes, explained.feasible = {}, []
        return
    outside = prepared.outside(Candidates.of({node.name: node for node in nodes}))
    for node in nodes:
        if node.name in outside:
            explained.nodes[node.name] = {"": outside[node.name]}
            continue
        explained.nodes[node.name] = framework.filters.statuses(state, pod, node)
        if framework.filters.filter_node(state, pod, node).is_success:
            explained.feasible.append(node.name)


def _evaluate_last(framework: Framework, pod: Pod, known: Mapping[str, NodeInfo], explained: _ExplainedNodes) -> None:
    """Run the filters that depend on which nodes passed, for those evaluated nodes that still exist.

    Raises ``PluginError`` or ``Unprepared``.
    """
    state = CycleState()
    if not framework.filters.pre_filter(state, pod).status.is_success:
        return  # PreFilter now rejects the pod; the statuses found before are kept
    nodes = Candidates([name for name in explained.nodes if name in known], known.__getitem__)
    passed = [name for name in explained.feasible if name in known]
    rejected = framework.filters.filter_last(state, pod, nodes, passed)
    for name, status in rejected.items():
        explained.nodes[name] = {**explained.nodes[name], status.plugin: status}
    explained.feasible = [name for name in passed if name not in rejected]


def _post_filtered(cycle: Cycle, answer: PostFilterAnswer) -> Cycle:
    result, status = answer
    plugin_status = status if status.plugin else None
    if result is None:
        return replace(cycle, post_filter=plugin_status)
    return replace(cycle, post_filter=plugin_status, nominated=result.nominated_node_name, victims=result.victims)
