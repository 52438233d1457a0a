"""Runs PreFilter and Filter for many nodes, for one node, and before a bind, like Kubernetes' ``schedule_one.go``."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from functools import partial
from itertools import filterfalse
from typing import Any, Final

from msgspec import Struct

from app.framework.cycle_state import CycleState
from app.framework.filter_result import FilterResult
from app.framework.node_info import Candidates, NodeInfo
from app.framework.points import PreFilterPlugin
from app.framework.status import SKIP, SUCCESS, Code, Status, distinct
from app.kube.core_v1 import Pod
from app.runtime.guard import Guard, filter_each, plugin_error, timed_point
from app.runtime.precedence import has_precedence
from app.runtime.prefilter import NOT_NARROWED, PreFiltered
from app.runtime.slots import ActiveFilters, PluginSlot, node_view, nodes_view, overrides, pod_view
from app.runtime.snapshot import Nominations

WHOLE: Final = "a FilterResult that passes or rejects each node"
"""Description of a correct answer of ``filter_nodes``, for error messages."""

_LEFT: Final = "a FilterResult that passes or rejects each node that passed so far, and no other"
"""Description of a correct answer of ``filter_last``, for error messages."""

_MOST_SETS: Final = 64
"""Maximum number of sets of skipped plugins for which the remaining filters are cached."""


class FilterOutcome(Struct, frozen=True):
    """Result of PreFilter and Filter. ``rejected``: rejections by node name, of all candidates that do not pass."""

    pre_filter: Status
    rejected: Mapping[str, Status]


class Recheck(Struct, frozen=True):
    """Result of the check before a bind. ``status`` assumes that all unfinished binds succeed. ``certain`` is False if
    a Success might become a rejection when some of these binds fail.
    """

    status: Status
    certain: bool = True


class Filters:
    """PreFilter and Filter plugins of one profile.

    ``slots``: plugins of every extension point in order. ``served``: scheduler names; nominated pods with another
    scheduler name are ignored. ``deciding``: plugins at PreFilter or Filter, each once. ``has_last_filters``: True if a
    plugin implements ``filter_last``, which depends on the set of nodes that passed so far.
    """

    def __init__(
        self,
        scheduler_name: str,
        slots: Mapping[str, Sequence[PluginSlot]],
        *,
        served: Container[str],
        nominations: Nominations,
        guard: Guard,
    ) -> None:
        self.scheduler_name = scheduler_name
        self.slots = slots
        self.deciding = tuple({it.name: it for point in ("preFilter", "filter") for it in slots[point]}.values())
        self.has_last_filters = any(it.filters_last for it in slots["filter"])
        self.guard = guard
        self.nominations = nominations
        self.served = served
        self._cluster_filters = [it for it in self.deciding if not it.is_cached]
        self._without: dict[frozenset[str], ActiveFilters] = {}

    def depends(self, pod: Pod, other: Pod) -> bool:
        """Return True if a filter that reads the cluster can give another verdict on ``pod`` because of ``other``.
        Raises ``PluginError``.
        """
        return any(
            slot.depends_on is None or self.guard.call(slot.name, "DependsOn", slot.depends_on, pod, other)
            for slot in self._cluster_filters
        )

    def pre_filter(self, state: CycleState, pod: Pod) -> PreFiltered:
        """Run the PreFilter plugins and merge their answers. Raises ``PluginError`` or ``Unprepared``."""
        self.guard.begin_evaluation(pod)
        return self._timed_pre_filter(state, pod) if self.guard.sampled else self._pre_filter(state, pod)

    def _pre_filter(self, state: CycleState, pod: Pod) -> PreFiltered:
        merged = NOT_NARROWED
        rejection: Status | None = None
        for slot in self.slots["preFilter"]:
            status, names = self.call_pre_filter(slot, state, pod)
            code = status.code
            if code is Code.SKIP:
                state.skip_filter.add(slot.name)
            elif code is Code.SUCCESS:
                if names is not None:
                    merged = merged.narrowed(slot.name, names)
                    if not merged.names:
                        return merged
            elif code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return PreFiltered(status.by(slot.name))
            elif code is Code.UNSCHEDULABLE:
                rejection = status.by(slot.name)  # the other plugins still prepare their state, which preemption needs
            else:
                raise plugin_error(slot.name, "PreFilter", status.message)
        return merged if rejection is None else PreFiltered(rejection)

    _timed_pre_filter = timed_point("PreFilter")(_pre_filter)

    def call_pre_filter(self, slot: PluginSlot, state: CycleState, pod: Pod) -> tuple[Status, frozenset[str] | None]:
        """Call PreFilter of one plugin and return its answer. Raises ``PluginError`` or ``Unprepared``."""
        seen = pod if slot.parts is None else pod_view(slot, state, pod)
        before = 0 if slot.clock_reads is None else slot.clock_reads.count
        status, names = self.guard.pair(
            slot.name, "PreFilter", "(Status, node names)", slot.plugin.pre_filter, state, seen
        )
        if slot.clock_reads is not None and slot.clock_reads.count != before:
            raise self.guard.missing_expiry(slot.name, "PreFilter")
        if status is not SUCCESS and status is not SKIP:
            self.guard.checked(slot.name, "PreFilter", status)
        if names is None:
            return status, None
        if not isinstance(names, frozenset | set):
            raise self.guard.wrong_answer(slot.name, "PreFilter", names, "a set of node names")
        return status, frozenset(names)

    def active_filters(self, state: CycleState) -> ActiveFilters:
        """Return the filters that PreFilter did not skip. Cached by the set of skipped plugins; few sets occur."""
        skipped = frozenset(state.skip_filter)
        active = self._without.get(skipped)
        if active is None:
            if len(self._without) >= _MOST_SETS:
                self._without.clear()
            active = self._without[skipped] = ActiveFilters.of(self.slots["filter"], skipped)
        return active

    def feasible(self, state: CycleState, pod: Pod, nodes: Candidates) -> FilterOutcome:
        """Run all filters on all candidates without the cache. Raises ``PluginError`` or ``Unprepared``."""
        prepared = self.pre_filter(state, pod)
        if not prepared.status.is_success:
            return FilterOutcome(prepared.status, dict.fromkeys(nodes.names, prepared.status))
        outside = prepared.outside(nodes)
        rejected = self.filter(state, pod, nodes.without(outside))
        if outside:
            rejected = {**outside, **rejected}
        if self.has_last_filters:
            passed = list(filterfalse(rejected.__contains__, nodes.names))
            rejected.update(self.filter_last(state, pod, nodes, passed))
        return FilterOutcome(SUCCESS, rejected)

    def filter(self, state: CycleState, pod: Pod, nodes: Candidates) -> dict[str, Status]:
        """Return the rejections by node. A node with nominated pods is evaluated with these pods and without them."""
        return self._timed_filter(state, pod, nodes) if self.guard.sampled else self._filter(state, pod, nodes)

    def _filter(self, state: CycleState, pod: Pod, nodes: Candidates) -> dict[str, Status]:
        nominated_nodes = self.nominations.nominated_nodes
        names = [name for name in nodes.names if name in nominated_nodes] if nominated_nodes else ()
        nominated = {name: pods for name in names if (pods := self.nominated_to(name, pod))}
        rejected = self.filter_all(state, pod, nodes.without(nominated))
        for name, pods in nominated.items():
            status = self.filter_with_nominated(state, pod, nodes.info(name), pods)
            if not status.is_success:
                rejected[name] = status
        return rejected

    _timed_filter = timed_point("Filter")(_filter)

    def filter_all(self, state: CycleState, pod: Pod, nodes: Candidates) -> dict[str, Status]:
        """Return the rejections by node, each from the first plugin that rejects the node. Ignores nominated pods."""
        rejected: dict[str, Status] = {}
        for slot in self.active_filters(state).every:
            new = self.filter_whole(slot, state, pod, nodes).rejected()
            rejected.update(new)
            nodes = nodes.without(new)
        return rejected

    def filter_whole(self, slot: PluginSlot, state: CycleState, pod: Pod, nodes: Candidates) -> FilterResult:
        """Like ``filter_by``, but raise ``PluginError`` unless the answer covers exactly the given nodes."""
        result = self.filter_by(slot, state, pod, nodes)
        if slot.filters_in_batch and {*result.passed, *result.rejected()} != {*nodes.names}:
            raise self.guard.wrong_answer(slot.name, "Filter", result, WHOLE)
        return result

    def filter_by(self, slot: PluginSlot, state: CycleState, pod: Pod, nodes: Candidates) -> FilterResult:
        """Run one filter on many nodes. ``PluginError`` can be raised here, and when the rejections are read."""
        seen, nodes = (pod_view(slot, state, pod), nodes_view(slot, nodes)) if slot.parts is not None else (pod, nodes)
        if not slot.filters_in_batch:
            passed, rejected = self.guard.call(slot.name, "Filter", filter_each, slot.plugin.filter, state, seen, nodes)
            return FilterResult(passed, self.rejections(slot.name, rejected))
        result: Any = self.guard.call(slot.name, "Filter", slot.plugin.filter_nodes, state, seen, nodes)
        if (
            not isinstance(result, FilterResult)
            or isinstance(result.passed, str)
            or len(result.passed) > len(nodes.names)
        ):
            raise self.guard.wrong_answer(slot.name, "Filter", result, "a FilterResult of the given nodes")
        return FilterResult(result.passed, partial(self._read_rejections, slot.name, result))

    def _read_rejections(self, plugin: str, result: FilterResult) -> Mapping[str, Status]:
        return self.rejections(plugin, self.guard.call(plugin, "Filter", result.rejected))

    def rejections(self, plugin: str, rejected: Any) -> Mapping[str, Status]:
        """Return ``rejected`` with ``plugin`` in each status. Raises ``PluginError`` if a status is not a rejection."""
        if not isinstance(rejected, Mapping):
            raise self.guard.wrong_answer(plugin, "Filter", rejected, "a mapping of rejected nodes")
        statuses = distinct(rejected.values())
        for status in statuses.values():
            if not self.guard.checked(plugin, "Filter", status).is_rejected:
                raise plugin_error(plugin, "Filter", status.message)
        if all(status.plugin == plugin for status in statuses.values()):
            same: Mapping[str, Status] = rejected
            return same
        named = {key: status.by(plugin) for key, status in statuses.items()}
        return {name: named[id(status)] for name, status in rejected.items()}

    def filter_last(self, state: CycleState, pod: Pod, nodes: Candidates, passed: Sequence[str]) -> dict[str, Status]:
        """Run each ``filter_last`` on ``passed``; return the rejections by node name. Raises ``PluginError``."""
        results = self.last_results(state, pod, nodes, passed)
        return {name: status for result in results for name, status in result.rejected().items()}

    def last_results(
        self, state: CycleState, pod: Pod, nodes: Candidates, passed: Sequence[str]
    ) -> Sequence[FilterResult]:
        """Run each ``filter_last`` on the nodes that passed the previous ones. Return the results, except those whose
        ``passed`` is the given sequence itself.
        """
        results: list[FilterResult] = []
        for slot in self.active_filters(state).last:
            if not passed:
                break
            result = self._filter_last_by(slot, state, pod, nodes, passed)
            if result.passed is not passed:
                results.append(result)
                passed = result.passed
        return results

    def _filter_last_by(
        self, slot: PluginSlot, state: CycleState, pod: Pod, nodes: Candidates, passed: Sequence[str]
    ) -> FilterResult:
        seen, nodes = (pod_view(slot, state, pod), nodes_view(slot, nodes)) if slot.parts is not None else (pod, nodes)
        result: Any = self.guard.call(slot.name, "Filter", slot.plugin.filter_last, state, seen, nodes, passed)
        if not isinstance(result, FilterResult) or not _is_part(result.passed, passed):
            raise self.guard.wrong_answer(slot.name, "Filter", result, _LEFT)
        return FilterResult(result.passed, partial(self._read_last, slot.name, result, passed))

    def _read_last(self, plugin: str, result: FilterResult, passed: Sequence[str]) -> Mapping[str, Status]:
        rejected = self._read_rejections(plugin, result)
        if rejected.keys() != set(passed).difference(result.passed):
            raise self.guard.wrong_answer(plugin, "Filter", result, _LEFT)
        return rejected

    def filter_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        """Run Filter for one node. The node must pass with the pods that are nominated to it and without them."""
        pods = self.nominated_to(node.node.name, pod)
        return self.filter_with_nominated(state, pod, node, pods) if pods else self._filter_one(state, pod, node)

    def filter_with_nominated(self, state: CycleState, pod: Pod, node: NodeInfo, nominated: Collection[Pod]) -> Status:
        """Run Filter for one node. The node must pass with the ``nominated`` pods and without them, because these pods
        might be bound to other nodes.
        """
        dry_run = state.clone()
        self.add_pods(dry_run, pod, nominated, node)
        status = self._filter_one(dry_run, pod, node.with_pods(nominated))
        return self._filter_one(state, pod, node) if status is SUCCESS else status

    def _filter_one(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        for slot in self.active_filters(state).every:
            status = self._call_filter(slot, state, pod, node)
            if status.code is not Code.SUCCESS:
                return self.rejections(slot.name, {node.name: status})[node.name]
        return SUCCESS

    def _call_filter(self, slot: PluginSlot, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        seen, node = (pod_view(slot, state, pod), node_view(slot, node)) if slot.parts is not None else (pod, node)
        status = self.guard.call(slot.name, "Filter", slot.plugin.filter, state, seen, node)
        return status if isinstance(status, Status) else self.guard.checked(slot.name, "Filter", status)

    def nominated_to(self, node_name: str, pod: Pod) -> list[Pod]:
        """Return nominated pods of schedulers in ``served`` for which ``pod`` must leave room on the node."""
        nominated = self.nominations.nominated(node_name)
        if not nominated:
            return []
        served = self.served
        return [it for it in nominated if it.spec.scheduler_name in served and has_precedence(it, node_name, pod)]

    def recheck(self, state: CycleState, pod: Pod, node: NodeInfo, in_flight: Sequence[Pod]) -> Recheck:
        """Check a node before a bind: run PreFilter and Filter for it. ``in_flight``: other assumed pods that might not
        be bound; some can wait at Permit. Raises ``PluginError`` or ``Unprepared``.
        """
        prepared = self.pre_filter(state, pod)
        if prepared.status is not SUCCESS:
            return Recheck(prepared.status)
        if prepared.names is not None and node.node.name not in prepared.names:
            return Recheck(prepared.rejection)
        status = self.filter_node(state, pod, node)
        if status is not SUCCESS or not in_flight:
            return Recheck(status)
        deciding = (slot for slot in self.deciding if slot.name not in state.skip_filter)
        return Recheck(status, all(self._certain(slot, state, pod, node, in_flight) for slot in deciding))

    def _certain(self, slot: PluginSlot, state: CycleState, pod: Pod, node: NodeInfo, in_flight: Sequence[Pod]) -> bool:
        """Return True if the plugin's Success stays valid no matter which binds of ``in_flight`` fail.

        That is so for all plugins that read only the node and its pods, because fewer pods never turn Success into a
        rejection. For any other plugin without ``filter_certain`` the result is False: its inputs are unknown.
        """
        if slot.is_cached or slot.filter_certain is None:
            return slot.is_cached
        return self.guard.status(slot.name, "Filter", slot.filter_certain, state, pod, node, in_flight).is_success

    def add_pods(self, state: CycleState, pod: Pod, added: Iterable[Pod], node: NodeInfo) -> None:
        """Update the state that PreFilter prepared, as if ``added`` ran on ``node``. Raises ``PluginError``."""
        for other in added:
            self._extend("add_pod", "PreFilterExtensionAddPod", state, pod, other, node)

    def remove_pods(self, state: CycleState, pod: Pod, removed: Iterable[Pod], node: NodeInfo) -> None:
        """Update the state that PreFilter prepared, as if ``removed`` had left ``node``. Raises ``PluginError``."""
        for other in removed:
            self._extend("remove_pod", "PreFilterExtensionRemovePod", state, pod, other, node)

    def _extend(self, method: str, point: str, state: CycleState, pod: Pod, other: Pod, node: NodeInfo) -> None:
        for slot in self.slots["preFilter"]:
            if slot.name in state.skip_filter or not overrides(type(slot.plugin), PreFilterPlugin, method):
                continue
            seen = pod_view(slot, state, pod)
            status = self.guard.status(slot.name, point, getattr(slot.plugin, method), state, seen, other, node)
            if not status.is_success:
                raise plugin_error(slot.name, point, status.message)


def _is_part(names: Any, whole: Sequence[str]) -> bool:
    """Return True if ``names`` is a sequence of names that are all in ``whole``.

    The check is fast if ``names`` is ``whole`` itself or has one name.
    """
    if names is whole:
        return True
    if isinstance(names, str) or not isinstance(names, Sequence) or len(names) > len(whole):
        return False
    known = whole if len(names) == 1 else frozenset(whole)
    return all(map(known.__contains__, names))
