"""Whether the claims of a pod have, or can have, their volumes on a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from app.framework.interface import Objects
from app.framework.node_info import NodeInfo
from app.kube.kinds import CSI_NODES, PERSISTENT_VOLUMES, STORAGE_CLASSES
from app.kube.persistent_volumes import PersistentVolume, PersistentVolumeClaim
from app.kube.storage_v1 import StorageClass
from plugins.volume_binding.demand import Demand
from plugins.volume_binding.supply import Fitting, Placed, Room, Volumes, smallest_first

REASON_AFFINITY: Final = "node(s) didn't match PersistentVolume's node affinity"
REASON_NO_VOLUME: Final = "node(s) didn't find available persistent volumes to bind"
REASON_NO_ROOM: Final = "node(s) did not have enough free storage"
REASON_GONE: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


class UntranslatableVolume(Exception):
    """A volume of an in-tree driver has no place with the CSI driver that does its work on the node."""


class BoundVolume(Struct, frozen=True):
    """The volume of a claim. ``migrated``: as the CSI driver has it, where that does the in-tree one's work."""

    plain: Placed
    migrated: Placed


class Plan(Struct, frozen=True):
    """What a node can do for the claims that wait: ``bound`` to volumes that are there, ``made`` for the others."""

    bound: Mapping[str, PersistentVolume]
    made: tuple[PersistentVolumeClaim, ...]


class Placing:
    """The claims of one pod, for all nodes of an evaluation. Raises ``UnreadableRequest``, ``UntranslatableVolume``.

    A volume that is gone is ``None`` in ``_bound``. A claim that waits was given to a node already where it has
    ``selected_node``.
    """

    def __init__(self, demand: Demand, objects: Objects, volumes: Volumes, room: Room) -> None:
        self._objects = objects
        self._volumes = volumes
        self._room = room
        self._bound = [self._volume_of(it) for it in demand.bound]
        self._waiting = demand.waiting
        self._given = [it for it in demand.waiting if it.selected_node is not None]
        self._open = smallest_first(it for it in demand.waiting if it.selected_node is None)
        self._known: dict[str, Fitting] = {}
        self._classes: dict[str, StorageClass | None] = {}

    def clone(self) -> Placing:
        return self

    def _volume_of(self, claim: PersistentVolumeClaim) -> BoundVolume | None:
        volume = self._objects.get(PERSISTENT_VOLUMES, "", claim.volume_name)
        if volume is None:
            return None
        placed = self._volumes.placed
        return BoundVolume(placed(volume, volume.affinity), placed(volume, volume.migrated_affinity))

    def reasons(self, node: NodeInfo) -> tuple[str, ...]:
        """Why the node will not do, in kube-scheduler's order; empty if it will."""
        found = self._of_bound(node)
        if not found and not self._waiting:
            return ()
        affinity = (found,) if found == REASON_AFFINITY else ()
        gone = (found,) if found == REASON_GONE else ()
        return (*affinity, *self._of_waiting(node), *gone)

    def _of_bound(self, node: NodeInfo) -> str:
        """What is wrong with the first volume with which something is."""
        labels = node.node.labels
        for it in self._bound:
            if it is None:
                return REASON_GONE
            if not self._as_on(node, it).is_usable_from(labels):
                return REASON_AFFINITY
        return ""

    def _as_on(self, node: NodeInfo, found: BoundVolume) -> Placed:
        volume = found.plain.volume
        if not volume.in_tree_plugin:
            return found.plain
        csi_node = self._objects.get(CSI_NODES, "", node.name)
        if csi_node is None or volume.in_tree_plugin not in csi_node.migrated:
            return found.plain
        if volume.migrated is None:
            raise UntranslatableVolume(f"could not translate pv: {volume.untranslatable}")
        return found.migrated

    def _of_waiting(self, node: NodeInfo) -> tuple[str, ...]:
        if self._given and any(it.selected_node != node.name for it in self._given):
            return (REASON_NO_VOLUME,)
        left = [*self._given, *self._unmatched(node)[1]]
        return self._unmade(left, node.node.labels) if left else ()

    def _unmatched(self, node: NodeInfo) -> tuple[dict[str, PersistentVolume], list[PersistentVolumeClaim]]:
        """The volumes that open claims take, the smallest first, by name of the claim; and the claims without one."""
        labels = node.node.labels
        taken: dict[str, PersistentVolume] = {}
        chosen: dict[str, PersistentVolume] = {}
        left: list[PersistentVolumeClaim] = []
        for claim in self._open:
            volume = self._fitting(claim).smallest(labels, taken)
            if volume is None:
                left.append(claim)
            else:
                taken[volume.name] = chosen[claim.name] = volume
        return chosen, left

    def _fitting(self, claim: PersistentVolumeClaim) -> Fitting:
        """Looked for at the first node: what is wrong with a claim is told there."""
        found = self._known.get(claim.name)
        if found is None:
            found = self._known[claim.name] = self._volumes.fitting(claim)
        return found

    def _unmade(self, claims: Iterable[PersistentVolumeClaim], labels: Mapping[str, str]) -> tuple[str, ...]:
        """Why volumes cannot be made for the node: the reason of the first of which one cannot."""
        for claim in claims:
            storage_class = self._class_of(claim)
            if storage_class is None or not self._room.is_made(storage_class) or not storage_class.allows(labels):
                return (REASON_NO_VOLUME,)
            if not self._room.suffices(claim, storage_class, labels):
                return (REASON_NO_ROOM,)
        return ()

    def _class_of(self, claim: PersistentVolumeClaim) -> StorageClass | None:
        name = claim.class_name
        if name not in self._classes:
            self._classes[name] = self._objects.get(STORAGE_CLASSES, "", name)
        return self._classes[name]

    def plan(self, node: NodeInfo) -> Plan:
        """What would be done for the claims that wait, on a node that will do."""
        bound, left = self._unmatched(node)
        return Plan(bound, (*self._given, *left))

    @property
    def all_bound(self) -> bool:
        return not self._waiting

    @property
    def waiting(self) -> Sequence[PersistentVolumeClaim]:
        return self._waiting
