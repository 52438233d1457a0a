"""Finds the CSI volumes that a pod uses, and tracks the nodes whose counts depend on each object."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from app.framework.claims import claim_not_found, is_for_pod, not_for_pod
from app.framework.objects import Objects, Unreadable
from app.framework.resources import Mounts
from app.framework.status import unresolvable
from app.kube.csi_migration import DRIVERS, NOT_COUNTED
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES, Kind
from app.kube.meta_v1 import ObjectKey
from app.kube.persistent_volumes import PersistentVolumeClaim
from app.kube.volumes import PodVolume

CLAIM_KINDS: Final[tuple[Kind[Any], ...]] = (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES)
"""Kinds of the objects that determine a claim's volume."""

NO_NODE: Final = ""
"""Value passed instead of a node name if no node's counts depend on the result, as for an incoming pod."""

_TO_PROVISION: Final = "\0"
"""Prefix of the handle of a volume that is not provisioned yet. No handle of a driver begins with it."""

VolumeDrivers = Mapping[str, str]
"""Names of CSI drivers by unique volume name, which is ``driver/handle``."""


class UncountableVolume(Exception):
    """A volume of a pod is invalid, so a node that must count it cannot be evaluated."""


class MissingClaim(Exception):  # not an error: the pod is rejected
    """A claim of the incoming pod does not exist. ``status`` rejects all nodes."""

    def __init__(self, namespace: str, name: str) -> None:
        super().__init__(name)
        self.status = unresolvable(f"looking up PVC {namespace}/{name}: {claim_not_found(name)}")


class _ResolvedClaim(NamedTuple):
    """Volume that is counted for a claim.

    ``volume`` and ``driver``: unique name and CSI driver; ``volume`` is empty if the volume is not counted.
    ``volume_name`` and ``class_name``: PersistentVolume and StorageClass that the claim names.
    """

    volume: str
    driver: str
    volume_name: str
    class_name: str


_UNRESOLVED: Final = _ResolvedClaim("", "", "", "")


class _NodesByObject:
    """Nodes whose volumes must be counted again after a change of an object, by the object's key.

    Most objects have only one dependent node, which is stored without a set to save memory.
    """

    __slots__ = ("_nodes",)

    def __init__(self) -> None:
        self._nodes: dict[object, str | set[str]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, key: object, node: str) -> bool:
        """Add a node. Return true if several nodes depend on the object."""
        nodes = self._nodes.get(key)
        if nodes is None:
            self._nodes[key] = node
        elif isinstance(nodes, set):
            nodes.add(node)
            return True
        elif nodes != node:
            self._nodes[key] = {nodes, node}
            return True
        return False

    def pop(self, key: object) -> Collection[str]:
        """Remove and return the nodes of an object. A node is added again when its volumes are counted again."""
        nodes = self._nodes.pop(key, ())
        return (nodes,) if isinstance(nodes, str) else nodes

    def clear(self) -> None:
        self._nodes.clear()


