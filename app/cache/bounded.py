"""LRU cache with a maximum of estimated bytes. Entries can grow while they are cached."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import filterfalse, islice
from typing import Final, Generic, Protocol, TypeVar

from app.cache.pins import PINS

ENTRY_BYTES: Final = 1000
"""Estimated bytes of an empty entry."""

NODE_BYTES: Final = 50
"""Estimated bytes of a node name in a table."""

COUNT_BYTES: Final = 150
"""Estimated bytes of the count of one node or domain."""

_MIN_WEIGHED: Final = 8
"""Number of entries that one call of ``weigh`` takes in addition to 1/``part`` of all entries."""

K = TypeVar("K", bound=Hashable)


class Weighed(Protocol):
    """Entry of a ``Bounded`` cache."""

    def weight(self) -> int:
        """Return an estimate of the entry's bytes, which can change while the entry is cached."""
        ...


V = TypeVar("V", bound=Weighed)


class Bounded(Generic[K, V]):
    """LRU cache of entries with together at most ``limit()`` estimated bytes.

    If the total exceeds the limit, the least recently used entries are evicted. The most recently used entry, and
    entries with keys in ``PINS``, are not evicted for this, so the total can stay above the limit. ``make``: builds the
    entry of a key that is not cached. ``on_evict``: called with each evicted entry.
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
        """Return the entry of a key, and build it if it is missing. It becomes the most recently used entry."""
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
        """Cache a new or changed entry, estimate its size, and evict entries if needed. Return the entry.

        An entry that is already cached keeps its place in the order of use, so it can itself be evicted.
        """
        self._entries[key] = entry
        self._weigh(key, entry)
        self._shrink()
        return entry

    def has(self, key: K) -> bool:
        return key in self._entries

    def holds(self, key: K, entry: V) -> bool:
        """Return true if ``entry`` itself, not another entry, is cached under the key."""
        return self._entries.get(key) is entry

    def touch(self, key: K) -> None:
        """Make an entry, if it is cached, the most recently used, because an entry that depends on it was used.

        While ``PINS.noting`` is true, also pin the key.
        """
        if PINS.noting:
            PINS.keys.add(key)
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._entries[key] = entry

    def items(self) -> Sequence[tuple[K, V]]:
        """Return a copy of the current keys and entries.

        A caller that iterates while the cache changes must test each entry with ``holds``.
        """
        return tuple(self._entries.items())

    def forget(self, key: K) -> None:
        """Remove an entry, if it is cached, because an entry that it depends on was evicted.

        ``on_evict`` is not called.
        """
        if self._entries.pop(key, None) is not None:
            self.bytes -= self._weights.pop(key)

    def evict(self, key: K) -> bool:
        """Evict an entry. Return false if nothing was evicted, because the entry is pinned or not cached."""
        if key in PINS.keys or key not in self._entries:
            return False
        self._evict(key)
        return True

    def weigh(self, part: int = 1) -> None:
        """Estimate the size of about 1/``part`` of the entries again, and evict entries if needed.

        Successive calls take different entries, until each entry was taken once.
        """
        if not self._unweighed:
            self._unweighed = list(self._entries)
        for _ in range(min(len(self._unweighed), _MIN_WEIGHED + len(self._entries) // part)):
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
        """Evict the least recently used entries until the total is within the limit.

        Pinned entries are not evicted. The most recently used entry is not, either, because the caller is about to use
        it.
        """
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
