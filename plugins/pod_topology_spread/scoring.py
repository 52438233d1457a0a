"""Soft constraints: how crowded a node's domains are, as a score of 0..100."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import log
from typing import Final, Self

from app.framework.cycle_state import StateKey
from app.framework.interface import MAX_NODE_SCORE, Counts
from app.framework.node_info import Candidates
from app.kube.core_v1 import Pod
from plugins.pod_topology_spread.args import HOSTNAME
from plugins.pod_topology_spread.constraints import Constraint


class SoftConstraint:
    """One soft constraint: what a node adds to its raw score, by its value of the key (or by name, for hosts)."""

    __slots__ = ("credits", "values", "without_pods")

    def __init__(self, values: Mapping[str, str], credits_: Mapping[str, float], without_pods: float) -> None:
        self.values = values
        self.credits = credits_
        self.without_pods = without_pods

    def credit(self, name: str) -> float | None:
        """``None`` where the node lacks the key: then it adds nothing."""
        value = self.values.get(name)
        return None if value is None else self.credits.get(value, self.without_pods)


class SoftState:
    """What PreScore leaves for Score. Nodes of ``ignored`` lack a key and score 0."""

    __slots__ = ("constraints", "ignored")

    def __init__(self, constraints: Sequence[SoftConstraint], ignored: frozenset[str]) -> None:
        self.constraints = constraints
        self.ignored = ignored

    def clone(self) -> Self:
        return self

    def raw(self, name: str) -> int:
        """The raw score: more is worse. Summed in constraint order, as float64, rounded half away from zero."""
        if name in self.ignored:
            return 0
        total = 0.0
        for constraint in self.constraints:
            credit = constraint.credit(name)
            if credit is not None:
                total += credit
        whole = int(total)
        return whole + 1 if total - whole >= 0.5 else whole  # a half

    def normalized(self, scores: Mapping[str, int]) -> dict[str, int]:
        """100 for the emptiest if a domain is empty, 100 * min / max for the fullest; ignored nodes 0."""
        counted = [score for name, score in scores.items() if name not in self.ignored]
        most, least = max(counted, default=0), min(counted, default=0)
        if most <= 0:
            return {name: 0 if name in self.ignored else MAX_NODE_SCORE for name in scores}
        return {
            name: 0 if name in self.ignored else MAX_NODE_SCORE * (most + least - score) // most
            for name, score in scores.items()
        }


SOFT: Final[StateKey[SoftState]] = StateKey("PreScorePodTopologySpread")


def soft_state(
    pod: Pod, constraints: Sequence[Constraint], nodes: Candidates, counts: Counts, *, require_all: bool
) -> SoftState:
    """Counts come from all nodes of the cluster; which domains there are, and their number, from the candidates."""
    keys = frozenset(it.topology_key for it in constraints) if require_all else frozenset[str]()
    values = {it.topology_key: counts.values(it.topology_key) for it in constraints}
    ignored = frozenset(name for key in keys for name in nodes.names if name not in values[key])
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
        if it.topology_key == HOSTNAME:
            yield _by_host(it, len(scored), on_node, counts.pods_by_node(pod.namespace, it.counted))
            continue
        domains = counts.domains(pod.namespace, it.counted, it.topology_key, required, it.inclusion)
        present = {on_node.get(name, "") for name in scored}
        weight = _weight(len(present))
        credit = {value: _credit(it, domains.count(value), weight) for value in present}
        yield SoftConstraint(on_node, credit, _credit(it, 0, weight))


def _by_host(constraint: Constraint, size: int, on_node: Mapping[str, str], pods: Mapping[str, int]) -> SoftConstraint:
    """Hosts are counted on the very node, whatever the inclusion policies say, hence by name and not by value."""
    weight = _weight(size)
    credit = {name: _credit(constraint, count, weight) for name, count in pods.items()}
    return SoftConstraint(_Itself(on_node), credit, _credit(constraint, 0, weight))


class _Itself(Mapping[str, str]):
    """Maps each node that has the hostname label to its own name."""

    __slots__ = ("_nodes",)

    def __init__(self, nodes: Mapping[str, str]) -> None:
        self._nodes = nodes

    def __getitem__(self, name: str) -> str:
        if name in self._nodes:
            return name
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


def _weight(size: int) -> float:
    """More domains weigh more, so that zones are not drowned by hosts."""
    return log(size + 2)


def _credit(constraint: Constraint, count: int, weight: float) -> float:
    return count * weight + (constraint.max_skew - 1)
