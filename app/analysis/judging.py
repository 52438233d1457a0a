"""Judges a pod on every node with every filter, even if another filter rejects the node.

A decision stops at the first plugin that rejects a node. An explanation shows all rejections, so this module runs each
filter on all nodes. It works in short steps, and each step reads the snapshot as it is then. Decisions do not use the
result, except that with the option ``fallback`` of PodTopologySpread it determines when a constraint becomes soft.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import thread_time
from typing import Final

from msgspec import Struct

from app.cache.cluster import Cluster
from app.framework.counts import Unprepared
from app.framework.cycle_state import CycleState
from app.framework.node_info import Candidates, NodeInfo
from app.framework.status import Status, distinct
from app.kube.core_v1 import Node, Pod
from app.runtime.filters import Filters
from app.runtime.framework import Framework
from app.runtime.guard import PluginError, plugin_error
from app.runtime.prefilter import NOT_NARROWED
from app.runtime.slots import PluginSlot
from app.verbs.outcome import VerbFailure

_FIRST: Final = 32
"""Number of nodes in the first step. Later steps adapt to the time of the previous one."""

_MOST: Final = 2048
"""Maximum number of nodes in a step."""

MOST_ATTEMPTS: Final = 16
"""Maximum number of times that missing counts are built for one step.

More than one, because the counts for one pod can displace each other from the cache.
"""

RUN_SECONDS: Final = 0.0032
"""Seconds after which a judgement yields to other tasks. With its last step, it has then usually run for under 5 ms."""

_STEP_SECONDS: Final = 0.001
"""Processor time that a step should take, in seconds. The number of nodes is adapted for the next step.

