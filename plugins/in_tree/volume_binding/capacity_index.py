"""Largest volume that can be provisioned for a node, according to CSIStorageCapacity objects."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from app.framework.following import Following
from app.framework.objects import Objects, Unreadable
from app.kube.kinds import CSI_DRIVERS, CSI_STORAGE_CAPACITIES
from app.kube.meta_v1 import ObjectKey
from app.kube.storage_v1 import CSIStorageCapacity, StorageClass
from plugins.in_tree.volume_binding.changes import ClassChanges
from plugins.in_tree.volume_binding.free_volumes import PARTS_PER_STEP, STEPS_BETWEEN_YIELDS, Work, parts_of
from plugins.in_tree.volume_binding.label_index import LabelIndex, keys_of_selector, topologies_of_selector
from plugins.in_tree.volume_binding.volume_index import STEPS_PER_OBJECT

_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
UNLIMITED: Final = 2**63
"""Size in bytes above that of every claim, because the API stores sizes as signed 64-bit integers."""

NOTHING: Final = -UNLIMITED
"""Size in bytes below that of every claim."""


class CapacityIndex:
    """Index of CSIStorageCapacity objects by StorageClass and node labels.

    ``max_size`` returns the size of the largest volume that can be provisioned for a node.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._following = Following(objects, CSI_STORAGE_CAPACITIES, self._update, self._restart)
        self._indexed: dict[ObjectKey, CSIStorageCapacity] = {}
        self._by_class: dict[str, LabelIndex[CSIStorageCapacity]] = {}
        self.changes = ClassChanges()

    def provisions(self, storage_class: StorageClass) -> bool:
        """Return true if the class has a provisioner."""
        return storage_class.provisioner not in ("", _NO_PROVISIONER)

    def catch_up(self) -> None:
        """Process changed CSIStorageCapacity objects. Raises ``Unprepared`` if they are too many to process at once."""
        self._following.catch_up()

    def max_size(self, storage_class: StorageClass, labels: Mapping[str, str]) -> Work[int]:
        """Return the size in bytes of the largest volume that the class's driver can provision for a node.

        The size is ``UNLIMITED`` if the driver does not publish CSIStorageCapacity objects, and ``NOTHING`` if none of
        them has a size and applies to the node.
        """
        index = self._of(storage_class)
        if index is None:
            return UNLIMITED
        max_size, steps = NOTHING, 0
        for capacity in index.candidates(labels):
            topology = capacity.topology
            if (
                capacity.limit is not None
                and capacity.limit > max_size
                and topology is not None
                and topology.matches(labels)
            ):
                max_size = capacity.limit
            steps += 1 + (0 if topology is None else len(topology.requirements) // PARTS_PER_STEP)
            if steps >= STEPS_BETWEEN_YIELDS:
                yield steps
                steps = 0
        yield steps
        return max_size

    def keys(self, storage_class: StorageClass) -> Collection[str]:
        """Return the keys of the node labels on which ``max_size`` depends."""
        index = self._of(storage_class)
        return () if index is None else index.keys

    def _of(self, storage_class: StorageClass) -> LabelIndex[CSIStorageCapacity] | None:
        """Return the CSIStorageCapacity objects of a class; ``None`` unless its CSIDriver sets ``storageCapacity``."""
        driver = self._objects.get(CSI_DRIVERS, "", storage_class.provisioner)
        if driver is None or not driver.storage_capacity:
            return None
        return self._by_class.get(storage_class.name, _NO_CAPACITIES)

    def _restart(self) -> None:
        self._indexed, self._by_class = {}, {}
        self.changes.restart()

    def _update(self, namespace: str, name: str) -> int:
        key = (namespace, name)
        previous = self._indexed.pop(key, None)
        if previous is not None and previous.topology is not None:
            topology = previous.topology
            topologies = topologies_of_selector(topology)
            self.changes.note(previous.class_name, topologies)
            self._by_class[previous.class_name].discard(key, topologies, keys_of_selector(topology))
        current = self._capacity(namespace, name)
        if current is not None and current.topology is not None:
            self._indexed[key] = current
            topology, in_class = current.topology, self._by_class.setdefault(current.class_name, LabelIndex())
            topologies = topologies_of_selector(topology)
            self.changes.note(current.class_name, topologies)
            in_class.add(key, current, topologies, keys_of_selector(topology))
            return 1 + parts_of(topology) // STEPS_PER_OBJECT
        return 1

    def _capacity(self, namespace: str, name: str) -> CSIStorageCapacity | None:
        try:
            return self._objects.get(CSI_STORAGE_CAPACITIES, namespace, name)
        except Unreadable:
            return None  # ignored, because other objects might provide enough capacity


_NO_CAPACITIES: Final[LabelIndex[CSIStorageCapacity]] = LabelIndex()
