"""Bounded memories: of what was parsed or derived, by bytes; of the entries written last, by their number."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MISSING: Final[Any] = object()


class Newest(OrderedDict[K, V]):
    """A dict of at most ``most`` entries. ``put`` forgets the one that was put longest ago."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def put(self, key: K, value: V) -> tuple[K, V] | None:
        """Make an entry the newest one. Return the forgotten one, if there is one."""
        self[key] = value
        self.move_to_end(key)
        return self.popitem(last=False) if len(self) > self._most else None


class Memo(Generic[K, V]):
    """What was used lately, of ``most`` bytes together, in two generations.

    ``young`` may be asked directly, which costs one look-up in the usual case. Once it weighs half of ``most`` it is
    the old one, and what was in the old one and was not asked for since is gone.
    """

    __slots__ = ("_half", "_old", "_weight", "_weights", "young")

    def __init__(self, most: int) -> None:
        self.young: dict[K, V] = {}
        self._old: dict[K, V] = {}
        self._weights: dict[K, int] = {}
        self._weight = 0
        self._half = most // 2

    def __len__(self) -> int:
        return len(self.young.keys() | self._old.keys())

    def get(self, key: K) -> V:
        """``MISSING`` if it is not there, or no more."""
        found: V = self.young.get(key, MISSING)
        if found is MISSING:
            found = self._old.get(key, MISSING)
            if found is not MISSING:
                self.put(key, found, self._weights[key])
        return found

    def put(self, key: K, value: V, weight: int) -> None:
        """``weight`` in bytes. What is heavier than a sixteenth of the room is not kept: others need theirs."""
        if weight > self._half // 8:
            return
        if self._weight + weight > self._half:
            kept = self.young.keys()
            self._weights = {it: self._weights[it] for it in kept}
            self._old, self.young, self._weight = self.young, {}, 0
        self.young[key] = value
        self._weights[key] = weight
        self._weight += weight
