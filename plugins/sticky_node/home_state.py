"""State of a home (a row of the table in ``policy``), derived from its node: missing, leaving, away, replaced or
usable. For a pod, it also depends on the pod's tolerations and bound volumes, and on whether the pod is the target of a
migration.

Sources: ``well_known_taints.go`` of Kubernetes 1.36, ``taints.go`` of cluster-autoscaler and of Karpenter, the
heartbeat of KubeVirt's virt-handler, and the arguments. PreferNoSchedule taints are ignored, because they do not keep
pods off the node.

If a home's node is missing from the cache, it is read from the API server before a decision for a pod of that home.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from msgspec import Struct

from app.framework.handle import Handle
from app.framework.objects import Unreadable
from app.framework.parts import Part
from app.homes.protocol import State
from app.kube.core_v1 import Node, Pod
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, Kind
from app.kube.kubevirt_v1 import VirtualMachineInstance
from app.kube.node_state import FALSE, TRUE, NodeState
from app.kube.taints import NO_SCHEDULE, UNSCHEDULABLE, LatestTolerance, Taint
from plugins.sticky_node.annotations import recorded_machine
from plugins.sticky_node.args import MaintenanceMarker, StickyNodeArgs
from plugins.sticky_node.owners import Owner
from plugins.sticky_node.pods import MIGRATION_JOB, BoundVolumes, is_target

KINDS: Final[tuple[Kind[Any], ...]] = (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES)

PARTS: Final = (Part.NODE_STATE, Part.PENDING_VOLUMES)
"""Optional parts of objects that are read to derive a home's state."""

SCHEDULABLE: Final = "kubevirt.io/schedulable"
"""Node label: ``true`` if KubeVirt can start virtual machines on the node."""

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

_MOST_USABLE: Final = 1 << 14
"""Maximum number of nodes cached as usable for every pod."""

_KUBEVIRT: Final = "kubevirt.io"
_NOT_READY: Final = Taint("node.kubernetes.io/not-ready", NO_SCHEDULE)

_PRESSURE_TAINTS: Final[Mapping[str, Taint]] = {
    "MemoryPressure": Taint("node.kubernetes.io/memory-pressure", NO_SCHEDULE),
    "DiskPressure": Taint("node.kubernetes.io/disk-pressure", NO_SCHEDULE),
    "PIDPressure": Taint("node.kubernetes.io/pid-pressure", NO_SCHEDULE),
    "NetworkUnavailable": Taint("node.kubernetes.io/network-unavailable", NO_SCHEDULE),
}
"""Taint that the node lifecycle controller sets for each node condition. Pods that tolerate the taint can run on the
node.
"""


class HomeState(Struct, frozen=True, gc=False):
    """State of a home. ``mark``: human-readable cause, such as a taint; empty for ``USABLE`` and ``NONE``."""

    state: State
    mark: str = ""


class _UnusableReason(Struct, frozen=True, gc=False):
    """Reason why a node is unusable. ``taint``: the taint that a pod can tolerate; ``None`` if no toleration helps."""

    home_state: HomeState
    taint: Taint | None = None


_Marker: TypeAlias = tuple[str, str | None, _UnusableReason]
"""Configured annotation or label: (key, required value or ``None`` for any, resulting reason)."""

_USABLE: Final = HomeState(State.USABLE)
_GONE: Final = HomeState(State.GONE, "there is no such node")
_UNREADABLE: Final = HomeState(State.AWAY, "the node cannot be read")
_OTHER_MACHINE: Final = HomeState(State.OTHER_MACHINE, "another machine has its name")
_TARGET: Final = HomeState(State.TARGET, f"label {MIGRATION_JOB}")
_TERMINATING: Final = _UnusableReason(HomeState(State.LEAVING, "being deleted"))
_CORDONED: Final = _UnusableReason(HomeState(State.AWAY, "cordoned"), UNSCHEDULABLE)
_FALSE: Final = "false"
_NO_MACHINES: Final = _UnusableReason(HomeState(State.AWAY, f"label {SCHEDULABLE}={_FALSE}"))


