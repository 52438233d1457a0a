"""Largest volume that can be provisioned for a node, according to CSIStorageCapacity."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from app.framework.following import Following
from app.framework.objects import Objects, Unreadable
from app.kube.kinds import CSI_DRIVERS, CSI_STORAGE_CAPACITIES
from app.kube.meta_v1 import ObjectKey
from app.kube.storage_v1 import CSIStorageCapacity, StorageClass
from plugins.in_tree.volume_binding.by_label import ByLabel, keys_of_selector, places_of_selector
from plugins.in_tree.volume_binding.changes import Changes
from plugins.in_tree.volume_binding.shelf import PARTS_OF_A_STEP, PIECE, Work, parts_of
from plugins.in_tree.volume_binding.supply import STEPS_OF_AN_OBJECT

_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
UNLIMITED: Final = 2**63
NOTHING: Final = -UNLIMITED
"""Sizes above and below that of every claim, whose size is a signed 64-bit integer."""


class Room:
    """Index of CSIStorageCapacity objects: the largest volume by class and node labels."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._following = Following(objects, CSI_STORAGE_CAPACITIES, self._take_in, self._restart)
        self._known: dict[ObjectKey, CSIStorageCapacity] = {}
        self._by_class: dict[str, ByLabel[CSIStorageCapacity]] = {}
        self.changes = Changes()

    def is_made(self, storage_class: StorageClass) -> bool:
        """Return whether the class provisions volumes at all."""
        return storage_class.provisioner not in ("", _NO_PROVISIONER)

    def catch_up(self) -> None:
        """Process the changed capacities. Raises ``Unprepared`` if they are too many for one step."""
        self._following.catch_up()

    def most(self, storage_class: StorageClass, labels: Mapping[str, str]) -> Work[int]:
        """Return the size in bytes of the largest volume that the class's driver can provision for a node.

        The size is unlimited for a driver that publishes no capacities.
        """
        found = self._of(storage_class)
        if found is None:
            return UNLIMITED
        most, steps = NOTHING, 0
        for it in found.near(labels):
            topology = it.topology
            if it.limit is not None and it.limit > most and topology is not None and topology.matches(labels):
                most = it.limit
            steps += 1 + (0 if topology is None else len(topology.requirements) // PARTS_OF_A_STEP)
            if steps >= PIECE:
                yield steps
                steps = 0
        yield steps
        return most

    def keys(self, storage_class: StorageClass) -> Collection[str]:
        """Return the keys of the node labels on which ``most`` depends."""
        found = self._of(storage_class)
        return () if found is None else found.keys

    def _of(self, storage_class: StorageClass) -> ByLabel[CSIStorageCapacity] | None:
        """Return the capacities of a class; ``None`` if its driver does not publish any."""
        driver = self._objects.get(CSI_DRIVERS, "", storage_class.provisioner)
        if driver is None or not driver.storage_capacity:
            return None
        return self._by_class.get(storage_class.name, _NO_ROOM)

    def _restart(self) -> None:
        self._known, self._by_class = {}, {}
        self.changes.restart()

    def _take_in(self, namespace: str, name: str) -> int:
        key = (namespace, name)
        known = self._known.pop(key, None)
        if known is not None and known.topology is not None:
            topology = known.topology
            places = places_of_selector(topology)
            self.changes.note(known.class_name, places)
            self._by_class[known.class_name].discard(key, places, keys_of_selector(topology))
        found = self._found(namespace, name)
        if found is not None and found.topology is not None:
            self._known[key] = found
            topology, of_class = found.topology, self._by_class.setdefault(found.class_name, ByLabel())
            places = places_of_selector(topology)
            self.changes.note(found.class_name, places)
            of_class.add(key, found, places, keys_of_selector(topology))
            return 1 + parts_of(topology) // STEPS_OF_AN_OBJECT
        return 1

    def _found(self, namespace: str, name: str) -> CSIStorageCapacity | None:
        try:
            return self._objects.get(CSI_STORAGE_CAPACITIES, namespace, name)
        except Unreadable:
            return None  # other objects may provide capacity


_NO_ROOM: Final[ByLabel[CSIStorageCapacity]] = ByLabel()
