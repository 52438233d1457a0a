"""NodeResourcesFit plugin: filters nodes by free resources, and scores them by a configurable strategy."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, final

from msgspec import Struct

from app.framework.allocation import Comparison, DeviceClassResources, int64, may_be_backed
from app.framework.cycle_state import CycleState, StateKey, StateNotFound
from app.framework.handle import Handle
from app.framework.node_info import Candidates, NodeInfo
from app.framework.parts import Part
from app.framework.points import FilterPlugin, PreFilterPlugin, PreScorePlugin, ScorePlugin
from app.framework.spec import Needs, PluginSpec, Reads
from app.framework.status import SKIP, SUCCESS, Code, Status, unresolvable
from app.kube.core_v1 import Pod
from app.kube.kinds import DEVICE_CLASSES
from app.kube.requests import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    RESOURCES,
    UNREAD_REQUESTS,
    is_extended_resource,
)
from plugins.in_tree.node_resources_fit.args import NodeResourcesFitArgs
from plugins.in_tree.node_resources_fit.scoring import strategy_of

NAME: Final = "NodeResourcesFit"

REASON_TOO_MANY_PODS: Final = "Too many pods"
REASON_INSUFFICIENT: Final = "Insufficient {}"
REASON_UNREAD: Final = UNREAD_REQUESTS

_UNREAD: Final = unresolvable(REASON_UNREAD).by(NAME)
_FIRST: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
"""Resources that are checked first, in this order."""


class _Demand(Struct, frozen=True):
    """Resources that the pod requests, without ignored ones, as computed by PreFilter for Filter.

    ``each``: (resource, amount, true if a DeviceClass also provides the resource). CPU, memory and ephemeral storage
    come first, then the other resources by name. Rejection reasons for resources have this order, too.
    """

    each: tuple[tuple[str, int, bool], ...]

    def clone(self) -> _Demand:
        return self


_DEMAND: Final[StateKey[_Demand]] = StateKey(f"PreFilter{NAME}")
_COMPARISON: Final[StateKey[Comparison]] = StateKey(f"PreScore{NAME}")


@lru_cache(maxsize=1024)
def _insufficient(reasons: tuple[str, ...], code: Code) -> Status:
    """Return the rejection for these reasons. Results are cached, so that nodes with equal reasons share one object."""
    return Status(code, reasons, NAME)


@final
class NodeResourcesFit(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    """Compares the pod's requests with the free resources of a node.

    Source of the rules: ``framework/plugins/noderesources/fit.go`` of Kubernetes 1.36. The only difference in 1.35 is
    that DeviceClasses are ignored.
    """

    def __init__(self, args: NodeResourcesFitArgs, handle: Handle) -> None:
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        self._resources = args.strategy.resources
        self._score = strategy_of(args.strategy)
        self._classes = DeviceClassResources(handle.objects, handle.profile.release)
        self._compared = self._classes if any(may_be_backed(it.name) for it in self._resources) else None

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, frozenset[str] | None]:
        if RESOURCES in pod.spec.oversized:
            return _UNREAD, None
        requests = pod.spec.resources.requests
        names = [*filter(requests.__contains__, _FIRST), *(it for it in requests if it not in _FIRST)]
        demand = tuple(
            (name, requests[name], name not in _FIRST and self._classes.backs(name))
            for name in names
            if not self._is_ignored(name)
        )
        state.write(_DEMAND, _Demand(demand))
        return SUCCESS, None

    def _is_ignored(self, name: str) -> bool:
        if not (self._ignored or self._ignored_groups) or not is_extended_resource(name):
            return False
        return name in self._ignored or name.partition("/")[0] in self._ignored_groups

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        try:
            demand = state.read(_DEMAND).each
        except StateNotFound as missing:
            raise StateNotFound(f"error {missing}") from None
        allocatable, requested = node.allocatable, node.requested
        code = Code.UNSCHEDULABLE
        reasons: tuple[str, ...] = ()
        if len(node.pods) + 1 > allocatable.get(PODS, 0):
            reasons = (REASON_TOO_MANY_PODS,)
        for name, amount, is_backed in demand:
            there = allocatable.get(name, 0)
            if amount <= int64(there - requested.get(name, 0)) or (is_backed and there <= 0):
                continue
            reasons = (*reasons, REASON_INSUFFICIENT.format(name))
            if amount > there:
                code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return _insufficient(reasons, code) if reasons else SUCCESS

    def pre_score(self, state: CycleState, pod: Pod, nodes: Candidates) -> Status:
        if RESOURCES in pod.spec.oversized:
            return SKIP
        state.write(_COMPARISON, self._comparison(pod))
        return SUCCESS

    def _comparison(self, pod: Pod) -> Comparison:
        return Comparison(self._resources, pod.spec.resources.non_zero_requests, self._compared)

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        try:
            comparison = state.read(_COMPARISON)
        except StateNotFound:
            comparison = self._comparison(pod)
        return self._score(comparison.uses(node, non_zero=True))


def _needs(_args: NodeResourcesFitArgs) -> Needs:
    return Needs(kinds=(DEVICE_CLASSES,))


SPEC: Final = PluginSpec(
    NAME,
    NodeResourcesFitArgs,
    NodeResourcesFit,
    needs=_needs,
    reads=Reads.PODS_ON_NODE,
    parts=(Part.RESOURCES,),
)
