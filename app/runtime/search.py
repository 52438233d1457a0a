"""Search for the nodes that a pod can use: cached verdicts first, then the plugins that read the whole cluster."""

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
"""Key in ``signatures`` for rejections that depend on every plugin, for example because of PreFilter's node sets."""


class SearchResult(FilterResult):
    """Result of a search. ``pre_filter``: status of PreFilter; unless it is Success, no node passes.

    ``lasts``: True if each rejection stays valid while the signature of its plugin is unchanged. It is False if a
    ``filter_last`` rejected a node, because such a rejection also depends on all requested nodes and on the nodes that
    passed.
    """

    pre_filter: Status
    lasts: bool = True


class _RequestedNodes(Candidates):
    """Requested nodes of a search, without those that do not exist. The latter are removed only when ``names`` is first
    read, because few plugins read it.
    """

    __slots__ = ("_known", "_names")

    def __init__(self, nodes: Candidates, known: Callable[[], Sequence[str]]) -> None:
        self.sent = nodes.sent
        self._info = nodes.info
        self._set = None
        self._known = known
        self._names: Sequence[str] | None = None

    @property
    def names(self) -> Sequence[str]:  # type: ignore[override]  # read-only here
        if self._names is None:
            self._names = self._known()
        return self._names

    def seen_as(self, view: Callable[[NodeInfo], NodeInfo]) -> Candidates:
        seen = _RequestedNodes(self, lambda: self.names)
        info = self._info
        seen._info = lambda name: view(info(name))
        return seen


