"""Victims on a node, their order, and their cost. Results of dry runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Final, TypeAlias

from msgspec import Struct

from app.framework.handle import DryRun
from app.framework.node_info import NodeInfo
from app.framework.points import Victims
from app.framework.status import Status, unschedulable
from app.kube.core_v1 import Pod

NONE_HAS_TO_GO: Final = 'expected at least one victim pod on node "{}"'

_NO_PRIORITY_BELOW: Final = 1 << 31
"""Offset added to each priority to make it non-negative, so that no further victim lowers the sum of priorities."""

_Cost: TypeAlias = tuple[int, int, int, int, float]


class DryRunResults(Struct):
    """Results of the dry runs so far.

    ``candidates``: number of nodes with victims. ``best``: (cost, node, victims) of the first node with the least cost.
    ``statuses``: rejection or Error of each node without victims, by name.
    """

    candidates: int = 0
    best: tuple[_Cost, str, Victims] | None = None
    statuses: dict[str, Status] = {}

    def take(self, name: str, victims: Victims, status: Status) -> None:
        """Record the result of a node's dry run. A node without victims is not a candidate."""
        if not victims.pods:
            self.statuses[name] = unschedulable(NONE_HAS_TO_GO.format(name)) if status.is_success else status
            return
        self.candidates += 1
        cost = cost_of(victims)
        if self.best is None or cost < self.best[0]:
            self.best = (cost, name, victims)

    def is_enough(self, wanted: int) -> bool:
        """Return whether there are at least ``wanted`` candidates and the best one violates no budget."""
        return self.candidates >= wanted and self.best is not None and not self.best[-1].pdb_violations


def lower(pod: Pod, node: NodeInfo) -> list[Pod]:
    """Return the node's pods with a lower priority than ``pod``, including terminating pods."""
    priority = pod.spec.priority
    return [it for it in node.pods.values() if it.spec.priority < priority]


def _started(pod: Pod) -> float:
    """Return the start time; infinity for a pod that has not started, which sorts it after all others."""
    started = pod.disruption.started
    return inf if started is None else started


def by_importance(pods: Sequence[Pod]) -> list[Pod]:
    """Return the pods sorted by priority, highest first, then by start time, earliest first.

    Among pods of one priority, those that have not started come last, in the reverse of their order in ``pods``.
    kube-scheduler has the same order, because its sort uses the current time for each missing start time.
    """
    places = {
        it.uid: (-it.spec.priority, _started(it), -place if it.disruption.started is None else place)
        for place, it in enumerate(pods)
    }
    return sorted(pods, key=lambda it: places[it.uid])


def unspared(dry_run: DryRun, pods: Iterable[Pod]) -> list[Pod]:
    """Add back, in order, each pod beside which the incoming pod still fits. Return the other pods."""
    victims: list[Pod] = []
    for victim in pods:
        dry_run.add_pod(victim)
        if not dry_run.filter().is_success:
            dry_run.remove_pod(victim)
            victims.append(victim)
    return victims


def cost_of(victims: Victims) -> _Cost:
    """Return the cost of evicting the victims. Costs are compared as tuples; the smallest is the best.

    The components are budget violations, highest priority, sum of priorities, number of victims, and a negated start
    time. The start time is the earliest one among the victims with the highest priority, so a later start is cheaper.
    """
    highest = victims.pods[0].spec.priority
    return (
        victims.pdb_violations,
        highest,
        sum(it.spec.priority + _NO_PRIORITY_BELOW for it in victims.pods),
        len(victims.pods),
        -min(_started(it) for it in victims.pods if it.spec.priority == highest),
    )
