"""Hard constraints: reject nodes in domains that have too many pods. At bind, also reject nodes whose domain might have
too many pods, depending on the outcome of the binds in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import compress
from typing import Final, TypeAlias

from app.framework.counts import Counts, DomainCounts, Unprepared, all_prepared
from app.framework.cycle_state import StateKey
from app.framework.filter_result import FilterResult
from app.framework.node_info import Candidates, NodeInfo
from app.framework.status import SUCCESS, TOO_LONG, Status, unresolvable, unschedulable
from app.kube.core_v1 import LABELS, NODE_SELECTOR, SPREAD, TOLERATIONS, Pod
from app.kube.node_affinity import AFFINITY
from app.kube.pod_decoding import MOST_CONSTRAINTS
from plugins.in_tree.pod_topology_spread.args import NAME
from plugins.in_tree.pod_topology_spread.constraints import Constraint

REASON_CONSTRAINTS_NOT_MATCH: Final = "node(s) didn't match pod topology spread constraints"
REASON_NODE_LABEL_NOT_MATCH: Final = REASON_CONSTRAINTS_NOT_MATCH + " (missing required label)"

CONSTRAINTS_NOT_MATCH: Final = unschedulable(REASON_CONSTRAINTS_NOT_MATCH).by(NAME)
NODE_LABEL_NOT_MATCH: Final = unresolvable(REASON_NODE_LABEL_NOT_MATCH).by(NAME)

REASON_LONG_SPREAD: Final = TOO_LONG.format(SPREAD) + f", or has more than {MOST_CONSTRAINTS} entries"
REASON_LONG_AFFINITY: Final = TOO_LONG.format(AFFINITY)
REASON_LONG_NODE_SELECTOR: Final = TOO_LONG.format(NODE_SELECTOR)
REASON_LONG_TOLERATIONS: Final = TOO_LONG.format(TOLERATIONS)
REASON_LONG_LABELS: Final = TOO_LONG.format(LABELS)

UNREAD: Final = {
    SPREAD: unresolvable(REASON_LONG_SPREAD).by(NAME),
    AFFINITY: unresolvable(REASON_LONG_AFFINITY).by(NAME),
    NODE_SELECTOR: unresolvable(REASON_LONG_NODE_SELECTOR).by(NAME),
    TOLERATIONS: unresolvable(REASON_LONG_TOLERATIONS).by(NAME),
    LABELS: unresolvable(REASON_LONG_LABELS).by(NAME),
}
"""Rejections of pods with an oversized part, by the name of the part. Oversized parts are not decoded."""


class HardConstraint:
    """Hard constraint with the cached pod counts of its domains.

    ``self_match``: 1 if the incoming pod matches the selector of the constraint, else 0. ``deltas``: number of pods
    that a dry run adds to a domain, or removes if negative.
    """

    __slots__ = ("constraint", "deltas", "domains", "self_match")

    def __init__(self, constraint: Constraint, domains: DomainCounts, self_match: int, deltas: dict[str, int]) -> None:
        self.constraint = constraint
        self.domains = domains
        self.self_match = self_match
        self.deltas = deltas

    def clone(self) -> HardConstraint:
        return HardConstraint(self.constraint, self.domains, self.self_match, dict(self.deltas))

    @property
    def lacks_domains(self) -> bool:
        """True if there are fewer domains than ``minDomains``."""
        return self.domains.size() < self.constraint.min_domains

    def minimum(self, deltas: Mapping[str, int]) -> int:
        """Return the smallest number of pods in a domain, including ``deltas``.

        The result is 0 if there are fewer domains than ``minDomains``.
        """
        return 0 if self.lacks_domains else self.domains.minimum(deltas)

    def limit(self, deltas: Mapping[str, int]) -> int:
        """Return the largest number of pods that a domain can have so that the incoming pod still fits there.

        With this number of pods, the skew (number + ``self_match`` - ``minimum``) is ``maxSkew``.
        """
        return self.constraint.max_skew + self.minimum(deltas) - self.self_match

    def compared(self) -> Collection[str]:
        """Return the names of the domains over which ``minimum`` is taken."""
        return self.domains.nodes_by_domain()

    def excess(self, domain: str) -> int:
        """Return how many pods must leave the domain so that the incoming pod fits there, other domains unchanged."""
        return self.domains.count(domain) - self.limit({})

    def terms(self) -> tuple[str, ...]:
        """Return ``Constraint.terms`` for ``explain``; a ``RelaxedConstraint`` adds the options of the profile."""
        return self.constraint.terms()

    def stamp(self) -> int:
        """Return a number that changes whenever the limit or the set of domains above the limit changes."""
        return self.domains.stamp(self.limit(self.deltas))

    def shift(self, other: Pod, node_name: str, delta: int) -> None:
        """Record that another pod was added to the node (``delta`` 1) or removed from it (-1).

        As in kube-scheduler, terminating pods are recorded, too.
        """
        if not self.constraint.matches(other.labels):
            return
        value = self.domains.domain_of(node_name)
        if value is not None:
            self.deltas[value] = self.deltas.get(value, 0) + delta

    def evaluate(self, node: NodeInfo) -> Status:
        """Return the verdict on one node. All binds in flight count as successful."""
        value = node.node.labels.get(self.constraint.topology_key)
        if value is None:
            return NODE_LABEL_NOT_MATCH
        count = self.domains.count(value) + self.deltas.get(value, 0)
        return SUCCESS if count <= self.limit(self.deltas) else CONSTRAINTS_NOT_MATCH

    def evaluate_certain(self, node: NodeInfo, in_flight: Sequence[Pod]) -> Status:
        """Like ``evaluate``, for the worst case: binds in flight to the node's domain succeed, and all others fail.

        ``deltas`` are ignored.
        """
        value = node.node.labels.get(self.constraint.topology_key)
        if value is None:
            return NODE_LABEL_NOT_MATCH
        lows: dict[str, int] = {}
        for other in in_flight:
            domain = self.domains.domain_of(other.node_name)
            if domain is not None and domain != value and self.constraint.counted.matches(other.labels):
                lows[domain] = lows.get(domain, 0) - 1
        return SUCCESS if self.domains.count(value) <= self.limit(lows) else CONSTRAINTS_NOT_MATCH

    def passing(self, counts: Counts, names: Sequence[str]) -> list[str] | None:
        """Return the nodes of ``names`` that pass; ``None`` if each must be evaluated separately."""
        limit = self.limit(self.deltas)
        if self.deltas or limit < 0:
            return None
        return counts.outside(self.constraint.topology_key, self.domains.above(limit), names)

    def rejections(self, values: Mapping[str, str], nodes: Candidates) -> Mapping[str, Status]:
        """Return the status of each candidate that is rejected. ``values``: value of the topology key, by node name.

        Names of unknown nodes are rejected, too, because they have no value.
        """
        limit = self.limit(self.deltas)
        if self.deltas or limit < 0:
            known = (
                (it, self.evaluate(nodes.info(it)) if it in values else NODE_LABEL_NOT_MATCH) for it in nodes.names
            )
            return {name: status for name, status in known if not status.is_success}
        blocked = frozenset(self.domains.above(limit))
        try:
            is_blocked = map(blocked.__contains__, map(values.__getitem__, nodes.names))
            return dict.fromkeys(compress(nodes.names, is_blocked), CONSTRAINTS_NOT_MATCH)
        except KeyError:
            return {
                name: NODE_LABEL_NOT_MATCH if value is None else CONSTRAINTS_NOT_MATCH
                for name, value in zip(nodes.names, map(values.get, nodes.names), strict=True)
                if value is None or value in blocked
            }


def evaluate_all(constraints: Sequence[HardConstraint], counts: Counts, nodes: Candidates) -> FilterResult:
    """Return the candidates that pass all constraints, and the rejections of the other candidates."""
    passed = None if nodes.sent else _passing(constraints, counts, nodes.names)
    if passed is not None:
        return FilterResult(passed, lambda: _rejections(constraints, counts, nodes.without(set(passed))))
    rejected = _rejections(constraints, counts, nodes)
    return FilterResult([name for name in nodes.names if name not in rejected], rejected)


def _passing(constraints: Iterable[HardConstraint], counts: Counts, names: Sequence[str]) -> Sequence[str] | None:
    """Return the names that are known nodes and pass all constraints; ``None`` if each must be evaluated separately."""
    left: Sequence[str] | None = names
    for constraint in constraints:
        if left is None:
            return None
        left = constraint.passing(counts, left)
    return left


def _rejections(constraints: Iterable[HardConstraint], counts: Counts, nodes: Candidates) -> dict[str, Status]:
    """Return the rejected candidates, each with the status of the first constraint that rejects it."""
    rejected: dict[str, Status] = {}
    for constraint in constraints:
        nodes = nodes.without(rejected)
        key = constraint.constraint.topology_key
        rejected.update(constraint.rejections(nodes.values(key, counts.values(key)), nodes))
    return rejected


class HardState:
    """Hard constraints of the pod, in the order of its spec or of the defaults, as prepared by PreFilter for Filter."""

    __slots__ = ("constraints",)

    def __init__(self, constraints: Sequence[HardConstraint]) -> None:
        self.constraints = constraints

    def clone(self) -> HardState:
        return HardState([it.clone() for it in self.constraints])


HARD: Final[StateKey[HardState]] = StateKey("PreFilterPodTopologySpread")


Counted: TypeAlias = Callable[[Counts, Pod, frozenset[str], Constraint], HardConstraint]
"""Function that adds the counts to a hard constraint of a pod. The set has the topology keys of all hard constraints of
the pod.
"""


def hard_state(counted: Counted, counts: Counts, pod: Pod, constraints: Sequence[Constraint]) -> HardState:
    """Create the state for Filter. A node counts for a constraint only if it has the topology keys of all
    ``constraints``.

    Raises one ``Unprepared`` for all counts that are not cached yet.
    """
    required = frozenset(it.topology_key for it in constraints)
    try:
        return HardState(list(map(partial(counted, counts, pod, required), constraints)))
    except Unprepared:
        all_prepared(partial(counted, counts, pod, required, it) for it in constraints)
        raise


def in_tree(counts: Counts, pod: Pod, required: frozenset[str], constraint: Constraint) -> HardConstraint:
    """Return the constraint with its counts, under kube-scheduler's rules. Raises ``Unprepared``."""
    domains = counts.domains(pod.namespace, constraint.counted, constraint.topology_key, required, constraint.inclusion)
    return HardConstraint(constraint, domains, int(constraint.matches(pod.labels)), {})
