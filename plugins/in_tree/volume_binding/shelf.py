"""Free volumes of one class and sort, and sets of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Generator, Mapping
from fractions import Fraction
from typing import Final, TypeAlias, TypeVar

from msgspec import Struct

from app.kube.labels import LabelSet
from app.kube.memo import MISSING, Memo
from app.kube.node_affinity import NodeMatcher, NodeSelectorRequirement, NodeSelectorTerm, RequiredNodeAffinity
from app.kube.persistent_volumes import PersistentVolume
from app.kube.selectors import Selector
from plugins.in_tree.volume_binding.by_label import ByLabel, Place

T = TypeVar("T")
_BYTES_OF_A_REQUIREMENT: Final = 200
_BYTES_OF_A_VALUE: Final = 70

_MOST_CHANGES: Final = 1024
"""Maximum number of changes replayed on a selection. Beyond it, computing the selection anew costs about as much."""

PIECE: Final = 256
"""Approximate number of steps between two yields, about 0.2 ms."""

_POSITIONS_OF_A_STEP: Final = 8
PARTS_OF_A_STEP: Final = 4

Work: TypeAlias = Generator[int, None, T]
"""Yields the number of steps since it last yielded; a step takes about a microsecond.

It reads the cluster as it goes: resume it only while what it reads is unchanged.
"""

Rank = tuple[int | Fraction, str]
"""Size and name: the smallest volume comes first."""


class Placed(Struct, frozen=True, eq=False):
    """A volume and the nodes that can use it (all if ``matcher`` is ``None``). ``steps``: cost of one match."""

    volume: PersistentVolume
    matcher: NodeMatcher | None
    steps: int = 1

    def is_usable_from(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node with these labels can use the volume; the node's name is ignored."""
        return self.matcher is None or self.matcher.matches("", labels)


class Stored(Struct, frozen=True, eq=False):
    """A volume with its position in the indexes."""

    placed: Placed
    rank: Rank
    places: Collection[Place] | None
    keys: frozenset[str]


class Selection(Struct):
    """Bit set of the volumes that a selector selects, valid after ``changes`` changes of the shelf."""

    positions: int
    changes: int


