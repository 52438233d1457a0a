"""Groups of free volumes with equal StorageClass, volume mode, VolumeAttributesClass and access modes."""

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
from plugins.in_tree.volume_binding.label_index import LabelIndex, Topology

T = TypeVar("T")
_BYTES_PER_REQUIREMENT: Final = 200
_BYTES_PER_VALUE: Final = 70
"""Estimated sizes in bytes of a requirement of a selector and of each of its values."""


_MAX_REPLAYED_CHANGES: Final = 1024
"""Maximum number of changes replayed on a cached set. Replaying more costs about as much as matching all volumes again.
"""

STEPS_BETWEEN_YIELDS: Final = 256
"""Approximate number of steps between two yields, about 0.2 ms."""

_POSITIONS_PER_STEP: Final = 8
PARTS_PER_STEP: Final = 4
"""Numbers of positions, and of parts of a selector or labels, whose examination counts as one step."""

Work: TypeAlias = Generator[int, None, T]
"""Generator that yields the number of steps since its last yield, and returns a result.

A step takes about a microsecond. The generator reads the snapshot between yields, so it must be resumed only while the
objects that it reads are unchanged.
"""

Rank = tuple[int | Fraction, str]
"""(size in billionths of a byte, name) of a volume. The smallest volume comes first."""


class LocatedVolume(Struct, frozen=True, eq=False):
    """A volume and the matcher of the nodes that can use it.

    ``matcher`` is ``None`` if all nodes can. ``steps``: number of steps of one match.
    """

    volume: PersistentVolume
    matcher: NodeMatcher | None
    steps: int = 1

    def is_usable_from(self, labels: Mapping[str, str]) -> bool:
        """Return true if a node with these labels can use the volume; the node's name is ignored."""
        return self.matcher is None or self.matcher.matches("", labels)


class IndexedVolume(Struct, frozen=True, eq=False):
    """A volume with the values by which the indexes order and find it."""

    located: LocatedVolume
    rank: Rank
    topologies: Collection[Topology] | None
    keys: frozenset[str]


class SelectedPositions(Struct):
    """Bit set of the volumes that a selector selects. ``changes``: number of the group's changes that the set
    includes.
    """

    positions: int
    changes: int


