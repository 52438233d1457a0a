"""Soft constraints: score nodes from 0 to 100, higher if fewer pods are in the node's domains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from math import log
from operator import add
from typing import Any, Final, Self, TypeVar

from msgspec import Struct

from app.framework.counts import Counts, Unprepared, all_prepared
from app.framework.cycle_state import StateKey
from app.framework.node_info import Candidates
from app.framework.points import MAX_NODE_SCORE
from app.framework.score_classes import ScoreClasses, SparseClasses
from app.kube.core_v1 import Pod
from plugins.in_tree.pod_topology_spread.args import HOSTNAME
from plugins.in_tree.pod_topology_spread.constraints import Constraint

IGNORED: Final = object()
"""Score class of nodes that lack a required topology key. They score 0."""

_NOTHING: Final = object()
"""Credit key of a soft constraint, for nodes that lack its topology key. The credit is 0."""

_FEW: Final = 4
"""Maximum number of constraints for which nodes are grouped into classes. With more constraints, few nodes would share
a class.
"""

_NO_NODES: Final = frozenset[str]()

K = TypeVar("K")


class SoftConstraint(Struct, frozen=True):
    """Credits of one soft constraint. A credit is the number that the constraint adds to the raw score of a node.

    ``key_of``: credit key by node name. The key is the node's domain, or for hostnames the number of pods on the node.
    ``without_key``: nodes that lack the topology key; their credit is 0. ``keys``: credit keys of the scored nodes
    (``SoftState.names``), in order. ``credits``: credits by credit key. ``usual``: credit of keys that are not in
    ``credits``.
    """

    key_of: Mapping[str, Any]
    without_key: frozenset[str]
    keys: Sequence[Any]
    credits: Mapping[Any, float]
    usual: float = 0.0

    def keys_of(self, names: Sequence[str]) -> Sequence[Any]:
        """Return the credit keys of the nodes, in the order of ``names``."""
        return _keys(self.key_of, self.without_key, names)


class SoftState:
    """Soft constraints with their credits, as computed by PreScore for Score.

    ``names``: scored nodes. ``ignored``: nodes that lack a required topology key and score 0.
    """

    __slots__ = ("constraints", "ignored", "names")

    def __init__(self, constraints: Sequence[SoftConstraint], names: Sequence[str], ignored: frozenset[str]) -> None:
        self.constraints = constraints
        self.names = names
        self.ignored = ignored

    def clone(self) -> Self:
        return self

    def raw_scores(self, names: Sequence[str]) -> ScoreClasses:
        """Return the raw scores; the lowest is the best, except for ``IGNORED`` nodes.

        Nodes with equal credit keys form one class.
        """
        if self.ignored:
            return self._with_ignored(names)
        if names is self.names and len(self.constraints) == 1:
            (only,) = self.constraints
            return ScoreClasses(only.keys, {key: self._raw((key,)) for key in only.credits})
        if names is self.names:
            return self._classed([it.keys for it in self.constraints])
        return self._classed([it.keys_of(names) for it in self.constraints])

    def _with_ignored(self, names: Sequence[str]) -> ScoreClasses:
        scored = [name for name in names if name not in self.ignored]
        classes = self._classed([it.keys_of(scored) for it in self.constraints])
        rest = iter(classes.of)
        return ScoreClasses(
            [IGNORED if name in self.ignored else next(rest) for name in names], {**classes.scores, IGNORED: 0}
        )

    def _classed(self, keys: Sequence[Sequence[Any]]) -> ScoreClasses:
        if len(keys) == 1:
            return ScoreClasses(keys[0], {key: self._raw((key,)) for key in set(keys[0])})
        if len(keys) > _FEW:
            return ScoreClasses.by_value(self._summed(keys))
        of = list(zip(*keys, strict=True))
        return ScoreClasses(of, {key: self._raw(key) for key in set(of)})

    def _summed(self, keys: Sequence[Sequence[Any]]) -> list[int]:
        """Return the raw score of each node.

        Used if a pod has many constraints: few nodes then have equal credit keys, so classes would not pay off.
        """
        totals = [0.0] * len(keys[0])
        for constraint, of_constraint in zip(self.constraints, keys, strict=True):
            totals = list(map(add, totals, map(constraint.credits.get, of_constraint, repeat(constraint.usual))))
        return list(map(_round, totals))

    def _raw(self, keys: Sequence[Any]) -> int:
        """Return the raw score for these credit keys, one per constraint: the sum of their credits, rounded half up."""
        total = 0.0
        for constraint, key in zip(self.constraints, keys, strict=True):
            total += constraint.credits[key]
        return _round(total)


def normalized(scores: Mapping[K, int]) -> dict[K, int]:
    """Return 100 * (max + min - raw) / max, rounded down; 100 if max is 0, and 0 for ignored nodes."""
    counted = [it for key, it in scores.items() if key is not IGNORED]
    most, least = max(counted, default=0), min(counted, default=0)
    return {
        key: 0 if key is IGNORED else (MAX_NODE_SCORE * (most + least - it) // most if most > 0 else MAX_NODE_SCORE)
        for key, it in scores.items()
    }


SOFT: Final[StateKey[SoftState]] = StateKey("PreScorePodTopologySpread")


def soft_state(
    pod: Pod, constraints: Sequence[Constraint], nodes: Candidates, counts: Counts, *, require_all: bool
) -> SoftState:
    """Create the state for Score. ``require_all``: true to ignore candidates that lack any of the topology keys.

    Pods also count on nodes that are not candidates, if the inclusion policies and ``require_all`` include these nodes.
    For the hostname key, only the pods on the candidate itself count. The weight of a constraint depends on the number
    of domains of the candidates. Raises one ``Unprepared`` for all counts that are not cached yet.
    """
    try:
        return _soft_state(pod, constraints, nodes, counts, require_all=require_all)
    except Unprepared:
        required = frozenset(it.topology_key for it in constraints) if require_all else frozenset[str]()
        all_prepared(query for it in constraints for query in _count_queries(pod, it, counts, required))
        raise


def _count_queries(
    pod: Pod, constraint: Constraint, counts: Counts, required: frozenset[str]
) -> tuple[Callable[[], object], ...]:
    """Return functions that query all counts on which the credits of a constraint depend. Each raises ``Unprepared``
    if its counts are not cached yet.
    """
    of_key = partial(counts.values, constraint.topology_key)
    if constraint.topology_key == HOSTNAME:
        return of_key, partial(counts.pods_by_node, pod.namespace, constraint.counted)
    return of_key, partial(
        counts.domains, pod.namespace, constraint.counted, constraint.topology_key, required, constraint.inclusion
    )


def _soft_state(
    pod: Pod, constraints: Sequence[Constraint], nodes: Candidates, counts: Counts, *, require_all: bool
) -> SoftState:
    keys = frozenset(it.topology_key for it in constraints) if require_all else frozenset[str]()
    values = {key: nodes.values(key, counts.values(key)) for key in (it.topology_key for it in constraints)}
    lacking = {key: _lacking(nodes, key, on_node, counts) for key, on_node in values.items()}
    ignored = _NO_NODES.union(*(lacking[key] for key in keys))
    scored = nodes.without(ignored)
    among = len(constraints)

    def soft(constraint: Constraint) -> SoftConstraint:
        without_key = _NO_NODES if keys else lacking[constraint.topology_key]
        return _soft(pod, constraint, scored, values[constraint.topology_key], without_key, counts, keys, among)

    return SoftState([soft(it) for it in constraints], scored.names, ignored)


def _lacking(nodes: Candidates, key: str, on_node: Mapping[str, str], counts: Counts) -> frozenset[str]:
    """Return the candidates that lack the label ``key``."""
    if not nodes.sent and counts.on_every_node(key):
        return _NO_NODES
    return nodes.name_set.difference(on_node)


def _soft(
    pod: Pod,
    constraint: Constraint,
    scored: Candidates,
    on_node: Mapping[str, str],
    without_key: frozenset[str],
    counts: Counts,
    required: frozenset[str],
    among: int,
) -> SoftConstraint:
    if constraint.topology_key == HOSTNAME:
        # For hostnames, only pods on the node itself are counted, and inclusion policies are ignored.
        pods = counts.pods_by_node(pod.namespace, constraint.counted)
        weight = _weight(len(scored.names))
        keys = _pods_on(scored, pods) if among == 1 and not without_key else _keys(pods, without_key, scored.names)
        classes = ScoreClasses(keys, {}).classes()
        return SoftConstraint(pods, without_key, keys, _credits(constraint, classes, lambda count: count or 0, weight))
    domains = counts.domains(pod.namespace, constraint.counted, constraint.topology_key, required, constraint.inclusion)
    keys = _keys(on_node, without_key, scored.names)
    values = set(keys)
    weight = _weight(len(values) - (_NOTHING in values and "" in values))
    if among > _FEW:
        crowded = _credits(constraint, (_NOTHING, *domains.above(0)), domains.count, weight)
        return SoftConstraint(on_node, without_key, keys, crowded, 0 * weight + (constraint.max_skew - 1))
    return SoftConstraint(on_node, without_key, keys, _credits(constraint, values, domains.count, weight))


def _pods_on(nodes: Candidates, pods: Mapping[str, int]) -> Sequence[Any]:
    """Return the number of pods on each node, with ``None`` for 0. The result is sparse if few nodes have pods."""
    if 2 * len(pods) > len(nodes):
        return list(map(pods.get, nodes.names))
    candidates = nodes.name_set
    return SparseClasses(nodes.names, None, {name: count for name, count in pods.items() if name in candidates})


def _keys(key_of: Mapping[str, Any], without_key: frozenset[str], names: Sequence[str]) -> Sequence[Any]:
    keys = list(map(key_of.get, names))
    if not without_key:
        return keys
    return [_NOTHING if name in without_key else it for name, it in zip(names, keys, strict=True)]


def _credits(
    constraint: Constraint, keys: Iterable[Any], count_of: Callable[[Any], int], weight: float
) -> dict[Any, float]:
    return {key: 0.0 if key is _NOTHING else count_of(key) * weight + (constraint.max_skew - 1) for key in keys}


def _round(total: float) -> int:
    whole = int(total)
    return whole + 1 if total - whole >= 0.5 else whole  # like Go's math.Round, for numbers that are not negative


def _weight(size: int) -> float:
    """Return the weight of a constraint with ``size`` domains.

    The more domains there are, the fewer pods each domain has. So the weight grows with the number of domains.
    Otherwise constraints over zones would outweigh those over hosts.
    """
    return log(size + 2)
