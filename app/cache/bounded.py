"""What was used last, as much of it as may be kept: entries are weighed, and what nobody asks for is given up."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import filterfalse, islice
from typing import Final, Generic, Protocol, TypeVar

from app.cache.pins import PINS

_AT_LEAST: Final = 8
"""Entries that are weighed anew at a time, at the least."""

K = TypeVar("K", bound=Hashable)


class Weighed(Protocol):
    """What a level holds."""

    def weight(self) -> int:
        """Bytes, as estimated; moves with what is counted."""
        ...


V = TypeVar("V", bound=Weighed)


class Bounded(Generic[K, V]):
    """The entries used last, as many as weigh ``limit()`` bytes together, and at least one.

    ``on_evict`` is told of each that has to go; hits and misses are counted. What is pinned stays, whatever it weighs.
    """

    def __init__(self, limit: Callable[[], int], make: Callable[[K], V], on_evict: Callable[[V], None]) -> None:
        self._entries: dict[K, V] = {}
        self._weights: dict[K, int] = {}
        self._due: list[K] = []
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
        """Keep a new entry, or what it has become."""
        self._entries[key] = entry
        self._weigh(key, entry)
        self._shrink()
        return entry

    def has(self, key: K) -> bool:
        return key in self._entries

    def holds(self, key: K, entry: V) -> bool:
        """Whether this very entry is there."""
        return self._entries.get(key) is entry

    def touch(self, key: K) -> None:
        """Count as used what another entry stands on."""
        if PINS.noting:
            PINS.keys.add(key)
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._entries[key] = entry

    def items(self) -> Sequence[tuple[K, V]]:
        """The entries as they are now. Others may come and go: see ``holds``."""
        return tuple(self._entries.items())

    def forget(self, key: K) -> None:
        """Take out an entry that lost what it stands on. ``on_evict`` is not told."""
        if self._entries.pop(key, None) is not None:
            self.bytes -= self._weights.pop(key)

    def give_up(self, key: K) -> bool:
        """Whether there was such an entry that is not pinned: there is none any more."""
        if key in PINS.keys or key not in self._entries:
            return False
        self._evict(key)
        return True

    def weigh(self, part: int = 1) -> None:
        """Weigh one of so many parts of the entries anew, and at least some: another part each time."""
        if not self._due:
            self._due = list(self._entries)
        for _ in range(min(len(self._due), _AT_LEAST + len(self._entries) // part)):
            key = self._due.pop()
            entry = self._entries.get(key)
            if entry is not None:
                self._weigh(key, entry)
        self._shrink()

    def _weigh(self, key: K, entry: V) -> None:
        weight = entry.weight()
        self.bytes += weight - self._weights.get(key, 0)
        self._weights[key] = weight

    def _shrink(self) -> None:
        """Never the newest: whoever asks has it in hand."""
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
