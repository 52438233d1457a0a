"""Filters nodes by the required terms of the incoming pod and the required anti-affinity terms of existing pods."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from functools import partial
from itertools import compress
from typing import Final

from app.framework.counts import Counts, DomainCounts, PodTerms, Unprepared, all_prepared
from app.framework.cycle_state import StateKey
from app.framework.filter_result import FilterResult
from app.framework.node_info import Candidates, NodeInfo
from app.framework.status import SUCCESS, TOO_LONG, Status, unresolvable, unschedulable
from app.kube.core_v1 import LABELS, Pod
from app.kube.pod_affinity import MOST_NAMESPACES, MOST_TERMS, POD_AFFINITY, Newcomer, Peers
from plugins.in_tree.inter_pod_affinity.own import OwnTerms

NAME: Final = "InterPodAffinity"

REASON_AFFINITY: Final = "node(s) didn't match pod affinity rules"
REASON_ANTI_AFFINITY: Final = "node(s) didn't match pod anti-affinity rules"
REASON_EXISTING: Final = "node(s) didn't satisfy existing pods anti-affinity rules"
REASON_LONG_TERMS: Final = (
    TOO_LONG.format(POD_AFFINITY) + f", or has more than {MOST_TERMS} terms or {MOST_NAMESPACES} namespaces"
)
REASON_LONG_LABELS: Final = TOO_LONG.format(LABELS)

AFFINITY: Final = unresolvable(REASON_AFFINITY).by(NAME)
ANTI_AFFINITY: Final = unschedulable(REASON_ANTI_AFFINITY).by(NAME)
EXISTING: Final = unschedulable(REASON_EXISTING).by(NAME)
UNREAD: Final = {
    POD_AFFINITY: unresolvable(REASON_LONG_TERMS).by(NAME),
    LABELS: unresolvable(REASON_LONG_LABELS).by(NAME),
}
"""Rejections of pods with an oversized part, by the name of the part. Oversized parts are not decoded."""


class Occupied:
    """Number of relevant pods in each domain of one topology key.

    Relevant pods match all required affinity terms or one required anti-affinity term of the incoming pod, or have a
    required anti-affinity term that matches it. ``domains``: counts from the cache; ``None`` means that all are 0.
    ``deltas``: number of relevant pods that a dry run adds to a domain, or removes if negative.
    """

    __slots__ = ("deltas", "domains", "key")

    def __init__(self, key: str, domains: DomainCounts | None, deltas: dict[str, int] | None = None) -> None:
        self.key = key
        self.domains = domains
        self.deltas = {} if deltas is None else deltas

    def clone(self) -> Occupied:
        return Occupied(self.key, self.domains, dict(self.deltas))

    def count(self, value: str) -> int:
        """Return the number of relevant pods in a domain, including ``deltas``."""
        cached = 0 if self.domains is None else self.domains.count(value)
        return cached + self.deltas.get(value, 0)

    def values(self) -> Set[str]:
        """Return the domains with at least one relevant pod."""
        cached: Collection[str] = () if self.domains is None else self.domains.above(0)
        if not self.deltas:
            return cached if isinstance(cached, Set) else frozenset(cached)
        touched = {value for value in self.deltas if self.count(value) > 0}
        return {value for value in cached if value not in self.deltas} | touched

    def is_empty(self) -> bool:
        """Return true if no domain has a relevant pod."""
        if not self.deltas:
            return self.domains is None or self.domains.is_empty()
        return not self.values()

    def shift(self, node: NodeInfo, delta: int) -> None:
        """Record that a relevant pod was added to the node (``delta`` 1) or removed from it (-1)."""
        value = node.node.labels.get(self.key)
        if value is not None:
            self.deltas[value] = self.deltas.get(value, 0) + delta

    def domain_of(self, node_name: str) -> str | None:
        return None if self.domains is None else self.domains.domain_of(node_name)

    def stamp(self) -> int:
        """Return a number that changes when the set of domains with relevant pods changes. It ignores ``deltas``."""
        return 0 if self.domains is None else self.domains.stamp(0)

    def outside(self, nodes: Candidates, names: Sequence[str], counts: Counts) -> Sequence[str]:
        """Return the nodes of ``names`` that are in no domain with a relevant pod."""
        return _outside(self.key, self.values(), nodes, names, counts)

    def inside(self, nodes: Candidates, names: Sequence[str], counts: Counts) -> Sequence[str]:
        """Return the nodes of ``names`` that are in a domain with a relevant pod."""
        values = self.values()
        if not values:
            return ()
        on_node = nodes.values(self.key, counts.values(self.key))
        return list(compress(names, map(values.__contains__, map(on_node.get, names))))

    def known(self, nodes: Candidates, names: Sequence[str], counts: Counts) -> Sequence[str]:
        """Return the nodes of ``names`` that have a label with the topology key."""
        if not nodes.sent and counts.on_every_node(self.key):
            return names
        return list(filter(nodes.values(self.key, counts.values(self.key)).__contains__, names))


class RequiredState:
    """Domains of the pods that matter for Filter, as computed by PreFilter.

    ``own``: resolved terms of the incoming pod. ``newcomer``: the incoming pod's namespace, with its labels, and the
    pod's labels. ``matches_itself``: true if the pod matches its own required affinity terms. ``affinity``: domains of
    the pods that match all these terms, one entry per topology key. ``anti_affinity``: for each required anti-affinity
    term, the pods that it matches and their domains. ``existing``: domains of existing pods whose required
    anti-affinity terms match the incoming pod, by topology key.
    """

    __slots__ = ("affinity", "anti_affinity", "existing", "matches_itself", "newcomer", "own")

    def __init__(
        self,
        own: OwnTerms,
        newcomer: Newcomer,
        *,
        matches_itself: bool,
        affinity: Sequence[Occupied],
        anti_affinity: Sequence[tuple[Peers, Occupied]],
        existing: dict[str, Occupied],
    ) -> None:
        self.own = own
        self.newcomer = newcomer
        self.matches_itself = matches_itself
        self.affinity = affinity
        self.anti_affinity = anti_affinity
        self.existing = existing

    def clone(self) -> RequiredState:
        return RequiredState(
            self.own,
            self.newcomer,
            matches_itself=self.matches_itself,
            affinity=[it.clone() for it in self.affinity],
            anti_affinity=[(peers, it.clone()) for peers, it in self.anti_affinity],
            existing={key: it.clone() for key, it in self.existing.items()},
        )

    @property
    def can_reject(self) -> bool:
        """True if Filter might reject a node."""
        return self.own.has_required or not all(it.is_empty() for it in self.existing.values())

    def shift(self, other: Pod, node: NodeInfo, delta: int) -> None:
        """Record that another pod was added to the node (``delta`` 1) or removed from it (-1)."""
        if self.own.matches_affinity(other):
            for occupied in self.affinity:
                occupied.shift(node, delta)
        for peers, occupied in self.anti_affinity:
            if peers.include(other.namespace, other.labels):
                occupied.shift(node, delta)
        for key in existing_keys(other, self.newcomer):
            self.existing.setdefault(key, Occupied(key, None)).shift(node, delta)

    def stamp(self) -> tuple[object, ...]:
        """Return a key that changes whenever a verdict might change, except by changed node labels or ``shift``."""
        return (
            self.matches_itself,
            tuple((it.key, it.stamp()) for it in self.affinity),
            tuple((it.key, it.stamp()) for _, it in self.anti_affinity),
            tuple((key, it.stamp()) for key, it in self.existing.items()),
        )

    def topology_keys(self) -> list[str]:
        """Return the topology keys that a verdict depends on, without duplicates."""
        anti_affinity = (it.key for _, it in self.anti_affinity)
        return list(dict.fromkeys((*(it.key for it in self.affinity), *anti_affinity, *self.existing)))

    # Evaluation of one node.

    def evaluate(self, node: NodeInfo) -> Status:
        """Return the verdict on one node."""
        labels = node.node.labels
        if self.affinity and not self._matches_affinity(labels):
            return AFFINITY
        if any(labels.get(it.key) is not None and it.count(labels[it.key]) > 0 for _, it in self.anti_affinity):
            return ANTI_AFFINITY
        if any(key in labels and it.count(labels[key]) > 0 for key, it in self.existing.items()):
            return EXISTING
        return SUCCESS

    def _matches_affinity(self, labels: Mapping[str, str]) -> bool:
        if not all(it.key in labels for it in self.affinity):
            return False
        return all(it.count(labels[it.key]) > 0 for it in self.affinity) or self._is_first()

    def _is_first(self) -> bool:
        """Return true if the pod matches its own required affinity terms, and no pod in any domain matches them.

        Then each node with the topology keys meets these terms, so that the first pod of a group can be scheduled.
        """
        return self.matches_itself and all(it.is_empty() for it in self.affinity)

    def evaluate_certain(self, node: NodeInfo, in_flight: Sequence[Pod]) -> Status:
        """Like ``evaluate``, but succeed only if the verdict holds no matter which of the ``in_flight`` pods fail to
        bind.

        Only required affinity needs another check, because a node that passes the anti-affinity terms also passes with
        fewer pods. Each domain of the node must have a matching pod that is not in flight. Otherwise all matching pods
        that are in a domain must be in flight to the node's domains, and the pod must match its own terms.
        """
        status = self.evaluate(node)
        others = [it for it in in_flight if self.own.matches_affinity(it)] if self.affinity else []
        if not status.is_success or not others:
            return status
        labels = node.node.labels
        here = [labels[it.key] for it in self.affinity]
        places = [[it.domain_of(other.node_name) for it in self.affinity] for other in others]
        firm = (
            it.count(value) - sum(place[index] == value for place in places)
            for index, (it, value) in enumerate(zip(self.affinity, here, strict=True))
        )
        if all(count > 0 for count in firm):
            return SUCCESS
        nowhere = [None] * len(here)
        alike = all(place in (here, nowhere) for place in places)
        return SUCCESS if self.matches_itself and alike and self._are_all(places) else AFFINITY

    def _are_all(self, places: Sequence[Sequence[str | None]]) -> bool:
        """Return true if all pods in domains that match the required affinity terms are in flight.

        ``places``: for each matching pod in flight, its domains in the order of ``affinity``; ``None`` for no domain.
        """
        for index, occupied in enumerate(self.affinity):
            in_flight = [place[index] for place in places]
            if any(occupied.count(value) > in_flight.count(value) for value in occupied.values()):
                return False
        return True

    # Evaluation of many nodes.

    def evaluate_all(self, nodes: Candidates, counts: Counts) -> FilterResult:
        """Evaluate all nodes, with the verdicts of ``evaluate``. Rejections are computed only when they are read."""
        passed = self._passing(nodes, counts)
        return FilterResult(passed, lambda: self._rejections(nodes, passed, counts))

    def _passing(self, nodes: Candidates, counts: Counts) -> Sequence[str]:
        """Return the nodes that pass.

        The anti-affinity terms that have the same topology key are checked together, in one loop over the names.
        """
        names: Sequence[str] = nodes.names
        first = bool(self.affinity) and self._is_first()
        for occupied in self.affinity:
            names = occupied.known(nodes, names, counts) if first else occupied.inside(nodes, names, counts)
        blocked: dict[str, Set[str]] = {}
        for occupied in (*(occupied for _, occupied in self.anti_affinity), *self.existing.values()):
            values, known = occupied.values(), blocked.get(occupied.key)
            blocked[occupied.key] = values if not known else known | values if values else known
        for key, values in blocked.items():
            names = _outside(key, values, nodes, names, counts)
        return names

    def _rejections(self, nodes: Candidates, passed: Sequence[str], counts: Counts) -> Mapping[str, Status]:
        rejected: dict[str, Status] = {}
        names = list(set(nodes.names).difference(passed)) if passed else nodes.names
        for narrowed, status in self._steps(nodes, counts):
            left = narrowed(names)
            if len(left) != len(names):
                rejected.update(dict.fromkeys(set(names).difference(left) if left else names, status))
                names = left
        return rejected

    def _steps(
        self, nodes: Candidates, counts: Counts
    ) -> Iterator[tuple[Callable[[Sequence[str]], Sequence[str]], Status]]:
        first = bool(self.affinity) and self._is_first()
        for occupied in self.affinity:
            yield partial((occupied.known if first else occupied.inside), nodes, counts=counts), AFFINITY
        for _, occupied in self.anti_affinity:
            yield partial(occupied.outside, nodes, counts=counts), ANTI_AFFINITY
        for occupied in self.existing.values():
            yield partial(occupied.outside, nodes, counts=counts), EXISTING


def _outside(key: str, blocked: Set[str], nodes: Candidates, names: Sequence[str], counts: Counts) -> Sequence[str]:
    """Return, in order, the nodes of ``names`` that lack the label ``key`` or have a value outside ``blocked``."""
    if not blocked:
        return names
    if not nodes.sent and counts.on_every_node(key):
        return counts.outside(key, blocked, names)
    on_node = nodes.values(key, counts.values(key))
    return [name for name, value in zip(names, map(on_node.get, names), strict=True) if value not in blocked]


REQUIRED: Final[StateKey[RequiredState]] = StateKey(f"PreFilter{NAME}")


def required_state(pod: Pod, own: OwnTerms, newcomer: Newcomer, terms: PodTerms) -> RequiredState:
    """Create the state for Filter. Raises one ``Unprepared`` for all counts that are not cached yet."""
    try:
        return _required_state(pod, own, newcomer, terms)
    except Unprepared:
        peers = [(it, key) for key, it in own.anti]
        peers += [] if own.peers is None else [(own.peers, key) for key in own.keys]
        all_prepared((partial(terms.refusing, newcomer), *(partial(terms.peers, it, key) for it, key in peers)))
        raise


def _required_state(pod: Pod, own: OwnTerms, newcomer: Newcomer, terms: PodTerms) -> RequiredState:
    peers_of_all = own.peers
    return RequiredState(
        own,
        newcomer,
        matches_itself=own.matches_affinity(pod),
        affinity=[Occupied(key, None if peers_of_all is None else terms.peers(peers_of_all, key)) for key in own.keys],
        anti_affinity=[(peers, Occupied(key, terms.peers(peers, key))) for key, peers in own.anti],
        existing={key: Occupied(key, it) for key, it in terms.refusing(newcomer).items()},
    )


def existing_keys(other: Pod, newcomer: Newcomer) -> set[str]:
    """Return the topology keys of those required anti-affinity terms of the other pod that match the incoming pod."""
    terms = other.spec.pod_affinity.required_anti
    return {it.topology_key for it in terms if it.within(other.namespace).matches(newcomer)}