It becomes at most four times as large, and shrinks at most to half.
"""


class Judgement(Struct):
    """Verdicts of all filters of a profile on a pod.

    ``rejected``: the rejections of each node that does not fit, by node name; each status names its plugin.
    ``feasible``: nodes that pass all filters. ``everywhere``: rejections of PreFilter, which apply to every node; they
    are also in ``rejected``. ``plugins``: plugins that gave a verdict. ``faults``: errors of plugins, by plugin.
    """

    rejected: dict[str, tuple[Status, ...]] = {}
    feasible: list[str] = []
    everywhere: tuple[Status, ...] = ()
    plugins: tuple[str, ...] = ()
    faults: dict[str, str] = {}
    _shared: dict[Status, Status] = {}

    @property
    def total(self) -> int:
        """Number of nodes that were judged."""
        return len(self.rejected) + len(self.feasible)

    def share(self, status: Status) -> Status:
        """Return one object for all equal statuses, so that nodes can be grouped by the identity of their statuses."""
        return self._shared.setdefault(status, status)

    def by_reasons(self) -> dict[tuple[Status, ...], list[str]]:
        """Return the rejected nodes by their rejections."""
        groups: dict[tuple[int, ...], tuple[tuple[Status, ...], list[str]]] = {}
        for name, statuses in self.rejected.items():
            key = tuple(map(id, statuses))
            if key not in groups:
                groups[key] = (statuses, [])
            groups[key][1].append(name)
        return dict(groups.values())

    def by_plugins(self) -> dict[frozenset[str], list[str]]:
        """Return the rejected nodes by the set of plugins that reject them."""
        nodes: dict[frozenset[str], list[str]] = {}
        for statuses, names in self.by_reasons().items():
            nodes.setdefault(frozenset(status.plugin for status in statuses), []).extend(names)
        return nodes


class _Prepared(Struct, frozen=True):
    """Filters that can judge nodes after PreFilter, and the rejections of PreFilter.

    ``allowed``: nodes to which PreFilter of a plugin restricts the search, by plugin. ``outside``: rejection of a node
    that a plugin does not allow.
    """

    active: Sequence[PluginSlot]
    everywhere: tuple[Status, ...]
    allowed: Mapping[str, frozenset[str]]
    outside: Status


class Judge:
    """Judges pods with the filters of one profile on one snapshot. Use it only within ``read_only``.

    In a what-if, the plugins have no API server, and ``read_only`` is not needed.
    """

    def __init__(
        self, framework: Framework, cluster: Cluster, ignored: Collection[str] = (), added: Sequence[Pod] = ()
    ) -> None:
        """``ignored``: plugins that must give no verdict, for example because objects that they need are not known.

        ``added``: pods that have a node, but are without it in the snapshot, such as pods whose bind is in flight.
        """
        self._added = added
        self._filters: Filters = framework.filters
        self._cluster = cluster
        self._ignored = frozenset(ignored)

    def steps(
        self,
        pod: Pod,
        judgement: Judgement,
        names: Sequence[str] | None = None,
        *,
        without: Sequence[Pod] = (),
        nodes: Sequence[Node] = (),
    ) -> Iterator[None]:
        """Judge the nodes ``names`` (all if ``None``) and add the verdicts to ``judgement``, in short steps.

        ``without``: other pods that are left out, as if they were deleted. ``nodes``: changed copies of nodes, which
        replace these nodes. A plugin that raises an exception is recorded in ``faults``, and gives no verdict on the
        remaining nodes. Raises ``PluginError`` for a fault without a plugin, and ``VerbFailure`` if the counts that the
        pod needs do not stay cached.
        """
        every = tuple(self._cluster.nodes) if names is None else tuple(names)
        start, size, attempts = 0, _FIRST, 0
        while start < len(every):
            chunk = every[start : start + size]
            began = thread_time()
            try:
                with self.seen(pod, without, nodes):
                    self._judge(pod, chunk, judgement)
            except Unprepared as missing:
                attempts = _attempted(attempts)
                yield from missing.steps
                continue
            except PluginError as fault:
                _leave_out(fault, judgement)
                continue
            start, attempts = start + len(chunk), 0
            size = _next_size(size, thread_time() - began)
            yield
        yield from self._last(pod, judgement, without, nodes)

    @contextmanager
    def seen(self, pod: Pod, without: Sequence[Pod] = (), nodes: Sequence[Node] = ()) -> Iterator[None]:
        """Within the block, the snapshot has ``nodes`` and the judge's added pods, but not ``pod`` and ``without``."""
        shown = self._cluster.overlay(without=without, with_=self._added, nodes=nodes)
        with shown, self._cluster.without(pod.uid, pod.key):
            yield

    def with_nominated(self, pod: Pod, names: Sequence[str]) -> list[NodeInfo]:
        """Return the known nodes of ``names``, without ``pod`` and with the judge's added pods and nominated pods."""
        with self.seen(pod):
            known = [info for name in names if (info := self._cluster.nodes.get(name)) is not None]
            return [info.with_pods(pods) if (pods := self._nominated_to(info.name, pod)) else info for info in known]

    def _nominated_to(self, name: str, pod: Pod) -> Sequence[Pod]:
        """Return the nominated pods for which ``pod`` must leave room on the node ``name``."""
        return self._filters.nominated_to(name, pod) if name in self._filters.nominations.nominated_nodes else ()

    def _judge(self, pod: Pod, names: Sequence[str], judgement: Judgement) -> None:
        """Judge some nodes without an ``await``. Raises ``PluginError`` or ``Unprepared``, and then adds nothing."""
        nodes = self._cluster.nodes
        state = CycleState()
        prepared = self._prepare(state, pod, judgement)
        candidates = Candidates.of({name: nodes[name] for name in names if name in nodes})
        rejections: dict[str, list[Status]] = {name: list(prepared.everywhere) for name in candidates.names}
        for plugin, allowed in prepared.allowed.items():
            outside = judgement.share(prepared.outside.by(plugin))
            for name in candidates.names:
                if name not in allowed:
                    rejections[name].append(outside)
        for slot in prepared.active:
            rejected = self._filters.filter_whole(slot, state, pod, candidates).rejected()
            shared = {key: judgement.share(status) for key, status in distinct(rejected.values()).items()}
            allowed_by_it = prepared.allowed.get(slot.name, candidates.name_set)
            for name, status in rejected.items():
                if name in allowed_by_it:  # for all other nodes, PreFilter of this plugin has already given a reason
                    rejections[name].append(shared[id(status)])
        self._judge_nominated(prepared, state, pod, candidates, rejections, judgement)
        judgement.everywhere = prepared.everywhere
        judgement.plugins = tuple(
            slot.name
            for slot in self._filters.deciding
            if slot.name not in judgement.faults and slot.name not in self._ignored
        )
        for name, statuses in rejections.items():
            if statuses:
                judgement.rejected[name] = tuple(statuses)
            else:
                judgement.feasible.append(name)

    def _prepare(self, state: CycleState, pod: Pod, judgement: Judgement) -> _Prepared:
        """Run PreFilter of every plugin, even if one rejects the pod. Raises ``PluginError`` or ``Unprepared``."""
        self._filters.guard.begin_evaluation(pod)
        everywhere: list[Status] = []
        allowed: dict[str, frozenset[str]] = {}
        merged = NOT_NARROWED
        left_out = {*judgement.faults, *self._ignored}
        state.skip_filter.update(left_out)
        for slot in self._filters.slots["preFilter"]:
            if slot.name in left_out:
                continue
            status, names = self._filters.call_pre_filter(slot, state, pod)
            if status.is_skip or status.is_rejected:
                state.skip_filter.add(slot.name)  # after a rejection, the plugin has no state for Filter
            if status.is_rejected:
                everywhere.append(judgement.share(status.by(slot.name)))
            elif not (status.is_success or status.is_skip):
                raise plugin_error(slot.name, "PreFilter", status.message)
            if names is not None:
                allowed[slot.name] = names
                merged = merged.narrowed(slot.name, names)
        outside = merged.rejection if merged.status.is_success else merged.status
        return _Prepared(self._filters.active_filters(state).every, tuple(everywhere), allowed, outside)

    def _judge_nominated(
        self,
        prepared: _Prepared,
        state: CycleState,
        pod: Pod,
        candidates: Candidates,
        rejections: dict[str, list[Status]],
        judgement: Judgement,
    ) -> None:
        """Judge each node with nominated pods again, with these pods. As in kube-scheduler, it must pass both times."""
        for name in candidates.names if self._filters.nominations.nominated_nodes else ():
            if not (pods := self._nominated_to(name, pod)):
                continue
            dry_run, info = state.clone(), candidates.info(name)
            self._filters.add_pods(dry_run, pod, pods, info)
            crowded: dict[str, NodeInfo] = {name: info.with_pods(pods)}
            known = {status.plugin for status in rejections[name]}
            for slot in prepared.active:
                if slot.name not in known:
                    result = self._filters.filter_whole(slot, dry_run, pod, Candidates.of(crowded))
                    rejections[name] += map(judgement.share, result.rejected().values())

    def _last(self, pod: Pod, judgement: Judgement, without: Sequence[Pod], changed: Sequence[Node]) -> Iterator[None]:
        """Run the last filters: their verdicts depend on which nodes passed all other filters."""
        attempts = 0
        while self._filters.has_last_filters and judgement.feasible:
            try:
                with self.seen(pod, without, changed):
                    state = CycleState()
                    if self._prepare(state, pod, judgement).everywhere:
                        return
                    nodes = self._cluster.nodes
                    names = [*judgement.rejected, *judgement.feasible]
                    known = Candidates([name for name in names if name in nodes], nodes.__getitem__)
                    passed = [name for name in judgement.feasible if name in nodes]
                    rejected = self._filters.filter_last(state, pod, known, passed)
            except Unprepared as missing:
                attempts = _attempted(attempts)
                yield from missing.steps
                continue
            except PluginError as fault:
                _leave_out(fault, judgement)
                continue
            judgement.rejected.update((name, (judgement.share(status),)) for name, status in rejected.items())
            judgement.feasible = [name for name in passed if name not in rejected]
            return


def _attempted(attempts: int) -> int:
    """Return ``attempts`` plus one. Raises ``VerbFailure`` after ``MOST_ATTEMPTS``."""
    if attempts == MOST_ATTEMPTS:
        raise VerbFailure("out_of_time", "the counts that the pod's constraints need do not stay cached")
    return attempts + 1


def _next_size(size: int, taken: float) -> int:
    """Return the number of nodes for the next step, if the last step took ``taken`` seconds for ``size`` nodes."""
    growth = min(4.0, 0.8 * _STEP_SECONDS / taken) if taken else 4.0
    return min(_MOST, max(1, size // 2, int(size * growth)))


def _leave_out(fault: PluginError, judgement: Judgement) -> None:
    """Record the fault of a plugin, whose verdicts are then left out.

    Raises ``fault`` if it names no plugin, or if a fault of this plugin was recorded before.
    """
    plugin = fault.status.plugin
    if not plugin or plugin in judgement.faults:
        raise fault
    judgement.faults[plugin] = fault.status.message