class HomeStates:
    """Derives the state of homes from cached nodes and volumes."""

    def __init__(self, args: StickyNodeArgs, handle: Handle) -> None:
        self._nodes = handle.nodes
        self._volumes = BoundVolumes(handle.objects)
        self._tolerance = LatestTolerance()
        self._usable: dict[str, Node] = {}
        self._compares_machines = args.identity == "machine"
        self._taints = _by_key(args.maintenance)
        self._annotations = _others("annotation", ((it.annotation, it.value) for it in args.maintenance))
        self._labels = _others("label", ((it.label, it.value) for it in args.maintenance))

    def of_node(self, home: str, owner: Owner) -> HomeState:
        """Return the home's state for no particular pod: volumes and tolerations are not considered. Never raises."""
        return self._by_node(home, owner, None)

    def of(self, home: str, owner: Owner, pod: Pod) -> HomeState:
        """Return the home's state for one pod of the owner. Tolerated taints are ignored, as in kube-scheduler.

        Tolerations do not help if the node is being removed, if its Ready condition is Unknown, or if an annotation or
        label marks it as unusable. Never raises.
        """
        if is_target(pod):
            return _TARGET
        away = self._volume_elsewhere(home, pod)
        return self._by_node(home, owner, pod) if away is None else away

    def reaches_volumes(self, pod: Pod, node: Node) -> bool:
        """Return false if the node is known not to reach one of the pod's bound volumes."""
        return self._volumes.unreached(pod, node) is None

    def _by_node(self, home: str, owner: Owner, pod: Pod | None) -> HomeState:
        """Return the state of the node. With a pod, taints that it tolerates are ignored."""
        try:
            info = self._nodes.get(home)
        except Unreadable:
            return _UNREADABLE
        if info is None:
            return _GONE
        node = info.node
        if self._compares_machines and is_other_machine(node, owner):
            return _OTHER_MACHINE
        if self._usable.get(home) is node:
            return _USABLE
        reason = None
        for reason in self._reasons(node, owner):
            if pod is None or not self._tolerates(pod, reason.taint):
                return reason.home_state
        if reason is None and node.labels.get(SCHEDULABLE) != _FALSE:
            self._remember_usable(home, node)
        return _USABLE

    def _remember_usable(self, home: str, node: Node) -> None:
        if len(self._usable) >= _MOST_USABLE:
            self._usable.clear()
        self._usable[home] = node

    def _tolerates(self, pod: Pod, taint: Taint | None) -> bool:
        return taint is not None and self._tolerance.of(pod.spec.tolerations).tolerates(taint)

    def _volume_elsewhere(self, home: str, pod: Pod) -> HomeState | None:
        """Return the state ``VOLUME_ELSEWHERE`` if the node cannot use a bound volume of the pod; else ``None``."""
        if not pod.spec.pending_volumes:
            return None
        try:
            info = self._nodes.get(home)
        except Unreadable:
            return None
        volume = self._volumes.unreached(pod, home if info is None else info.node)
        return None if volume is None else HomeState(State.VOLUME_ELSEWHERE, str(volume))

    def _reasons(self, node: Node, owner: Owner) -> Iterator[_UnusableReason]:
        """Yield the reasons why the node is unusable, most severe first."""
        state = node.state
        if state.terminating:
            yield _TERMINATING
        marked = [it for it in node.taints if it.key in self._taints and it.keeps_out] if node.taints else ()
        for taint in marked:
            if taint.key in LEAVING_TAINTS:
                yield _UnusableReason(_tainted(State.LEAVING, taint))
        if node.unschedulable:
            yield _CORDONED
        if state.ready != TRUE or state.pressure:
            yield from _unwell(state)
        for taint in marked:
            if not self._taints[taint.key].isdisjoint((None, taint.value)):
                yield _UnusableReason(_tainted(State.AWAY, taint), taint)
        yield from self._marker_reasons(node)
        if node.labels.get(SCHEDULABLE) == _FALSE and is_kubevirt(owner):
            yield _NO_MACHINES

    def _marker_reasons(self, node: Node) -> Iterator[_UnusableReason]:
        """Yield the reasons from configured markers on the node, annotations before labels."""
        if node.annotations:
            yield from _matching(self._annotations, node.annotations)
        if self._labels:
            yield from _matching(self._labels, node.labels)


def _by_key(marks: Iterable[MaintenanceMarker]) -> Mapping[str, frozenset[str | None]]:
    """Return the keys of taints that make a node unusable, each with the values that do; ``None`` matches any value."""
    values: dict[str, frozenset[str | None]] = {}
    for marker in marks:
        if marker.taint:
            values[marker.taint] = values.get(marker.taint, frozenset()) | {marker.value}
    return values | dict.fromkeys((*AWAY_TAINTS, *LEAVING_TAINTS), frozenset((None,)))


def _others(what: str, marks: Iterable[tuple[str, str | None]]) -> tuple[_Marker, ...]:
    return tuple((key, value, _UnusableReason(HomeState(State.AWAY, f"{what} {key}"))) for key, value in marks if key)


def _matching(marks: Iterable[_Marker], there: Mapping[str, str]) -> Iterator[_UnusableReason]:
    for key, value, reason in marks:
        if key in there and value in (None, there[key]):
            yield reason


def _unwell(state: NodeState) -> Iterator[_UnusableReason]:
    """Yield the reasons from the node's conditions. A missing Ready condition is not a reason."""
    if state.ready not in (TRUE, ""):
        yield _UnusableReason(
            HomeState(State.AWAY, f"Ready is {state.ready}"), _NOT_READY if state.ready == FALSE else None
        )
    for condition in state.pressure:
        yield _UnusableReason(HomeState(State.AWAY, condition), _PRESSURE_TAINTS[condition])


def _tainted(state: State, taint: Taint) -> HomeState:
    return HomeState(state, f"taint {taint.key}")


def is_kubevirt(owner: Owner) -> bool:
    """Return true if the owner's pods are KubeVirt virtual machines."""
    return isinstance(owner.controller, VirtualMachineInstance) or owner.kind.api_version.split("/")[0] == _KUBEVIRT


def is_other_machine(node: Node, owner: Owner) -> bool:
    """Return true if the node's systemUUID differs from the one recorded with the home; false if either is unknown."""
    was, now = recorded_machine(owner).lower(), node.state.machine
    return bool(was and now) and was != now


def node_annotations(args: StickyNodeArgs) -> frozenset[str]:
    """Return the keys of the node annotations that mark maintenance."""
    return frozenset(it.annotation for it in args.maintenance if it.annotation)
