"""LRU cache limited in bytes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from msgspec import Struct

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """Cache of at most ``limit`` bytes. The least recently used entries are evicted."""

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
        """Return the entry, or ``None`` if there is none. It becomes the most recently used entry."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._entries[key] = entry
        return entry

    def put(self, key: K, entry: V, weight: int) -> None:
        """Store ``entry`` under ``key`` with a size of ``weight`` bytes. It becomes the most recently used entry.

        Others are evicted until the limit holds. An entry larger than the limit evicts all others, and is not kept.
        """
        self._total += weight - self._weights.get(key, 0)
        self._weights[key] = weight
        self._entries.pop(key, None)
        self._entries[key] = entry
        while self._total > self._limit:
            oldest = next(iter(self._entries))
            del self._entries[oldest]
            self._total -= self._weights.pop(oldest)

    def values(self) -> Iterable[V]:
        """Return the current entries."""
        return tuple(self._entries.values())


def size_of(value: Any) -> int:
    """Return the estimated size of a cache key, or a part of one, in bytes."""
    if isinstance(value, str):
        return 50 + len(value)
    if isinstance(value, Mapping):
        return 100 + sum(50 + size_of(key) + size_of(each) for key, each in value.items())
    if isinstance(value, tuple | list | frozenset):
        return 60 + sum(map(size_of, value))
    if isinstance(value, Struct):
        return 60 + sum(size_of(getattr(value, name)) for name in value.__struct_fields__)
    return 30
