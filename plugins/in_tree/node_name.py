"""Rejects all nodes except the one in the pod's ``spec.nodeName``, if it is set."""

from __future__ import annotations

from typing import Final, final

from app.framework.cycle_state import CycleState
from app.framework.handle import Handle
from app.framework.node_info import NodeInfo
from app.framework.parts import Part
from app.framework.points import FilterPlugin
from app.framework.spec import PluginArgs, PluginSpec, Reads
from app.framework.status import SUCCESS, Status, unresolvable
from app.kube.core_v1 import Pod

NAME: Final = "NodeName"

REASON_NOT_THE_NODE: Final = "node(s) didn't match the requested node name"

_NOT_THE_NODE: Final = unresolvable(REASON_NOT_THE_NODE).by(NAME)


class NodeNameArgs(PluginArgs):
    """The plugin takes no arguments."""


@final
class NodeName(FilterPlugin):
    """Compares the node's name with the pod's ``spec.nodeName``.

    Source of the rule: ``framework/plugins/nodename`` of Kubernetes 1.36; 1.35 has the same rule.
    """

    def __init__(self, args: NodeNameArgs, handle: Handle) -> None:
        pass

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        wanted = pod.node_name
        return SUCCESS if not wanted or wanted == node.node.name else _NOT_THE_NODE


SPEC: Final = PluginSpec(NAME, NodeNameArgs, NodeName, reads=Reads.NODE, parts=(Part.NODE_NAME,))
