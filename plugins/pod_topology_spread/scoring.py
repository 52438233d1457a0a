"""Soft constraints: how crowded a node's domains are, as a score of 0..100."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import log
from operator import add
from typing import Any, Final, Self

from msgspec import Struct

from app.framework.cycle_state import StateKey
from app.framework.interface import MAX_NODE_SCORE, Counts
from app.framework.node_info import Candidates
from app.kube.core_v1 import Pod
from plugins.pod_topology_spread.args import HOSTNAME
from plugins.pod_topology_spread.constraints import Constraint


class SoftConstraint(Struct, frozen=True):
    """What one soft constraint adds to a node's raw score.

    ``key_of`` maps a node to what its credit depends on: its domain, or on hosts the number of pods. Nodes of
    ``without_key`` lack the topology key and get nothing.
    """

    key_of: Mapping[str, Any]
    credits: Mapping[Any, float]
    without_key: frozenset[str]

    def of(self, names: Sequence[str]) -> list[float]:
        """The credits in the order of ``names``."""
        found = list(map(self.credits.__getitem__, map(self.key_of.get, names)))
        if not self.without_key:
            return found
        return [0.0 if name in self.without_key else it for name, it in zip(names, found, strict=True)]


class SoftState:
    """What PreScore leaves for Score. Nodes of ``ignored`` lack a key and score 0."""

    __slots__ = ("constraints", "ignored")

    def __init__(self, constraints: Sequence[SoftConstraint], ignored: frozenset[str]) -> None:
        self.constraints = constraints
        self.ignored = ignored

    def clone(self) -> Self:
        return self

    def raw_scores(self, names: Sequence[str]) -> dict[str, int]:
        """More is worse. Summed in constraint order, as float64, rounded half away from zero."""
        scored = [name for name in names if name not in self.ignored] if self.ignored else names
        totals = [0.0] * len(scored)
        for constraint in self.constraints:
            totals = list(map(add, totals, constraint.of(scored)))
        rounded = {total: _round(total) for total in set(totals)}
        scores = dict(zip(scored, map(rounded.__getitem__, totals), strict=True))
        return {name: scores.get(name, 0) for name in names} if self.ignored else scores

    def normalized(self, scores: Mapping[str, int]) -> dict[str, int]:
        """100 for the emptiest if a domain is empty, 100 * min / max for the fullest; ignored nodes 0."""
        ignored = self.ignored
        counted = [it for name, it in scores.items() if name not in ignored] if ignored else scores.values()
        most, least = max(counted, default=0), min(counted, default=0)
        scale = {
            it: MAX_NODE_SCORE * (most + least - it) // most if most > 0 else MAX_NODE_SCORE for it in set(counted)
        }
        if ignored:
            return {name: 0 if name in ignored else scale[it] for name, it in scores.items()}
        return dict(zip(scores, map(scale.__getitem__, scores.values()), strict=True))


SOFT: Final[StateKey[SoftState]] = StateKey("PreScorePodTopologySpread")


def soft_state(
    pod: Pod, constraints: Sequence[Constraint], nodes: Candidates, counts: Counts, *, require_all: bool
) -> SoftState:
    """Counts come from all nodes of the cluster; which domains there are, and their number, from the candidates."""
    keys = frozenset(it.topology_key for it in constraints) if require_all else frozenset[str]()
    values = {key: nodes.values(key, counts.values(key)) for key in (it.topology_key for it in constraints)}
    asked = frozenset(nodes.names)
    ignored = frozenset[str]().union(*(asked.difference(values[key]) for key in keys))
    scored = [name for name in nodes.names if name not in ignored] if ignored else nodes.names
    return SoftState(list(_soft(pod, constraints, scored, values, counts, keys)), ignored)


def _soft(
    pod: Pod,
    constraints: Sequence[Constraint],
    scored: Sequence[str],
    values: Mapping[str, Mapping[str, str]],
    counts: Counts,
    required: frozenset[str],
) -> Iterator[SoftConstraint]:
    for it in constraints:
        on_node = values[it.topology_key]
        without_key = frozenset[str]() if required else frozenset(scored).difference(on_node)
        if it.topology_key == HOSTNAME:
            yield _by_host(it, scored, without_key, counts.pods_by_node(pod.namespace, it.counted))
            continue
        domains = counts.domains(pod.namespace, it.counted, it.topology_key, required, it.inclusion)
        present = set(map(on_node.get, scored))
        weight = _weight(len({value or "" for value in present}))
        credit = {value: _credit(it, domains.count(value or ""), weight) for value in present}
        yield SoftConstraint(on_node, credit, without_key)


def _by_host(
    constraint: Constraint, scored: Sequence[str], without_key: frozenset[str], pods: Mapping[str, int]
) -> SoftConstraint:
    """Hosts are counted on the very node, whatever the inclusion policies say."""
    weight = _weight(len(scored))
    credit = {count: _credit(constraint, count or 0, weight) for count in set(map(pods.get, scored))}
    return SoftConstraint(pods, credit, without_key)


def _round(total: float) -> int:
    whole = int(total)
    return whole + 1 if total - whole >= 0.5 else whole  # as Go's math.Round for what is not negative


def _weight(size: int) -> float:
    """More domains weigh more, so that zones are not drowned by hosts."""
    return log(size + 2)


def _credit(constraint: Constraint, count: int, weight: float) -> float:
    return count * weight + (constraint.max_skew - 1)
