"""PreFilter and Filter: which nodes a pod may use, for many nodes at once or for one, and whether that is certain.

Source of the rules: ``pkg/scheduler/framework/runtime`` and ``schedule_one.go`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, filterfalse
from typing import Any, Final, Self

from msgspec import Struct

from app.framework.cycle_state import CycleState
from app.framework.filter_result import FilterResult
from app.framework.interface import PreFilterPlugin, Reads
from app.framework.node_info import Candidates, NodeInfo
from app.framework.status import SKIP, SUCCESS, Code, Status, distinct, unresolvable
from app.kube.core_v1 import Pod
from app.runtime.guard import plugin_error
from app.runtime.kept import Kept, KeptPass
from app.runtime.picture import Nominations
from app.runtime.runner import Runner, sampled, sees, sees_node, sees_nodes
from app.runtime.slots import PluginSlot, overrides
from app.runtime.timed import ClockReads

ALL_PLUGINS: Final = ""
"""Stands, among signatures, for what rests on every plugin: as a node that is outside of the sets they named."""

_WHOLE: Final = "a FilterResult that passes or rejects each node"
_LEFT: Final = "a FilterResult that passes or rejects each node that passed so far, and no other"
_MOST_SETS: Final = 64
"""Of excused plugins, of which it is remembered who is left."""

_OUTSIDE: Final = "node(s) didn't satisfy plugin(s) {}"


class PreFiltered(Struct, frozen=True):
    """The merged answer of all PreFilter plugins; ``names`` is ``None`` where no plugin narrowed the nodes."""

    status: Status
    names: frozenset[str] | None = None
    narrowed_by: tuple[str, ...] = ()

    def outside(self, nodes: Candidates) -> dict[str, Status]:
        """The candidates that a plugin's node set leaves out."""
        names = self.names
        if names is None:
            return {}
        status = self.rejection
        return {name: status for name in nodes.names if name not in names}

    @property
    def rejection(self) -> Status:
        """What is said of a node that is left out."""
        return unresolvable(_OUTSIDE.format(_bracketed(self.narrowed_by)))


_UNTOUCHED: Final = PreFiltered(SUCCESS)


class Judged(Struct, frozen=True):
    """What PreFilter and Filter say. ``rejected`` holds every candidate that may not be used, with the reason."""

    pre_filter: Status
    rejected: Mapping[str, Status]


class Found(FilterResult):
    """What a search found. ``lasts``: whether its rejections stand as long as those of each plugin do by themselves.

    They do not where a last filter rejected: these rest on which nodes were asked about and on which of them passed.
    """

    __slots__ = ("lasts",)

    def __init__(
        self,
        passed: Sequence[str],
        rejections: Mapping[str, Status] | Callable[[], Mapping[str, Status]],
        *,
        lasts: bool = True,
    ) -> None:
        super().__init__(passed, rejections)
        self.lasts = lasts


class _Asked(Candidates):
    """All nodes that a search asks about. Which of the names are nodes is looked up if somebody reads them: few do."""

    __slots__ = ("_known", "_names")

    def __init__(self, nodes: Candidates, known: Callable[[], Sequence[str]]) -> None:
        self.sent = nodes.sent
        self._info = nodes.info
        self._set = None
        self._known = known
        self._names: Sequence[str] | None = None

    @property
    def names(self) -> Sequence[str]:  # type: ignore[override]  # nobody sets the names of candidates
        if self._names is None:
            self._names = self._known()
        return self._names

    def seen_as(self, view: Callable[[NodeInfo], NodeInfo]) -> Candidates:
        seen = _Asked(self, lambda: self.names)
        info = self._info
        seen._info = lambda name: view(info(name))
        return seen


class Recheck(Struct, frozen=True):
    """``status`` on the optimistic view; ``certain``: a Success that holds whatever becomes of the binds in flight."""

    status: Status
    certain: bool = True


