"""Topology skew of all workloads: for each spread constraint, the pods of each domain, and where the next pod can go.

A workload is the owner of pods with the same constraints: a Deployment, StatefulSet, Job, VirtualMachine or any other
controller. PodTopologySpread counts the pods, in short steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from time import thread_time
from typing import Final

from msgspec import Struct

from app.analysis.removal import removed_first
from app.analysis.skew_estimate import Key, SkewEstimate
from app.analysis.spread_blocks import SPREAD
from app.analysis.workloads import workloads_of
from app.framework.explanation import DomainLimit
from app.framework.handle import Clock
from app.framework.node_info import Candidates
from app.kube.core_v1 import Pod
from app.kube.selectors import EVERYTHING, Selector
from app.runtime.framework import Framework
from app.runtime.guard import PluginError
from app.runtime.read_only import read_only
from app.verbs.context import VerbContext, require_snapshot
from app.verbs.outcome import VerbFailure
from app.verbs.stepwise import decide_prepared, run_stepwise, yield_to_loop

MOST_LISTED: Final = 100
"""Maximum number of workloads on one page; if only skews above ``maxSkew`` are listed, of these skews."""

MOST_CANDIDATES: Final = 400
"""Maximum number of workloads whose pods are counted for the metric and for the list of skews above ``maxSkew``."""

MOST_DOMAINS: Final = 50
"""Maximum number of listed domains of a constraint: half of them with the most pods, half with the fewest."""

FRESH_SECONDS: Final = 15.0
PAUSE_FACTOR: Final = 50.0
"""A count is reused for ``PAUSE_FACTOR`` times the processor time that it took, at least for ``FRESH_SECONDS``.

So counting takes at most 2 % of the time.
"""

REFRESH_SECONDS: Final = 60.0
"""Minimum seconds between two counts of the background task, for the metric."""

LONGEST_AGE: Final = 300.0
"""Maximum age in seconds of a count that the metric shows."""

MOST_SERIES: Final = 200
"""Maximum number of series of the metric: the skews that exceed ``maxSkew`` the most."""


class DomainPods(Struct, frozen=True):
    """Domain of a constraint, with the numbers of nodes and pods that count.

    ``takes``: true if a hard constraint allows the next pod in the domain. For a soft constraint: true if the domain
    has the fewest pods.
    """

    name: str
    nodes: int
    pods: int
    takes: bool


class WorkloadSkew(Struct, frozen=True):
    """Skew of a workload under one of its constraints.

    ``pods``: number of the workload's pods. ``minimum``: global minimum of the constraint. ``skew``: largest number of
    pods in a domain, minus ``minimum``. ``domains``: at most ``MOST_DOMAINS`` of all ``domain_count`` domains.
    ``removed_first``: name of the pod that a scale-down removes first, as far as the snapshot shows; empty if unknown.
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


class SkewPage(Struct, frozen=True):
    """Page of workloads. ``total``: number of all matching workloads; if only skews above ``maxSkew`` are listed,
    number of these skews.

    ``following``: start of the next page; ``None`` if there is none. ``age``: seconds since the workloads were counted.
    """

    items: Sequence[WorkloadSkew]
    total: int
    following: int | None
    age: float


class _Counted(Struct, frozen=True):
    """Result of a count. ``workloads``: pods of each workload with constraints, by the workload's ``Key``.

    ``above``: skews larger than ``maxSkew``, the largest excess first. ``computed_at``: time of the count by the
    service's clock. ``seconds``: processor time that the count took.
    """

    workloads: Mapping[Key, Sequence[Pod]]
    above: Sequence[WorkloadSkew]
    computed_at: float
    seconds: float


