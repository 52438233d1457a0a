"""Which pods ask what of one sort of newcomer: ``TermGroup`` have the same terms, a ``TermMatch`` counts what they ask."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from app.cache.recount import PodRecount
from app.cache.selections import EVERYWHERE, Selection, pairs_of
from app.kube.core_v1 import Pod
from app.kube.pod_affinity import Newcomer, PodAffinity, PodAffinityTerm
from app.kube.selectors import EVERYTHING

_CARRIERS_BYTES: Final = 400
"""Of a match: for each carriers that it counts."""

_ENTRY_BYTES: Final = 1000
_COUNT_BYTES: Final = 150

TermGroupKey = tuple[str, PodAffinity]

MatchKey = tuple[Newcomer, int | None]
"""A newcomer, and what a required affinity term weighs; ``None`` for who refuses it."""


class TermGroup:
    """The pods of one namespace that have the same terms. ``number``: of several, the later came later.

    ``told``: how many counts of its matches change with one of its pods.
    """

    __slots__ = ("affinity", "key", "matches", "nodes", "number", "told")

    def __init__(self, key: TermGroupKey, number: int) -> None:
        self.key = key
        self.number = number
        self.affinity = key[1].within(key[0])
        self.nodes: dict[str, int] = {}
        self.matches: dict[TermMatch, Mapping[str, int]] = {}
        self.told = 0

    @property
    def size(self) -> int:
        """How many terms there are."""
        affinity = self.affinity
        return len(affinity.required) + len(affinity.required_anti) + len(affinity.preferred)

    def terms(self) -> Iterator[PodAffinityTerm]:
        affinity = self.affinity
        yield from affinity.required
        yield from affinity.required_anti
        for it in affinity.preferred:
            yield it.term

    def pairs(self) -> set[tuple[str, ...]]:
        """Under what it is found by the newcomers that its terms may mean."""
        found: set[tuple[str, ...]] = set()
        for term in self.terms():
            if term.selector is not None:
                scopes = term.namespaces if term.namespace_selector is None else (EVERYWHERE,)
                found.update(pairs_of(scopes, term.selector))
        return found


class TermMatch:
    """What carriers ask of one sort of newcomer, by topology key: how many of their pods, or what these weigh.

    ``carriers``: each with what one of its pods counts. ``seen``: the number of the last that was looked at; -1 for
    none. ``rest``: what is still to be looked at.
    """

    __slots__ = ("carriers", "hard_weight", "newcomer", "rest", "seen", "selections")

    def __init__(self, newcomer: Newcomer, hard_weight: int | None) -> None:
        self.newcomer = newcomer
        self.hard_weight = hard_weight
        self.carriers: dict[TermGroup, Mapping[str, int]] = {}
        self.selections: dict[str, Selection] = {}
        self.seen = -1
        self.rest: Iterator[None] | None = None

    def weight(self) -> int:
        """Bytes."""
        counts = sum(len(it.nodes) + sum(len(by.counts) for by in it.domains) for it in self.selections.values())
        sizes = _ENTRY_BYTES * (1 + len(self.selections)) + _CARRIERS_BYTES * len(self.carriers)
        return sizes + _COUNT_BYTES * counts

    def asked_by(self, affinity: PodAffinity) -> Mapping[str, int]:
        """What one pod with these terms counts, by topology key; empty if none of them means the newcomer."""
        newcomer, hard_weight = self.newcomer, self.hard_weight
        if hard_weight is None:
            return {it.topology_key: 1 for it in affinity.required_anti if it.matches(newcomer)}
        found: dict[str, int] = {}
        if hard_weight:
            for term in affinity.required:
                if term.matches(newcomer):
                    found[term.topology_key] = found.get(term.topology_key, 0) + hard_weight
        for weighted in affinity.preferred:
            if weighted.term.matches(newcomer):
                key = weighted.term.topology_key
                found[key] = found.get(key, 0) + weighted.weight
        return found

    def take(self, carriers: TermGroup) -> None:
        """Count carriers, from now on too, if they ask anything of the newcomer."""
        if carriers in self.carriers:
            return
        asked = self.asked_by(carriers.affinity)
        if asked:
            self.carriers[carriers] = carriers.matches[self] = asked
            carriers.told += len(asked)
            for node, count in carriers.nodes.items():
                self.add(asked, node, count)

    def add(self, asked: Mapping[str, int], node: str, delta: int) -> None:
        """So many pods that ask this came to a node, or left it."""
        for key, weight in asked.items():
            selection = self.selections.get(key)
            if selection is None:
                selection = self.selections[key] = Selection(EVERYWHERE, EVERYTHING)
            if weight:
                selection.add(node, weight * delta)

    def leave(self) -> None:
        self.rest = None
        for carriers, asked in self.carriers.items():
            del carriers.matches[self]
            carriers.told -= len(asked)

    def has_more_than(self, pods: int, topology_key: str, nodes: Collection[str]) -> bool:
        """Whether more than so many pods on these nodes ask anything over the topology key."""
        found = 0
        for carriers, asked in self.carriers.items():
            if topology_key in asked:
                for node, count in carriers.nodes.items():
                    found += count if node in nodes else 0
                    if found > pods:
                        return True
        return False


class TermsRecount:
    """Pods and what they ask counted anew. CountOverlay while it is made are told to it."""

    def __init__(self, peers: PodRecount) -> None:
        self.peers = peers
        self.carriers: dict[TermGroupKey, dict[str, int]] = {}
        self._seen: set[str] = set()

    def see(self, pod: Pod) -> None:
        """A pod as it is now."""
        self.peers.see(pod)
        if pod.uid not in self._seen:
            self._seen.add(pod.uid)
            self._add(pod, 1)

    def moved(self, old: Pod | None, new: Pod | None) -> None:
        """A pod changed from one form to another, came (``old`` is None) or went (``new`` is None)."""
        self.peers.moved(old, new)
        for pod, delta in ((old, -1), (new, 1)):
            if pod is not None and (delta > 0 or pod.uid in self._seen):
                self._add(pod, delta)
            if pod is not None:
                self._seen.add(pod.uid)

    def _add(self, pod: Pod, delta: int) -> None:
        affinity = pod.spec.pod_affinity
        if pod.node_name and affinity.has_terms:
            nodes = self.carriers.setdefault((pod.namespace, affinity), {})
            nodes[pod.node_name] = nodes.get(pod.node_name, 0) + delta
            if not nodes[pod.node_name]:
                del nodes[pod.node_name]
