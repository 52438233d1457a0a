"""What was used last, within a bound of bytes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The entries used last, as many as weigh ``limit`` bytes together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: dict[K, V] = {}
        self._weights: dict[K, int] = {}
        self._total = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._entries[key] = entry
        return entry

    def put(self, key: K, entry: V, weight: int) -> None:
        """Keep ``entry``, which weighs ``weight`` now."""
        self._total += weight - self._weights.get(key, 0)
        self._weights[key] = weight
        self._entries.pop(key, None)
        self._entries[key] = entry
        while self._total > self._limit:
            oldest = next(iter(self._entries))
            del self._entries[oldest]
            self._total -= self._weights.pop(oldest)

    def values(self) -> Iterable[V]:
        """Those that are kept now."""
        return tuple(self._entries.values())