class FreeVolumes:
    """Group of free volumes that differ only in size, node affinity and labels, the smallest first.

    A set of volumes is an integer: bit ``n`` stands for the volume at position ``n``. Finding the smallest volume of an
    intersection takes a microsecond for a thousand volumes.
    """

    __slots__ = ("_by_label", "_changes", "_dropped_changes", "_positions", "_ranks", "_selections", "_volumes")

    def __init__(self, selections: Memo[tuple[FreeVolumes, Selector], SelectedPositions]) -> None:
        self._selections = selections
        self._by_label: LabelIndex[LocatedVolume] = LabelIndex()
        self._ranks: list[Rank] = []
        self._volumes: list[IndexedVolume] = []
        self._positions: dict[str, int] | None = None
        self._changes: list[tuple[int, LabelSet | None]] = []
        self._dropped_changes = 0

    def __len__(self) -> int:
        return len(self._ranks)

    @property
    def keys(self) -> Collection[str]:
        """Keys of the node labels that decide whether these volumes can be used."""
        return self._by_label.keys

    def volume(self, position: int) -> PersistentVolume:
        return self._volumes[position].located.volume

    def rank(self, position: int) -> Rank:
        return self._ranks[position]

    def put(self, indexed: IndexedVolume) -> None:
        """Add a volume to the group."""
        position = bisect_left(self._ranks, indexed.rank)
        self._ranks.insert(position, indexed.rank)
        self._volumes.insert(position, indexed)
        self._by_label.add(indexed.located.volume.name, indexed.located, indexed.topologies, indexed.keys)
        self._changed(position, indexed.located.volume.labels)

    def take(self, indexed: IndexedVolume) -> None:
        """Remove a volume from the group."""
        position = bisect_left(self._ranks, indexed.rank)
        del self._ranks[position], self._volumes[position]
        self._by_label.discard(indexed.located.volume.name, indexed.topologies, indexed.keys)
        self._changed(position, None)

    def _changed(self, position: int, labels: LabelSet | None) -> None:
        """Record that a volume was added (``labels``) or removed (``None``) at a position."""
        self._positions = None
        self._changes.append((position, labels))
        if len(self._changes) > _MAX_REPLAYED_CHANGES:
            self._dropped_changes += len(self._changes)
            self._changes.clear()

    def usable(self, labels: Mapping[str, str]) -> Work[int]:
        """Return the set of volumes that a node with these labels can use."""
        if self._positions is None:
            self._positions = {located.located.volume.name: position for position, located in enumerate(self._volumes)}
            yield len(self) // _POSITIONS_PER_STEP
        positions = self._positions
        bits = bytearray(len(self) // 8 + 1)
        matched: dict[NodeMatcher | None, bool] = {}
        steps = 1 + len(self) // 8 // STEPS_BETWEEN_YIELDS
        for located in self._by_label.candidates(labels):
            usable = matched.get(located.matcher)
            if usable is None:
                usable = matched[located.matcher] = located.is_usable_from(labels)
                steps += located.steps
            if usable:
                position = positions[located.volume.name]
                bits[position >> 3] |= 1 << (position & 7)
            steps += 1
            if steps >= STEPS_BETWEEN_YIELDS:
                yield steps
                steps = 0
        yield steps
        return int.from_bytes(bits, "little")

    def selected(self, selector: Selector | None, min_rank: Rank) -> Work[int]:
        """Return the set of volumes that a selector selects (``None``: all) and whose rank is at least ``min_rank``."""
        start = bisect_left(self._ranks, min_rank)
        if selector is None:
            return (1 << len(self)) - (1 << start)
        selection = self._selections.get((self, selector))
        if selection is MISSING or selection.changes < self._dropped_changes:
            positions = yield from self._select(selector)
            selection = SelectedPositions(positions, 0)
            self._selections.put((self, selector), selection, _weight(selector) + len(self) // 8)
        else:
            yield from self._replay(selection, selector)
        selection.changes = self._dropped_changes + len(self._changes)
        return selection.positions >> start << start

    def _select(self, selector: Selector) -> Work[int]:
        matcher = _matcher_of(selector)
        yield 1 + parts_of(selector)
        bits = bytearray(len(self) // 8 + 1)
        matched: dict[LabelSet, bool] = {}
        steps = 0
        for position, indexed in enumerate(self._volumes):
            labels = indexed.located.volume.labels
            selected = matched.get(labels)
            if selected is None:
                selected = matched[labels] = matcher.matches("", labels)
                steps += 1 + len(labels) // PARTS_PER_STEP
            if selected:
                bits[position >> 3] |= 1 << (position & 7)
            steps += 1
            if steps >= STEPS_BETWEEN_YIELDS:
                yield steps
                steps = 0
        yield steps
        return int.from_bytes(bits, "little")

    def _replay(self, selection: SelectedPositions, selector: Selector) -> Work[None]:
        """Apply to ``selection`` the changes of the group since the selection was computed. The selection is consistent
        at every yield.
        """
        steps = 0
        while selection.changes < self._dropped_changes + len(self._changes):
            position, labels = self._changes[selection.changes - self._dropped_changes]
            below = selection.positions & ((1 << position) - 1)
            above = selection.positions >> position
            if labels is None:
                above >>= 1
            else:
                above = above << 1 | selector.matches(labels)
                steps += parts_of(selector)
            selection.positions = above << position | below
            selection.changes += 1
            steps += 1 + len(self) // 8 // STEPS_BETWEEN_YIELDS
            if steps >= STEPS_BETWEEN_YIELDS:
                yield steps
                steps = 0
        yield steps


def _matcher_of(selector: Selector) -> NodeMatcher:
    """Compile a selector so that the time of a match depends on the number of labels, not on the selector's length."""
    parts = tuple(NodeSelectorRequirement(it.key, it.operator, it.values) for it in selector.requirements)
    return RequiredNodeAffinity(terms=(NodeSelectorTerm(parts),) if parts else None).compiled()


def parts_of(selector: Selector) -> int:
    """Return the size of a selector: 1 for each requirement, plus 1 for every ``PARTS_PER_STEP`` of its values."""
    return sum(1 + len(it.values) // PARTS_PER_STEP for it in selector.requirements)


def _weight(selector: Selector) -> int:
    """Return the estimated size of a selector in bytes."""
    return sum(_BYTES_PER_REQUIREMENT + _BYTES_PER_VALUE * len(it.values) for it in selector.requirements)
