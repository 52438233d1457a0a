"""How it is about a home's node, for the rows of the table: whether it is there, stays, takes pods, and is the machine.

Source of the marks: ``well_known_taints.go`` of Kubernetes 1.36, cluster-autoscaler's ``taints.go``, Karpenter's
``taints.go``, KubeVirt's heartbeat, and the arguments. A PreferNoSchedule taint keeps nobody out, and marks nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from app.framework.interface import Handle, Unreadable
from app.framework.parts import Part
from app.kube.core_v1 import Node
from app.kube.kubevirt_v1 import VirtualMachineInstance
from app.kube.meta_v1 import ANNOTATION_DOMAIN
from app.kube.node_state import FALSE, TRUE
from app.kube.taints import NO_SCHEDULE, UNSCHEDULABLE, Taint
from plugins.sticky_node.args import Mark, StickyNodeArgs
from plugins.sticky_node.owners import Owner
from plugins.sticky_node.table import State

PARTS: Final = (Part.NODE_STATE,)
"""What of pods and nodes is decoded for it."""

HOME_MACHINE: Final = f"{ANNOTATION_DOMAIN}home-machine"
"""On the owner: the systemUUID of its home when it became that."""

AWAY_TAINTS: Final = (
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/out-of-service",
    "node.cloudprovider.kubernetes.io/shutdown",
    "node.cloudprovider.kubernetes.io/uninitialized",
)
LEAVING_TAINTS: Final = (
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "cloud.google.com/impending-node-termination",
)
SCHEDULABLE: Final = "kubevirt.io/schedulable"
"""Label of a node: whether KubeVirt can start machines there."""

_KUBEVIRT: Final = "kubevirt.io"
_NOT_READY: Final = Taint("node.kubernetes.io/not-ready", NO_SCHEDULE)
_PRESSED: Final[Mapping[str, Taint]] = {
    "MemoryPressure": Taint("node.kubernetes.io/memory-pressure", NO_SCHEDULE),
    "DiskPressure": Taint("node.kubernetes.io/disk-pressure", NO_SCHEDULE),
    "PIDPressure": Taint("node.kubernetes.io/pid-pressure", NO_SCHEDULE),
    "NetworkUnavailable": Taint("node.kubernetes.io/network-unavailable", NO_SCHEDULE),
}
"""The taints that the node lifecycle controller makes of conditions."""


class Standing(Struct, frozen=True, gc=False):
    """``mark``: what says so, for a person; empty where nothing is wrong."""

    state: State
    mark: str = ""


_USABLE: Final = Standing(State.USABLE)
_GONE: Final = Standing(State.GONE, "there is no such node")
_UNREADABLE: Final = Standing(State.AWAY, "the node cannot be read")
_OTHER_MACHINE: Final = Standing(State.OTHER_MACHINE, "another machine has the node's name")
_TERMINATING: Final = Standing(State.LEAVING, "the node is being deleted")


class Standings:
    """Tells how it is about homes, by the Nodes as the picture has them."""

    def __init__(self, args: StickyNodeArgs, handle: Handle) -> None:
        self._nodes = handle.nodes
        self._compares_machines = args.identity == "machine"
        self._of_taint: Final[dict[str, tuple[State, str | None]]] = {
            **{it.taint: (State.AWAY, it.value) for it in args.maintenance if it.taint},
            **dict.fromkeys(AWAY_TAINTS, (State.AWAY, None)),
            **dict.fromkeys(LEAVING_TAINTS, (State.LEAVING, None)),
        }
        self._annotations: Final = tuple((it.annotation, it.value) for it in args.maintenance if it.annotation)
        self._labels: Final = tuple((it.label, it.value) for it in args.maintenance if it.label)

    def of_node(self, home: str, owner: Owner) -> Standing:
        """By the home's node alone, whatever pods tolerate. Never raises."""
        try:
            info = self._nodes.get(home)
        except Unreadable:
            return _UNREADABLE
        if info is None:
            return _GONE
        node = info.node
        if self._compares_machines and is_other_machine(node, owner):
            return _OTHER_MACHINE
        for standing, _ in self._marks(node, owner):
            return standing
        return _USABLE

    def version(self, home: str) -> Hashable:
        """Moves whenever the node is another for ``of_node``: a heartbeat is none. Never raises."""
        try:
            info = self._nodes.get(home)
        except Unreadable:
            return _UNREADABLE
        if info is None:
            return None
        node = info.node
        return (node.unschedulable, node.taints, node.labels, node.state, tuple(node.annotations.items()))

    def _marks(self, node: Node, owner: Owner) -> Iterator[tuple[Standing, Taint | None]]:
        """What is wrong with the node, the worst first; each with the taint that a pod may tolerate it by."""
        state = node.state
        if state.terminating:
            yield _TERMINATING, None
        away: list[Taint] = []
        for taint in node.taints:
            found = self._state_of(taint)
            if found is State.LEAVING:
                yield _tainted(found, taint), None
            elif found is State.AWAY:
                away.append(taint)
        if node.unschedulable:
            yield Standing(State.AWAY, "cordoned"), UNSCHEDULABLE
        if state.ready not in (TRUE, ""):
            yield Standing(State.AWAY, f"Ready is {state.ready}"), _NOT_READY if state.ready == FALSE else None
        for condition in state.pressure:
            yield Standing(State.AWAY, condition), _PRESSED[condition]
        for taint in away:
            yield _tainted(State.AWAY, taint), taint
        yield from self._in_maintenance(node)
        if node.labels.get(SCHEDULABLE) == "false" and is_kubevirt(owner):
            yield Standing(State.AWAY, f"label {SCHEDULABLE}=false"), None

    def _state_of(self, taint: Taint) -> State | None:
        found = self._of_taint.get(taint.key)
        if found is None or not taint.keeps_out:
            return None
        state, value = found
        return state if value in (None, taint.value) else None

    def _in_maintenance(self, node: Node) -> Iterator[tuple[Standing, Taint | None]]:
        for what, marks, there in (
            ("annotation", self._annotations, node.annotations),
            ("label", self._labels, node.labels),
        ):
            for key, value in marks:
                if key in there and value in (None, there[key]):
                    yield Standing(State.AWAY, f"{what} {key}"), None


def _tainted(state: State, taint: Taint) -> Standing:
    return Standing(state, f"taint {taint.key}")


def is_kubevirt(owner: Owner) -> bool:
    """Whether the owner's pods are machines of KubeVirt's."""
    return isinstance(owner.controller, VirtualMachineInstance) or owner.kind.api_version.split("/")[0] == _KUBEVIRT


def recorded_machine(owner: Owner) -> str:
    """The systemUUID of the machine that was the home; empty where none is recorded."""
    key = f"{HOME_MACHINE}.{owner.slot}" if owner.slot else HOME_MACHINE
    return owner.found.annotations.get(key, "").lower()


def is_other_machine(node: Node, owner: Owner) -> bool:
    """Whether the home was made on another machine of that name; not where either is unknown."""
    was, now = recorded_machine(owner), node.state.machine
    return bool(was and now) and was != now


def node_annotations(marks: Iterable[Mark]) -> frozenset[str]:
    """The annotations of nodes that ``marks`` name."""
    return frozenset(it.annotation for it in marks if it.annotation)
