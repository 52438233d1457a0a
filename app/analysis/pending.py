"""Lists the pods that wait for a node, each with the reason that matters most.

That is the reason of the plugin with the most nodes that no other plugin rejects. Pods with equal inputs form a group,
which is judged once. A page judges a limited number of groups. For the others, it shows the last verdict, if there is
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from time import time
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from app.analysis.explain_snapshot import ExplainSnapshot
from app.analysis.judging import RUN_SECONDS, Judge, Judgement
from app.analysis.selecting import PodSelection
from app.framework.status import Status
from app.kube.core_v1 import Pod
from app.kube.kinds import REPLICA_SETS
from app.kube.memo import Newest
from app.kube.selectors import EVERYTHING, Selector
from app.runtime.framework import Framework
from app.runtime.guard import PluginError
from app.runtime.read_only import read_only
from app.verbs.context import VerbContext, require_snapshot
from app.verbs.outcome import VerbFailure
from app.verbs.stepwise import run_stepwise, yield_to_loop

MOST_JUDGED: Final = 50
"""Maximum number of groups of equal pods that one page judges."""

MOST_LISTED: Final = 500
"""Maximum number of pods on one page."""

_MOST_REMEMBERED: Final = 10_000
"""Maximum number of groups of equal pods whose last verdict is remembered."""

Inputs = tuple[object, ...]
"""Inputs of the verdict on a pod, besides the cluster. Pods of one ReplicaSet usually have equal inputs."""


class MainReason(Struct, frozen=True):
    """Summary of the verdict on a pod. ``feasible`` and ``total``: numbers of nodes.

    ``plugin``: the one that alone rejects the most nodes, see ``main_reason``. ``reasons``: those that it gives on the
    most nodes. ``opens``: number of nodes that it alone rejects. If no node is rejected, ``plugin`` is empty. If a
    plugin fails, ``plugin`` is empty and ``reasons`` has the error. ``judged_at``: seconds since 1970. ``not_judged``:
    filters that could not be judged.
    """

    feasible: int
    total: int
    plugin: str
    reasons: tuple[str, ...]
    opens: int
    judged_at: float
    not_judged: tuple[str, ...] = ()


class WaitingForNode(Struct, frozen=True):
    """Pod without a node. ``since``: result of ``waits_since``.

    ``reason``: ``None`` if the pod was not judged yet, or if no profile serves it. ``profile``: name of its profile;
    empty if no profile serves the pod.
    """

    pod: Pod
    since: str
    profile: str
    reason: MainReason | None


class PendingPage(Struct, frozen=True):
    """Page of the pods that wait, the longest wait first. ``total``: number of waiting pods on all pages."""

    items: Sequence[WaitingForNode]
    total: int


class PendingPods:
    """Lists pending pods, and remembers the last verdict on each group of equal ones."""

    def __init__(self, context: VerbContext, snapshot: ExplainSnapshot) -> None:
        self._context = context
        self._snapshot = snapshot
        self._cluster = context.cluster
        self._known = Newest[Inputs, MainReason](_MOST_REMEMBERED)

    async def page(self, namespace: str = "", start: int = 0, selector: Selector = EVERYTHING) -> PendingPage:
        """Return a page of the waiting pods that ``selector`` matches, from position ``start``.

        ``namespace``: empty for all namespaces. Raises ``VerbFailure``, also if the namespace does not exist.
        """
        require_snapshot(self._context.problem)
        if namespace:
            self._snapshot.require_namespace(namespace)
        waiting = PodSelection(
            lambda it: not it.node_name and not it.terminating and selector.matches(it.labels),
            lambda it: (waits_since(it), it.namespace, it.name),
        )
        every = self._cluster.pods_in(namespace) if namespace else self._cluster.pods()
        await run_stepwise(waiting.steps(every, start, MOST_LISTED))
        groups: list[_EqualPods] = []
        await run_stepwise(self._group(waiting.pods, groups))
        with read_only():
            await self._judge({id(it): it for it in groups}.values())
        items = [
            WaitingForNode(pod, waits_since(pod), group.profile, group.reason)
            for pod, group in zip(waiting.pods, groups, strict=True)
        ]
        await yield_to_loop()
        return PendingPage(items, waiting.total)

    def _group(self, pods: Sequence[Pod], groups: list[_EqualPods]) -> Iterator[None]:
        """Add the group of each pod to ``groups``. Each step hashes the inputs of one pod."""
        by_inputs: dict[Inputs, _EqualPods] = {}
        for pod in pods:
            inputs = inputs_of(pod)
            group = by_inputs.get(inputs)
            if group is None:
                framework, reason = self._context.framework_for(pod), self._known.get(inputs)
                group = by_inputs[inputs] = _EqualPods(inputs, pod, framework, reason)
            groups.append(group)
            yield

    async def _judge(self, groups: Iterable[_EqualPods]) -> None:
        """Judge at most ``MOST_JUDGED`` groups: first those that were never judged, then those with the oldest
        verdicts.
        """
        for group in nsmallest(MOST_JUDGED, (it for it in groups if it.framework is not None), key=_judged_at):
            whole = self._snapshot.cluster.pod(*group.first.key)
            if group.framework is not None and whole is not None:
                reason = await self._reason(group.framework, whole)
                if reason is not None:
                    group.reason = reason
                    self._known.put(group.inputs, reason)

    async def _reason(self, framework: Framework, pod: Pod) -> MainReason | None:
        """Return the main reason of a pod. If a plugin fails, the reason is the error, without plugin and numbers.

        Return ``None`` if the pod cannot be judged now, for example because the snapshot of explain is incomplete. The
        last known reason is then kept.
        """
        judgement = Judgement()
        try:
            await self._context.look_up_missing(framework, pod)
            name, snapshot = framework.scheduler_name, self._snapshot
            require_snapshot(snapshot.problem)
            unknown = snapshot.not_judged(name, pod)
            judge = Judge(snapshot.frameworks[name], snapshot.cluster, unknown, snapshot.in_flight())
            await run_stepwise(judge.steps(pod, judgement), RUN_SECONDS)
        except PluginError as fault:
            return MainReason(0, 0, "", (str(fault),), 0, time())
        except VerbFailure:
            return None
        await yield_to_loop()
        if judgement.faults:
            return MainReason(0, 0, "", (next(iter(judgement.faults.values())),), 0, time())
        return replace(main_reason(judgement), not_judged=tuple(unknown))


class _EqualPods(Struct):
    """Group of equal pods: their inputs, the first pod, its profile's framework, and the last known reason."""

    inputs: Inputs
    first: Pod
    framework: Framework | None
    reason: MainReason | None

    @property
    def profile(self) -> str:
        return "" if self.framework is None else self.framework.scheduler_name


