"""Search for the nodes that a pod may use: cached verdicts first, then the plugins that read the whole cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, filterfalse
from typing import Final

from app.framework.cycle_state import CycleState
from app.framework.filter_result import FilterResult
from app.framework.node_info import Candidates, NodeInfo
from app.framework.spec import Reads
from app.framework.status import SUCCESS, Status
from app.kube.core_v1 import Pod
from app.runtime.cached_verdicts import CachedVerdicts
from app.runtime.clock_reads import ClockReads
from app.runtime.filters import WHOLE, Filters
from app.runtime.guard import timed_point
from app.runtime.prefilter import PreFiltered
from app.runtime.slots import PluginSlot, nodes_view, pod_view
from app.runtime.snapshot import Snapshot
from app.runtime.verdict_cache import PassingNodes, VerdictCache

ALL_PLUGINS: Final = ""
"""Key of ``signatures`` for rejections that rest on every plugin, as those by PreFilter's node sets."""


class SearchResult(FilterResult):
    """Result of a search. ``pre_filter``: answer of PreFilter; without Success, no node passes.

    ``lasts``: True if a rejection stays valid as long as the plugin that gave it would give it again. It is False if a
    last filter rejected a node, because that depends on all requested nodes and on those that passed.
    """

    pre_filter: Status
    lasts: bool = True


class _NodesAsked(Candidates):
    """All nodes of a search. Which of the names are nodes is looked up when they are read: few plugins do."""

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
        seen = _NodesAsked(self, lambda: self.names)
        info = self._info
        seen._info = lambda name: view(info(name))
        return seen


class _Progress:
    """State of one search. ``left``: nodes that passed all plugins so far.

    ``asked``: answers of the plugins that read the cluster · ``apart``: verdicts on nodes that were judged by
    themselves · ``last``: answers of the last filters that rejected a node.
    """

    __slots__ = ("apart", "asked", "each", "kept", "last", "left")

    def __init__(self) -> None:
        self.each: Sequence[CachedVerdicts] = ()
        self.kept: PassingNodes | None = None
        self.asked: dict[str, FilterResult] = {}
        self.apart: dict[str, Status] = {}
        self.last: Sequence[FilterResult] = ()
        self.left: Sequence[str] = ()