class Shelf:
    """Free volumes of one class and sort, the smallest first.

    A set of volumes is an integer: bit ``n`` stands for the volume at position ``n``. Finding the smallest volume of an
    intersection takes a microsecond for a thousand volumes.
    """

    __slots__ = ("_by_label", "_changes", "_forgotten", "_positions", "_ranks", "_selections", "_stored")

    def __init__(self, selections: Memo[tuple[Shelf, Selector], Selection]) -> None:
        self._selections = selections
        self._by_label: ByLabel[Placed] = ByLabel()
        self._ranks: list[Rank] = []
        self._stored: list[Stored] = []
        self._positions: dict[str, int] | None = None
        self._changes: list[tuple[int, LabelSet | None]] = []
        self._forgotten = 0

    def __len__(self) -> int:
        return len(self._ranks)

    @property
    def keys(self) -> Collection[str]:
        """The node labels that decide whether these volumes can be used."""
        return self._by_label.keys

    def volume(self, position: int) -> PersistentVolume:
        return self._stored[position].placed.volume

    def rank(self, position: int) -> Rank:
        return self._ranks[position]

    def put(self, found: Stored) -> None:
        position = bisect_left(self._ranks, found.rank)
        self._ranks.insert(position, found.rank)
        self._stored.insert(position, found)
        self._by_label.add(found.placed.volume.name, found.placed, found.places, found.keys)
        self._changed(position, found.placed.volume.labels)

    def take(self, found: Stored) -> None:
        position = bisect_left(self._ranks, found.rank)
        del self._ranks[position], self._stored[position]
        self._by_label.discard(found.placed.volume.name, found.places, found.keys)
        self._changed(position, None)

    def _changed(self, position: int, labels: LabelSet | None) -> None:
        """Record that a volume was added (``labels``) or removed (``None``) at a position."""
        self._positions = None
        self._changes.append((position, labels))
        if len(self._changes) > _MOST_CHANGES:
            self._forgotten += len(self._changes)
            self._changes.clear()

    def usable(self, labels: Mapping[str, str]) -> Work[int]:
        """Return the volumes that a node with these labels can use."""
        if self._positions is None:
            self._positions = {it.placed.volume.name: place for place, it in enumerate(self._stored)}
            yield len(self) // _POSITIONS_OF_A_STEP
        positions = self._positions
        bits = bytearray(len(self) // 8 + 1)
        matched: dict[NodeMatcher | None, bool] = {}
        steps = 1 + len(self) // 8 // PIECE
        for it in self._by_label.near(labels):
            usable = matched.get(it.matcher)
            if usable is None:
                usable = matched[it.matcher] = it.is_usable_from(labels)
                steps += it.steps
            if usable:
                position = positions[it.volume.name]
                bits[position >> 3] |= 1 << (position & 7)
            steps += 1
            if steps >= PIECE:
                yield steps
                steps = 0
        yield steps
        return int.from_bytes(bits, "little")

    def selected(self, selector: Selector | None, least: Rank) -> Work[int]:
        """Return the volumes that a selector selects, from rank ``least`` on."""
        start = bisect_left(self._ranks, least)
        if selector is None:
            return (1 << len(self)) - (1 << start)
        found = self._selections.get((self, selector))
        if found is MISSING or found.changes < self._forgotten:
            positions = yield from self._select(selector)
            found = Selection(positions, 0)
            self._selections.put((self, selector), found, _weight(selector) + len(self) // 8)
        else:
            yield from self._catch_up(found, selector)
        found.changes = self._forgotten + len(self._changes)
        return found.positions >> start << start

    def _select(self, selector: Selector) -> Work[int]:
        matcher = _matcher_of(selector)
        yield 1 + parts_of(selector)
        bits = bytearray(len(self) // 8 + 1)
        matched: dict[LabelSet, bool] = {}
        steps = 0
        for position, it in enumerate(self._stored):
            labels = it.placed.volume.labels
            selected = matched.get(labels)
            if selected is None:
                selected = matched[labels] = matcher.matches("", labels)
                steps += 1 + len(labels) // PARTS_OF_A_STEP
            if selected:
                bits[position >> 3] |= 1 << (position & 7)
            steps += 1
            if steps >= PIECE:
                yield steps
                steps = 0
        yield steps
        return int.from_bytes(bits, "little")

    def _catch_up(self, found: Selection, selector: Selector) -> Work[None]:
        """Replay the changes since the selection was computed. It stays consistent at every yield."""
        steps = 0
        while found.changes < self._forgotten + len(self._changes):
            position, labels = self._changes[found.changes - self._forgotten]
            below = found.positions & ((1 << position) - 1)
            above = found.positions >> position
            if labels is None:
                above >>= 1
            else:
                above = above << 1 | selector.matches(labels)
                steps += parts_of(selector)
            found.positions = above << position | below
            found.changes += 1
            steps += 1 + len(self) // 8 // PIECE
            if steps >= PIECE:
                yield steps
                steps = 0
        yield steps


def _matcher_of(selector: Selector) -> NodeMatcher:
    """Compile a selector so that a match takes time by the number of labels, not by the selector's length."""
    parts = tuple(NodeSelectorRequirement(it.key, it.operator, it.values) for it in selector.requirements)
    return RequiredNodeAffinity(terms=(NodeSelectorTerm(parts),) if parts else None).compiled()


def parts_of(selector: Selector) -> int:
    return sum(1 + len(it.values) // PARTS_OF_A_STEP for it in selector.requirements)


def _weight(selector: Selector) -> int:
    """Return the approximate memory of a selector in bytes."""
    return sum(_BYTES_OF_A_REQUIREMENT + _BYTES_OF_A_VALUE * len(it.values) for it in selector.requirements)