class _SearchState:
    """State of one search. ``left``: nodes that passed all plugins so far.

    ``cached``: entry of each plugin with cached verdicts. ``common``: set of nodes that pass all these plugins.
    ``results``: answers of the plugins that read the cluster, by plugin. ``separate``: verdicts on nodes that are
    evaluated without the cache. ``last``: results of ``Filters.last_results``.
    """

    __slots__ = ("cached", "common", "last", "left", "results", "separate")

    def __init__(self) -> None:
        self.cached: Sequence[CachedVerdicts] = ()
        self.common: PassingNodes | None = None
        self.results: dict[str, FilterResult] = {}
        self.separate: dict[str, Status] = {}
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
        """Run PreFilter and Filter on the candidates, with cached verdicts where possible.

        Names of nodes that do not exist neither pass nor are rejected. Raises ``PluginError`` or ``Unprepared``. The
        result computes its rejections when they are first read, and can raise these exceptions then.
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
        progress = run(state, pod, nodes, names)
        reasons = partial(self._reasons, state, pod, nodes, prepared, progress)
        return SearchResult(progress.left, reasons, status, lasts=not progress.last)

    def _search(self, state: CycleState, pod: Pod, nodes: Candidates, names: Sequence[str]) -> _SearchState:
        """Run Filter on those of the candidates that are in ``names``, and return the state of the search."""
        progress = _SearchState()
        separate = self._separate(pod, nodes, names)
        progress.left = list(filterfalse(separate.__contains__, names)) if separate else names
        filters = self.filters.active_filters(state)
        if filters.cached:
            evaluate = partial(self._evaluate, state)
            progress.cached, progress.common, progress.left = self._verdicts.passing(
                filters.cached, pod, progress.left, evaluate
            )
        only_known = progress.common is not None and progress.common.passing is not None
        if not only_known and not (filters.uncached and filters.uncached[0].any_names):
            progress.left = self._known(nodes, progress.left)
        for slot in filters.uncached:
            candidates = nodes if progress.left is nodes.names else nodes.among(progress.left)
            progress.results[slot.name] = result = self.filters.filter_by(slot, state, pod, candidates)
            progress.left = result.passed
        if separate:
            progress.separate = self._evaluate_separate(state, pod, nodes, separate)
            passed = {*progress.left, *(name for name, status in progress.separate.items() if status.is_success)}
            progress.left = list(filter(passed.__contains__, names))
        if filters.last and progress.left:
            candidates = _RequestedNodes(nodes, partial(self._known, nodes, nodes.names))
            progress.last = self.filters.last_results(state, pod, candidates, progress.left)
            progress.left = progress.last[-1].passed if progress.last else progress.left
        return progress

    _timed_search = timed_point("Filter")(_search)

    def _known(self, nodes: Candidates, names: Iterable[str]) -> list[str]:
        """Return those of ``names`` whose nodes exist."""
        known = self._snapshot.nodes
        if not nodes.sent:
            return list(filter(known.__contains__, names))
        return [it for it in names if it in known or it in nodes.sent]

    def _separate(self, pod: Pod, nodes: Candidates, names: Sequence[str]) -> Mapping[str, Collection[Pod]]:
        """Return the candidates that must be evaluated without the cache, each with the pods nominated to it.

        These are nodes with nominated pods, which cached verdicts ignore, and nodes in ``nodes.sent``, which differ
        from the snapshot. If verdicts depend on the pods of a node, the pod's own node and the ``overlaid_nodes`` are
        evaluated without the cache, too: cached verdicts are those on ``base_nodes``.
        """
        nominated = self.filters.nominations.nominated_nodes
        if not nominated and not nodes.sent and not self._own_place_matters:
            return {}
        requested = nodes if names is nodes.names else nodes.among(names)
        separate: dict[str, Collection[Pod]] = {it: () for it in nodes.sent if it in requested.name_set}
        if self._own_place_matters:
            places = (self._snapshot.place_of(pod.uid, pod.key), *self._snapshot.overlaid_nodes)
            separate |= {it: () for it in places if it and it in self._snapshot.nodes and it in requested.name_set}
        if nominated and not set(nominated).isdisjoint(names):
            among = self._known(nodes, [it for it in nominated if it in requested.name_set])
            separate |= {it: pods for it in among if (pods := self.filters.nominated_to(it, pod))}
        return separate

    def _evaluate_separate(
        self, state: CycleState, pod: Pod, nodes: Candidates, separate: Mapping[str, Collection[Pod]]
    ) -> dict[str, Status]:
        """Evaluate the candidates in ``separate`` without the cache. Return Success or a rejection by node."""
        alone = nodes.among([name for name in nodes.names if name in separate and not separate[name]])
        rejected = self.filters.filter_all(state, pod, alone)
        verdicts = {name: rejected.get(name, SUCCESS) for name in alone.names}
        for name, pods in separate.items():
            if pods:
                verdicts[name] = self.filters.filter_with_nominated(state, pod, nodes.info(name), pods)
        return verdicts

    def _reasons(
        self, state: CycleState, pod: Pod, nodes: Candidates, prepared: PreFiltered, progress: _SearchState
    ) -> Mapping[str, Status]:
        """Return, for each existing candidate that does not pass, the status of the first plugin that rejects it."""
        passed = set(progress.left)
        rest = self._known(nodes, filterfalse(passed.__contains__, nodes.names))
        rejected: dict[str, Status] = {}
        if prepared.names is not None:
            outside = prepared.rejection
            rejected = {name: outside for name in rest if name not in prepared.names}
        if progress.separate:
            rejected.update((name, status) for name, status in progress.separate.items() if not status.is_success)
        for last in progress.last:
            rejected.update(last.rejected())
        cached = {it.slot.name: it for it in progress.cached}
        for slot in self.filters.active_filters(state).every:
            rest = list(filterfalse(rejected.__contains__, rest)) if rejected else rest
            if not rest:
                break
            rejections = (
                self._cached_reasons(cached[slot.name], state, rest)
                if slot.is_cached
                else self._cluster_reasons(slot, state, pod, nodes.among(rest), progress)
            )
            if (
                not rejected
                and not slot.is_cached
                and len(rejections) == len(rest)
                and all(map(rejections.__contains__, rest))
            ):
                return rejections  # the usual case: one plugin rejects exactly these nodes
            rejected.update((name, rejections[name]) for name in rest if name in rejections)
        return rejected

    def _cached_reasons(self, entry: CachedVerdicts, state: CycleState, names: Sequence[str]) -> Mapping[str, Status]:
        """Evaluate the nodes in ``names`` that have no cached verdict. Return all cached rejections of the plugin."""
        missing = entry.evaluated.missing(names)
        if missing:
            entry.evaluate(missing, self._snapshot, partial(self._evaluate, state))
            self._verdicts.weigh((entry,))
        return entry.rejected

    def _cluster_reasons(
        self, slot: PluginSlot, state: CycleState, pod: Pod, nodes: Candidates, progress: _SearchState
    ) -> Mapping[str, Status]:
        """Return the rejections by a plugin that reads the cluster. Nodes that the search left out, because a cached
        verdict rejects them, are evaluated now.
        """
        result = progress.results[slot.name]
        rejections = result.rejected()
        if all(map(rejections.__contains__, nodes.names)):
            return rejections
        passed = set(result.passed)
        left = [name for name in nodes.names if name not in rejections and name not in passed]
        if left and progress.common is not None:
            blocked = [name for name in left if name in progress.common.blocked]
            rejections = {**rejections, **self.filters.filter_by(slot, state, pod, nodes.among(blocked)).rejected()}
            left = [name for name in left if name not in progress.common.blocked]
        if left:
            raise self.guard.wrong_answer(slot.name, "Filter", result, WHOLE)
        return rejections

    def blocking_pods(
        self, state: CycleState, pod: Pod, passed: Sequence[str], expected: Sequence[tuple[Pod, Sequence[str]]]
    ) -> frozenset[str]:
        """Return the UIDs of pods in ``expected`` that might take the room that ``pod`` needs on a node in ``passed``.

        ``expected``: pods that will be placed soon, each with the nodes that it can get. A node is full if it rejects
        ``pod`` with all these pods on it. The UIDs of pods that can get a full node are returned. ``state``: state of
        the search. Raises ``PluginError`` or ``Unprepared``.
        """
        slots = self.filters.active_filters(state).by_pods_on_node
        expected = [(it, places) for it, places in expected if not self._snapshot.place_of(it.uid, it.key)]
        if not slots or not expected:
            return frozenset()
        taken = list(dict.fromkeys(chain.from_iterable(places for _, places in expected)))
        names = taken if len(taken) < len(passed) else passed
        full = self._verdicts.rejected_with_pods(slots, pod, [it for it, _ in expected], names, self._evaluate_alone)
        if not full:
            return frozenset()
        full.intersection_update(passed)
        return frozenset(it.uid for it, places in expected if not full.isdisjoint(places))

    def signatures(self, pod: Pod) -> dict[str, Hashable]:
        """Return, for each plugin, a value that stays equal while the plugin's rejections of the pod are valid.

        Plugins without a known signature are absent. ``ALL_PLUGINS`` is present if no plugin is absent. Raises
        ``PluginError`` or ``Unprepared``.
        """
        self.guard.begin_evaluation(pod)
        signatures: dict[str, Hashable] = {}
        for slot in self.filters.deciding:
            if slot.is_cached:
                signatures[slot.name] = self._verdicts.rejection_stamp(slot, pod, self._evaluate_alone)
            elif slot.signature is not None:
                signature = self.guard.call(slot.name, "Signature", _signature, slot.signature, pod)
                if signature is not None:
                    signatures[slot.name] = signature
        nominations = self.filters.nominations
        nominated = tuple(
            (name, other.uid) for name in nominations.nominated_nodes for other in self.filters.nominated_to(name, pod)
        )
        if nominated:
            # With nominated pods, verdicts depend on exact counts, so they are valid only until anything changes.
            rest = (nominated, nominations.generation)
            signatures = {name: (signature, rest) for name, signature in signatures.items()}
        if len(signatures) == len(self.filters.deciding):
            signatures[ALL_PLUGINS] = tuple(signatures.values())
        return signatures

    def checking_verdicts(self) -> Iterator[str]:
        """Compare cached verdicts with new ones, in steps. Yields for each step a sentence that names the plugin whose
        verdicts differ, or an empty string.
        """
        yield from self._verdicts.checking_verdicts(self._evaluate_alone)

    def _evaluate(self, state: CycleState, entry: CachedVerdicts, names: Sequence[str]) -> FilterResult:
        nodes = Candidates(names, self._snapshot.base_nodes.__getitem__)
        if entry.hypothetical is not None:
            nodes = nodes.seen_as(entry.hypothetical.on)
        reads = entry.slot.clock_reads
        if reads is None:
            return self.filters.filter_whole(entry.slot, state, entry.pod, nodes)
        before = reads.count
        result = self.filters.filter_whole(entry.slot, state, entry.pod, nodes)
        result.rejected()  # computing the reasons can read a clock, too
        return result if reads.count == before else self._evaluate_timed(entry.slot, reads, state, entry.pod, nodes)

    def _evaluate_timed(
        self, slot: PluginSlot, reads: ClockReads, state: CycleState, pod: Pod, nodes: Candidates
    ) -> FilterResult:
        """Evaluate node by node, and register when each verdict expires. Raises ``PluginError`` if the plugin reads a
        clock for a verdict without an expiry.
        """
        seen, nodes = (pod_view(slot, state, pod), nodes_view(slot, nodes)) if slot.parts is not None else (pod, nodes)
        passed: list[str] = []
        rejected: dict[str, Status] = {}
        for node in nodes:
            before = reads.count
            status = self.guard.status(slot.name, "Filter", slot.plugin.filter, state, seen, node)
            if status.until is not None:
                self._snapshot.ends(node.name, slot.name, status.until)
            elif reads.count != before:
                raise self.guard.missing_expiry(slot.name, "Filter", node.name)
            if status.is_success:
                passed.append(node.name)
            else:
                rejected[node.name] = status
        return FilterResult(passed, self.filters.rejections(slot.name, rejected))

    def _evaluate_alone(self, entry: CachedVerdicts, names: Sequence[str]) -> FilterResult:
        """Like ``_evaluate``, for use outside of a search. It creates a state and runs the plugin's PreFilter
        itself.
        """
        state = CycleState()
        for slot in self.filters.slots["preFilter"]:
            if slot.name == entry.slot.name:
                self.filters.call_pre_filter(slot, state, entry.pod)
        return self._evaluate(state, entry, names)


def _signature(sign: Callable[[Pod], Hashable | None], pod: Pod) -> Hashable | None:
    signature: Hashable | None = sign(pod)
    hash(signature)  # a value that cannot be hashed is a fault of the plugin
    return signature
