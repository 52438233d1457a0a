"""Changes of volumes and storage capacity by class, with the nodes that each affects."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import Final

from msgspec import Struct

from app.kube.meta_v1 import ObjectKey
from plugins.in_tree.volume_binding.by_label import Place

_MOST_NOTED: Final = 256
"""Maximum number of changes kept per class, more than occur between two evaluations of a pod."""


class Change(Struct, frozen=True):
    """A volume or storage capacity was added or removed. It affects the nodes of ``places``, see ``by_label``.

    ``claim``: namespace and name of the claim that the volume is reserved for. Affects only that claim, on all nodes.
    """

    number: int
    places: Collection[Place] | None
    claim: ObjectKey | None


class Changes:
    """The most recent changes of each class, numbered in ascending order."""

    def __init__(self) -> None:
        self._number = self._restarted = 0
        self._of_class: dict[str, deque[Change]] = {}

    def restart(self) -> None:
        """Forget all changes: everything may have changed."""
        self._number += 1
        self._restarted = self._number
        self._of_class = {}

    def note(self, class_name: str, places: Collection[Place] | None, claim: ObjectKey | None = None) -> None:
        self._number += 1
        changes = self._of_class.setdefault(class_name, deque(maxlen=_MOST_NOTED))
        changes.append(Change(self._number, places, claim))

    def number(self, class_name: str) -> int:
        """Return the number of the last change of a class."""
        changes = self._of_class.get(class_name)
        return changes[-1].number if changes else self._restarted

    def since(self, class_name: str, number: int) -> Sequence[Change] | None:
        """Return the changes after ``number``; ``None`` if they are not all known."""
        changes: Sequence[Change] = self._of_class.get(class_name, ())
        is_cut = len(changes) == _MOST_NOTED and changes[0].number > number
        if number < self._restarted or is_cut:
            return None
        return [it for it in changes if it.number > number]