class _TakingPart(Struct, frozen=True):
    """The filters that are asked about a pod.

    ``kept``: those whose verdicts are kept · ``last``: those that judge last · ``by_pods_on_node``: of those that are
    kept, those that read the pods of a node.
    """

    every: Sequence[PluginSlot]
    kept: Sequence[PluginSlot]
    others: Sequence[PluginSlot]
    last: Sequence[PluginSlot]
    by_pods_on_node: Sequence[PluginSlot]

    @classmethod
    def of(cls, filters: Iterable[PluginSlot], excused: Container[str]) -> Self:
        every = [it for it in filters if it.name not in excused]
        kept = [it for it in every if it.is_kept]
        others = [it for it in every if not it.is_kept]
        by_pods_on_node = [it for it in kept if it.reads is Reads.PODS_ON_NODE]
        return cls(every, kept, others, [it for it in every if it.filters_last], by_pods_on_node)


class _Search:
    """What one search for nodes has found so far. ``left`` passed all plugins that were asked.

    ``asked``: what each plugin that reads the cluster was asked about, and said · ``apart``: nodes that were judged by
    themselves · ``last``: what the last filters said that did not pass on what they were given.
    """

    __slots__ = ("apart", "asked", "each", "kept", "last", "left")

    def __init__(self) -> None:
        self.each: Sequence[Kept] = ()
        self.kept: KeptPass | None = None
        self.asked: dict[str, FilterResult] = {}
        self.apart: dict[str, Status] = {}
        self.last: Sequence[FilterResult] = ()
        self.left: Sequence[str] = ()