class VolumeResolver:
    """Resolves the volumes of pods, and tracks the nodes whose counts depend on each object.

    The volume of a claim that several nodes share is cached. After a change of the claim, the volumes of these nodes
    are counted again only if the claim names another volume or class, or belongs to an ephemeral volume. Without this
    rule, a tenant who keeps changing a claim could cause many nodes to be counted repeatedly.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._by_claim = _NodesByObject()
        self._by_ephemeral_claim = _NodesByObject()
        self._by_volume = _NodesByObject()
        self._by_class = _NodesByObject()
        self._shared: dict[ObjectKey, _ResolvedClaim] = {}

    def __len__(self) -> int:
        """Return the number of tracked objects, including some on which no node depends any more.

        The claim of an ephemeral volume counts twice.
        """
        return sum(map(len, self._indexes()))

    def clear(self) -> None:
        """Forget all tracked objects. The caller must drop the counts of all nodes, too."""
        for index in self._indexes():
            index.clear()
        self._shared.clear()

    def _indexes(self) -> tuple[_NodesByObject, ...]:
        return self._by_claim, self._by_ephemeral_claim, self._by_volume, self._by_class

    def affected_nodes(self, kind: Kind[Any], key: ObjectKey) -> Iterator[str]:
        """Yield the nodes whose counts a change of the object affects, and stop tracking them for this object.

        The caller must count the volumes of these nodes again.
        """
        if kind is PERSISTENT_VOLUME_CLAIMS:
            yield from self._by_ephemeral_claim.pop(key)
            cached = self._shared.get(key)
            if cached is None or cached != self._current(key):
                self._shared.pop(key, None)
                yield from self._by_claim.pop(key)
        else:
            yield from (self._by_volume if kind is PERSISTENT_VOLUMES else self._by_class).pop(key[1])

    def _current(self, key: ObjectKey) -> _ResolvedClaim | None:
        try:
            claim = self._objects.get(PERSISTENT_VOLUME_CLAIMS, *key)
            return None if claim is None else self._resolve(claim, NO_NODE, has_csi_node=True)
        except Unreadable:
            return None

    def of_pod(self, pod: Mounts, node: str, *, has_csi_node: bool = True) -> Iterator[tuple[str, str]]:
        """Yield (unique name, driver) of each counted volume of a pod on ``node``, or of an incoming pod (``NO_NODE``).

        ``has_csi_node``: true if the node has a CSINode object. Raises ``UncountableVolume`` or ``Unreadable``, and
        ``MissingClaim`` for an incoming pod.
        """
        for volume in pod.volumes:
            name = volume.claim_name(pod.name)
            if name is None:
                yield from _inline_volumes(volume) if has_csi_node else ()
                continue
            if not name:
                raise UncountableVolume("PersistentVolumeClaim had no name")
            resolved = self._resolve_claim(pod, name, volume, node, has_csi_node=has_csi_node)
            if resolved.volume:
                yield resolved.volume, resolved.driver

    def _resolve_claim(
        self, pod: Mounts, name: str, volume: PodVolume, node: str, *, has_csi_node: bool
    ) -> _ResolvedClaim:
        key = (pod.namespace, name)
        is_shared = node != NO_NODE and self._by_claim.add(key, node)
        if node != NO_NODE and volume.claim is None:
            self._by_ephemeral_claim.add(key, node)
        claim = self._objects.get(PERSISTENT_VOLUME_CLAIMS, pod.namespace, name)
        if claim is None:
            if node == NO_NODE:
                raise MissingClaim(pod.namespace, name)
            return _UNRESOLVED
        if volume.claim is None and not is_for_pod(claim, pod):
            raise UncountableVolume(not_for_pod(claim, pod))
        resolved = self._resolve(claim, node, has_csi_node=has_csi_node)
        if is_shared:
            self._shared[key] = resolved
        return resolved

    def _resolve(self, claim: PersistentVolumeClaim, node: str, *, has_csi_node: bool) -> _ResolvedClaim:
        driver, handle = self._volume_of(claim, node, has_csi_node=has_csi_node)
        name = f"{driver}/{handle}" if driver and handle else ""
        return _ResolvedClaim(name, driver, claim.volume_name, claim.class_name)

    def _volume_of(self, claim: PersistentVolumeClaim, node: str, *, has_csi_node: bool) -> tuple[str, str]:
        """Return (driver, handle) of the claim's volume. The driver is empty if the volume is not counted."""
        if not claim.volume_name:
            return self._volume_to_provision(claim, node, has_csi_node=has_csi_node)
        self.track_volume(claim.volume_name, node)
        volume = self._objects.get(PERSISTENT_VOLUMES, "", claim.volume_name)
        if volume is None:
            return self._volume_to_provision(claim, node, has_csi_node=has_csi_node)
        if volume.is_csi:
            return volume.driver, volume.handle
        if has_csi_node and volume.migrated is not None:
            return volume.migrated.driver, volume.migrated.handle
        return "", ""

    def _volume_to_provision(self, claim: PersistentVolumeClaim, node: str, *, has_csi_node: bool) -> tuple[str, str]:
        """Return (driver, handle) of the volume that the claim's class will provision.

        The handle is a placeholder that contains the claim's name. The driver is empty if the volume is not counted.
        """
        if not claim.class_name:
            return "", ""
        if node != NO_NODE:
            self._by_class.add(claim.class_name, node)
        storage_class = self._objects.get(STORAGE_CLASSES, "", claim.class_name)
        if storage_class is None or storage_class.provisioner in NOT_COUNTED:
            return "", ""
        driver = storage_class.provisioner
        if driver in DRIVERS:
            driver = DRIVERS[driver] if has_csi_node else ""
        return driver, f"{_TO_PROVISION}{claim.namespace}/{claim.name}"

    def track_volume(self, name: str, node: str) -> None:
        """Record that the node's counts depend on a PersistentVolume. ``NO_NODE`` is ignored."""
        if node != NO_NODE:
            self._by_volume.add(name, node)


def _inline_volumes(volume: PodVolume) -> Iterator[tuple[str, str]]:
    """Yield (unique name, driver) of an in-tree disk that the pod itself specifies, translated for its CSI driver.

    Other volumes give nothing. Raises ``UncountableVolume`` if the disk cannot be translated.
    """
    if volume.untranslatable:
        raise UncountableVolume(f"converting volume({volume.name}) from inline to csi: {volume.untranslatable}")
    if volume.migrated is not None:
        yield f"{volume.migrated.driver}/{volume.migrated.handle}", volume.migrated.driver
