"""Counts for inter-pod affinity.

An affinity term of an incoming pod can match existing pods, and a term of an existing pod can match the incoming pod.
So each pod on a node, even a terminating one, is counted by its labels, and by its terms if it has any:

    Counters     (namespace, label set) -> node -> pods      for the terms of the incoming pod
    TermGroup    (namespace, terms)     -> node -> pods      for the terms of existing pods

A ``TermMatch`` adds up all groups with terms that match an incoming pod. It is shared by all incoming pods with equal
labels, namespace, and labels of the namespace. It has the number or weight of pods by topology key, node and domain.

A match is built on first use. An index by namespace and label finds the groups to compare. If there are many groups,
the query raises ``Unprepared`` with the remaining steps. When a pod changes, all matches of its group are updated at
once. A match compares new groups at its next use. The least recently used matches are evicted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from itertools import takewhile
from typing import Final

from app.cache.bounded import Bounded
from app.cache.counters import Counters
from app.cache.domains import Domains
from app.cache.matches import MatchKey, TermGroup, TermGroupKey, TermMatch, TermsRecount
from app.cache.overlay import CountedMoves, Overlay, is_placed, overlaid
from app.cache.selections import EVERYWHERE, Scope, Selection, pod_index_keys, run_next_step
from app.framework.counts import DomainCounts, Unprepared, all_prepared
from app.framework.node_info import NodeInfo
from app.framework.resources import add
from app.kube.core_v1 import Node, Pod
from app.kube.pod_affinity import NO_TERMS, Newcomer, Peers
from app.kube.selectors import EVERYTHING

_MOST_MATCH_BYTES: Final = 64 << 20
"""Maximum estimated bytes of all matches."""

_PIECE: Final = 384
"""Number of terms and counts by node after which a step ends. A step usually takes some tenths of a millisecond."""

_WEIGH_EVERY: Final = 64
"""Number of pod events after which the size of some matches is estimated again, because pod events make them grow."""

_ROUND: Final = 128
"""Divisor: after ``_WEIGH_EVERY`` pod events, the size of 1/128 of the matches and a few more is estimated again."""

_MOST_FAN_OUT: Final = 2048
"""Maximum ``fan_out`` of a group. Updates of so many counts take up to two milliseconds.

If a group exceeds the maximum, its oldest matches are evicted, except pinned ones.
"""

_MOST_COMPARED: Final = 512
"""Maximum number of groups created since a match was last complete that the match compares without the index.

