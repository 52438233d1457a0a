"""What pods that are there ask of one that is to be placed, and how many of them a term of that one means.

Two tables, both fed by every pod that comes to a node or leaves it, terminating ones included:

    Counters     (namespace, label set) -> node -> pods      what the newcomer's own terms are answered from
    TermGroup     (namespace, terms)     -> node -> pods      the pods of one namespace that have the same terms

A ``TermMatch`` is what all carriers together ask of one sort of newcomer (its namespace, that one's labels, its labels):
for each topology key the pods, or their weights, by node and by domain. It is made when it is first asked for, of the
carriers that an index finds by namespace and label, in pieces where there are many (``Unprepared``), and kept up to
date from then on: a pod that comes costs a look at each match of its carriers, carriers that come are looked at when
a match is next asked for. Least used matches are given up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Final

from app.cache.bounded import Bounded
from app.cache.counters import Counters
from app.cache.domains import Domains
from app.cache.matches import MatchKey, TermGroup, TermGroupKey, TermMatch, TermsRecount
from app.cache.overlay import CountedMoves, Overlay, is_placed, overlaid
from app.cache.selections import EVERYWHERE, Scope, Selection, found_under, run_next_step
from app.framework.counts import DomainCounts, Unprepared, all_prepared
from app.framework.node_info import NodeInfo
from app.framework.resources import add
from app.kube.core_v1 import Node, Pod
from app.kube.pod_affinity import NO_TERMS, Newcomer, Peers
from app.kube.selectors import EVERYTHING

_MOST_MATCH_BYTES: Final = 64 << 20

_PIECE: Final = 384
"""Terms, and nodes of carriers, that are looked at in one piece: some tenths of a millisecond."""

_WEIGH_EVERY: Final = 64
_ROUND: Final = 128
"""After so many pod events such a part of the matches is weighed anew: they grow with what they count."""

_MOST_TOLD: Final = 2048
"""Counts of matches that one carrier changes as it comes or goes: a millisecond or two. Of matches that would be more
than that those that were made first are given up.
"""

_CAUGHT_UP: Final = 512
"""TermGroup that came since are looked at one by one; of more, those that the index finds."""


class Terms:
    """Implements ``framework.PodTerms`` over the node infos of a picture, which tells it of every change."""

    def __init__(self, nodes: Mapping[str, NodeInfo], *, most_match_bytes: int = _MOST_MATCH_BYTES) -> None:
        self._counts = Counters(nodes)
        self._carriers: dict[TermGroupKey, TermGroup] = {}
        self._by_pair: dict[tuple[str, ...], dict[TermGroup, None]] = {}
        self._last = 0
        self._matches = Bounded[MatchKey, TermMatch](lambda: most_match_bytes, self._new_match, self._drop_match)
        self._nothing = Selection(EVERYWHERE, EVERYTHING)
        self._keys: dict[str, int] = {}
        """How many nodes have a label of this key."""
        for info in nodes.values():
            add(dict.fromkeys(info.node.labels, 1), self._keys)
        self._moves = 0
        self._laid: CountedMoves | None = None

    def lay(self, overlay: Overlay | None) -> None:
        """Answer as with this overlay from now on; ``None``: with none."""
        self._laid = None if overlay is None else CountedMoves(overlay.moves, is_placed)
        self._counts.overlay = self._laid

    # What is asked.

    def peers(self, peers: Peers, topology_key: str) -> DomainCounts:
        names = peers.namespaces
        scope: Scope = EVERYWHERE if names is None else next(iter(names)) if len(names) == 1 else names
        return self._counts.domains(scope, peers.selector, topology_key, frozenset((topology_key,)))

    def refusing(self, newcomer: Newcomer) -> Mapping[str, DomainCounts]:
        match = self._match(newcomer, None)
        moved = self._moved(match)
        kept = self._domains(match, moved)
        return {key: overlaid(it, _by_node(moved[key])) if key in moved else it for key, it in kept.items()}

    def weights(self, newcomer: Newcomer, hard_weight: int) -> Mapping[str, Mapping[str, int]]:
        match = self._match(newcomer, hard_weight)
        moved = self._moved(match)
        found: dict[str, Mapping[str, int]] = {}
        for key, kept in self._domains(match, moved).items():
            on_node = kept.topology.domain
            moves = [it for it in moved.get(key, ()) if it[0] in on_node]
            came, gone = sum(it[1] > 0 for it in moves), sum(it[1] < 0 for it in moves)
            if came or len(kept.counts) > gone or match.has_more_than(gone, key, on_node):
                found[key] = _changed(kept, moves) if moves else kept.counts
        return found

    def _domains(self, match: TermMatch, moved: Collection[str]) -> dict[str, Domains]:
        """By topology key, those that no pod that is there asks anything over included if they are of ``moved``.

        Without those that no node has: they keep nobody out, and whoever writes terms can invent any number.
        """
        every = {**dict.fromkeys(moved, self._nothing), **match.selections}
        selections = {key: it for key, it in every.items() if key in self._keys}
        try:
            return {key: self._counts.domains_of(it, key) for key, it in selections.items()}
        except Unprepared:
            all_prepared(partial(self._counts.domains_of, it, key) for key, it in selections.items())
            raise

    def _moved(self, match: TermMatch) -> Mapping[str, list[tuple[str, int, int]]]:
        """By topology key, what an overlay changes: node, pods, and what these count."""
        found: dict[str, list[tuple[str, int, int]]] = {}
        for pod, delta in self._laid.moved() if self._laid is not None else ():
            affinity = pod.spec.pod_affinity
            if affinity is not NO_TERMS:
                for key, weight in match.asked_by(affinity.within(pod.namespace)).items():
                    found.setdefault(key, []).append((pod.node_name, delta, weight * delta))
        return found

    # What is kept of who asks what.

    def _match(self, newcomer: Newcomer, hard_weight: int | None) -> TermMatch:
        """A whole one. Raises ``Unprepared``."""
        key = (newcomer, hard_weight)
        found = self._matches.get(key)
        if found.rest is None and found.seen != self._last:
            found.rest = self._look(found)
            run_next_step(found)
            self._matches.put(key, found)
        if found.rest is not None:
            raise Unprepared(self._finish(found, key))
        return found

    def _new_match(self, key: MatchKey) -> TermMatch:
        match = TermMatch(*key)
        match.rest = self._look(match)
        run_next_step(match)
        return match

    def _finish(self, match: TermMatch, key: MatchKey) -> Iterator[None]:
        """Make the rest of a match; several may do so in turns. One that is given up meanwhile has none."""
        while match.rest is not None:
            run_next_step(match)
            yield
        if self._matches.holds(key, match):
            self._matches.put(key, match)

    def _look(self, match: TermMatch) -> Iterator[None]:
        """Look at the carriers that came since, piece by piece, and at those that come meanwhile."""
        looked_at = 0
        while match.seen != self._last:
            last = self._last
            for carriers in self._since(match):
                if self._carriers.get(carriers.key) is carriers:
                    match.take(carriers)
                    self._thin_out(carriers, match)
                looked_at += carriers.size + len(carriers.nodes)
                if looked_at >= _PIECE:
                    looked_at = 0
                    yield
            match.seen = last

    def _thin_out(self, carriers: TermGroup, newest: TermMatch) -> None:
        """Give up matches of carriers that have too many. Not the newest, and none that is pinned."""
        if carriers.told > _MOST_TOLD:
            for it in tuple(carriers.matches):
                if carriers.told <= _MOST_TOLD:
                    return
                if it is not newest:
                    self._matches.give_up((it.newcomer, it.hard_weight))

    def _since(self, match: TermMatch) -> Collection[TermGroup]:
        """The carriers whose terms may mean the newcomer, of those that came since the match was looked at."""
        if match.seen < 0 or self._last - match.seen > _CAUGHT_UP:
            return [it for it in self._candidates(match.newcomer) if it.number > match.seen]
        found: list[TermGroup] = []
        for carriers in reversed(self._carriers.values()):
            if carriers.number <= match.seen:
                break
            found.append(carriers)
        return found

    def _candidates(self, newcomer: Newcomer) -> Collection[TermGroup]:
        found: dict[TermGroup, None] = {}
        for pair in found_under(newcomer.namespace, newcomer.labels):
            found.update(self._by_pair.get(pair, {}))
        return found

    def _drop_match(self, match: TermMatch) -> None:
        match.leave()
        for selection in match.selections.values():
            self._counts.leave(selection)

    # What happens.

    def pod(self, pod: Pod, node: str, delta: int) -> None:
        """A pod came to (1) or left (-1) ``node``, which the picture need not know."""
        self._counts.pod(pod, node, delta)
        affinity = pod.spec.pod_affinity
        if affinity is not NO_TERMS and affinity.has_terms:
            self._carry((pod.namespace, affinity), node, delta)
        self._moves += 1
        if self._moves >= _WEIGH_EVERY:
            self._moves = 0
            self._matches.weigh(_ROUND)

    def _carry(self, key: TermGroupKey, node: str, delta: int) -> None:
        carriers = self._carriers.get(key)
        if carriers is None:
            carriers = self._new_carriers(key)
        count = carriers.nodes.get(node, 0) + delta
        if count:
            carriers.nodes[node] = count
        else:
            del carriers.nodes[node]
        for match, asked in carriers.matches.items():
            match.add(asked, node, delta)
        if not carriers.nodes:
            self._drop_carriers(carriers)

    def relabelled(self, old: Pod, new: Pod, node: str) -> None:
        """A pod that stays on ``node`` has other labels now, and the same spec."""
        self._counts.relabelled(old, new, node)

    def _new_carriers(self, key: TermGroupKey) -> TermGroup:
        self._last += 1
        carriers = self._carriers[key] = TermGroup(key, self._last)
        for pair in carriers.pairs():
            self._by_pair.setdefault(pair, {})[carriers] = None
        return carriers

    def _drop_carriers(self, carriers: TermGroup) -> None:
        del self._carriers[carriers.key]
        for pair in carriers.pairs():
            del self._by_pair[pair][carriers]
            if not self._by_pair[pair]:
                del self._by_pair[pair]
        for match in carriers.matches:
            del match.carriers[carriers]

    def node(self, name: str, old: Node | None, new: Node | None) -> None:
        """A node was added (``old`` is None), changed, or removed (``new`` is None)."""
        self._counts.node(name, old, new)
        was, now = (frozenset() if it is None else it.labels.keys() for it in (old, new))
        add(dict.fromkeys(was - now, 1), self._keys, -1)
        add(dict.fromkeys(now - was, 1), self._keys)

    # Whether it is right.

    def statistics(self) -> dict[str, dict[str, int]]:
        """Entries, hits, misses and estimated bytes of each level."""
        matches = self._matches
        of_matches = {"entries": len(matches), "hits": matches.hits, "misses": matches.misses, "bytes": matches.bytes}
        return {**self._counts.statistics(), "matches": of_matches}

    def recount(self) -> TermsRecount:
        """A recount to be told of every pod, for ``differences``."""
        return TermsRecount(self._counts.recount(terminating=True))

    def differences(self, recount: TermsRecount) -> Iterator[str]:
        """What differs from a recount that has all pods, in words; empty for each step in which nothing does."""
        yield from (found and f"terms: {found}" for found in self._counts.differences(recount.peers))
        for key in (*self._carriers, *recount.carriers):
            carriers = self._carriers.get(key)
            kept = {} if carriers is None else carriers.nodes
            yield "" if kept == recount.carriers.get(key, {}) else "terms: pods by their terms differ from a recount"
        for match_key, match in self._matches.items():
            if match.rest is None and self._matches.holds(match_key, match):
                yield from self._match_differences(match)

    def _match_differences(self, match: TermMatch) -> Iterator[str]:
        """In one step: all of it has to be as it is at one time."""
        counted: dict[str, dict[str, int]] = {key: {} for key in match.selections}
        candidates = [it for it in self._candidates(match.newcomer) if it.number <= match.seen]
        for carriers in candidates:
            for key, weight in match.asked_by(carriers.affinity).items():
                nodes = counted.setdefault(key, {})
                for node, count in carriers.nodes.items():
                    nodes[node] = nodes.get(node, 0) + weight * count
        wrong: list[str] = []
        for key, nodes in counted.items():
            right = {node: weight for node, weight in nodes.items() if weight}
            selection = match.selections.get(key)
            if selection is None or selection.nodes != right:
                wrong.append("terms: what they ask of a newcomer differs from a recount")
            else:
                wrong.extend(f"terms: {it}" for domains in selection.domains for it in domains.differences(right) if it)
        yield from wrong or ("",)


def _by_node(moves: Collection[tuple[str, int, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for node, _, weight in moves:
        found[node] = found.get(node, 0) + weight
    return found


def _changed(kept: Domains, moves: Collection[tuple[str, int, int]]) -> dict[str, int]:
    found = dict(kept.counts)
    for node, weight in _by_node(moves).items():
        value = kept.topology.domain[node]
        found[value] = found.get(value, 0) + weight
    return found