class Skews:
    """Computes skews on the snapshot of the decisions. ``context``: context of the verbs.

    PodTopologySpread counts the pods of a workload only if the workload is on a requested page, or if its estimated
    skew is above ``maxSkew``. Counting all workloads would take seconds, and fill the caches of the decisions.
    """

    def __init__(self, context: VerbContext, clock: Clock) -> None:
        self._context = context
        self._cluster = context.cluster
        self._clock = clock
        self._last: _Counted | None = None
        self._computing = asyncio.Lock()

    def above(self) -> dict[tuple[str, str, str], int]:
        """Return skews larger than ``maxSkew`` by namespace, workload (``KIND/NAME``) and topology key.

        At most ``MOST_SERIES`` are returned. Empty before the first count, or if the last one is older than
        ``LONGEST_AGE``.
        """
        skews: dict[tuple[str, str, str], int] = {}
        if self._last is None or self._clock() - self._last.computed_at > LONGEST_AGE:
            return skews
        for workload in self._last.above[:MOST_SERIES]:
            key = (workload.namespace, f"{workload.kind}/{workload.name}", workload.key)
            skews[key] = max(workload.skew, skews.get(key, 0))
        return skews

    async def run(self) -> None:
        """Count repeatedly, for the metric, until cancelled."""
        while True:
            with suppress(VerbFailure):  # without a usable snapshot there is no count
                await self._current()
            seconds = 0.0 if self._last is None else self._last.seconds
            await asyncio.sleep(max(REFRESH_SECONDS, PAUSE_FACTOR * seconds))

    async def workloads(self) -> Mapping[Key, Sequence[Pod]]:
        """Return the pods of each workload with constraints, by ``Key``, from a fresh count. Raises ``VerbFailure``."""
        return (await self._current()).workloads

    async def page(
        self, namespace: str, kind: str, name: str, start: int, *, above: bool, selector: Selector = EVERYTHING
    ) -> SkewPage:
        """Return a page of workloads, from position ``start``. Raises ``VerbFailure``.

        ``namespace``, ``kind``, ``name``: only such workloads; empty for all. A controller between a workload and its
        pods, such as a ReplicaSet, stands for the workload. ``selector``: must match the last pod of the workload in
        the snapshot. ``above``: only skews larger than ``maxSkew``, the largest excess first.
        """
        counted = await self._current()
        wanted = (namespace, kind, name)
        age = self._clock() - counted.computed_at
        keys = [
            key
            for key, pods in counted.workloads.items()
            if _is_wanted(key, pods, wanted) and selector.matches(pods[-1].labels)
        ]
        if above:
            names = {key[:3] for key in keys}
            matching = [it for it in counted.above if (it.namespace, it.kind, it.name) in names]
            return _page(matching[start : start + MOST_LISTED], len(matching), start, age)
        items: list[WorkloadSkew] = []
        with read_only():
            for key in keys[start : start + MOST_LISTED]:
                items += await self._of(key, counted.workloads[key])
        return _page(items, len(keys), start, age)

    async def _current(self) -> _Counted:
        """Return the last count if it is fresh enough, else count. Raises ``VerbFailure``."""
        require_snapshot(self._context.problem)
        async with self._computing:
            last = self._last
            if last is None or self._clock() - last.computed_at > max(FRESH_SECONDS, PAUSE_FACTOR * last.seconds):
                self._last = last = await self._count()
            return last

    async def _count(self) -> _Counted:
        """Collect all workloads with constraints, and count the pods of those whose skew can be above ``maxSkew``.

        The pods of at most ``MOST_CANDIDATES`` workloads are counted.
        """
        now, began = self._clock(), thread_time()
        estimate = SkewEstimate(self._cluster, self._context.framework_for)
        await run_stepwise(estimate.collecting())
        workloads = estimate.workloads
        sorted_keys = sorted(workloads, key=lambda it: it[:3])
        candidates: list[Key] = []
        await run_stepwise(estimate.estimating(sorted_keys, candidates, MOST_CANDIDATES))
        above: list[WorkloadSkew] = []
        with read_only():
            for key in candidates:
                above += (it for it in await self._of(key, workloads[key]) if it.is_above)
        above.sort(key=lambda it: (it.max_skew - it.skew, it.namespace, it.kind, it.name))
        return _Counted({key: workloads[key] for key in sorted_keys}, above, now, thread_time() - began)

    async def _of(self, key: Key, pods: Sequence[Pod]) -> list[WorkloadSkew]:
        """Return the skew of each constraint of a workload; none if PodTopologySpread cannot count it."""
        newest = max(pods, key=lambda it: it.created)
        framework = self._context.framework_for(newest)
        if framework is None or SPREAD not in framework.plugins:
            return []
        try:
            limits = await decide_prepared(partial(self._limits, framework, newest))
        except PluginError:
            return []  # the guard has logged the fault
        first = removed_first(key[1], pods, datetime.now(UTC))
        await yield_to_loop()
        return [_skew_of(key, limit, len(pods), first) for limit in limits]

    def _limits(self, framework: Framework, pod: Pod) -> Sequence[DomainLimit]:
        """Return the pods per domain of each constraint of the pod, as PodTopologySpread counts them."""
        return framework.explain_with(SPREAD, pod, Candidates.of(self._cluster.nodes)).limits


def _is_wanted(key: Key, pods: Sequence[Pod], wanted: tuple[str, str, str]) -> bool:
    """Return True if ``wanted`` names the workload, or a controller between the workload and its pods."""
    namespace, kind, name = wanted
    if _matches(key[:3], wanted):
        return True
    if not _matches(key[:1], (namespace,)) or not name.startswith(key[2]):  # parts are named after their workload
        return False
    return any(_matches(it, (kind, name)) for pod in pods for it in workloads_of(pod))


def _matches(values: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return True if each value is equal to the wanted one; an empty wanted text matches each value."""
    return all(not it or it == value for it, value in zip(wanted, values, strict=True))


def _page(items: Sequence[WorkloadSkew], total: int, start: int, age: float) -> SkewPage:
    end = start + MOST_LISTED
    return SkewPage(items, total, end if end < total else None, max(0.0, age))


def _skew_of(key: Key, limit: DomainLimit, pods: int, first: str) -> WorkloadSkew:
    namespace, kind, name, *_ = key
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
