"""Latest changes of volumes and CSIStorageCapacity objects, by StorageClass, with the labels of the affected nodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import Final

from msgspec import Struct

from app.kube.meta_v1 import ObjectKey
from plugins.in_tree.volume_binding.label_index import Topology

_MAX_CHANGES_PER_CLASS: Final = 256
"""Maximum number of changes stored for each class. Usually fewer occur between two evaluations of a pod."""


class ClassChange(Struct, frozen=True):
    """A volume or CSIStorageCapacity object of a class was added or removed.

    ``number``: position among the changes of all classes. ``topologies``: each affected node matches at least one of
    them. An empty collection means that any node might be affected; ``None`` means that no node is. ``claim``:
    namespace and name of the claim that the volume is reserved for. If set, only this claim is affected, on all nodes.
    """

    number: int
    topologies: Collection[Topology] | None
    claim: ObjectKey | None


class ClassChanges:
    """Latest ``ClassChange`` objects of each StorageClass, all numbered in ascending order."""

    def __init__(self) -> None:
        self._number = self._restarted = 0
        self._of_class: dict[str, deque[ClassChange]] = {}

    def restart(self) -> None:
        """Forget all changes.

        Afterwards, ``since`` returns ``None`` for earlier numbers, because anything might have changed.
        """
        self._number += 1
        self._restarted = self._number
        self._of_class = {}

    def note(self, class_name: str, topologies: Collection[Topology] | None, claim: ObjectKey | None = None) -> None:
        self._number += 1
        changes = self._of_class.setdefault(class_name, deque(maxlen=_MAX_CHANGES_PER_CLASS))
        changes.append(ClassChange(self._number, topologies, claim))

    def number(self, class_name: str) -> int:
        """Return the number of the last change of a class, or of the last restart if no change followed."""
        changes = self._of_class.get(class_name)
        return changes[-1].number if changes else self._restarted

    def since(self, class_name: str, number: int) -> Sequence[ClassChange] | None:
        """Return the changes of a class after ``number``; ``None`` if some of them might no longer be stored."""
        changes: Sequence[ClassChange] = self._of_class.get(class_name, ())
        is_cut = len(changes) == _MAX_CHANGES_PER_CLASS and changes[0].number > number
        if number < self._restarted or is_cut:
            return None
        return [it for it in changes if it.number > number]