class Search:
    """Search with the filters of one profile, and the cache of their verdicts."""

    def __init__(self, filters: Filters, snapshot: Snapshot) -> None:
        self.filters = filters
        self.scheduler_name = filters.scheduler_name
        self.guard = filters.guard
        self._snapshot = snapshot
        self._verdicts = VerdictCache(snapshot)
        self._own_place_matters = any(it.reads is Reads.PODS_ON_NODE for it in filters.slots["filter"])

    def find_nodes_that_fit(self, pod: Pod, nodes: Candidates, state: CycleState | None = None) -> SearchResult:
        """Return the candidates that pass PreFilter and Filter, from the cache as far as possible.

        Candidates may be names of no node: these neither pass nor are rejected. Raises ``PluginError`` or
        ``Unprepared``, also where the rejections are read.
        """
        state = CycleState() if state is None else state
        prepared = self.filters.pre_filter(state, pod)
        status = prepared.status
        if status is not SUCCESS:
            return SearchResult((), lambda: dict.fromkeys(self._known(nodes, nodes.names), status), status)
        names = nodes.names
        if prepared.names is not None:
            names = list(filter(prepared.names.__contains__, names))
        run = self._timed_search if self.guard.sampled else self._search
        found = run(state, pod, nodes, names)
        reasons = partial(self._reasons, state, pod, nodes, prepared, found)
        return SearchResult(found.left, reasons, status, lasts=not found.last)

    def _search(self, state: CycleState, pod: Pod, nodes: Candidates, names: Sequence[str]) -> _Progress:
        found = _Progress()
        apart = self._apart(pod, nodes, names)
        found.left = list(filterfalse(apart.__contains__, names)) if apart else names
        filters = self.filters.active_filters(state)
        if filters.cached:
            judge = partial(self._judge, state)
            found.each, found.kept, found.left = self._verdicts.passing(filters.cached, pod, found.left, judge)
        of_the_snapshot = found.kept is not None and found.kept.passing is not None
        if not of_the_snapshot and not (filters.uncached and filters.uncached[0].any_names):
            found.left = self._known(nodes, found.left)
        for slot in filters.uncached:
            asked = nodes if found.left is nodes.names else nodes.among(found.left)
            found.asked[slot.name] = result = self.filters.filter_by(slot, state, pod, asked)
            found.left = result.passed
        if apart:
            found.apart = self._judge_apart(state, pod, nodes, apart)
            passed = {*found.left, *(name for name, status in found.apart.items() if status.is_success)}
            found.left = list(filter(passed.__contains__, names))
        if filters.last and found.left:
            asked = _NodesAsked(nodes, partial(self._known, nodes, nodes.names))
            found.last = self.filters.last_results(state, pod, asked, found.left)
            found.left = found.last[-1].passed if found.last else found.left
        return found

    _timed_search = timed_point("Filter")(_search)

    def _known(self, nodes: Candidates, names: Iterable[str]) -> list[str]:
        """Return those of ``names`` that are nodes."""
        known = self._snapshot.nodes
        if not nodes.sent:
            return list(filter(known.__contains__, names))
        return [it for it in names if it in known or it in nodes.sent]

    def _apart(self, pod: Pod, nodes: Candidates, names: Sequence[str]) -> Mapping[str, Collection[Pod]]:
        """Return candidates that are judged by themselves, with the pods that are nominated to them.

        Nodes with nominated pods; those that came with the request, and the one that the pod itself stands on, where
        cached verdicts depend on the pods of a node: these are verdicts on nodes as cached, for pods that are nowhere.
        """
        nominated = self.filters.nominations.nominated_nodes
        if not nominated and not nodes.sent and not self._own_place_matters:
            return {}
        asked = nodes if names is nodes.names else nodes.among(names)
        found: dict[str, Collection[Pod]] = {it: () for it in nodes.sent if it in asked.name_set}
        if self._own_place_matters:
            places = (self._snapshot.place_of(pod.uid, pod.key), *self._snapshot.overlaid_nodes)
            found |= {it: () for it in places if it and it in self._snapshot.nodes and it in asked.name_set}
        if nominated and not set(nominated).isdisjoint(names):
            among = self._known(nodes, [it for it in nominated if it in asked.name_set])
            found |= {it: pods for it in among if (pods := self.filters.nominated_to(it, pod))}
        return found

    def _judge_apart(
        self, state: CycleState, pod: Pod, nodes: Candidates, apart: Mapping[str, Collection[Pod]]
    ) -> dict[str, Status]:
        alone = nodes.among([name for name in nodes.names if name in apart and not apart[name]])
        rejected = self.filters.filter_all(state, pod, alone)
        found = {name: rejected.get(name, SUCCESS) for name in alone.names}
        for name, pods in apart.items():
            if pods:
                found[name] = self.filters.filter_with_nominated(state, pod, nodes.info(name), pods)
        return found

    def _reasons(
        self, state: CycleState, pod: Pod, nodes: Candidates, prepared: PreFiltered, found: _Progress
    ) -> Mapping[str, Status]:
        """Return, for each node that does not pass, the status of the first plugin in order that rejects it."""
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
        for slot in self.filters.active_filters(state).every:
            rest = list(filterfalse(rejected.__contains__, rest)) if rejected else rest
            if not rest:
                break
            said = (
                self._kept_reasons(kept[slot.name], state, rest)
                if slot.is_cached
                else self._cluster_reasons(slot, state, pod, nodes.among(rest), found)
            )
            if not rejected and not slot.is_cached and len(said) == len(rest) and all(map(said.__contains__, rest)):
                return said  # the usual case: one plugin rejects them all, and no others
            rejected.update((name, said[name]) for name in rest if name in said)
        return rejected

    def _kept_reasons(self, kept: CachedVerdicts, state: CycleState, names: Sequence[str]) -> Mapping[str, Status]:
        missing = kept.evaluated.missing(names)
        if missing:
            kept.evaluate(missing, self._snapshot, partial(self._judge, state))
            self._verdicts.weigh((kept,))
        return kept.rejected

    def _cluster_reasons(
        self, slot: PluginSlot, state: CycleState, pod: Pod, nodes: Candidates, found: _Progress
    ) -> Mapping[str, Status]:
        """Return the rejections of the search, and new ones of nodes that a cached verdict kept from the plugin."""
        result = found.asked[slot.name]
        said = result.rejected()
        if all(map(said.__contains__, nodes.names)):
            return said
        passed = set(result.passed)
        left = [name for name in nodes.names if name not in said and name not in passed]
        if left and found.kept is not None:
            not_asked = [name for name in left if name in found.kept.blocked]
            said = {**said, **self.filters.filter_by(slot, state, pod, nodes.among(not_asked)).rejected()}
            left = [name for name in left if name not in found.kept.blocked]
        if left:
            raise self.guard.wrong_answer(slot.name, "Filter", result, WHOLE)
        return said

    def blocking_pods(
        self, state: CycleState, pod: Pod, passed: Sequence[str], due: Sequence[tuple[Pod, Sequence[str]]]
    ) -> frozenset[str]:
        """Return the UIDs of pods in ``due``, each with nodes it may take, that may take the pod's room on one.

        Asks the plugins that read the pods of a node, for which more pods never help. ``state``: of the search.
        Raises ``PluginError`` or ``Unprepared``.
        """
        slots = self.filters.active_filters(state).by_pods_on_node
        due = [(it, places) for it, places in due if not self._snapshot.place_of(it.uid, it.key)]
        if not slots or not due:
            return frozenset()
        taken = list(dict.fromkeys(chain.from_iterable(places for _, places in due)))
        names = taken if len(taken) < len(passed) else passed
        full = self._verdicts.rejected_beside(slots, pod, [it for it, _ in due], names, self._judge_alone)
        if not full:
            return frozenset()
        full.intersection_update(passed)
        return frozenset(it.uid for it, places in due if not full.isdisjoint(places))

    def signatures(self, pod: Pod) -> dict[str, Hashable]:
        """By plugin, a value that is equal as long as its rejections of the pod stand; no entry where none is known.

        ``ALL_PLUGINS`` has one if all have. Raises ``PluginError`` or ``Unprepared``.
        """
        self.guard.begin_evaluation(pod)
        found: dict[str, Hashable] = {}
        for slot in self.filters.deciding:
            if slot.is_cached:
                found[slot.name] = self._verdicts.rejection_stamp(slot, pod, self._judge_alone)
            elif slot.signature is not None:
                signature = self.guard.call(slot.name, "Signature", _signature, slot.signature, pod)
                if signature is not None:
                    found[slot.name] = signature
        nominations = self.filters.nominations
        nominated = tuple(
            (name, other.uid) for name in nominations.nominated_nodes for other in self.filters.nominated_to(name, pod)
        )
        if nominated:
            # Judged by the counts themselves, not by what is above a limit: holds until anything changes.
            rest = (nominated, nominations.generation)
            found = {name: (signature, rest) for name, signature in found.items()}
        if len(found) == len(self.filters.deciding):
            found[ALL_PLUGINS] = tuple(found.values())
        return found

    def checking_verdicts(self) -> Iterator[str]:
        """Compare cached verdicts with new ones, step by step: a sentence for a difference, else an empty text."""
        yield from self._verdicts.checking_verdicts(self._judge_alone)

    def _judge(self, state: CycleState, kept: CachedVerdicts, names: Sequence[str]) -> FilterResult:
        nodes = Candidates(names, self._snapshot.base_nodes.__getitem__)
        if kept.beside is not None:
            nodes = nodes.seen_as(kept.beside.on)
        reads = kept.slot.clock_reads
        if reads is None:
            return self.filters.filter_whole(kept.slot, state, kept.pod, nodes)
        before = reads.count
        result = self.filters.filter_whole(kept.slot, state, kept.pod, nodes)
        result.rejected()  # the reasons may read a clock, too
        return result if reads.count == before else self._judge_timed(kept.slot, reads, state, kept.pod, nodes)

    def _judge_timed(
        self, slot: PluginSlot, reads: ClockReads, state: CycleState, pod: Pod, nodes: Candidates
    ) -> FilterResult:
        """Judge node by node, and note when each verdict ends. Raises ``PluginError`` for one that has no end."""
        seen, nodes = (pod_view(slot, state, pod), nodes_view(slot, nodes)) if slot.parts is not None else (pod, nodes)
        passed: list[str] = []
        rejected: dict[str, Status] = {}
        for node in nodes:
            before = reads.count
            status = self.guard.status(slot.name, "Filter", slot.plugin.filter, state, seen, node)
            if status.until is not None:
                self._snapshot.ends(node.name, slot.name, status.until)
            elif reads.count != before:
                raise self.guard.undated_answer(slot.name, "Filter", node.name)
            if status.is_success:
                passed.append(node.name)
            else:
                rejected[node.name] = status
        return FilterResult(passed, self.filters.rejections(slot.name, rejected))

    def _judge_alone(self, kept: CachedVerdicts, names: Sequence[str]) -> FilterResult:
        """As ``_judge``, outside of a search: with a state of its own."""
        state = CycleState()
        for slot in self.filters.slots["preFilter"]:
            if slot.name == kept.slot.name:
                self.filters.call_pre_filter(slot, state, kept.pod)
        return self._judge(state, kept, names)


def _signature(sign: Callable[[Pod], Hashable | None], pod: Pod) -> Hashable | None:
    found: Hashable | None = sign(pod)
    hash(found)  # what cannot be hashed is a fault of the plugin's
    return found
