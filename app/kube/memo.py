"""Bounded caches: ``Memo`` is limited by bytes, ``Newest`` by the number of entries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MISSING: Final[Any] = object()


class Newest(OrderedDict[K, V]):
    """Dict of at most ``most`` entries. If ``put`` adds a key to a full dict, it evicts the entry put longest ago."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def put(self, key: K, value: V) -> tuple[K, V] | None:
        """Add or replace an entry, which becomes the newest. Return the evicted entry, or ``None``."""
        self[key] = value
        self.move_to_end(key)
        return self.popitem(last=False) if len(self) > self._most else None


class Memo(Generic[K, V]):
    """Cache of recently used values, in two generations with together at most ``most`` bytes.

    Callers can first look up a key in ``young``, because most values are there. When ``young`` would exceed half of
    ``most``, it becomes the old generation, and the previous old generation is dropped. An entry of the old generation
    that is read moves to ``young``, so recently read entries stay cached.
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
        """Return the cached value, or ``MISSING``. A value of the old generation moves to the young one."""
        value: V = self.young.get(key, MISSING)
        if value is MISSING:
            value = self._old.get(key, MISSING)
            if value is not MISSING:
                self.put(key, value, self._weights[key])
        return value

    def put(self, key: K, value: V, weight: int) -> None:
        """Cache a value of ``weight`` bytes, unless it exceeds 1/16 of ``most``: it would evict many other values."""
        if weight > self._half // 8:
            return
        if self._weight + weight > self._half:
            self._weights = {it: self._weights[it] for it in self.young}
            self._old, self.young, self._weight = self.young, {}, 0
        self.young[key] = value
        self._weights[key] = weight
        self._weight += weight
