"""What is attached to each node: by its pods, and by VolumeAttachments. Counted once, then as it changes."""

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
from plugins.in_tree.node_volume_limits.sources import OF_CLAIMS, Sources, UncountableVolume, Volumes

AT_ONCE: Final = 2048
"""Volumes that are counted in one step of the event loop: some milliseconds."""

_FEW_NODES: Final = 16
FEW: Final = 1 << 19
"""Objects on which nodes rest; of more, it is asked how many of them still matter."""

_MOST_EACH: Final = 8
"""Twice as many of these as a volume rests on at most."""

_NONE: Final[Mapping[str, VolumeAttachment]] = {}

Fault = UncountableVolume | Unreadable


class Attached:
    """What one node has. ``volumes`` and ``by_driver``: of its pods. ``told``: by VolumeAttachments, and ``others`` by
    driver those of them that no pod has; ``None`` as long as nobody asked. ``faults``: why pods cannot be counted.
    """

    __slots__ = ("_again", "_looked", "_pods", "by_driver", "faults", "others", "stamp", "told", "volumes")

    def __init__(self) -> None:
        self.volumes: dict[str, str] = {}
        self.by_driver: dict[str, int] = {}
        self.told: Volumes | None = None
        self.others: Mapping[str, int] | None = None
        self._pods: dict[str, tuple[str, ...]] = {}
        self.stamp = -1
        self._looked = 0
        self.faults: dict[str, Fault] = {}
        self._again: dict[str, int] = {}
        """Of volumes that several pods have, how many more do."""

    def __len__(self) -> int:
        """Volumes that were looked at."""
        return self._looked + len(self.told or ())

    def count(self, node: NodeInfo, sources: Sources) -> None:
        """Take in who came, and leave out who is gone. From then on it is right at this ``stamp`` of the node."""
        mounts = node.mounts
        for uid in self._pods.keys() - mounts.keys():
            self._leave(uid)
        for uid, pod in mounts.items():
            if uid not in self._pods:
                self._come(uid, pod, node.name, sources)
        self._looked = sum(len(it.volumes) for it in mounts.values())
        self.stamp, self.others = node.mounts_stamp, None

    def _come(self, uid: str, pod: Mounts, node: str, sources: Sources) -> None:
        found: dict[str, str] = {}
        try:
            found.update(sources.of_pod(pod, node))
        except (UncountableVolume, Unreadable) as fault:
            self.faults[uid] = fault
            found.clear()
        self._pods[uid] = tuple(found)
        for name, driver in found.items():
            if name in self.volumes:
                add({name: 1}, self._again)
            else:
                self.volumes[name] = driver
                add({driver: 1}, self.by_driver)

    def _leave(self, uid: str) -> None:
        self.faults.pop(uid, None)
        for name in self._pods.pop(uid):
            if name in self._again:
                add({name: 1}, self._again, -1)
            else:
                add({self.volumes.pop(name): 1}, self.by_driver, -1)

    def require(self, mounts: Mapping[str, Mounts]) -> None:
        """Raises what keeps the first of the pods, in their order, from being counted."""
        for uid in mounts:
            if uid in self.faults:
                raise self.faults[uid].with_traceback(None)

    def without(self, uids: Collection[str]) -> Volumes:
        """Those of the other pods."""
        names = (name for uid, each in self._pods.items() if uid not in uids for name in each)
        return {name: self.volumes[name] for name in names}


