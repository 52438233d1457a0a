"""Counts of the volumes that pods and VolumeAttachments attach to each node. Counts are cached. After a change of these
objects, the next search that needs a count updates it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Final

from app.framework.counts import Unprepared
from app.framework.following import Following
from app.framework.listers import NodeLister
from app.framework.node_info import NodeInfo
from app.framework.objects import Objects, Unreadable
from app.framework.resources import Mounts, add
from app.kube.kinds import CSI_NODES, PERSISTENT_VOLUMES, VOLUME_ATTACHMENTS
from app.kube.storage_v1 import VolumeAttachment
from plugins.in_tree.node_volume_limits.volume_resolver import (
    CLAIM_KINDS,
    UncountableVolume,
    VolumeDrivers,
    VolumeResolver,
)

MAX_VOLUMES_PER_SEARCH: Final = 2048
"""Number of volumes that a search itself counts, which takes some milliseconds. If more than ``_FEW_NODES`` outdated
nodes remain then, they are counted in steps.
"""

_FEW_NODES: Final = 16
"""Maximum number of outdated nodes that a search itself still counts after ``MAX_VOLUMES_PER_SEARCH`` volumes, because
counting so few in steps would not pay off.
"""

MAX_TRACKED_OBJECTS: Final = 1 << 19
"""If ``VolumeResolver`` tracks more objects than this, and no node depends on most of them, all counts are dropped."""

_OBJECTS_PER_VOLUME: Final = 8
"""If ``VolumeResolver`` tracks more objects per counted volume than this, no node depends on most of them.

