"""Whether the claims of a pod have, or can have, their volumes on a node."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from msgspec import Struct

from app.framework.interface import Objects, Unreadable
from app.framework.node_info import NodeInfo
from app.kube.kinds import CSI_NODES, PERSISTENT_VOLUMES, STORAGE_CLASSES
from app.kube.persistent_volumes import PersistentVolume, PersistentVolumeClaim
from app.kube.storage_v1 import StorageClass
from plugins.volume_binding.by_label import keys_of_selector
from plugins.volume_binding.demand import Demand
from plugins.volume_binding.supply import NOTHING, Fitting, Placed, Room, Volumes, Wanted, smallest_first

REASON_AFFINITY: Final = "node(s) didn't match PersistentVolume's node affinity"
REASON_NO_VOLUME: Final = "node(s) didn't find available persistent volumes to bind"
REASON_NO_ROOM: Final = "node(s) did not have enough free storage"
REASON_GONE: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


_MOST_KEYS: Final = 16
"""Labels by which nodes are told apart; with more, each is judged by itself."""

_NOT_ASKED: Final = ("",)


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


class Need(Struct, frozen=True):
    """Volumes of a class that are to be made, the largest in bytes; ``None`` where no claim says a size."""

    class_name: str
    size: int | None


class Placing:
    """The claims of one pod, for all nodes of an evaluation.

    Raises ``UnreadableRequest``, ``UntranslatableVolume`` or ``Unprepared``. A volume that is gone is ``None`` in
    ``_bound``. A claim that waits was given to a node already where it has ``selected_node``. What several claims ask
    of a node is asked once: a claim may be named by hundreds of the pod's volumes. One that is open takes a volume of
    its own for each of them, as in kube-scheduler.
    """

    def __init__(self, demand: Demand, objects: Objects, volumes: Volumes, room: Room) -> None:
        self._objects = objects
        self._volumes = volumes
        self._room = room
        self._bound = _distinct(map(self._volume_of, _once(demand.bound)))
        self._waiting = demand.waiting
        self._given = _once(it for it in demand.waiting if it.selected_node is not None)
        self._given_to = {it.selected_node for it in self._given}
        self._open = smallest_first(it for it in demand.waiting if it.selected_node is None)
        self._stock: list[tuple[PersistentVolumeClaim, int, Fitting]] | None = None
        self._needs_of_all: Sequence[Need] | None = None
        self._keys: Collection[str] | None = _NOT_ASKED
        self._judged: dict[object, tuple[str, ...]] = {}
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
        """Nodes that are alike in the labels that matter are judged once."""
        if self._given and self._given_to != {node.name}:
            return (REASON_NO_VOLUME,)
        labels = node.node.labels
        keys = self._label_keys()
        alike = node.name if keys is None else tuple(map(labels.get, keys))
        found = self._judged.get(alike)
        if found is None:
            found = self._judged[alike] = self._unmade(self._left(labels), labels)
        return found

    def _label_keys(self) -> Collection[str] | None:
        """The labels of a node on which it depends what is said of the claims that wait; ``None``: it is not known, or
        there are too many.
        """
        if self._keys is _NOT_ASKED:
            stock = {id(it): it for *_, it in self._stocked()}.values()
            keys = set[str]().union(*(it.keys() for it in stock))
            try:
                keys.update(*map(self._keys_of_class, dict.fromkeys(it.class_name for it in self._waiting)))
            except Unreadable:  # told where it matters to a node
                self._keys = None
            else:
                self._keys = tuple(keys) if len(keys) <= _MOST_KEYS else None
        return self._keys

    def _keys_of_class(self, name: str) -> Collection[str]:
        found = self._class_of(name)
        if found is None or not self._room.is_made(found):
            return ()
        return frozenset[str]().union(*map(keys_of_selector, found.topologies), self._room.keys(found))

    def _left(self, labels: Mapping[str, str]) -> Iterable[Need]:
        """What is to be made for a node. Worked out as it is asked for: the first that cannot be made is enough."""
        if not self._stocked():
            if self._needs_of_all is None:
                self._needs_of_all = _needs((*self._given, *self._open))
            return self._needs_of_all
        left = (claim for claim, volume in self._matched(labels) if volume is None)
        return map(_need, chain(self._given, left))

    def _matched(self, labels: Mapping[str, str]) -> Iterator[tuple[PersistentVolumeClaim, PersistentVolume | None]]:
        """Open claims with the volumes that they take on a node, the smallest first."""
        taken: set[str] = set()
        free: dict[int, Iterator[PersistentVolume]] = {}
        for claim, group, fitting in self._stocked():
            own = fitting.of_its_own(taken)
            if own is not None:
                volume = own.volume if own.is_usable_from(labels) else None
            else:
                if group not in free:
                    free[group] = fitting.free(labels)
                volume = next((it for it in free[group] if it.name not in taken), None)
            if volume is not None:
                taken.add(volume.name)
            yield claim, volume

    def _stocked(self) -> Sequence[tuple[PersistentVolumeClaim, int, Fitting]]:
        """Open claims with what would do for them; none where nothing would for any. Claims with one number take turns
        at the same volumes. Looked for at the first node: what is wrong with a claim is told there.
        """
        if self._stock is None:
            known = {it.name: it for it in self._open}
            fitting = {name: self._volumes.fitting(it) for name, it in known.items()}
            groups: dict[Wanted, int] = {}
            number = {name: groups.setdefault(it.wanted, len(groups)) for name, it in fitting.items()}
            every = [(it, number[it.name], fitting[it.name]) for it in self._open]
            self._stock = every if any(fitting.values()) else []
        return self._stock

    def _unmade(self, needs: Iterable[Need], labels: Mapping[str, str]) -> tuple[str, ...]:
        """Why volumes cannot be made for the node: the reason of the first of which one cannot."""
        allowed: set[str] = set()
        most: dict[str, int] = {}
        for need in needs:
            name = need.class_name
            if name not in allowed:
                storage_class = self._class_of(name)
                if storage_class is None or not self._room.is_made(storage_class) or not storage_class.allows(labels):
                    return (REASON_NO_VOLUME,)
                allowed.add(name)
            if need.size is None:
                continue
            if name not in most:
                found = self._class_of(name)
                most[name] = NOTHING if found is None else self._room.most(found, labels)
            if need.size > most[name]:
                return (REASON_NO_ROOM,)
        return ()

    def _class_of(self, name: str) -> StorageClass | None:
        if name not in self._classes:
            self._classes[name] = self._objects.get(STORAGE_CLASSES, "", name)
        return self._classes[name]

    def plan(self, node: NodeInfo) -> Plan:
        """What would be done for the claims that wait, on a node that will do."""
        found = list(self._matched(node.node.labels)) if self._stocked() else [(it, None) for it in self._open]
        bound = {claim.name: volume for claim, volume in found if volume is not None}
        left = [claim for claim, volume in found if volume is None]
        return Plan(bound, (*self._given, *_once(left)))

    @property
    def all_bound(self) -> bool:
        return not self._waiting

    @property
    def waiting(self) -> Sequence[PersistentVolumeClaim]:
        return self._waiting


def _once(claims: Iterable[PersistentVolumeClaim]) -> Sequence[PersistentVolumeClaim]:
    return tuple({it.name: it for it in claims}.values())


def _distinct(volumes: Iterable[BoundVolume | None]) -> list[BoundVolume | None]:
    """Those that differ in the nodes from which they can be used, the first of each; not those for all nodes."""
    found: dict[object, BoundVolume | None] = {}
    for it in volumes:
        if it is None:
            found.setdefault(None, None)
        elif it.plain.matcher is not None or it.plain.volume.in_tree_plugin:
            volume = it.plain.volume
            of = (volume.in_tree_plugin, volume.untranslatable if volume.migrated is None else None)
            found.setdefault((it.plain.matcher, it.migrated.matcher, *of), it)
    return list(found.values())


def _needs(claims: Iterable[PersistentVolumeClaim]) -> Sequence[Need]:
    """In the order of the claims; of claims of one class, one after the other, the largest."""
    found: list[Need] = []
    for need in map(_need, _once(claims)):
        last = found[-1] if found and found[-1].class_name == need.class_name else None
        if last is None:
            found.append(need)
        elif need.size is not None and (last.size is None or need.size > last.size):
            found[-1] = need
    return found


def _need(claim: PersistentVolumeClaim) -> Need:
    return Need(claim.class_name, None if claim.request is None else claim.request.value())
