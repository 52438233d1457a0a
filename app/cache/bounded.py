"""LRU cache that is bounded by the estimated bytes of its entries."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import filterfalse, islice
from typing import Final, Generic, Protocol, TypeVar

from app.cache.pins import PINS

ENTRY_BYTES: Final = 1000
NODE_BYTES: Final = 50
COUNT_BYTES: Final = 150
"""Estimated bytes of an entry without content, of a node name in a table, and of a count in a table."""

_AT_LEAST: Final = 8
"""Minimum number of entries that one call of ``weigh`` weighs again."""

K = TypeVar("K", bound=Hashable)


class Weighed(Protocol):
    """Entry of a ``Bounded`` cache."""

    def weight(self) -> int:
        """Return the estimated bytes, which can change over time."""
        ...


V = TypeVar("V", bound=Weighed)


class Bounded(Generic[K, V]):
    """LRU cache of entries that together weigh at most ``limit()`` bytes; the newest entry is always cached.

    ``make`` builds a missing entry. ``on_evict`` is called with each evicted entry. Entries with a key in ``PINS`` are
    not evicted, whatever they weigh.
    """

    def __init__(self, limit: Callable[[], int], make: Callable[[K], V], on_evict: Callable[[V], None]) -> None:
        self._entries: dict[K, V] = {}
        self._weights: dict[K, int] = {}
        self._unweighed: list[K] = []
        self._limit = limit
        self._make = make
        self._on_evict = on_evict
        self.bytes = 0
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[V]:
        return iter(self._entries.values())

    def get(self, key: K) -> V:
        if PINS.noting:
            PINS.keys.add(key)
        entry = self._entries.pop(key, None)
        if entry is None:
            self.misses += 1
            return self.put(key, self._make(key))
        self.hits += 1
        self._entries[key] = entry
        return entry

    def put(self, key: K, entry: V) -> V:
        """Cache a new entry, or weigh a changed one again."""
        self._entries[key] = entry
        self._weigh(key, entry)
        self._shrink()
        return entry

    def has(self, key: K) -> bool:
        return key in self._entries

    def holds(self, key: K, entry: V) -> bool:
        """Return true if this entry object is cached under the key."""
        return self._entries.get(key) is entry

    def touch(self, key: K) -> None:
        """Mark an entry as used, because another entry depends on it."""
        if PINS.noting:
            PINS.keys.add(key)
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._entries[key] = entry

    def items(self) -> Sequence[tuple[K, V]]:
        """Return a copy of the current entries. Test each with ``holds`` if the cache can change meanwhile."""
        return tuple(self._entries.items())

    def forget(self, key: K) -> None:
        """Remove an entry whose dependency was evicted. ``on_evict`` is not called."""
        if self._entries.pop(key, None) is not None:
            self.bytes -= self._weights.pop(key)

    def evict(self, key: K) -> bool:
        """Evict an entry. Return false if it does not exist or is pinned."""
        if key in PINS.keys or key not in self._entries:
            return False
        self._evict(key)
        return True

    def weigh(self, part: int = 1) -> None:
        """Weigh 1/``part`` of the entries again, a different share each time, then evict the excess."""
        if not self._unweighed:
            self._unweighed = list(self._entries)
        for _ in range(min(len(self._unweighed), _AT_LEAST + len(self._entries) // part)):
            key = self._unweighed.pop()
            entry = self._entries.get(key)
            if entry is not None:
                self._weigh(key, entry)
        self._shrink()

    def _weigh(self, key: K, entry: V) -> None:
        weight = entry.weight()
        self.bytes += weight - self._weights.get(key, 0)
        self._weights[key] = weight

    def _shrink(self) -> None:
        """Evict entries beyond the limit, but never the newest, because the caller is about to use it."""
        while self.bytes > self._limit() and len(self._entries) > 1:
            others = islice(self._entries, len(self._entries) - 1)
            key = next(filterfalse(PINS.keys.__contains__, others), None)
            if key is None:
                return
            self._evict(key)

    def _evict(self, key: K) -> None:
        entry = self._entries.pop(key)
        self.bytes -= self._weights.pop(key)
        self._on_evict(entry)