The value is twice the maximum number of objects tracked for one volume.
"""

_NONE: Final[Mapping[str, VolumeAttachment]] = {}

Fault = UncountableVolume | Unreadable


class NodeAttachments:
    """Volumes attached to one node.

    ``volumes``: drivers of the volumes that the node's pods use, by volume name. ``by_driver``: number of these
    volumes, by driver. ``attached``: the CSI volumes that VolumeAttachments name; ``None`` until they are read.
    ``unused``: number of ``attached`` volumes that no pod uses, by driver; ``None`` until they are counted. ``faults``:
    errors of pods whose volumes cannot be counted, by UID. ``stamp``: the node's ``mounts_stamp`` at the last update.
    """

    __slots__ = ("_examined", "_pods", "_shared", "attached", "by_driver", "faults", "stamp", "unused", "volumes")

    def __init__(self) -> None:
        self.volumes: dict[str, str] = {}
        self.by_driver: dict[str, int] = {}
        self.attached: VolumeDrivers | None = None
        self.unused: Mapping[str, int] | None = None
        self._pods: dict[str, tuple[str, ...]] = {}
        self.stamp = -1
        self._examined = 0
        self.faults: dict[str, Fault] = {}
        self._shared: dict[str, int] = {}
        """Number of pods that use a volume besides the first one, by volume name; only volumes of several pods."""

    def __len__(self) -> int:
        """Return the number of volumes of pods and of VolumeAttachments that were examined."""
        return self._examined + len(self.attached or ())

    def update(self, node: NodeInfo, resolver: VolumeResolver) -> None:
        """Add the volumes of new pods, and remove those of deleted pods."""
        mounts = node.mounts
        for uid in self._pods.keys() - mounts.keys():
            self._remove(uid)
        for uid, pod in mounts.items():
            if uid not in self._pods:
                self._add(uid, pod, node.name, resolver)
        self._examined = sum(len(it.volumes) for it in mounts.values())
        self.stamp, self.unused = node.mounts_stamp, None

    def _add(self, uid: str, pod: Mounts, node: str, resolver: VolumeResolver) -> None:
        volumes: dict[str, str] = {}
        try:
            volumes.update(resolver.of_pod(pod, node))
        except (UncountableVolume, Unreadable) as fault:
            self.faults[uid] = fault
            volumes.clear()
        self._pods[uid] = tuple(volumes)
        for name, driver in volumes.items():
            if name in self.volumes:
                add({name: 1}, self._shared)
            else:
                self.volumes[name] = driver
                add({driver: 1}, self.by_driver)

    def _remove(self, uid: str) -> None:
        self.faults.pop(uid, None)
        for name in self._pods.pop(uid):
            if name in self._shared:
                add({name: 1}, self._shared, -1)
            else:
                add({self.volumes.pop(name): 1}, self.by_driver, -1)

    def require_countable(self, mounts: Mapping[str, Mounts]) -> None:
        """Raise the error of the first pod of ``mounts`` whose volumes cannot be counted."""
        for uid in mounts:
            if uid in self.faults:
                raise self.faults[uid].with_traceback(None)

    def without(self, uids: Collection[str]) -> VolumeDrivers:
        """Return the drivers of the volumes that pods other than ``uids`` use, by volume name."""
        names = (name for uid, each in self._pods.items() if uid not in uids for name in each)
        return {name: self.volumes[name] for name in names}


class CountedVolumes:
    """Number of volumes that one search has counted so far."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class AttachmentCounts:
    """Attached volumes of all nodes. A node is counted when a search needs it, and recounted after a relevant change.

    The caller must call ``begin`` before each search.
    """

    def __init__(self, objects: Objects, nodes: NodeLister, resolver: VolumeResolver) -> None:
        self._objects = objects
        self._nodes = nodes
        self._resolver = resolver
        self._seen = dict.fromkeys(CLAIM_KINDS, -1)
        self._by_node: dict[str, NodeAttachments] = {}
        self._following = Following(objects, VOLUME_ATTACHMENTS, self._update, self._restart)
        self._attachments: dict[str, dict[str, VolumeAttachment]] = {}
        self._node_of: dict[str, str] = {}

    def begin(self) -> None:
        """Process the changes since the last search. Raises ``Unprepared`` if many VolumeAttachments have changed."""
        tracked = len(self._resolver)
        if tracked > MAX_TRACKED_OBJECTS and tracked > _OBJECTS_PER_VOLUME * sum(map(len, self._by_node.values())):
            self._forget()  # most tracked objects are unused
        for kind in CLAIM_KINDS:
            version = self._objects.version(kind)
            if version == self._seen[kind]:
                continue
            changed = self._objects.changed(kind, self._seen[kind])
            self._seen[kind] = version
            if changed is None:
                self._forget()
                continue
            for key, _ in changed:
                for node in self._resolver.affected_nodes(kind, key):
                    self._by_node.pop(node, None)
        self._following.catch_up()

    def _forget(self) -> None:
        self._by_node.clear()
        self._resolver.clear()

    def of(self, node: NodeInfo, counted: CountedVolumes) -> NodeAttachments:
        """Return the current volumes of a node. Raises ``Unprepared`` if they must be counted, but the search has
        counted too many volumes.
        """
        attachments = self._by_node.get(node.name)
        if attachments is None or attachments.stamp != node.mounts_stamp:
            self._count(counted, sum(len(it.volumes) for it in node.mounts.values()))
            attachments = self._updated(node)
        return attachments

    def _updated(self, node: NodeInfo) -> NodeAttachments:
        attachments = self._by_node.get(node.name)
        if attachments is None:
            if len(self._by_node) > 2 * len(self._nodes.list()):
                self._forget()  # most counted nodes no longer exist
            attachments = self._by_node[node.name] = NodeAttachments()
        attachments.update(node, self._resolver)
        return attachments

    def unused(self, attachments: NodeAttachments, node: str, counted: CountedVolumes) -> Mapping[str, int]:
        """Return the number of attached volumes that no pod of the node uses, by driver.

        Raises ``Unreadable``, or ``Unprepared`` if they must be counted, but the search has counted too many volumes.
        """
        if attachments.unused is None:
            self._count(counted, len(self._attachments.get(node, _NONE)))
            self._count_unused(attachments, node)
        return attachments.unused or {}

    def _count_unused(self, attachments: NodeAttachments, node: str) -> None:
        unused: dict[str, int] = {}
        for name, driver in self.attached(attachments, node).items():
            if name not in attachments.volumes:
                add({driver: 1}, unused)
        attachments.unused = unused

    def _count(self, counted: CountedVolumes, volumes: int) -> None:
        """Add ``volumes`` to the number of volumes that a search has counted.

        Raises ``Unprepared`` if the number already exceeded ``MAX_VOLUMES_PER_SEARCH`` and many nodes must be counted.
        """
        if counted.count > MAX_VOLUMES_PER_SEARCH and self._many_outdated():
            raise Unprepared(self._update_all())
        counted.count += volumes

    def _many_outdated(self) -> bool:
        """Return true if the snapshot has more than ``_FEW_NODES`` outdated nodes with volume limits. Changes by a dry
        run are ignored.
        """
        outdated = (it for it in self._nodes.list() if self._is_outdated(it) and self._has_limits(it.name))
        return sum(1 for _ in islice(outdated, _FEW_NODES + 1)) > _FEW_NODES

    def _is_outdated(self, node: NodeInfo) -> bool:
        attachments = self._by_node.get(node.name)
        if attachments is None or attachments.stamp != node.mounts_stamp:
            return True
        return attachments.unused is None and node.name in self._attachments

    def _update_all(self) -> Iterator[None]:
        """Count all outdated nodes that have volume limits, one node per step.

        An error of a node is raised when the node is evaluated.
        """
        for node in tuple(self._nodes.list()):
            if self._is_outdated(node) and self._has_limits(node.name):
                attachments = self._by_node.get(node.name)
                if attachments is None or attachments.stamp != node.mounts_stamp:
                    attachments = self._updated(node)
                with suppress(Unreadable):
                    self._count_unused(attachments, node.name)
                yield

    def _has_limits(self, node: str) -> bool:
        try:
            csi_node = self._objects.get(CSI_NODES, "", node)
        except Unreadable:
            return False
        return csi_node is not None and bool(csi_node.limits)

    def attached(self, attachments: NodeAttachments, node: str) -> VolumeDrivers:
        """Return the CSI volumes that VolumeAttachments attach to the node. Raises ``Unreadable``."""
        if attachments.attached is None:
            attachments.attached = dict(self._read_attachments(node))
        return attachments.attached

    def _read_attachments(self, node: str) -> Iterator[tuple[str, str]]:
        for attachment in self._attachments.get(node, _NONE).values():
            name = attachment.volume_name or ""
            self._resolver.track_volume(name, node)
            volume = self._objects.get(PERSISTENT_VOLUMES, "", name)
            if volume is not None and volume.is_csi:
                yield f"{attachment.attacher}/{volume.handle}", attachment.attacher

    def _restart(self) -> None:
        self._attachments, self._node_of = {}, {}
        for attachments in self._by_node.values():
            attachments.attached = attachments.unused = None

    def _update(self, _namespace: str, name: str) -> int:
        previous = self._node_of.pop(name, None)
        if previous is not None:
            del self._attachments[previous][name]
            if not self._attachments[previous]:
                del self._attachments[previous]
            self._invalidate(previous)
        current = self._attachment(name)
        if current is not None and current.attacher and current.volume_name is not None:
            self._node_of[name] = current.node_name
            self._attachments.setdefault(current.node_name, {})[name] = current
            self._invalidate(current.node_name)
        return 1

    def _attachment(self, name: str) -> VolumeAttachment | None:
        try:
            return self._objects.get(VOLUME_ATTACHMENTS, "", name)
        except Unreadable:
            return None  # ignored, because Filter fails while any VolumeAttachment is unreadable

    def _invalidate(self, node: str) -> None:
        attachments = self._by_node.get(node)
        if attachments is not None:
            attachments.attached = attachments.unused = None