If more were created, the match compares only the candidates that the index finds.
"""


class Terms:
    """Counts for inter-pod affinity; implements ``framework.PodTerms``.

    The cluster cache reports all changes of nodes, and of pods on nodes, to this object.
    """

    def __init__(self, nodes: Mapping[str, NodeInfo], *, most_match_bytes: int = _MOST_MATCH_BYTES) -> None:
        self._counts = Counters(nodes)
        self._groups: dict[TermGroupKey, TermGroup] = {}
        self._by_index_key: dict[tuple[str, ...], dict[TermGroup, None]] = {}
        self._last = 0
        self._matches = Bounded[MatchKey, TermMatch](lambda: most_match_bytes, self._new_match, self._drop_match)
        self._nothing = Selection(EVERYWHERE, EVERYTHING)
        self._keys: dict[str, int] = {}
        """Number of nodes that have a label, by label key."""
        for info in nodes.values():
            add(dict.fromkeys(info.node.labels, 1), self._keys)
        self._moves = 0
        self._overlay: CountedMoves | None = None

    def set_overlay(self, overlay: Overlay | None) -> None:
        """Apply an overlay to the results of all later queries; ``None``: no overlay."""
        self._overlay = None if overlay is None else CountedMoves(overlay.moves, is_placed)
        self._counts.overlay = self._overlay

    # Queries.

    def peers(self, peers: Peers, topology_key: str) -> DomainCounts:
        names = peers.namespaces
        scope: Scope = EVERYWHERE if names is None else next(iter(names)) if len(names) == 1 else names
        return self._counts.domains(scope, peers.selector, topology_key, frozenset((topology_key,)))

    def refusing(self, incoming: Newcomer) -> Mapping[str, DomainCounts]:
        match = self._match(incoming, None)
        moved = self._moved(match)
        domains = self._domains(match, moved)
        return {key: overlaid(it, _by_node(moved[key])) if key in moved else it for key, it in domains.items()}

    def weights(self, incoming: Newcomer, hard_weight: int) -> Mapping[str, Mapping[str, int]]:
        match = self._match(incoming, hard_weight)
        moved = self._moved(match)
        weights: dict[str, Mapping[str, int]] = {}
        for key, domains in self._domains(match, moved).items():
            on_node = domains.topology.domain
            moves = [it for it in moved.get(key, ()) if it[0] in on_node]
            added, removed = sum(it[1] > 0 for it in moves), sum(it[1] < 0 for it in moves)
            # Omit the topology key if the overlay leaves no pod with a matching term in any of its domains.
            if added or len(domains.counts) > removed or match.has_more_than(removed, key, on_node):
                weights[key] = _changed(domains, moves) if moves else domains.counts
        return weights

    def _domains(self, match: TermMatch, moved: Collection[str]) -> dict[str, Domains]:
        """Return the counts by domain for each topology key of the match and of ``moved``.

        A topology key is omitted if no node has such a label, because it then has no effect. Raises ``Unprepared``.
        """
        every = {**dict.fromkeys(moved, self._nothing), **match.selections}
        selections = {key: it for key, it in every.items() if key in self._keys}
        try:
            return {key: self._counts.domains_of(it, key) for key, it in selections.items()}
        except Unprepared:
            all_prepared(partial(self._counts.domains_of, it, key) for key, it in selections.items())
            raise

    def _moved(self, match: TermMatch) -> Mapping[str, list[tuple[str, int, int]]]:
        """Return the overlay's changes to the match, by topology key.

        Each change has a node, the change of the number of pods (1 or -1), and the change of the weight.
        """
        moves: dict[str, list[tuple[str, int, int]]] = {}
        for pod, delta in self._overlay.moved() if self._overlay is not None else ():
            affinity = pod.spec.pod_affinity
            if affinity is not NO_TERMS:
                for key, weight in match.weights_of(affinity.within(pod.namespace)).items():
                    moves.setdefault(key, []).append((pod.node_name, delta, weight * delta))
        return moves

    # Matches.

    def _match(self, incoming: Newcomer, hard_weight: int | None) -> TermMatch:
        """Return the complete match for an incoming pod. Raises ``Unprepared`` if steps are left to build it."""
        key = (incoming, hard_weight)
        match = self._matches.get(key)
        if match.rest is None and match.seen != self._last:
            match.rest = self._compare_groups(match)
            run_next_step(match)
            self._matches.put(key, match)
        if match.rest is not None:
            raise Unprepared(self._finish(match, key))
        return match

    def _new_match(self, key: MatchKey) -> TermMatch:
        match = TermMatch(*key)
        match.rest = self._compare_groups(match)
        run_next_step(match)
        return match

    def _finish(self, match: TermMatch, key: MatchKey) -> Iterator[None]:
        """Complete a match in steps, then estimate its size again. Stop if the match is evicted between two steps.

        Several callers can run steps of the same match alternately.
        """
        while match.rest is not None:
            run_next_step(match)
            yield
        if self._matches.holds(key, match):
            self._matches.put(key, match)

    def _compare_groups(self, match: TermMatch) -> Iterator[None]:
        """Add to the match each matching group that it has not compared yet, in steps.

        Groups that are created between the steps are included.
        """
        work = 0
        while match.seen != self._last:
            last = self._last
            for group in self._since(match):
                if self._groups.get(group.key) is group:
                    match.add_group(group)
                    self._evict_oldest(group, match)
                work += group.size + len(group.nodes)
                if work >= _PIECE:
                    work = 0
                    yield
            match.seen = last

    def _evict_oldest(self, group: TermGroup, newest: TermMatch) -> None:
        """Evict the oldest matches of the group while its ``fan_out`` exceeds ``_MOST_FAN_OUT``.

        ``newest`` and pinned matches are not evicted.
        """
        if group.fan_out > _MOST_FAN_OUT:
            for match in tuple(group.matches):
                if group.fan_out <= _MOST_FAN_OUT:
                    return
                if match is not newest:
                    self._matches.evict((match.incoming, match.hard_weight))

    def _since(self, match: TermMatch) -> Collection[TermGroup]:
        """Return the groups that the match has not compared yet.

        If the match was never complete, or if many groups are new, return only the ``_candidates``.
        """
        if match.seen < 0 or self._last - match.seen > _MOST_COMPARED:
            return [it for it in self._candidates(match.incoming) if it.number > match.seen]
        return list(takewhile(lambda it: it.number > match.seen, reversed(self._groups.values())))

    def _candidates(self, incoming: Newcomer) -> Collection[TermGroup]:
        """Return the groups that the index finds for an incoming pod. Terms of other groups cannot match this pod."""
        groups: dict[TermGroup, None] = {}
        for index_key in pod_index_keys(incoming.namespace, incoming.labels):
            groups.update(self._by_index_key.get(index_key, {}))
        return groups

    def _drop_match(self, match: TermMatch) -> None:
        match.leave()
        for selection in match.selections.values():
            self._counts.leave(selection)

    # Events.

    def pod(self, pod: Pod, node: str, delta: int) -> None:
        """Add (``delta`` 1) or remove (-1) a pod on ``node``, which can be unknown."""
        self._counts.pod(pod, node, delta)
        affinity = pod.spec.pod_affinity
        if affinity is not NO_TERMS and affinity.has_terms:
            self._add_to_group((pod.namespace, affinity), node, delta)
        self._moves += 1
        if self._moves >= _WEIGH_EVERY:
            self._moves = 0
            self._matches.weigh(_ROUND)

    def _add_to_group(self, key: TermGroupKey, node: str, delta: int) -> None:
        group = self._groups.get(key)
        if group is None:
            group = self._new_group(key)
        count = group.nodes.get(node, 0) + delta
        if count:
            group.nodes[node] = count
        else:
            del group.nodes[node]
        for match, weights in group.matches.items():
            match.add(weights, node, delta)
        if not group.nodes:
            self._drop_group(group)

    def relabelled(self, old: Pod, new: Pod, node: str) -> None:
        """Replace the labels of a pod on ``node``. Its node and spec have not changed."""
        self._counts.relabelled(old, new, node)

    def _new_group(self, key: TermGroupKey) -> TermGroup:
        self._last += 1
        group = self._groups[key] = TermGroup(key, self._last)
        for index_key in group.index_keys():
            self._by_index_key.setdefault(index_key, {})[group] = None
        return group

    def _drop_group(self, group: TermGroup) -> None:
        del self._groups[group.key]
        for index_key in group.index_keys():
            del self._by_index_key[index_key][group]
            if not self._by_index_key[index_key]:
                del self._by_index_key[index_key]
        for match in group.matches:
            del match.groups[group]

    def node(self, name: str, old: Node | None, new: Node | None) -> None:
        """Apply a change of a node. ``old`` is ``None`` if it was added, ``new`` is ``None`` if it was deleted."""
        self._counts.node(name, old, new)
        was, now = (frozenset() if it is None else it.labels.keys() for it in (old, new))
        add(dict.fromkeys(was - now, 1), self._keys, -1)
        add(dict.fromkeys(now - was, 1), self._keys)

    # Consistency checks.

    def statistics(self) -> dict[str, dict[str, int]]:
        """Return the number of entries, hits and misses, and the estimated bytes, of each cache."""
        matches = self._matches
        of_matches = {"entries": len(matches), "hits": matches.hits, "misses": matches.misses, "bytes": matches.bytes}
        return {**self._counts.statistics(), "matches": of_matches}

    def recount(self) -> TermsRecount:
        """Create an empty recount for ``differences``. The caller must call ``see`` for every pod, and ``moved``."""
        return TermsRecount(self._counts.complete_selections())

    def differences(self, recount: TermsRecount) -> Iterator[str]:
        """Compare the counts and matches with a recount. Each step yields a sentence on a difference, or ``""``."""
        yield from (sentence and f"terms: {sentence}" for sentence in self._counts.differences(recount))
        for key in (*self._groups, *recount.term_groups):
            group = self._groups.get(key)
            nodes = {} if group is None else group.nodes
            yield (
                "" if nodes == recount.term_groups.get(key, {}) else "terms: pods by their terms differ from a recount"
            )
        for match_key, match in self._matches.items():
            if match.rest is None and self._matches.holds(match_key, match):
                yield from self._match_differences(match)

    def _match_differences(self, match: TermMatch) -> Iterator[str]:
        """Compare one match with a sum over all groups up to ``match.seen``, in one step, so that none can change."""
        counted: dict[str, dict[str, int]] = {key: {} for key in match.selections}
        candidates = [it for it in self._candidates(match.incoming) if it.number <= match.seen]
        for group in candidates:
            for key, weight in match.weights_of(group.affinity).items():
                nodes = counted.setdefault(key, {})
                for node, count in group.nodes.items():
                    nodes[node] = nodes.get(node, 0) + weight * count
        wrong: list[str] = []
        for key, nodes in counted.items():
            right = {node: weight for node, weight in nodes.items() if weight}
            selection = match.selections.get(key)
            if selection is None or selection.nodes != right:
                wrong.append("terms: counts of matching terms differ from a recount")
            else:
                wrong.extend(f"terms: {it}" for domains in selection.domains for it in domains.differences(right) if it)
        yield from wrong or ("",)


def _by_node(moves: Collection[tuple[str, int, int]]) -> dict[str, int]:
    """Return the change of the weight by node; for ``moves``, see ``_moved``."""
    weights: dict[str, int] = {}
    for node, _, weight in moves:
        weights[node] = weights.get(node, 0) + weight
    return weights


def _changed(domains: Domains, moves: Collection[tuple[str, int, int]]) -> dict[str, int]:
    """Return the counts of ``domains`` after the changes ``moves``, see ``_moved``."""
    counts = dict(domains.counts)
    for node, weight in _by_node(moves).items():
        value = domains.topology.domain[node]
        counts[value] = counts.get(value, 0) + weight
    return counts