def _judged_at(group: _EqualPods) -> float:
    return 0.0 if group.reason is None else group.reason.judged_at


def waits_since(pod: Pod) -> str:
    """Return the time (RFC 3339) since which kube-scheduler reports the pod as unschedulable, else of its creation."""
    return pod.unschedulable_since or pod.created


def inputs_of(pod: Pod) -> Inputs:
    """Return the inputs of the verdicts on a pod. Specs are compared by identity: equal specs are one object.

    A decoded pod has only the annotations of Homeport's domain, for example a policy. The ordinal at the end of a pod's
    name is an input, because a controller can keep a home for each ordinal. Pods of a ReplicaSet have no ordinal.
    """
    owner, ordinal = pod.owner, ""
    if owner is not None and owner.kind != REPLICA_SETS.kind:
        number = pod.name.rpartition("-")[2]
        ordinal = number if number.isdecimal() else ""
    uid = "" if owner is None else owner.uid
    annotations = tuple(sorted(pod.annotations.items()))
    return pod.namespace, pod.spec, pod.labels, uid, ordinal, annotations, pod.nominated_node_name


def main_reason(judgement: Judgement) -> MainReason:
    """Return the reason that matters most: that of the plugin that alone rejects the most nodes.

    If no plugin rejects a node alone, use the plugin that rejects the most nodes, with ``opens`` 0.
    """
    alone: dict[str, int] = {}
    rejects: dict[str, int] = {}
    reasons: dict[str, tuple[int, Status]] = {}
    for statuses, names in judgement.by_reasons().items():
        plugins = {status.plugin for status in statuses}
        for status in statuses:
            rejects[status.plugin] = rejects.get(status.plugin, 0) + len(names)
            if len(names) > reasons.get(status.plugin, (0, status))[0]:
                reasons[status.plugin] = (len(names), status)
        if len(plugins) == 1:
            alone[statuses[0].plugin] = alone.get(statuses[0].plugin, 0) + len(names)
    feasible, total = len(judgement.feasible), judgement.total
    if not rejects:
        return MainReason(feasible, total, "", (), 0, time())
    plugin = max(rejects, key=lambda it: (alone.get(it, 0), rejects[it]))
    return MainReason(feasible, total, plugin, reasons[plugin][1].reasons, alone.get(plugin, 0), time())
