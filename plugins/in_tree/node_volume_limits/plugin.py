"""The plugin: its extension points, and how what is attached is held against the limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, final

from app.framework.claims import NO_CLAIMS, claims_signature
from app.framework.cycle_state import CycleState, StateKey, StateNotFound
from app.framework.handle import Handle
from app.framework.node_info import NodeInfo
from app.framework.parts import Part
from app.framework.points import ClusterFilterPlugin, PreFilterPlugin
from app.framework.resources import Mounts
from app.framework.spec import Needs, PluginArgs, PluginSpec, Reads
from app.framework.status import SKIP, SUCCESS, TOO_LONG, Status, unresolvable, unschedulable
from app.kube.core_v1 import Pod
from app.kube.kinds import CSI_NODES, VOLUME_ATTACHMENTS, Kind
from app.kube.volumes import VOLUMES
from plugins.in_tree.node_volume_limits.attached import Attached, Attachments, Work
from plugins.in_tree.node_volume_limits.sources import NOWHERE, OF_CLAIMS, NoClaim, Sources, Volumes

NAME: Final = "NodeVolumeLimits"

REASON_FULL: Final = "node(s) exceed max volume count"
REASON_LONG_VOLUMES: Final = TOO_LONG.format(VOLUMES)

_FULL: Final = unschedulable(REASON_FULL).by(NAME)
_UNREAD: Final = unresolvable(REASON_LONG_VOLUMES).by(NAME)


class NodeVolumeLimitsArgs(PluginArgs):
    """Takes no arguments."""


class _Asked:
    """What one search rests on: what the pod would add to a node, and how much was counted for it.

    ``more``: how many volumes of each driver that is, on a node that tells of its drivers and has none of them.
    """

    __slots__ = ("_added", "_new", "attachments_read", "more", "work")

    def __init__(self, added: Callable[[bool], Volumes | Status]) -> None:
        self._added = added
        self._new: dict[bool, Volumes | Status] = {}
        self.more: Mapping[str, int] = {}
        self.work = Work()
        self.attachments_read = False

    def new(self, *, told: bool) -> Volumes | Status:
        """For a node that tells of its CSI drivers, or one that does not."""
        found = self._new.get(told)
        if found is None:
            found = self._new[told] = self._added(told)
            if told and not isinstance(found, Status):
                self.more = _by_driver(found, {})
        return found

    def clone(self) -> _Asked:
        return self


_STATE: Final[StateKey[_Asked]] = StateKey(NAME)


@final
class NodeVolumeLimits(PreFilterPlugin, ClusterFilterPlugin):
    """Source of the rules: ``framework/plugins/nodevolumelimits`` of Kubernetes 1.36.

    1.35 counts a volume of an in-tree plugin only where the CSINode names the plugin as migrated.
    """

    def __init__(self, args: NodeVolumeLimitsArgs, handle: Handle) -> None:
        self._objects = handle.objects
        self._nodes = handle.nodes
        self._sources = Sources(handle.objects)
        self._attached = Attachments(handle.objects, handle.nodes, self._sources)

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, frozenset[str] | None]:
        if VOLUMES in pod.spec.oversized:
            return _UNREAD, None
        return (SUCCESS if any(it.is_attachable for it in pod.spec.volumes) else SKIP), None

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        csi_node = self._objects.get(CSI_NODES, "", node.name)
        asked = self._asked(state, pod)
        new = asked.new(told=csi_node is not None)
        if isinstance(new, Status):
            return new
        if not new or csi_node is None or not csi_node.limits:
            return SUCCESS
        attached = self._attached.of(node, asked.work)
        if attached.faults:
            attached.require(node.mounts)
        volumes = attached.volumes
        more = asked.more if _are_disjoint(volumes, new) else _by_driver(new, volumes)
        for driver, count in more.items():
            limit = csi_node.limits.get(driver)
            if limit is not None:
                others = self._others(attached, node, asked)
                if attached.by_driver.get(driver, 0) + count > limit - others.get(driver, 0):
                    return _FULL
        return SUCCESS

    def _others(self, attached: Attached, node: NodeInfo, asked: _Asked) -> Mapping[str, int]:
        if not asked.attachments_read:
            self._require_attachments(asked)
        found = attached.others
        return self._attached.others(attached, node.name, asked.work) if found is None else found

    def _require_attachments(self, asked: _Asked) -> None:
        """All have to be readable: any of them may be of the node."""
        self._objects.in_namespace(VOLUME_ATTACHMENTS, "")
        asked.attachments_read = True

    def depends_on(self, pod: Pod, other: Pod) -> bool:
        return _is_counted(pod) and _is_counted(other)

    def filter_certain(self, state: CycleState, pod: Pod, node: NodeInfo, in_flight: Sequence[Pod]) -> Status:
        """Counts a volume of a bind in flight where that leaves less room: a volume that is shared does not."""
        flying = {it.uid for it in in_flight if it.node_name == node.name}
        csi_node = self._objects.get(CSI_NODES, "", node.name)
        asked = self._asked(state, pod)
        new = asked.new(told=csi_node is not None)
        if isinstance(new, Status) or csi_node is None or flying.isdisjoint(node.mounts):
            return self.filter(state, pod, node)
        attached = self._attached.of(node, asked.work)
        attached.require(node.mounts)
        self._require_attachments(asked)
        certain, told = attached.without(flying), self._attached.told(attached, node.name)
        for driver in {driver for name, driver in new.items() if name not in certain}:
            limit = csi_node.limits.get(driver)
            if limit is not None and _worst(driver, new, certain, attached.volumes, told) > limit:
                return _FULL
        return SUCCESS

    def signature(self, pod: Pod) -> Hashable | None:
        found = claims_signature(self._objects, pod)
        if found is NO_CLAIMS:
            return NO_CLAIMS
        return (found, self._nodes.mounts_generation, self._versions(*OF_CLAIMS, CSI_NODES, VOLUME_ATTACHMENTS))

    def _asked(self, state: CycleState, pod: Pod) -> _Asked:
        """Worked out once for all nodes of a search."""
        try:
            return state.read(_STATE)
        except StateNotFound:
            self._attached.begin()
            found = _Asked(lambda told: self._added(pod, told=told))
            state.write(_STATE, found)
            return found

    def _added(self, pod: Pod, *, told: bool) -> Volumes | Status:
        if VOLUMES in pod.spec.oversized:
            return _UNREAD
        try:
            return dict(self._sources.of_pod(Mounts.of(pod), NOWHERE, told=told))
        except NoClaim as missing:
            return missing.status

    def _versions(self, *kinds: Kind[Any]) -> tuple[int, ...]:
        return tuple(self._objects.version(it) for it in kinds)


def _is_counted(pod: Pod) -> bool:
    return any(it.is_attachable for it in pod.spec.volumes)


def _are_disjoint(one: Volumes, other: Volumes) -> bool:
    """Looks up those of which there are fewer: a node may have many, and so may the pod."""
    return one.keys().isdisjoint(other) if len(other) < len(one) else other.keys().isdisjoint(one)


def _by_driver(new: Volumes, known: Volumes) -> Mapping[str, int]:
    """How many of ``new`` are not ``known``."""
    return Counter(driver for name, driver in new.items() if name not in known)


def _worst(driver: str, new: Volumes, certain: Volumes, every: Volumes, told: Volumes) -> int:
    """How many volumes of a driver there may be at most, whichever of the pods in flight come.

    One more pod brings its volumes. Of those that are new ones at the same time, the one that a VolumeAttachment tells
    of counts twice as long as no pod has it: then a pod that comes makes it less.
    """

    def of(volumes: Volumes) -> set[str]:
        return {name for name, its in volumes.items() if its == driver}

    ours, sure, all_, attached = of(new), of(certain), of(every), of(told)
    return len(all_ | attached) + len(ours - all_) + len((ours & all_ & attached) - sure)


def _needs(_args: NodeVolumeLimitsArgs) -> Needs:
    return Needs(kinds=(*OF_CLAIMS, CSI_NODES, VOLUME_ATTACHMENTS))


SPEC: Final = PluginSpec(
    NAME,
    NodeVolumeLimitsArgs,
    NodeVolumeLimits,
    needs=_needs,
    reads=Reads.CLUSTER,
    parts=(Part.NAMESPACE, Part.VOLUMES),
)
