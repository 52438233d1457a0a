"""Keeps a pod from nodes to which no more volumes of its CSI drivers can be attached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, final

from msgspec import Struct

from app.framework.claims import NO_CLAIMS, claim_not_found, claims_signature, is_for_pod, not_for_pod
from app.framework.cycle_state import CycleState, StateKey, StateNotFound
from app.framework.interface import ClusterFilterPlugin, Handle, PluginArgs, PluginSpec, PreFilterPlugin, Reads
from app.framework.node_info import NodeInfo
from app.framework.parts import Part
from app.framework.resources import Mounts
from app.framework.status import SKIP, SUCCESS, TOO_LONG, Status, unresolvable, unschedulable
from app.kube.core_v1 import Pod
from app.kube.csi_migration import DRIVERS, NOT_COUNTED
from app.kube.kinds import (
    CSI_NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    Kind,
)
from app.kube.persistent_volumes import PersistentVolumeClaim
from app.kube.storage_v1 import VolumeAttachment
from app.kube.volumes import VOLUMES, PodVolume

NAME: Final = "NodeVolumeLimits"

REASON_FULL: Final = "node(s) exceed max volume count"
REASON_LONG_VOLUMES: Final = TOO_LONG.format(VOLUMES)

_FULL: Final = unschedulable(REASON_FULL).by(NAME)
_UNREAD: Final = unresolvable(REASON_LONG_VOLUMES).by(NAME)

_OF_CLAIMS: Final[tuple[Kind[Any], ...]] = (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES)
_NOT_MADE_YET: Final = "\0"
"""Begins the handle of a volume that is still to be made; no handle of a driver does."""

Volumes = Mapping[str, str]
"""Volumes by their name in the cluster, driver and handle, each with its driver."""


_NOTHING: Final[Volumes] = {}


class NodeVolumeLimitsArgs(PluginArgs):
    """Takes no arguments."""


class UncountableVolume(Exception):
    """A volume of a pod is not what it should be: nothing can be said of a node that has to count it."""


class _NoClaim(Exception):  # no error: no node will do
    def __init__(self, namespace: str, name: str) -> None:
        super().__init__(name)
        self.status = unresolvable(f"looking up PVC {namespace}/{name}: {claim_not_found(name)}")


class _Asked:
    """What one search rests on: what the pod would add to a node, and ``versions`` of what says what a claim is."""

    __slots__ = ("_added", "_new", "versions")

    def __init__(self, added: Callable[[bool], Volumes | Status], versions: tuple[int, ...]) -> None:
        self._added = added
        self._new: dict[bool, Volumes | Status] = {}
        self.versions = versions

    def new(self, *, told: bool) -> Volumes | Status:
        """For a node that tells of its CSI drivers, or one that does not."""
        found = self._new.get(told)
        if found is None:
            found = self._new[told] = self._added(told)
        return found

    def clone(self) -> _Asked:
        return self


class _Attached(Struct, frozen=True):
    """What the pods on a node have attached, and what that rests on."""

    pods: tuple[str, ...]
    versions: tuple[int, ...]
    volumes: Volumes
    by_driver: Mapping[str, int]


_STATE: Final[StateKey[_Asked]] = StateKey(NAME)


@final
class NodeVolumeLimits(PreFilterPlugin, ClusterFilterPlugin):
    """Source of the rules: ``framework/plugins/nodevolumelimits`` of Kubernetes 1.36.

    1.35 counts a volume of an in-tree plugin only where the CSINode names the plugin as migrated.
    """

    def __init__(self, args: NodeVolumeLimitsArgs, handle: Handle) -> None:
        self._objects = handle.objects
        self._nodes = handle.nodes
        self._attached: dict[str, _Attached] = {}
        self._attachments: Mapping[str, Sequence[VolumeAttachment]] = {}
        self._attachments_at = -1

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
        attached = self._attached_to(node, asked.versions)
        more: dict[str, int] = {}
        for name, driver in new.items():
            if name not in attached.volumes:
                more[driver] = more.get(driver, 0) + 1
        for driver, count in more.items():
            limit = csi_node.limits.get(driver)
            if limit is not None and attached.by_driver.get(driver, 0) + count > limit - self._others(node, driver):
                return _FULL
        return SUCCESS

    def _others(self, node: NodeInfo, driver: str) -> int:
        """How many volumes of a driver are attached that no pod has, by the VolumeAttachments."""
        told = self._told(node.name)
        if not told:
            return 0
        attached = self._attached[node.name].volumes
        return sum(its == driver and name not in attached for name, its in told.items())

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
        every = self._attached_to(node, asked.versions).volumes
        certain = self._volumes(it for uid, it in node.mounts.items() if uid not in flying)
        told = self._told(node.name)
        for driver in {driver for name, driver in new.items() if name not in certain}:
            limit = csi_node.limits.get(driver)
            if limit is not None and _worst(driver, new, certain, every, told) > limit:
                return _FULL
        return SUCCESS

    def signature(self, pod: Pod) -> Hashable | None:
        found = claims_signature(self._objects, pod)
        if found is NO_CLAIMS:
            return NO_CLAIMS
        return (found, self._nodes.mounts_generation, self._versions(*_OF_CLAIMS, CSI_NODES, VOLUME_ATTACHMENTS))

    def _asked(self, state: CycleState, pod: Pod) -> _Asked:
        """Worked out once for all nodes of a search."""
        try:
            return state.read(_STATE)
        except StateNotFound:
            found = _Asked(lambda told: self._added(pod, told=told), self._versions(*_OF_CLAIMS))
            state.write(_STATE, found)
            return found

    def _added(self, pod: Pod, *, told: bool) -> Volumes | Status:
        if VOLUMES in pod.spec.oversized:
            return _UNREAD
        try:
            return dict(self._of_pod(Mounts.of(pod), told=told, is_new=True))
        except _NoClaim as missing:
            return missing.status

    def _attached_to(self, node: NodeInfo, versions: tuple[int, ...]) -> _Attached:
        """By the pods on a node; kept as long as these are the same, and so is all that says what a claim is."""
        found = self._attached.get(node.name)
        pods = tuple(node.mounts)
        if found is None or found.pods != pods or found.versions != versions:
            volumes = self._volumes(node.mounts.values())
            if len(self._attached) > 2 * len(self._nodes.list()):
                self._attached.clear()  # of nodes that are gone, most of it
            found = self._attached[node.name] = _Attached(pods, versions, volumes, Counter(volumes.values()))
        return found

    def _versions(self, *kinds: Kind[Any]) -> tuple[int, ...]:
        return tuple(self._objects.version(it) for it in kinds)

    def _volumes(self, pods: Iterable[Mounts]) -> Volumes:
        """Of pods on a node that tells of its CSI drivers."""
        return {name: driver for pod in pods for name, driver in self._of_pod(pod, told=True, is_new=False)}

    def _of_pod(self, pod: Mounts, *, told: bool, is_new: bool) -> Iterator[tuple[str, str]]:
        """Volumes with their drivers. Raises ``UncountableVolume``; and ``_NoClaim`` for a new pod."""
        for volume in pod.volumes:
            name = volume.claim_name(pod.name)
            if name is None:
                yield from _in_line(volume) if told else ()
                continue
            claim = self._claim(pod, name, volume, is_new=is_new)
            driver, handle = ("", "") if claim is None else self._source(claim, told=told)
            if driver and handle:
                yield f"{driver}/{handle}", driver

    def _claim(self, pod: Mounts, name: str, volume: PodVolume, *, is_new: bool) -> PersistentVolumeClaim | None:
        if not name:
            raise UncountableVolume("PersistentVolumeClaim had no name")
        claim = self._objects.get(PERSISTENT_VOLUME_CLAIMS, pod.namespace, name)
        if claim is None and is_new:
            raise _NoClaim(pod.namespace, name)
        if claim is not None and volume.claim is None and not is_for_pod(claim, pod):
            raise UncountableVolume(not_for_pod(claim, pod))
        return claim

    def _source(self, claim: PersistentVolumeClaim, *, told: bool) -> tuple[str, str]:
        """Driver and handle of a claim's volume; nothing for what is no volume of a CSI driver."""
        found = self._objects.get(PERSISTENT_VOLUMES, "", claim.volume_name) if claim.volume_name else None
        if found is None:
            return self._source_to_be(claim, told=told)
        if found.is_csi:
            return found.driver, found.handle
        return (found.migrated.driver, found.migrated.handle) if told and found.migrated is not None else ("", "")

    def _source_to_be(self, claim: PersistentVolumeClaim, *, told: bool) -> tuple[str, str]:
        """Of a volume that is not there: by the class, which will have it made, and one of its own."""
        found = self._objects.get(STORAGE_CLASSES, "", claim.class_name) if claim.class_name else None
        if found is None or found.provisioner in NOT_COUNTED:
            return "", ""
        driver = found.provisioner
        if driver in DRIVERS:
            driver = DRIVERS[driver] if told else ""
        return driver, f"{_NOT_MADE_YET}{claim.namespace}/{claim.name}"

    def _told(self, node: str) -> Volumes:
        """The volumes that VolumeAttachments say are attached to a node, or shall be."""
        version = self._objects.version(VOLUME_ATTACHMENTS)
        if version != self._attachments_at:
            by_node: dict[str, list[VolumeAttachment]] = {}
            for it in self._objects.in_namespace(VOLUME_ATTACHMENTS, ""):
                if it.attacher and it.volume_name is not None:
                    by_node.setdefault(it.node_name, []).append(it)
            self._attachments, self._attachments_at = by_node, version
        found = self._attachments.get(node)
        return _NOTHING if found is None else dict(self._attached_by(found))

    def _attached_by(self, attachments: Iterable[VolumeAttachment]) -> Iterator[tuple[str, str]]:
        for it in attachments:
            volume = self._objects.get(PERSISTENT_VOLUMES, "", it.volume_name or "")
            if volume is not None and volume.is_csi:
                yield f"{it.attacher}/{volume.handle}", it.attacher