class Work:
    """Volumes that one search had to look at."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = 0


class Attachments:
    """Counts what is attached to nodes, and anew what a change touches. ``begin`` comes before each search."""

    def __init__(self, objects: Objects, nodes: NodeLister, sources: Sources) -> None:
        self._objects = objects
        self._nodes = nodes
        self._sources = sources
        self._seen = dict.fromkeys(OF_CLAIMS, -1)
        self._attached: dict[str, Attached] = {}
        self._following = Following(objects, VOLUME_ATTACHMENTS, self._take_in, self._restart)
        self._told: dict[str, dict[str, VolumeAttachment]] = {}
        self._node_of: dict[str, str] = {}

    def begin(self) -> None:
        """Raises ``Unprepared`` where many VolumeAttachments have changed."""
        if len(self._sources) > FEW and len(self._sources) > _MOST_EACH * sum(map(len, self._attached.values())):
            self._forget()  # of pods that are gone, most of it
        for kind in OF_CLAIMS:
            version = self._objects.version(kind)
            if version == self._seen[kind]:
                continue
            changed = self._objects.changed(kind, self._seen[kind])
            self._seen[kind] = version
            if changed is None:
                self._forget()
                continue
            for key, _ in changed:
                for node in self._sources.resting_on(kind, key):
                    self._attached.pop(node, None)
        self._following.catch_up()

    def _forget(self) -> None:
        self._attached.clear()
        self._sources.clear()

    def of(self, node: NodeInfo, work: Work) -> Attached:
        """By the pods that the node has. Raises ``Unprepared`` where a search had to count too much already."""
        found = self._attached.get(node.node.name)
        if found is None or found.stamp != node.mounts_stamp:
            self._require_time(work, sum(len(it.volumes) for it in node.mounts.values()))
            found = self._counted(node)
        return found

    def _counted(self, node: NodeInfo) -> Attached:
        found = self._attached.get(node.name)
        if found is None:
            if len(self._attached) > 2 * len(self._nodes.list()):
                self._forget()  # of nodes that are gone, most of it
            found = self._attached[node.name] = Attached()
        found.count(node, self._sources)
        return found

    def others(self, attached: Attached, node: str, work: Work) -> Mapping[str, int]:
        """How many volumes are attached that no pod has, by driver. Raises ``Unreadable`` or ``Unprepared``."""
        if attached.others is None:
            self._require_time(work, len(self._told.get(node, _NONE)))
            self._count_others(attached, node)
        return attached.others or {}

    def _count_others(self, attached: Attached, node: str) -> None:
        others: dict[str, int] = {}
        for name, driver in self.told(attached, node).items():
            if name not in attached.volumes:
                add({driver: 1}, others)
        attached.others = others

    def _require_time(self, work: Work, more: int) -> None:
        """A search may count some nodes; if many are to be counted, that is done before it, in steps."""
        if work.done > AT_ONCE and self._many_left():
            raise Unprepared(self._in_steps())
        work.done += more

    def _many_left(self) -> bool:
        """Not by what a dry run makes of some nodes: then to count them beforehand would be of no use."""
        left = (it for it in self._nodes.list() if self._is_left(it) and self._has_limits(it.name))
        return sum(1 for _ in islice(left, _FEW_NODES + 1)) > _FEW_NODES

    def _is_left(self, node: NodeInfo) -> bool:
        found = self._attached.get(node.name)
        return found is None or found.stamp != node.mounts_stamp or (found.others is None and node.name in self._told)

    def _in_steps(self) -> Iterator[None]:
        """Count all nodes that are to be. What is wrong with one is told where it is judged."""
        for node in tuple(self._nodes.list()):
            if self._is_left(node) and self._has_limits(node.name):
                self._count(node)
                yield

    def _count(self, node: NodeInfo) -> None:
        found = self._attached.get(node.name)
        if found is None or found.stamp != node.mounts_stamp:
            found = self._counted(node)
        with suppress(Unreadable):
            self._count_others(found, node.name)

    def _has_limits(self, node: str) -> bool:
        try:
            csi_node = self._objects.get(CSI_NODES, "", node)
        except Unreadable:
            return False
        return csi_node is not None and bool(csi_node.limits)

    def told(self, attached: Attached, node: str) -> Volumes:
        """The volumes that VolumeAttachments say are attached to a node, or shall be. Raises ``Unreadable``."""
        if attached.told is None:
            attached.told = dict(self._told_of(node))
        return attached.told

    def _told_of(self, node: str) -> Iterator[tuple[str, str]]:
        for it in self._told.get(node, _NONE).values():
            name = it.volume_name or ""
            self._sources.rests_on_volume(name, node)
            volume = self._objects.get(PERSISTENT_VOLUMES, "", name)
            if volume is not None and volume.is_csi:
                yield f"{it.attacher}/{volume.handle}", it.attacher

    def _restart(self) -> None:
        self._told, self._node_of = {}, {}
        for it in self._attached.values():
            it.told = it.others = None

    def _take_in(self, _namespace: str, name: str) -> int:
        known = self._node_of.pop(name, None)
        if known is not None:
            del self._told[known][name]
            if not self._told[known]:
                del self._told[known]
            self._touched(known)
        found = self._found(name)
        if found is not None and found.attacher and found.volume_name is not None:
            self._node_of[name] = found.node_name
            self._told.setdefault(found.node_name, {})[name] = found
            self._touched(found.node_name)
        return 1

    def _found(self, name: str) -> VolumeAttachment | None:
        try:
            return self._objects.get(VOLUME_ATTACHMENTS, "", name)
        except Unreadable:
            return None  # nothing is said of limits as long as one cannot be read

    def _touched(self, node: str) -> None:
        attached = self._attached.get(node)
        if attached is not None:
            attached.told = attached.others = None
