"""Scheduling cycle of one pod, from PreEnqueue to the chosen node, for clients other than kube-scheduler."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from app.cache.cluster import Cluster
from app.framework.counts import Unprepared
from app.framework.cycle_state import CycleState
from app.framework.points import PostFilterAnswer, PostFilterSteps, Victims
from app.framework.score_classes import ScoreClasses
from app.framework.status import SUCCESS, Code, Status
from app.kube.core_v1 import Pod
from app.memory.expected_binds import ExpectedPods
from app.runtime.framework import Framework
from app.runtime.guard import PluginError
from app.runtime.post_filters import advance
from app.runtime.scoring import Scores
from app.verbs.candidates import requested_nodes, unreadable_nodes
from app.verbs.context import VerbContext, decide_beside_pending, require_room, require_snapshot
from app.verbs.outcome import VerbFailure
from app.verbs.similar import similar
from app.verbs.stepwise import decide_prepared, run_stepwise
from app.verbs.unserved import printable

_MOST_NAMESPACES: Final = 3
"""Maximum number of namespaces that an error names."""

_NO_SCORES = Scores((), {}, ScoreClasses((), {}), 0)


class Cycle(Struct, frozen=True):
    """Result of a scheduling cycle at each extension point.

    ``pre_enqueue``: if it is not Success, the pod is gated and no other extension point ran. ``statuses``: status of
    each node after Filter. ``node``: best feasible node, chosen at random among equals; empty if no node is feasible.

    ``post_filter``: status of PostFilter; ``None`` if it did not run or has no plugins. PreFilter is repeated before
    each step of PostFilter. If it newly rejects the pod on every node, ``post_filter`` is this rejection.

    ``nominated``: new value for ``status.nominatedNodeName``; ``""`` clears the field, ``None`` leaves it unchanged.
    ``victims``: pods to evict before the pod fits on ``nominated``; a cycle evicts no pod.

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


class CycleVerb:
    """Runs cycles with the snapshot and profiles of the verbs. After a cycle that chooses a node, a bind to this node
    is expected.
    """

    def __init__(self, context: VerbContext, stays: Callable[[Pod], str]) -> None:
        """``stays``: returns why a pod must not be evicted, or an empty string; used with ``preemption: Own``."""
        self._context = context
        self._stays = stays

    def known_pod(self, namespace: str, name: str) -> Pod:
        """Return a pod of the snapshot. Raises ``VerbFailure`` if the snapshot is not ready or has no such pod."""
        require_snapshot(self._context.problem)
        return find_pod(self._context.cluster, namespace, name)

    def next_of(self, pending: Sequence[tuple[Pod, float]]) -> Pod:
        """Return the pod that QueueSort puts first; if several are equal, the first of these in ``pending``.

        ``pending``: at least one pod, each with the time at which it was queued. Raises ``VerbFailure``, also for pods
        of several profiles, because each profile has its own order.
        """
        require_snapshot(self._context.problem)
        frameworks = [self._context.require_framework(pod) for pod, _ in pending]
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
        """Run a cycle: filter ``names`` (all nodes if ``None``), score the feasible nodes and choose one.

        Raises ``VerbFailure``.
        """
        framework = await self._prepared(pod)
        try:
            result = await self._run_points(framework, pod, names)
        except PluginError as fault:
            raise VerbFailure("fault", fault.status.message) from fault
        return replace(result, profile=framework.scheduler_name, preset=framework.preset)

    async def _run_points(self, framework: Framework, pod: Pod, names: Sequence[str] | None) -> Cycle:
        """Run PreEnqueue. If it succeeds, wait for expected binds that can affect the pod, then run the rest.

        Raises ``PluginError``.
        """
        admitted = await decide_prepared(partial(framework.pre_enqueue, pod))
        if not admitted.is_success:
            return Cycle(pre_enqueue=admitted)
        await self._context.due.wait(framework.filters.depends, pod)
        due = await self._context.due.wait(framework.scoring.score_depends_on, pod)
        return await self._decide(framework, pod, names, due)

    async def _prepared(self, pod: Pod) -> Framework:
        require_snapshot(self._context.problem)
        framework = self._context.require_framework(pod)
        await self._context.look_up_missing(framework, pod)
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
                await run_stepwise(missing.steps)  # computes the missing counts; then the cycle starts again
                continue
            return ended[0]

    def _post_filter_steps(self, framework: Framework, pod: Pod, so_far: Cycle, ended: list[Cycle]) -> Iterator[None]:
        """Run PostFilter in steps, each on the snapshot of that moment; append the result to ``ended``.

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
                    steps = self._post_filter(framework, state, pod, so_far)
                    over, answer = advance(steps, None)
                else:
                    over, answer = advance(steps, state)
            if over:
                ended.append(_post_filtered(so_far, answer))
                return
            yield

    def _post_filter(self, framework: Framework, state: CycleState, pod: Pod, so_far: Cycle) -> PostFilterSteps:
        if framework.preempts:
            return framework.post_filters.for_spread(state, pod, so_far.statuses, self._stays)
        return framework.post_filters.post_filter(state, pod, so_far.statuses)

    def _cycle(
        self, framework: Framework, pod: Pod, names: Sequence[str] | None, due: ExpectedPods = ()
    ) -> Cycle | _Unfinished:
        """Run PreFilter, Filter and Score without an ``await``, and choose a node.

        Return ``_Unfinished`` if there are nodes, and none is feasible. Raises ``PluginError``, ``Unprepared`` or
        ``PendingBindsConflict``.
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


def _post_filtered(cycle: Cycle, answer: PostFilterAnswer) -> Cycle:
    result, status = answer
    plugin_status = status if status.plugin else None
    if result is None:
        return replace(cycle, post_filter=plugin_status)
    return replace(cycle, post_filter=plugin_status, nominated=result.nominated_node_name, victims=result.victims)


def find_pod(cluster: Cluster, namespace: str, name: str) -> Pod:
    """Return a pod of a snapshot. Raises ``VerbFailure`` if there is none; its message offers similar names."""
    pod = cluster.pod(namespace, name)
    if pod is None:
        message = f'pods "{printable(name)}" not found in namespace "{printable(namespace)}"'
        raise VerbFailure("nothing_to_do", message + _offered(cluster, namespace, name))
    return pod


def _offered(cluster: Cluster, namespace: str, name: str) -> str:
    """Return a hint for the error about an unknown pod; empty if the namespace has pods, but no similar ones.

    It names the namespaces with a pod of this name, else similar pods of the namespace. If the namespace has no pods,
    it says so, and names similar namespaces.
    """
    others = [it for it in cluster.namespaces() if cluster.pod(it, name) is not None]
    if others:
        return f", but in {', '.join(sorted(others)[:_MOST_NAMESPACES])}"
    if cluster.pods_in(namespace):
        return similar(printable(name), (it.name for it in cluster.pods_in(namespace)))
    return f", which has no pods{similar(printable(namespace), cluster.namespaces(), 'namespace')}"