class Filtering(Runner):
    """Filters of one profile. ``served`` are the scheduler names whose nominated pods count."""

    def __init__(self, *, served: Container[str], nominations: Nominations, **rest: Any) -> None:
        super().__init__(**rest)
        self._served = served
        self._nominations = nominations
        self._own_place_matters = any(it.reads is Reads.PODS_ON_NODE for it in self.slots["filter"])
        self._has_last_filters = any(it.filters_last for it in self.slots["filter"])
        self._without: dict[frozenset[str], _TakingPart] = {}
        self._deciding = {it.name: it for point in ("preFilter", "filter") for it in self.slots[point]}.values()
        self._reading_cluster = [it for it in self._deciding if not it.is_kept]

    def depends(self, pod: Pod, other: Pod) -> bool:
        """Whether where ``other`` runs may matter to the filters of ``pod``. Raises ``PluginError``."""
        return any(
            slot.depends_on is None or self._guard.call(slot.name, "DependsOn", slot.depends_on, pod, other)
            for slot in self._reading_cluster
        )

    def signatures(self, pod: Pod) -> dict[str, Hashable]:
        """By plugin, what its rejections of the pod rest on: equal ones, equal rejections. Without an entry: not known.

        ``ALL_PLUGINS`` has one if all have. Raises ``PluginError`` or ``Unprepared``.
        """
        self._guard.begin(pod)
        found: dict[str, Hashable] = {}
        for slot in self._deciding:
            if slot.is_kept:
                found[slot.name] = self._kept.standing(slot, pod, self._judge_alone)
            elif slot.signature is not None:
                signature = self._guard.call(slot.name, "Signature", _signature, slot.signature, pod)
                if signature is not None:
                    found[slot.name] = signature
        nominated = tuple(
            (name, other.uid) for name in self._nominations.nominated_nodes for other in self._nominated_to(name, pod)
        )
        if nominated:
            # Judged by the counts themselves, not by what is above a limit: holds until anything changes.
            rest = (nominated, self._nominations.generation)
            found = {name: (signature, rest) for name, signature in found.items()}
        if len(found) == len(self._deciding):
            found[ALL_PLUGINS] = tuple(found.values())
        return found

    def pre_filter(self, state: CycleState, pod: Pod) -> PreFiltered:
        """Run and merge PreFilter. U is remembered while the others still prepare their state; UAU ends at once."""
        self._guard.begin(pod)
        self._kept.begin()
        return self._pre_filter(state, pod)

    @sampled("PreFilter")
    def _pre_filter(self, state: CycleState, pod: Pod) -> PreFiltered:
        merged = _UNTOUCHED
        rejection: Status | None = None
        for slot in self.slots["preFilter"]:
            status, names = self._ask_pre_filter(slot, state, pod)
            code = status.code
            if code is Code.SKIP:
                state.skip_filter.add(slot.name)
            elif code is Code.SUCCESS:
                if names is not None:
                    merged = _narrow(merged, slot.name, names)
                    if not merged.names:
                        return merged
            elif code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return PreFiltered(status.by(slot.name))
            elif code is Code.UNSCHEDULABLE:
                rejection = status.by(slot.name)
            else:
                raise plugin_error(slot.name, "PreFilter", status.message)
        return merged if rejection is None else PreFiltered(rejection)

    def _ask_pre_filter(self, slot: PluginSlot, state: CycleState, pod: Pod) -> tuple[Status, frozenset[str] | None]:
        seen = pod if slot.parts is None else sees(slot, state, pod)
        before = 0 if slot.clock_reads is None else slot.clock_reads.count
        status, names = self._pair(slot, "PreFilter", "(Status, node names)", slot.plugin.pre_filter, state, seen)
        if slot.clock_reads is not None and slot.clock_reads.count != before:
            raise self._guard.undated(slot.name, "PreFilter")
        if status is not SUCCESS and status is not SKIP:
            self._guard.checked(slot.name, "PreFilter", status)
        if names is None:
            return status, None
        if not isinstance(names, frozenset | set):
            raise self._guard.wrong(slot.name, "PreFilter", names, "a set of node names")
        return status, frozenset(names)

    def find_nodes_that_fit(self, pod: Pod, nodes: Candidates, state: CycleState | None = None) -> Found:
        """Return the candidates that pass PreFilter and Filter, from the cache as far as possible.

        Candidates may be names of no node: these neither pass nor are rejected. Raises ``PluginError`` or
        ``Unprepared``, also where the rejections are read.
        """
        return self.search(CycleState() if state is None else state, pod, nodes)[1]

    def crowded(
        self, state: CycleState, pod: Pod, passed: Sequence[str], due: Sequence[tuple[Pod, Sequence[str]]]
    ) -> frozenset[str]:
        """Return the UIDs of pods in ``due``, each with nodes it may take, that may take the pod's room on one.

        Asks the plugins that read the pods of a node, for which more pods never help. ``state``: of the search.
        Raises ``PluginError`` or ``Unprepared``.
        """
        slots = self._taking_part(state).by_pods_on_node
        due = [(it, places) for it, places in due if not self._picture.place_of(it.uid, it.key)]
        if not slots or not due:
            return frozenset()
        taken = list(dict.fromkeys(chain.from_iterable(places for _, places in due)))
        names = taken if len(taken) < len(passed) else passed
        full = self._kept.crowded(slots, pod, [it for it, _ in due], names, self._judge_alone)
        if not full:
            return frozenset()
        full.intersection_update(passed)
        return frozenset(it.uid for it, places in due if not full.isdisjoint(places))

    def search(self, state: CycleState, pod: Pod, nodes: Candidates) -> tuple[Status, Found]:
        """The same with a state of the caller's, and what PreFilter said."""
        prepared = self.pre_filter(state, pod)
        if not prepared.status.is_success:
            rejected = Found((), lambda: dict.fromkeys(self._known(nodes, nodes.names), prepared.status))
            return prepared.status, rejected
        names = nodes.names
        if prepared.names is not None:
            names = list(filter(prepared.names.__contains__, names))
        found = self._search(state, pod, nodes, names)
        reasons = partial(self._reasons, state, pod, nodes, prepared, found)
        return SUCCESS, Found(found.left, reasons, lasts=not found.last)

    @sampled("Filter")
    def _search(self, state: CycleState, pod: Pod, nodes: Candidates, names: Sequence[str]) -> _Search:
        found = _Search()
        apart = self._apart(pod, nodes, names)
        found.left = list(filterfalse(apart.__contains__, names)) if apart else names
        filters = self._taking_part(state)
        if filters.kept:
            judge = partial(self._judge, state)
            found.each, found.kept, found.left = self._kept.passing(filters.kept, pod, found.left, judge)
        of_the_picture = found.kept is not None and found.kept.passing is not None
        if not of_the_picture and not (filters.others and filters.others[0].any_names):
            found.left = self._known(nodes, found.left)
        for slot in filters.others:
            asked = nodes if found.left is nodes.names else nodes.among(found.left)
            found.asked[slot.name] = result = self._filter_by(slot, state, pod, asked)
            found.left = result.passed
        if apart:
            found.apart = self._judge_apart(state, pod, nodes, apart)
            passed = {*found.left, *(name for name, status in found.apart.items() if status.is_success)}
            found.left = list(filter(passed.__contains__, names))
        if filters.last and found.left:
            asked = _Asked(nodes, partial(self._known, nodes, nodes.names))
            found.last = self._filter_last(state, pod, asked, found.left)
            found.left = found.last[-1].passed if found.last else found.left
        return found

    def _taking_part(self, state: CycleState) -> _TakingPart:
        """Those that PreFilter did not excuse. Which it does is one of a few sets for nearly all pods."""
        excused = frozenset(state.skip_filter)
        found = self._without.get(excused)
        if found is None:
            if len(self._without) >= _MOST_SETS:
                self._without.clear()
            found = self._without[excused] = _TakingPart.of(self.slots["filter"], excused)
        return found

    def _known(self, nodes: Candidates, names: Iterable[str]) -> list[str]:
        """Those that are nodes."""
        known = self._picture.nodes
        if not nodes.sent:
            return list(filter(known.__contains__, names))
        return [it for it in names if it in known or it in nodes.sent]

    def _apart(self, pod: Pod, nodes: Candidates, names: Sequence[str]) -> Mapping[str, Collection[Pod]]:
        """Candidates that are judged by themselves, with the pods that are nominated to them.

        Nodes with nominated pods; those that came with the request, and the one that the pod itself stands on, where
        pods on nodes count for what is kept: that is of the picture, and of pods that are nowhere.
        """
        nominated = self._nominations.nominated_nodes
        if not nominated and not nodes.sent and not self._own_place_matters:
            return {}
        asked = nodes if names is nodes.names else nodes.among(names)
        found: dict[str, Collection[Pod]] = {it: () for it in nodes.sent if it in asked.name_set}
        if self._own_place_matters:
            places = (self._picture.place_of(pod.uid, pod.key), *self._picture.overlaid_nodes)
            found |= {it: () for it in places if it and it in self._picture.nodes and it in asked.name_set}
        if nominated and not set(nominated).isdisjoint(names):
            among = self._known(nodes, [it for it in nominated if it in asked.name_set])
            found |= {it: pods for it in among if (pods := self._nominated_to(it, pod))}
        return found

    def _judge_apart(
        self, state: CycleState, pod: Pod, nodes: Candidates, apart: Mapping[str, Collection[Pod]]
    ) -> dict[str, Status]:
        alone = nodes.among([name for name in nodes.names if name in apart and not apart[name]])
        rejected = self._filter_batch(state, pod, alone)
        found = {name: rejected.get(name, SUCCESS) for name in alone.names}
        for name, pods in apart.items():
            if pods:
                found[name] = self._filter_with_nominated(state, pod, nodes.info(name), pods)
        return found

    def _reasons(
        self, state: CycleState, pod: Pod, nodes: Candidates, prepared: PreFiltered, found: _Search
    ) -> Mapping[str, Status]:
        """Why the others do not pass: for each what the first plugin says, in the profile's order, that rejects it."""
        passed = set(found.left)
        rest = self._known(nodes, filterfalse(passed.__contains__, nodes.names))
        rejected: dict[str, Status] = {}
        if prepared.names is not None:
            outside = prepared.rejection
            rejected = {name: outside for name in rest if name not in prepared.names}
        if found.apart:
            rejected.update((name, status) for name, status in found.apart.items() if not status.is_success)
        for last in found.last:
            rejected.update(last.rejected())
        kept = {it.slot.name: it for it in found.each}
        for slot in self._filters(state):
            rest = list(filterfalse(rejected.__contains__, rest)) if rejected else rest
            if not rest:
                break
            said = (
                self._kept_reasons(kept[slot.name], state, rest)
                if slot.is_kept
                else self._cluster_reasons(slot, state, pod, nodes.among(rest), found)
            )
            if not rejected and not slot.is_kept and len(said) == len(rest) and all(map(said.__contains__, rest)):
                return said  # the usual case: one plugin rejects them all, and says nothing of others
            rejected.update((name, said[name]) for name in rest if name in said)
        return rejected

    def _kept_reasons(self, kept: Kept, state: CycleState, names: Sequence[str]) -> Mapping[str, Status]:
        missing = kept.judged.missing(names)
        if missing:
            kept.judge(missing, self._picture, partial(self._judge, state))
            self._kept.weigh((kept,))
        return kept.rejected

    def _cluster_reasons(
        self, slot: PluginSlot, state: CycleState, pod: Pod, nodes: Candidates, found: _Search
    ) -> Mapping[str, Status]:
        """What was said when the nodes were searched; of nodes that a kept verdict had kept from the plugin, anew."""
        result = found.asked[slot.name]
        said = result.rejected()
        if all(map(said.__contains__, nodes.names)):
            return said
        passed = set(result.passed)
        left = [name for name in nodes.names if name not in said and name not in passed]
        if left and found.kept is not None:
            not_asked = [name for name in left if name in found.kept.blocked]
            said = {**said, **self._filter_by(slot, state, pod, nodes.among(not_asked)).rejected()}
            left = [name for name in left if name not in found.kept.blocked]
        if left:
            raise self._guard.wrong(slot.name, "Filter", result, _WHOLE)
        return said

    def feasible(self, state: CycleState, pod: Pod, nodes: Candidates) -> Judged:
        """PreFilter and Filter over all candidates, each judged afresh."""
        prepared = self.pre_filter(state, pod)
        if not prepared.status.is_success:
            return Judged(prepared.status, dict.fromkeys(nodes.names, prepared.status))
        outside = prepared.outside(nodes)
        rejected = self.filter(state, pod, nodes.without(outside))
        if outside:
            rejected = {**outside, **rejected}
        if self.has_last_filters:
            passed = list(filterfalse(rejected.__contains__, nodes.names))
            rejected.update(self.filter_last(state, pod, nodes, passed))
        return Judged(SUCCESS, rejected)

    @sampled("Filter")
    def filter(self, state: CycleState, pod: Pod, nodes: Candidates) -> dict[str, Status]:
        """The rejected candidates, each judged afresh; where pods are nominated, with and without these."""
        nominated = {name: pods for name in self._nominated_among(nodes) if (pods := self._nominated_to(name, pod))}
        rejected = self._filter_batch(state, pod, nodes.without(nominated))
        for name, pods in nominated.items():
            status = self._filter_with_nominated(state, pod, nodes.info(name), pods)
            if not status.is_success:
                rejected[name] = status
        return rejected

    @property
    def has_last_filters(self) -> bool:
        """Whether any plugin judges by which nodes pass."""
        return self._has_last_filters

    def filter_last(self, state: CycleState, pod: Pod, nodes: Candidates, passed: Sequence[str]) -> dict[str, Status]:
        """Which of the nodes that pass all filters are rejected by which of them there are. Raises ``PluginError``."""
        rejected: dict[str, Status] = {}
        for found in self._filter_last(state, pod, nodes, passed):
            rejected.update(found.rejected())
        return rejected

    def _filter_last(
        self, state: CycleState, pod: Pod, nodes: Candidates, passed: Sequence[str]
    ) -> Sequence[FilterResult]:
        """What was said by those that do not pass it on as it is; each is asked about what those before it leave."""
        said: list[FilterResult] = []
        for slot in self._taking_part(state).last:
            if not passed:
                break
            found = self._filter_last_by(slot, state, pod, nodes, passed)
            if found.passed is not passed:
                said.append(found)
                passed = found.passed
        return said

    def _filter_last_by(
        self, slot: PluginSlot, state: CycleState, pod: Pod, nodes: Candidates, passed: Sequence[str]
    ) -> FilterResult:
        seen, nodes = (sees(slot, state, pod), sees_nodes(slot, nodes)) if slot.parts is not None else (pod, nodes)
        found: Any = self._guard.call(slot.name, "Filter", slot.plugin.filter_last, state, seen, nodes, passed)
        if not isinstance(found, FilterResult) or not _is_part(found.passed, passed):
            raise self._guard.wrong(slot.name, "Filter", found, _LEFT)
        return FilterResult(found.passed, partial(self._read_last, slot.name, found, passed))

    def _read_last(self, plugin: str, found: FilterResult, passed: Sequence[str]) -> Mapping[str, Status]:
        rejected = self._read_rejections(plugin, found)
        if rejected.keys() != set(passed).difference(found.passed):
            raise self._guard.wrong(plugin, "Filter", found, _LEFT)
        return rejected

    def filter_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        """Filter for one node, in two passes where pods are nominated to it."""
        pods = self._nominated_to(node.name, pod)
        return self._filter_with_nominated(state, pod, node, pods) if pods else self._filter_one(state, pod, node)

    def recheck(self, state: CycleState, pod: Pod, node: NodeInfo, in_flight: Sequence[Pod]) -> Recheck:
        """PreFilter and Filter for the one node a pod is to be bound to."""
        prepared = self.pre_filter(state, pod)
        if not prepared.status.is_success:
            return Recheck(prepared.status)
        if prepared.names is not None and node.name not in prepared.names:
            return Recheck(prepared.rejection)
        status = self.filter_node(state, pod, node)
        if not status.is_success or not in_flight:
            return Recheck(status)
        taking_part = (slot for slot in self._deciding if slot.name not in state.skip_filter)
        return Recheck(status, all(self._certain(slot, state, pod, node, in_flight) for slot in taking_part))

    def _certain(self, slot: PluginSlot, state: CycleState, pod: Pod, node: NodeInfo, in_flight: Sequence[Pod]) -> bool:
        """Whether a Success with all binds in flight counted holds for every part of them that may yet fail.

        It does for a plugin that reads the node alone, and for one that reads the pods on it: more of them never help.
        """
        if slot.is_kept or slot.filter_certain is None:
            return slot.is_kept
        return self._status(slot, "Filter", slot.filter_certain, state, pod, node, in_flight).is_success

    def statuses(self, state: CycleState, pod: Pod, node: NodeInfo) -> dict[str, Status]:
        """What each filter plugin says about one node, also those after the first that rejects. For people."""
        return {slot.name: self._call_filter(slot, state, pod, node).by(slot.name) for slot in self._filters(state)}

    def add_pods(self, state: CycleState, pod: Pod, added: Iterable[Pod], node: NodeInfo) -> None:
        """Keep the plugins' state right as if ``added`` ran on ``node``. Raises ``PluginError``."""
        for other in added:
            self._extend("add_pod", "PreFilterExtensionAddPod", state, pod, other, node)

    def remove_pods(self, state: CycleState, pod: Pod, removed: Iterable[Pod], node: NodeInfo) -> None:
        """Keep the plugins' state right as if ``removed`` were gone from ``node``. Raises ``PluginError``."""
        for other in removed:
            self._extend("remove_pod", "PreFilterExtensionRemovePod", state, pod, other, node)

    def _extend(self, method: str, point: str, state: CycleState, pod: Pod, other: Pod, node: NodeInfo) -> None:
        for slot in self.slots["preFilter"]:
            if slot.name in state.skip_filter or not overrides(type(slot.plugin), PreFilterPlugin, method):
                continue
            seen = sees(slot, state, pod)
            status = self._status(slot, point, getattr(slot.plugin, method), state, seen, other, node)
            if not status.is_success:
                raise plugin_error(slot.name, point, status.message)

    def checking_verdicts(self) -> Iterator[str]:
        """What is kept and differs from what plugins say now, in words; empty for each step in which nothing does."""
        yield from self._kept.checking_verdicts(self._judge_alone)

    def _judge(self, state: CycleState, kept: Kept, names: Sequence[str]) -> FilterResult:
        nodes = Candidates(names, self._picture.kept_nodes.__getitem__)
        if kept.beside is not None:
            nodes = nodes.seen_as(kept.beside.on)
        reads = kept.slot.clock_reads
        if reads is None:
            return self._filter_whole(kept.slot, state, kept.pod, nodes)
        before = reads.count
        result = self._filter_whole(kept.slot, state, kept.pod, nodes)
        result.rejected()  # the reasons may read a clock, too
        return result if reads.count == before else self._judge_timed(kept.slot, reads, state, kept.pod, nodes)

    def _judge_timed(
        self, slot: PluginSlot, reads: ClockReads, state: CycleState, pod: Pod, nodes: Candidates
    ) -> FilterResult:
        """Judge node by node, and note when each verdict ends. Raises ``PluginError`` for one that does not say."""
        seen, nodes = (sees(slot, state, pod), sees_nodes(slot, nodes)) if slot.parts is not None else (pod, nodes)
        passed: list[str] = []
        rejected: dict[str, Status] = {}
        for node in nodes:
            before = reads.count
            answer = self._guard.call(slot.name, "Filter", slot.plugin.filter, state, seen, node)
            status = self._guard.checked(slot.name, "Filter", answer)
            if status.until is not None:
                self._picture.ends(node.name, slot.name, status.until)
            elif reads.count != before:
                raise self._guard.undated(slot.name, "Filter", node.name)
            if status.is_success:
                passed.append(node.name)
            else:
                rejected[node.name] = status
        return FilterResult(passed, self._rejections(slot.name, rejected))

    def _judge_alone(self, kept: Kept, names: Sequence[str]) -> FilterResult:
        """The same outside of a search: with a state of its own."""
        state = CycleState()
        for slot in self.slots["preFilter"]:
            if slot.name == kept.slot.name:
                self._ask_pre_filter(slot, state, kept.pod)
        return self._judge(state, kept, names)

    def _filters(self, state: CycleState) -> Sequence[PluginSlot]:
        return self._taking_part(state).every

    def _filter_batch(self, state: CycleState, pod: Pod, nodes: Candidates) -> dict[str, Status]:
        rejected: dict[str, Status] = {}
        for slot in self._filters(state):
            found = self._filter_whole(slot, state, pod, nodes).rejected()
            rejected.update(found)
            nodes = nodes.without(found)
        return rejected

    def _filter_by(self, slot: PluginSlot, state: CycleState, pod: Pod, nodes: Candidates) -> FilterResult:
        """What one plugin says of many nodes. Raises ``PluginError``, also where the rejections are read."""
        seen, nodes = (sees(slot, state, pod), sees_nodes(slot, nodes)) if slot.parts is not None else (pod, nodes)
        if not slot.filters_in_batch:
            passed, rejected = self._guard.filter_each(slot.name, slot.plugin.filter, state, seen, nodes)
            return FilterResult(passed, self._rejections(slot.name, rejected))
        found: Any = self._guard.call(slot.name, "Filter", slot.plugin.filter_nodes, state, seen, nodes)
        if not isinstance(found, FilterResult) or isinstance(found.passed, str) or len(found.passed) > len(nodes.names):
            raise self._guard.wrong(slot.name, "Filter", found, "a FilterResult of the nodes asked about")
        return FilterResult(found.passed, partial(self._read_rejections, slot.name, found))

    def _read_rejections(self, plugin: str, found: FilterResult) -> Mapping[str, Status]:
        return self._rejections(plugin, self._guard.call(plugin, "Filter", found.rejected))

    def _filter_whole(self, slot: PluginSlot, state: CycleState, pod: Pod, nodes: Candidates) -> FilterResult:
        """The same, if it passes or rejects each of the nodes asked about, and no other."""
        found = self._filter_by(slot, state, pod, nodes)
        if slot.filters_in_batch and {*found.passed, *found.rejected()} != {*nodes.names}:
            raise self._guard.wrong(slot.name, "Filter", found, _WHOLE)
        return found

    def _filter_one(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        for slot in self._filters(state):
            status = self._call_filter(slot, state, pod, node)
            if not status.is_success:
                return self._rejections(slot.name, {node.name: status})[node.name]
        return SUCCESS

    def _call_filter(self, slot: PluginSlot, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        seen = sees(slot, state, pod)
        status = self._guard.call(slot.name, "Filter", slot.plugin.filter, state, seen, sees_node(slot, node))
        return status if isinstance(status, Status) else self._guard.checked(slot.name, "Filter", status)

    def _rejections(self, plugin: str, found: Any) -> Mapping[str, Status]:
        """With their plugin's name. Anything that is no rejection ends the cycle."""
        if not isinstance(found, Mapping):
            raise self._guard.wrong(plugin, "Filter", found, "a mapping of rejected nodes")
        statuses = distinct(found.values())
        for status in statuses.values():
            if not self._guard.checked(plugin, "Filter", status).is_rejected:
                raise plugin_error(plugin, "Filter", status.message)
        if all(status.plugin == plugin for status in statuses.values()):
            same: Mapping[str, Status] = found
            return same
        named = {key: status.by(plugin) for key, status in statuses.items()}
        return {name: named[id(status)] for name, status in found.items()}

    def _filter_with_nominated(self, state: CycleState, pod: Pod, node: NodeInfo, nominated: Collection[Pod]) -> Status:
        """A node must do both with the nominated pods on it and without: they may come or not."""
        dry_run = state.clone()
        self.add_pods(dry_run, pod, nominated, node)
        status = self._filter_one(dry_run, pod, node.with_pods(nominated))
        return self._filter_one(state, pod, node) if status.is_success else status

    def _nominated_among(self, nodes: Candidates) -> Collection[str]:
        nominated = self._nominations.nominated_nodes
        return [name for name in nodes.names if name in nominated] if nominated else ()

    def _nominated_to(self, node_name: str, pod: Pod) -> list[Pod]:
        priority = pod.spec.priority
        return [
            other
            for other in self._nominations.nominated(node_name)
            if other.uid != pod.uid and other.spec.priority >= priority and other.spec.scheduler_name in self._served
        ]


def _is_part(names: Any, whole: Sequence[str]) -> bool:
    """Whether they are names of ``whole``: mostly all of them, or one."""
    if names is whole:
        return True
    if isinstance(names, str) or not isinstance(names, Sequence) or len(names) > len(whole):
        return False
    known = whole if len(names) == 1 else frozenset(whole)
    return all(map(known.__contains__, names))


def _signature(sign: Callable[[Pod], Hashable | None], pod: Pod) -> Hashable | None:
    found: Hashable | None = sign(pod)
    hash(found)  # what cannot be hashed is a fault of the plugin's
    return found


def _narrow(merged: PreFiltered, plugin: str, names: frozenset[str]) -> PreFiltered:
    by = (*merged.narrowed_by, plugin)
    both = names if merged.names is None else merged.names & names
    if both:
        return PreFiltered(SUCCESS, both, by)
    if len(by) == 1:
        return PreFiltered(unresolvable(f"node(s) didn't satisfy plugin {plugin}"), both, by)
    return PreFiltered(unresolvable(f"node(s) didn't satisfy plugin(s) {_bracketed(by)} simultaneously"), both, by)


def _bracketed(names: Iterable[str]) -> str:
    return f"[{' '.join(sorted(names))}]"
