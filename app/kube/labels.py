"""Interned label sets. Equal sets are the same object, so comparisons are fast. Pods of a ReplicaSet share a set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from weakref import WeakValueDictionary


class LabelSet(dict[str, str]):
    """Labels of an object. Only :func:`label_set` creates label sets, and nothing changes them.

    So equal sets are the same object.
    """

    __slots__ = ("__weakref__",)

    def __hash__(self) -> int:  # type: ignore[override]  # equal sets are one object, so identity can be hashed
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other if isinstance(other, LabelSet) else dict.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other


_SETS: WeakValueDictionary[tuple[tuple[str, str], ...], LabelSet] = WeakValueDictionary()


def label_set(labels: Mapping[str, str | None] | None) -> LabelSet:
    """Return the interned ``LabelSet`` of ``labels``; for ``None``, the empty set. Null values become empty strings."""
    items = tuple(sorted((key, value or "") for key, value in labels.items())) if labels else ()
    interned = _SETS.get(items)
    if interned is None:
        interned = _SETS[items] = LabelSet(items)
    return interned


NO_LABELS: Final = label_set(None)
