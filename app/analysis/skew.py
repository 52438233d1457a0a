"""Topology skew of all workloads: for each spread constraint, the pods of each domain, and what comes next.

A workload is the owner of pods with the same constraints: a Deployment, StatefulSet, Job, VirtualMachine or any other
controller. The counts are those of PodTopologySpread. The list is computed in short steps, once for all readers.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import thread_time
from typing import Final

from msgspec import Struct

from app.analysis.explain_snapshot import ExplainSnapshot
from app.analysis.spread_blocks import SPREAD
from app.framework.explanation import DomainLimit
from app.framework.handle import Clock
from app.framework.node_info import Candidates
from app.kube.core_v1 import Pod, TopologySpreadConstraint
from app.runtime.framework import Framework
from app.runtime.guard import PluginError
from app.runtime.read_only import read_only
from app.verbs.context import VerbContext, require_snapshot
from app.verbs.outcome import VerbFailure
from app.verbs.stepwise import decide_prepared, run_stepwise

MOST_WORKLOADS: Final = 5_000
"""Maximum number of workloads whose skew is computed."""

MOST_DOMAINS: Final = 50
"""Maximum number of domains of a constraint in the list: those with the most pods, then those with the fewest."""

FRESH_SECONDS: Final = 15.0
PAUSE_FACTOR: Final = 50.0
"""A list is used again for ``FRESH_SECONDS``, or this many times its processor time, so that it takes at most 2 %."""

REFRESH_SECONDS: Final = 60.0
"""Seconds between two lists that the background task computes for the metric."""

LONGEST_AGE: Final = 300.0
"""Maximum age in seconds of a list from which the metric is made."""

MOST_SERIES: Final = 200
"""Maximum number of workloads and topology keys in the metric, those with the largest excess."""

_STEP: Final = 512
_HASH: Final = "pod-template-hash"
_INSTANCE: Final = "VirtualMachineInstance"
_ORDINAL: Final = re.compile(r"-([0-9]+)$")

Key = tuple[str, str, str, tuple[TopologySpreadConstraint, ...]]
"""Namespace, kind and name of a workload, and its constraints."""


class DomainPods(Struct, frozen=True):
    """Domain of a constraint: its name, counted nodes, and counted pods. ``takes``: true if the next pod may go there.

    For a soft constraint, the next pod goes to the domains with the fewest pods, as far as this constraint decides.
    """

    name: str
    nodes: int
    pods: int
    takes: bool


class WorkloadSkew(Struct, frozen=True):
    """Skew of a workload under one of its constraints.

    ``skew``: most pods of a domain minus ``minimum``. ``domains``: at most ``MOST_DOMAINS`` of ``domain_count``.
    ``removed_first``: name of the pod that a scale-down removes first, as far as Homeport knows; empty if unknown.
    """

    namespace: str
    kind: str
    name: str
    pods: int
    key: str
    is_hard: bool
    max_skew: int
    minimum: int
    skew: int
    domains: Sequence[DomainPods]
    domain_count: int
    removed_first: str

    @property
    def is_above(self) -> bool:
        """True if the skew is larger than ``maxSkew``."""
        return self.skew > self.max_skew


class SkewList(Struct, frozen=True):
    """Skews of all workloads, the largest excess first. ``left_out``: number of workloads beyond the bound.

    ``computed_at`` is a time of the service's clock, and ``seconds`` the processor time that the list took.
    """

    items: Sequence[WorkloadSkew]
    left_out: int
    computed_at: float
    seconds: float


class Skews:
    """Computes the list of skews. ``context``: that of the verbs. ``snapshot``: that of explain."""

    def __init__(self, context: VerbContext, snapshot: ExplainSnapshot, clock: Clock) -> None:
        self._context = context
        self._cluster = context.cluster
        self._snapshot = snapshot
        self._clock = clock
        self._last: SkewList | None = None
        self._computing = asyncio.Lock()

    def above(self) -> dict[tuple[str, str, str], int]:
        """Return skews larger than ``maxSkew`` by namespace, workload (``KIND/NAME``) and topology key.

        At most ``MOST_SERIES``; empty if the last list is too old.
        """
        skews: dict[tuple[str, str, str], int] = {}
        if self._last is None or self._clock() - self._last.computed_at > LONGEST_AGE:
            return skews
        for workload in self._last.items:
            if not workload.is_above or len(skews) == MOST_SERIES:
                break
            key = (workload.namespace, f"{workload.kind}/{workload.name}", workload.key)
            skews[key] = max(workload.skew, skews.get(key, 0))
        return skews

    async def run(self) -> None:
        """Compute the list again and again, for the metric, until cancelled."""
        while True:
            with suppress(VerbFailure):  # without a usable snapshot there is no list
                await self.current()
            seconds = 0.0 if self._last is None else self._last.seconds
            await asyncio.sleep(max(REFRESH_SECONDS, PAUSE_FACTOR * seconds))

    async def current(self) -> SkewList:
        """Return the last list if it is fresh enough, else compute it. Raises ``VerbFailure``."""
        require_snapshot(self._context.problem)
        async with self._computing:
            last = self._last
            if last is None or self._clock() - last.computed_at > max(FRESH_SECONDS, PAUSE_FACTOR * last.seconds):
                self._last = last = await self._computed()
            return last

    async def _computed(self) -> SkewList:
        now, began = self._clock(), thread_time()
        workloads: dict[Key, list[Pod]] = {}
        await run_stepwise(self._collect(workloads))
        items: list[WorkloadSkew] = []
        with read_only():
            for number, (key, pods) in enumerate(workloads.items()):
                if number == MOST_WORKLOADS:
                    break
                items += await self._of(key, pods)
        items.sort(key=lambda it: (it.max_skew - it.skew, it.namespace, it.kind, it.name))
        return SkewList(items, max(0, len(workloads) - MOST_WORKLOADS), now, thread_time() - began)

    def _collect(self, workloads: dict[Key, list[Pod]]) -> Iterator[None]:
        for number, pod in enumerate(self._cluster.pods()):
            if pod.spec.spread and pod.owner is not None and not pod.terminating:
                kind, name = workload_of(pod)
                workloads.setdefault((pod.namespace, kind, name, pod.spec.spread), []).append(pod)
            if number % _STEP == _STEP - 1:
                yield

    async def _of(self, key: Key, pods: Sequence[Pod]) -> list[WorkloadSkew]:
        """Return the skews of a workload, one for each constraint that a profile judges."""
        newest = max(pods, key=lambda it: it.created)
        deciding = self._context.framework_for(newest)
        framework = None if deciding is None else self._snapshot.frameworks[deciding.scheduler_name]
        if framework is None or SPREAD not in framework.plugins:
            return []
        try:
            limits = await decide_prepared(partial(self._limits, framework, newest))
        except PluginError:
            return []  # the guard has logged the fault
        first = removed_first(key[1], pods)
        return [_skew_of(key, limit, len(pods), first) for limit in limits]

    def _limits(self, framework: Framework, pod: Pod) -> Sequence[DomainLimit]:
        return framework.explain_with(SPREAD, pod, Candidates.of(self._cluster.nodes)).limits


def _skew_of(key: Key, limit: DomainLimit, pods: int, first: str) -> WorkloadSkew:
    namespace, kind, name, _ = key
    fewest = min(limit.pods.values(), default=0)
    names = sorted(limit.pods, key=lambda it: (-limit.pods[it], it))
    if len(names) > MOST_DOMAINS:
        names = names[: MOST_DOMAINS // 2] + names[-(MOST_DOMAINS // 2) :]
    domains = [
        DomainPods(
            it,
            limit.nodes.get(it, 0),
            limit.pods[it],
            it not in limit.full if limit.is_hard else limit.pods[it] == fewest,
        )
        for it in names
    ]
    most = max(limit.pods.values(), default=0)
    return WorkloadSkew(
        namespace,
        kind,
        name,
        pods,
        limit.key,
        limit.is_hard,
        limit.max_skew,
        limit.minimum,
        most - limit.minimum,
        domains,
        len(limit.pods),
        first,
    )


def workload_of(pod: Pod) -> tuple[str, str]:
    """Return kind and name of the workload that a pod with a controller belongs to, like ``workloads.is_of``."""
    owner = pod.owner
    if owner is None:
        return "Pod", pod.name
    suffix = f"-{pod.labels.get(_HASH, '')}"
    if owner.kind == "ReplicaSet" and len(suffix) > 1 and owner.name.endswith(suffix):
        return "Deployment", owner.name.removesuffix(suffix)
    return ("VirtualMachine" if owner.kind == _INSTANCE else owner.kind), owner.name


def removed_first(kind: str, pods: Sequence[Pod]) -> str:
    """Return the name of the pod that a scale-down removes first; empty if the kind has no such order.

    A ReplicaSet removes pods without a node first, then pods on nodes with many of its pods, then the newest. It also
    looks at readiness, restarts and deletion costs, which the snapshot does not have. A StatefulSet removes the pod
    with the highest ordinal.
    """
    if kind == "StatefulSet":
        return max(pods, key=_ordinal).name
    if kind not in ("Deployment", "ReplicaSet", "ReplicationController"):
        return ""
    on_node: Mapping[str, int] = Counter(it.node_name for it in pods)
    placed = [it for it in pods if it.node_name]
    if len(placed) < len(pods):
        return max((it for it in pods if not it.node_name), key=lambda it: it.created).name
    return max(placed, key=lambda it: (on_node[it.node_name], it.created)).name


def _ordinal(pod: Pod) -> int:
    ordinal = _ORDINAL.search(pod.name)
    return int(ordinal[1]) if ordinal else -1
