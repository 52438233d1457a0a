"""Rejects nodes on which one of the pod's host ports is in use."""

from __future__ import annotations

from typing import Final, final

from msgspec import Struct

from app.framework.cycle_state import CycleState, StateKey
from app.framework.handle import Handle
from app.framework.node_info import NodeInfo
from app.framework.parts import Part
from app.framework.points import FilterPlugin, PreFilterPlugin
from app.framework.spec import PluginArgs, PluginSpec, Reads
from app.framework.status import SKIP, SUCCESS, Status, unresolvable, unschedulable
from app.kube.core_v1 import Pod
from app.kube.extras import MOST_PORTS, PORTS, HostPort

NAME: Final = "NodePorts"

REASON_TAKEN: Final = "node(s) didn't have free ports for the requested pod ports"
REASON_UNREAD: Final = (
    f"node(s) can't be judged: the pod's {PORTS} is longer than 64 KiB, or has more than {MOST_PORTS} host ports"
)

_TAKEN: Final = unschedulable(REASON_TAKEN).by(NAME)
_UNREAD: Final = unresolvable(REASON_UNREAD).by(NAME)


class NodePortsArgs(PluginArgs):
    """The plugin takes no arguments."""


class _Wanted(Struct, frozen=True):
    """Host ports of the pod, which PreFilter stores for Filter."""

    ports: tuple[HostPort, ...]

    def clone(self) -> _Wanted:
        return self


_WANTED: Final[StateKey[_Wanted]] = StateKey(f"PreFilter{NAME}")


@final
class NodePorts(PreFilterPlugin, FilterPlugin):
    """Compares the pod's host ports with those of the pods on a node.

    Source of the rules: ``framework/plugins/nodeports`` of Kubernetes 1.36; 1.35 has the same rules.
    """

    def __init__(self, args: NodePortsArgs, handle: Handle) -> None:
        pass

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, frozenset[str] | None]:
        if PORTS in pod.spec.oversized:
            return _UNREAD, None
        ports = pod.spec.ports
        if not ports:
            return SKIP, None
        state.write(_WANTED, _Wanted(ports))
        return SUCCESS, None

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return _TAKEN if node.ports.conflicts(state.read(_WANTED).ports) else SUCCESS


SPEC: Final = PluginSpec(NAME, NodePortsArgs, NodePorts, reads=Reads.PODS_ON_NODE, parts=(Part.PORTS,))
