"""Scores nodes by the preferred terms of the incoming pod and of existing pods, and by required affinity terms of
existing pods.

The raw score of a node is the sum of the weights of its domains, over all topology keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from operator import add
from typing import Any, Final, Self, TypeVar

from app.framework.counts import Counts, DomainCounts, PodTerms, Unprepared, all_prepared
from app.framework.cycle_state import StateKey
from app.framework.node_info import Candidates
from app.framework.points import MAX_NODE_SCORE
from app.framework.score_classes import ScoreClasses
from app.kube.pod_affinity import Newcomer
from plugins.in_tree.inter_pod_affinity.filtering import NAME
from plugins.in_tree.inter_pod_affinity.own import OwnTerms

K = TypeVar("K")


class PreferredState:
    """Weights of domains, as computed by PreScore for Score.

    ``own``: by topology key, a pair for each preferred term of the incoming pod that matches pods: the numbers of these
    pods by domain, and the weight per pod. ``others``: by topology key and domain, the total weight of the existing
    pods' terms that match the incoming pod. These include required affinity terms if ``hardPodAffinityWeight`` is not
    0.
    """

    __slots__ = ("others", "own")

    def __init__(
        self, own: Mapping[str, Sequence[tuple[DomainCounts, int]]], others: Mapping[str, Mapping[str, int]]
    ) -> None:
        self.own = own
        self.others = others

    def clone(self) -> Self:
        return self

    def topology_keys(self) -> list[str]:
        """Return the topology keys whose domains have weights, without duplicates."""
        return list(dict.fromkeys((*self.own, *self.others)))

    def raw_scores(self, nodes: Candidates, counts: Counts) -> ScoreClasses:
        """Return for each node the sum of the weights of its domains, over all topology keys."""
        totals = [0] * len(nodes)
        for key in self.topology_keys():
            values = list(map(nodes.values(key, counts.values(key)).get, nodes.names))
            for weights in self._weights(key, values):
                totals = list(map(add, totals, map(weights.get, values, repeat(0))))
        return ScoreClasses.by_value(totals)

    def _weights(self, key: str, values: Sequence[str | None]) -> Iterator[Mapping[Any, int]]:
        """Yield up to two maps of weights by domain for one topology key: of ``others``, and of ``own``.

        The weight of a domain is the sum from both maps; a domain that a map lacks has weight 0 in it.
        """
        others = self.others.get(key)
        if others:
            yield others
        own = self.own.get(key, ())
        if own:
            weights: dict[str, int] = {}
            on_nodes = {it for it in values if it is not None}
            for domains, weight in own:
                occupied = domains.above(0)
                for value in occupied if len(occupied) < len(on_nodes) else on_nodes:
                    weights[value] = weights.get(value, 0) + weight * domains.count(value)
            yield weights


PREFERRED: Final[StateKey[PreferredState]] = StateKey(f"PreScore{NAME}")


def preferred_state(own: OwnTerms, newcomer: Newcomer, hard_weight: int, terms: PodTerms) -> PreferredState | None:
    """Create the state for Score; ``None`` if no domain would have a weight. Raises ``Unprepared``."""
    try:
        others = terms.weights(newcomer, hard_weight)
        by_key: dict[str, list[tuple[DomainCounts, int]]] = {}
        for key, peers, weight in own.preferred:
            domains = terms.peers(peers, key)
            if not domains.is_empty():
                by_key.setdefault(key, []).append((domains, weight))
    except Unprepared:
        asks = (partial(terms.peers, peers, key) for key, peers, _ in own.preferred)
        all_prepared((partial(terms.weights, newcomer, hard_weight), *asks))
        raise
    return PreferredState(by_key, others) if by_key or others else None


def normalized(scores: Mapping[K, int]) -> Mapping[K, int]:
    """Return scores scaled linearly, so that the lowest becomes 0 and the highest 100, rounded down. If all scores are
    equal, they become 0.
    """
    least, most = min(scores.values(), default=0), max(scores.values(), default=0)
    if most == least:
        return dict.fromkeys(scores, 0)
    return {key: int(float(MAX_NODE_SCORE) * (float(it - least) / float(most - least))) for key, it in scores.items()}
