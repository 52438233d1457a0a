"""Prefers nodes on which the pod makes the used shares of the compared resources more equal. Up to release 1.35, it
prefers nodes on which these shares are equal with the pod.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Final, final

from pydantic import field_validator

from app.framework.allocation import (
    CPU_AND_MEMORY,
    LEAST_INT64,
    Comparison,
    DeviceClassResources,
    ResourceSpec,
    int64,
    may_be_backed,
    quotient,
)
from app.framework.cycle_state import CycleState, StateKey, StateNotFound
from app.framework.handle import Handle
from app.framework.node_info import Candidates, NodeInfo
from app.framework.parts import Part
from app.framework.points import MAX_NODE_SCORE, PreScorePlugin, ScorePlugin
from app.framework.spec import Needs, PluginArgs, PluginSpec, Reads
from app.framework.status import SKIP, SUCCESS, Status
from app.kube.core_v1 import Pod
from app.kube.kinds import DEVICE_CLASSES

NAME: Final = "NodeResourcesBalancedAllocation"

_IMPROVEMENT_SINCE: Final = "1.36"
"""First Kubernetes release that compares the balance with and without the pod.

Earlier releases score only the balance with the pod.
"""

_PAIR: Final = 2
"""Number of resources for which kube-scheduler computes the deviation by a simpler formula."""


class NodeResourcesBalancedAllocationArgs(PluginArgs):
    """Arguments as in ``kubescheduler.config.k8s.io/v1``.

    ``resources``: distinct resources to compare, each with weight 1; CPU and memory if empty.
    """

    resources: tuple[ResourceSpec, ...] = CPU_AND_MEMORY

    @field_validator("resources", mode="after")
    @classmethod
    def _are_alike(cls, resources: tuple[ResourceSpec, ...]) -> tuple[ResourceSpec, ...]:
        names = [resource.name for resource in resources]
        for resource in resources:
            if names.count(resource.name) > 1:
                raise ValueError(f"{resource.name}: is named more than once")
            if resource.weight != 1:
                raise ValueError(f"{resource.name}: weight must be 1")
        return resources or CPU_AND_MEMORY


_COMPARISON: Final[StateKey[Comparison]] = StateKey(f"PreScore{NAME}")


@final
class NodeResourcesBalancedAllocation(PreScorePlugin, ScorePlugin):
    """Scores nodes by the standard deviation of the used shares of the compared resources.

    Source of the rules: ``framework/plugins/noderesources/balanced_allocation.go`` of Kubernetes 1.36 and 1.35.
    """

    def __init__(self, args: NodeResourcesBalancedAllocationArgs, handle: Handle) -> None:
        self._resources = args.resources
        self._scores_improvement = handle.profile.release >= _IMPROVEMENT_SINCE
        backed = _may_be_backed(args)
        self._classes = DeviceClassResources(handle.objects, handle.profile.release) if backed else None

    def pre_score(self, state: CycleState, pod: Pod, nodes: Candidates) -> Status:
        comparison = self._comparison(pod)
        if not comparison.asks:
            return SKIP
        state.write(_COMPARISON, comparison)
        return SUCCESS

    def _comparison(self, pod: Pod) -> Comparison:
        return Comparison(self._resources, pod.spec.resources.requested, self._classes)

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        try:
            comparison = state.read(_COMPARISON)
        except StateNotFound:
            comparison = self._comparison(pod)
            if not comparison.asks:
                return 0
        uses = comparison.uses(node, non_zero=False)
        with_pod = _balance([_share(taken + asked, there) for there, taken, asked, _ in uses])
        if not self._scores_improvement:
            return with_pod
        half = MAX_NODE_SCORE // 2
        gain = int64(half + with_pod - _balance([_share(taken, there) for there, taken, _, _ in uses]))
        return int64(half + quotient(gain, 2))


def _share(taken: int, there: int) -> float:
    """Return the used share of a resource, at most 1. ``there``: allocatable amount, which is not 0."""
    share = float(int64(taken)) / float(there)
    return share if share < 1 else 1.0


def _balance(shares: Sequence[float]) -> int:
    """Return 100 * (1 - the standard deviation of the shares), truncated to an integer: 100 if all are equal."""
    deviation = 0.0
    if len(shares) == _PAIR:
        deviation = abs((shares[0] - shares[1]) / 2)
    elif len(shares) > _PAIR:
        total = spread = 0.0
        for share in shares:  # added one by one, as in Go, because sum() rounds differently
            total += share
        mean = total / len(shares)
        for share in shares:
            spread += (share - mean) * (share - mean)
        deviation = sqrt(spread / len(shares))
    score = (1 - deviation) * MAX_NODE_SCORE
    return int(score) if score > LEAST_INT64 else LEAST_INT64


def _may_be_backed(args: NodeResourcesBalancedAllocationArgs) -> bool:
    """Return true if a DeviceClass could provide one of the compared resources."""
    return any(may_be_backed(it.name) for it in args.resources)


def _needs(args: NodeResourcesBalancedAllocationArgs) -> Needs:
    return Needs(kinds=(DEVICE_CLASSES,) if _may_be_backed(args) else ())


SPEC: Final = PluginSpec(
    NAME,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesBalancedAllocation,
    needs=_needs,
    reads=Reads.PODS_ON_NODE,
    parts=(Part.RESOURCES,),
)
