"""Counts of existing pods by their affinity terms.

Pods of a namespace with equal terms form a ``TermGroup``. A ``TermMatch`` counts or weighs the existing pods with terms
that match a certain incoming pod.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from app.cache.bounded import COUNT_BYTES, ENTRY_BYTES
from app.cache.recount import PodRecount
from app.cache.selections import EVERYWHERE, Selection, SelectionKey, selector_index_keys
from app.kube.core_v1 import Pod
from app.kube.pod_affinity import Newcomer, PodAffinity, PodAffinityTerm
from app.kube.selectors import EVERYTHING

_GROUP_BYTES: Final = 400
"""Estimated bytes that a match needs for each group in it."""

TermGroupKey = tuple[str, PodAffinity]
"""Namespace of the pods, and their affinity terms as in the spec: ``PodAffinity.within`` is not applied yet."""

MatchKey = tuple[Newcomer, int | None]
"""Incoming pod, and the weight of an existing pod's required affinity term (``hardPodAffinityWeight``).

The weight is ``None`` if the match counts pods with a required anti-affinity term.
"""


class TermGroup:
    """Number of pods by node (``nodes``), for the pods of one namespace with equal affinity terms (``affinity``).

    ``number``: serial number; a later group has a larger number. ``matches``: the matches that count this group, each
    with the weight of one pod by topology key. ``fan_out``: number of these weights in all matches together, because
    each means a count to update when a pod of the group joins or leaves a node.
    """

    __slots__ = ("affinity", "fan_out", "key", "matches", "nodes", "number")

    def __init__(self, key: TermGroupKey, number: int) -> None:
        self.key = key
        self.number = number
        self.affinity = key[1].within(key[0])
        self.nodes: dict[str, int] = {}
        self.matches: dict[TermMatch, Mapping[str, int]] = {}
        self.fan_out = 0

    @property
    def size(self) -> int:
        """Return the number of affinity terms of a pod of this group."""
        affinity = self.affinity
        return len(affinity.required) + len(affinity.required_anti) + len(affinity.preferred)

    def terms(self) -> Iterator[PodAffinityTerm]:
        """Yield all affinity terms of a pod of this group: required, required anti-affinity and preferred terms."""
        affinity = self.affinity
        yield from affinity.required
        yield from affinity.required_anti
        for weighted in affinity.preferred:
            yield weighted.term

    def index_keys(self) -> set[tuple[str, ...]]:
        """Return the index keys of the group. For a pod that a term matches, ``pod_index_keys`` yields at least one."""
        keys: set[tuple[str, ...]] = set()
        for term in self.terms():
            if term.selector is not None:
                scopes = term.namespaces if term.namespace_selector is None else (EVERYWHERE,)
                keys.update(selector_index_keys(scopes, term.selector))
        return keys


class TermMatch:
    """Number or weight of the existing pods with terms that match an incoming pod, by topology key and node.

    ``hard_weight``: weight of a required affinity term; if ``None``, pods with a matching required anti-affinity term
    are counted. ``groups``: the matching groups, each with the weight of one pod by topology key. ``seen``: all groups
    up to this number have been compared; -1 before the first comparison has ended. Implements ``SteppedEntry``.
    """

    __slots__ = ("groups", "hard_weight", "incoming", "rest", "seen", "selections")

    def __init__(self, incoming: Newcomer, hard_weight: int | None) -> None:
        self.incoming = incoming
        self.hard_weight = hard_weight
        self.groups: dict[TermGroup, Mapping[str, int]] = {}
        self.selections: dict[str, Selection] = {}
        self.seen = -1
        self.rest: Iterator[None] | None = None

    def weight(self) -> int:
        """Return the estimated bytes."""
        counts = sum(len(it.nodes) + sum(len(by.counts) for by in it.domains) for it in self.selections.values())
        sizes = ENTRY_BYTES * (1 + len(self.selections)) + _GROUP_BYTES * len(self.groups)
        return sizes + COUNT_BYTES * counts

    def weights_of(self, affinity: PodAffinity) -> Mapping[str, int]:
        """Return the weight of one pod with these terms in this match, by topology key.

        Empty if the incoming pod matches none of the terms that this match counts, see ``hard_weight``.
        """
        incoming, hard_weight = self.incoming, self.hard_weight
        if hard_weight is None:
            return {it.topology_key: 1 for it in affinity.required_anti if it.matches(incoming)}
        weights: dict[str, int] = {}
        if hard_weight:
            for term in affinity.required:
                if term.matches(incoming):
                    weights[term.topology_key] = weights.get(term.topology_key, 0) + hard_weight
        for weighted in affinity.preferred:
            if weighted.term.matches(incoming):
                key = weighted.term.topology_key
                weights[key] = weights.get(key, 0) + weighted.weight
        return weights

    def add_group(self, group: TermGroup) -> None:
        """Add a group if its pods have a weight in this match. Changes of the group then also update the match."""
        if group in self.groups:
            return
        weights = self.weights_of(group.affinity)
        if weights:
            self.groups[group] = group.matches[self] = weights
            group.fan_out += len(weights)
            for node, count in group.nodes.items():
                self.add(weights, node, count)

    def add(self, weights: Mapping[str, int], node: str, delta: int) -> None:
        """Add ``delta`` pods of a group on a node. ``weights``: weight of one such pod by topology key."""
        for key, weight in weights.items():
            selection = self.selections.get(key)
            if selection is None:
                selection = self.selections[key] = Selection(EVERYWHERE, EVERYTHING)
            if weight:
                selection.add(node, weight * delta)

    def leave(self) -> None:
        """Remove this match from its groups, because it was evicted."""
        self.rest = None
        for group, weights in self.groups.items():
            del group.matches[self]
            group.fan_out -= len(weights)

    def has_more_than(self, pods: int, topology_key: str, nodes: Collection[str]) -> bool:
        """Return true if these nodes have more than ``pods`` pods with a matching term for the topology key."""
        total = 0
        for group, weights in self.groups.items():
            if topology_key in weights:
                for node, count in group.nodes.items():
                    total += count if node in nodes else 0
                    if total > pods:
                        return True
        return False


class TermsRecount(PodRecount):
    """Recount of the pods by labels and, in ``term_groups``, by terms. Terminating pods are counted."""

    def __init__(self, selections: Iterable[SelectionKey]) -> None:
        super().__init__(selections, terminating=True)
        self.term_groups: dict[TermGroupKey, dict[str, int]] = {}

    def _add(self, pod: Pod, delta: int) -> None:
        super()._add(pod, delta)
        affinity = pod.spec.pod_affinity
        if pod.node_name and affinity.has_terms:
            nodes = self.term_groups.setdefault((pod.namespace, affinity), {})
            nodes[pod.node_name] = nodes.get(pod.node_name, 0) + delta
            if not nodes[pod.node_name]:
                del nodes[pod.node_name]