def _is_counted(pod: Pod) -> bool:
    return any(it.is_attachable for it in pod.spec.volumes)


def _in_line(volume: PodVolume) -> Iterator[tuple[str, str]]:
    """The volume of a disk that the pod names itself, with the driver that does the in-tree one's work."""
    if volume.untranslatable:
        raise UncountableVolume(f"converting volume({volume.name}) from inline to csi: {volume.untranslatable}")
    if volume.migrated is not None:
        yield f"{volume.migrated.driver}/{volume.migrated.handle}", volume.migrated.driver


def _worst(driver: str, new: Volumes, certain: Volumes, every: Volumes, told: Volumes) -> int:
    """How many volumes of a driver there may be at most, whichever of the pods in flight come.

    One more pod brings its volumes. Of those that are new ones at the same time, the one that a VolumeAttachment tells
    of counts twice as long as no pod has it: then a pod that comes makes it less.
    """

    def of(volumes: Volumes) -> set[str]:
        return {name for name, its in volumes.items() if its == driver}

    ours, sure, all_, attached = of(new), of(certain), of(every), of(told)
    return len(all_ | attached) + len(ours - all_) + len((ours & all_ & attached) - sure)


def _kinds(_args: NodeVolumeLimitsArgs) -> tuple[Kind[Any], ...]:
    return (*_OF_CLAIMS, CSI_NODES, VOLUME_ATTACHMENTS)


SPEC: Final = PluginSpec(
    NAME,
    NodeVolumeLimitsArgs,
    NodeVolumeLimits,
    kinds=_kinds,
    reads=Reads.CLUSTER,
    parts=(Part.NAMESPACE, Part.VOLUMES),
)
