"""Most recent changes of volumes and storage capacity by StorageClass, with the nodes that each change affects."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import Final

from msgspec import Struct

from app.kube.meta_v1 import ObjectKey
from plugins.in_tree.volume_binding.label_index import Topology

_MAX_CHANGES_PER_CLASS: Final = 256
"""Maximum number of changes kept per class. Fewer occur between two evaluations of a pod."""


class ClassChange(Struct, frozen=True):
    """A volume or storage capacity of a class was added or removed.

    ``number``: position in the order of all changes. ``topologies``: labels of the affected nodes, as in
    ``label_index``. ``claim``: namespace and name of the claim that the volume is reserved for; then only this claim is
    affected, on all nodes.
    """

    number: int
    topologies: Collection[Topology] | None
    claim: ObjectKey | None


class ClassChanges:
    """The most recent changes of each StorageClass, numbered in ascending order."""

    def __init__(self) -> None:
        self._number = self._restarted = 0
        self._of_class: dict[str, deque[ClassChange]] = {}

    def restart(self) -> None:
        """Forget all changes, because everything might have changed."""
        self._number += 1
        self._restarted = self._number
        self._of_class = {}

    def note(self, class_name: str, topologies: Collection[Topology] | None, claim: ObjectKey | None = None) -> None:
        self._number += 1
        changes = self._of_class.setdefault(class_name, deque(maxlen=_MAX_CHANGES_PER_CLASS))
        changes.append(ClassChange(self._number, topologies, claim))

    def number(self, class_name: str) -> int:
        """Return the number of the last change of a class."""
        changes = self._of_class.get(class_name)
        return changes[-1].number if changes else self._restarted

    def since(self, class_name: str, number: int) -> Sequence[ClassChange] | None:
        """Return the changes after ``number``; ``None`` if they are not all known."""
        changes: Sequence[ClassChange] = self._of_class.get(class_name, ())
        is_cut = len(changes) == _MAX_CHANGES_PER_CLASS and changes[0].number > number
        if number < self._restarted or is_cut:
            return None
        return [it for it in changes if it.number > number]
