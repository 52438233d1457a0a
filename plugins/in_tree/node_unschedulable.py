"""Rejects cordoned nodes, unless the pod tolerates the taint ``node.kubernetes.io/unschedulable``."""

from __future__ import annotations

from typing import Final, final

from app.framework.cycle_state import CycleState
from app.framework.handle import Handle
from app.framework.node_info import NodeInfo
from app.framework.parts import Part
from app.framework.points import FilterPlugin
from app.framework.spec import PluginArgs, PluginSpec, Reads
from app.framework.status import SUCCESS, TOO_LONG, Status, unresolvable
from app.kube.core_v1 import TOLERATIONS, Pod
from app.kube.taints import UNSCHEDULABLE, LatestTolerance

NAME: Final = "NodeUnschedulable"

REASON_UNSCHEDULABLE: Final = "node(s) were unschedulable"
REASON_LONG_TOLERATIONS: Final = TOO_LONG.format(TOLERATIONS)

_UNSCHEDULABLE: Final = unresolvable(REASON_UNSCHEDULABLE).by(NAME)
_UNREAD: Final = unresolvable(REASON_LONG_TOLERATIONS).by(NAME)


class NodeUnschedulableArgs(PluginArgs):
    """The plugin takes no arguments."""


@final
class NodeUnschedulable(FilterPlugin):
    """Compares the node's ``spec.unschedulable`` with the pod's tolerations, and ignores the node's actual taints.

    Source of the rule: ``framework/plugins/nodeunschedulable`` of Kubernetes 1.36; 1.35 has the same rule.
    """

    def __init__(self, args: NodeUnschedulableArgs, handle: Handle) -> None:
        self._tolerance = LatestTolerance()

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        if not node.node.unschedulable or self._tolerance.of(pod.spec.tolerations).tolerates(UNSCHEDULABLE):
            return SUCCESS
        return _UNREAD if TOLERATIONS in pod.spec.oversized else _UNSCHEDULABLE


SPEC: Final = PluginSpec(NAME, NodeUnschedulableArgs, NodeUnschedulable, reads=Reads.NODE, parts=(Part.TOLERATIONS,))
