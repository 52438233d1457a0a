"""PersistentVolumes that claims can be bound to, and room to make new ones.

Whatever grows with the number of volumes is a generator that yields often (``Work``): see ``placing``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Container, Generator, Iterable, Mapping, Sequence
from fractions import Fraction
from operator import attrgetter
from typing import Any, Final, TypeAlias, TypeVar

from msgspec import Struct

from app.framework.following import Following
from app.framework.objects import Objects, Unreadable
from app.kube.kinds import CSI_DRIVERS, CSI_STORAGE_CAPACITIES, PERSISTENT_VOLUMES, Kind
from app.kube.labels import LabelSet
from app.kube.memo import MISSING, Memo
from app.kube.meta_v1 import ObjectKey
from app.kube.node_affinity import NodeMatcher, NodeSelectorRequirement, NodeSelectorTerm, RequiredNodeAffinity
from app.kube.persistent_volumes import ClaimReference, PersistentVolume, PersistentVolumeClaim
from app.kube.quantity import ZERO, Quantity
from app.kube.selectors import Selector
from app.kube.storage_v1 import CSIStorageCapacity, StorageClass
from plugins.in_tree.volume_binding.by_label import (
    ByLabel,
    Place,
    keys_of_affinity,
    keys_of_selector,
    places_of_affinity,
    places_of_selector,
)

T = TypeVar("T")

_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_NANO: Final = 9
_MOST_MATCHERS: Final = 1 << 14

_MOST_SELECTED_BYTES: Final = 64 << 20
"""Memory for the volumes that selectors of claims select, the selectors included."""

_BYTES_OF_A_REQUIREMENT: Final = 200
_BYTES_OF_A_VALUE: Final = 70

_MOST_CHANGES: Final = 1024
"""Changes of a shelf after which its selections are made anew: to bring them up to date costs about as much."""

_MOST_NOTED: Final = 256
"""Changes of a class that are known: more than come between two evaluations of a pod."""

PIECE: Final = 256
"""Steps between two yields, about: 0.2 ms."""

_POSITIONS_OF_A_STEP: Final = 8
_PARTS_OF_A_STEP: Final = 4
_STEPS_OF_AN_OBJECT: Final = 4
"""An object with a longer affinity counts as several where objects are taken in."""

UNLIMITED: Final = 2**63
NOTHING: Final = -UNLIMITED
"""Sizes that no claim exceeds, or every one does: a claim's has 64 bits with its sign."""

Work: TypeAlias = Generator[int, None, T]
"""Yields the number of steps since it last yielded; a step takes about a microsecond.

It reads the cluster as it goes: resume it only while what it reads is unchanged.
"""

Rank = tuple[int | Fraction, str]
"""Size and name: the smallest volume comes first."""

_Sort = tuple[str, str, tuple[str, ...]]
"""Mode, attributes and access modes of a volume."""


class Change(Struct, frozen=True):
    """A volume, or room for volumes, that came or went: it matters to nodes of ``places``, see ``by_label``.

    ``claim``: namespace and name of the claim that a volume is kept for. It matters to that one alone, on all nodes.
    """

    number: int
    places: Collection[Place] | None
    claim: ObjectKey | None


class Changes:
    """The last changes of each class, and a number that moves with each of them."""

    def __init__(self) -> None:
        self._number = self._restarted = 0
        self._of_class: dict[str, deque[Change]] = {}

    def restart(self) -> None:
        """Forget all changes: everything may have changed."""
        self._number += 1
        self._restarted = self._number
        self._of_class = {}

    def note(self, class_name: str, places: Collection[Place] | None, claim: ObjectKey | None = None) -> None:
        self._number += 1
        changes = self._of_class.setdefault(class_name, deque(maxlen=_MOST_NOTED))
        changes.append(Change(self._number, places, claim))

    def number(self, class_name: str) -> int:
        """Return the number of the last change of a class."""
        changes = self._of_class.get(class_name)
        return changes[-1].number if changes else self._restarted

    def since(self, class_name: str, number: int) -> Sequence[Change] | None:
        """Return the changes after ``number``; ``None`` if they are not all known."""
        changes: Sequence[Change] = self._of_class.get(class_name, ())
        is_cut = len(changes) == _MOST_NOTED and changes[0].number > number
        if number < self._restarted or is_cut:
            return None
        return [it for it in changes if it.number > number]


class UnreadableRequest(Exception):
    """The request of a claim is invalid, or longer than what is read."""


class Placed(Struct, frozen=True, eq=False):
    """A volume, and the nodes from which it can be used: all where ``matcher`` is ``None``. ``steps`` to ask it."""

    volume: PersistentVolume
    matcher: NodeMatcher | None
    steps: int = 1

    def is_usable_from(self, labels: Mapping[str, str]) -> bool:
        """Decide by the labels of a node alone: its name plays no part."""
        return self.matcher is None or self.matcher.matches("", labels)


class Wanted(Struct, frozen=True):
    """Properties that claims ask of a free volume; ``least`` is its size. Claims with equal ones share free volumes."""

    class_name: str
    volume_mode: str
    attributes_class: str
    access_modes: frozenset[str]
    least: Rank
    selector: Selector | None

    @classmethod
    def by(cls, claim: PersistentVolumeClaim) -> Wanted:
        least = (_size(claim.request or ZERO), "")
        modes = frozenset(claim.access_modes)
        return cls(claim.class_name, claim.volume_mode, claim.attributes_class, modes, least, claim.selector)


class Fitting(Struct, frozen=True, eq=False):
    """Volumes that fit a claim: ``kept`` for this claim alone, ``free`` as a set of positions for each shelf."""

    kept: Sequence[Placed]
    free: Sequence[tuple[Shelf, int]]

    def __bool__(self) -> bool:
        """Whether any volume fits, for whichever node."""
        return bool(self.kept or self.free)

    def of_its_own(self, taken: Container[str]) -> Placed | None:
        """Return the volume that is kept for the claim and not ``taken``. A claim with one can have no other."""
        return next((it for it in self.kept if it.volume.name not in taken), None)


class _Stored(Struct, frozen=True, eq=False):
    """A volume with its position in the indexes."""

    placed: Placed
    rank: Rank
    places: Collection[Place] | None
    keys: frozenset[str]


class _Selection(Struct):
    """Positions of the volumes that a selector selects, as of a number of changes of the shelf."""

    positions: int
    changes: int


class Shelf:
    """Free volumes of one class and sort, the smallest first.

    A set of them is an integer: bit ``n`` stands for the volume at position ``n``. To find the smallest volume of an
    intersection of sets takes a microsecond for a thousand volumes.
    """

    __slots__ = ("_by_label", "_changes", "_forgotten", "_positions", "_ranks", "_selections", "_stored")

    def __init__(self, selections: Memo[tuple[Shelf, Selector], _Selection]) -> None:
        self._selections = selections
        self._by_label: ByLabel[Placed] = ByLabel()
        self._ranks: list[Rank] = []
        self._stored: list[_Stored] = []
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

    def put(self, found: _Stored) -> None:
        position = bisect_left(self._ranks, found.rank)
        self._ranks.insert(position, found.rank)
        self._stored.insert(position, found)
        self._by_label.add(found.placed.volume.name, found.placed, found.places, found.keys)
        self._changed(position, found.placed.volume.labels)

    def take(self, found: _Stored) -> None:
        position = bisect_left(self._ranks, found.rank)
        del self._ranks[position], self._stored[position]
        self._by_label.discard(found.placed.volume.name, found.places, found.keys)
        self._changed(position, None)

    def _changed(self, position: int, labels: LabelSet | None) -> None:
        """Note a volume that came (``labels``) or went at a position."""
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
        """Return the volumes of at least a size that a selector selects."""
        start = bisect_left(self._ranks, least)
        if selector is None:
            return (1 << len(self)) - (1 << start)
        found = self._selections.get((self, selector))
        if found is MISSING or found.changes < self._forgotten:
            positions = yield from self._select(selector)
            found = _Selection(positions, 0)
            self._selections.put((self, selector), found, _weight(selector) + len(self) // 8)
        else:
            yield from self._catch_up(found, selector)
        found.changes = self._forgotten + len(self._changes)
        return found.positions >> start << start

    def _select(self, selector: Selector) -> Work[int]:
        matcher = _matcher_of(selector)
        yield 1 + _parts(selector)
        bits = bytearray(len(self) // 8 + 1)
        matched: dict[LabelSet, bool] = {}
        steps = 0
        for position, it in enumerate(self._stored):
            labels = it.placed.volume.labels
            selected = matched.get(labels)
            if selected is None:
                selected = matched[labels] = matcher.matches("", labels)
                steps += 1 + len(labels) // _PARTS_OF_A_STEP
            if selected:
                bits[position >> 3] |= 1 << (position & 7)
            steps += 1
            if steps >= PIECE:
                yield steps
                steps = 0
        yield steps
        return int.from_bytes(bits, "little")

    def _catch_up(self, found: _Selection, selector: Selector) -> Work[None]:
        """Move the positions as volumes came and went. A part of it is done as a whole, or not at all."""
        steps = 0
        while found.changes < self._forgotten + len(self._changes):
            position, labels = self._changes[found.changes - self._forgotten]
            below = found.positions & ((1 << position) - 1)
            above = found.positions >> position
            if labels is None:
                above >>= 1
            else:
                above = above << 1 | selector.matches(labels)
                steps += _parts(selector)
            found.positions = above << position | below
            found.changes += 1
            steps += 1 + len(self) // 8 // PIECE
            if steps >= PIECE:
                yield steps
                steps = 0
        yield steps


def _matcher_of(selector: Selector) -> NodeMatcher:
    """Compile a selector: asked of a label set, it takes as long as the labels, and not as the selector."""
    parts = tuple(NodeSelectorRequirement(it.key, it.operator, it.values) for it in selector.requirements)
    return RequiredNodeAffinity(terms=(NodeSelectorTerm(parts),) if parts else None).compiled()


def _parts(selector: Selector) -> int:
    return sum(1 + len(it.values) // _PARTS_OF_A_STEP for it in selector.requirements)


def _weight(selector: Selector) -> int:
    """Its bytes, about."""
    return sum(_BYTES_OF_A_REQUIREMENT + _BYTES_OF_A_VALUE * len(it.values) for it in selector.requirements)


class Volumes:
    """PersistentVolumes that a claim may be bound to: those kept for one by its name, free ones by class and size.

    A volume that changes is put elsewhere, and nothing else is touched.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._following = Following(objects, PERSISTENT_VOLUMES, self._take_in, self._restart)
        self._known: dict[str, _Stored] = {}
        self._kept: dict[tuple[str, str, str], dict[str, _Stored]] = {}
        self._free: dict[str, dict[_Sort, Shelf]] = {}
        self._selections: Memo[tuple[Shelf, Selector], _Selection] = Memo(_MOST_SELECTED_BYTES)
        self._matchers: dict[RequiredNodeAffinity, NodeMatcher] = {}
        self.changes = Changes()

    def catch_up(self) -> None:
        """Take in the volumes that changed. Raises ``Unprepared`` where these are too many for one step."""
        self._following.catch_up()

    def kept_for(self, claim: PersistentVolumeClaim, least: Rank) -> Sequence[Placed]:
        found = self._kept.get((claim.class_name, claim.namespace, claim.name))
        if found is None:
            return ()
        fit = (it for it in found.values() if it.rank >= least and _is_for(it.placed.volume, claim))
        return [it.placed for it in sorted(fit, key=attrgetter("rank"))]

    def shelves(self, wanted: Wanted) -> Sequence[Shelf]:
        """Free volumes of the class and sort that is asked for, of any size and whatever their labels."""
        alike = (wanted.volume_mode, wanted.attributes_class)
        shelves = self._free.get(wanted.class_name, {})
        return [it for (*of, modes), it in shelves.items() if tuple(of) == alike and wanted.access_modes <= {*modes}]

    def placed(self, volume: PersistentVolume, affinity: RequiredNodeAffinity | None) -> Placed:
        """A volume with its matcher: many have the same."""
        if affinity is None:
            return Placed(volume, None)
        matcher = self._matchers.get(affinity)
        if matcher is None:
            if len(self._matchers) >= _MOST_MATCHERS:
                self._matchers.clear()
            matcher = self._matchers[affinity] = affinity.compiled()
        return Placed(volume, matcher, 1 + affinity.size() // _PARTS_OF_A_STEP)

    def _restart(self) -> None:
        self._known, self._kept, self._free = {}, {}, {}
        self.changes.restart()

    def _take_in(self, _namespace: str, name: str) -> int:
        known = self._known.pop(name, None)
        if known is not None:
            self._remove(known)
        try:
            volume = self._objects.get(PERSISTENT_VOLUMES, "", name)
        except Unreadable:
            return 1  # no claim is matched while one cannot be read
        if volume is None or volume.terminating or (volume.claim is None and not volume.available):
            return 1
        rank = (_size(volume.capacity), name)
        affinity = volume.affinity
        stored = _Stored(self.placed(volume, affinity), rank, places_of_affinity(affinity), keys_of_affinity(affinity))
        self._put(name, stored)
        return 1 + stored.placed.steps // _STEPS_OF_AN_OBJECT

    def _put(self, name: str, found: _Stored) -> None:
        volume = found.placed.volume
        self._known[name] = found
        self._note(found)
        if volume.claim is not None:
            self._kept.setdefault(_claim_of(volume.class_name, volume.claim), {})[name] = found
            return
        shelves, sort = self._free.setdefault(volume.class_name, {}), _sort_of(volume)
        if sort not in shelves:
            shelves[sort] = Shelf(self._selections)
        shelves[sort].put(found)

    def _remove(self, known: _Stored) -> None:
        volume = known.placed.volume
        self._note(known)
        if volume.claim is not None:
            claim = _claim_of(volume.class_name, volume.claim)
            del self._kept[claim][volume.name]
            if not self._kept[claim]:
                del self._kept[claim]
            return
        shelves, sort = self._free[volume.class_name], _sort_of(volume)
        shelves[sort].take(known)
        if not shelves[sort]:
            del shelves[sort]
        if not shelves:
            del self._free[volume.class_name]

    def _note(self, found: _Stored) -> None:
        volume = found.placed.volume
        claim = None if volume.claim is None else (volume.claim.namespace, volume.claim.name)
        self.changes.note(volume.class_name, found.places, claim)


def _claim_of(class_name: str, found: ClaimReference) -> tuple[str, str, str]:
    return class_name, found.namespace, found.name


def _sort_of(volume: PersistentVolume) -> _Sort:
    return volume.volume_mode, volume.attributes_class, volume.access_modes


def _is_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether a volume that is kept for a claim of this name is kept for this one, and of the sort that it asks for."""
    if volume.claim is None or not volume.claim.is_to(claim) or volume.volume_mode != claim.volume_mode:
        return False
    return volume.attributes_class == claim.attributes_class


def _size(amount: Quantity) -> int | Fraction:
    """An amount as a number that is compared exactly, and quickly."""
    power: int = 10 ** abs(amount.scale + _NANO)
    return amount.unscaled * power if amount.scale + _NANO >= 0 else Fraction(amount.unscaled, power)


def smallest_first(claims: Iterable[PersistentVolumeClaim]) -> list[PersistentVolumeClaim]:
    """By the size they ask for; of equal ones in their order."""
    return sorted(claims, key=lambda it: _size(it.request or ZERO))


class Room:
    """What CSIStorageCapacity says of how large a volume can be made, and for which nodes."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._following = Following(objects, CSI_STORAGE_CAPACITIES, self._take_in, self._restart)
        self._known: dict[ObjectKey, CSIStorageCapacity] = {}
        self._by_class: dict[str, ByLabel[CSIStorageCapacity]] = {}
        self.changes = Changes()

    def is_made(self, storage_class: StorageClass) -> bool:
        """Whether volumes of the class are made at all."""
        return storage_class.provisioner not in ("", _NO_PROVISIONER)

    def catch_up(self) -> None:
        """Take in the capacities that changed. Raises ``Unprepared`` where these are too many for one step."""
        self._following.catch_up()

    def most(self, storage_class: StorageClass, labels: Mapping[str, str]) -> Work[int]:
        """Return the bytes of the largest volume that the class's driver can make for a node.

        A driver that publishes no capacities can make any.
        """
        found = self._of(storage_class)
        if found is None:
            return UNLIMITED
        most, steps = NOTHING, 0
        for it in found.near(labels):
            topology = it.topology
            if it.limit is not None and it.limit > most and topology is not None and topology.matches(labels):
                most = it.limit
            steps += 1 + (0 if topology is None else len(topology.requirements) // _PARTS_OF_A_STEP)
            if steps >= PIECE:
                yield steps
                steps = 0
        yield steps
        return most

    def keys(self, storage_class: StorageClass) -> Collection[str]:
        """The labels of nodes on which ``most`` depends."""
        found = self._of(storage_class)
        return () if found is None else found.keys

    def _of(self, storage_class: StorageClass) -> ByLabel[CSIStorageCapacity] | None:
        """Capacities of a class; ``None`` where its driver publishes none."""
        driver = self._objects.get(CSI_DRIVERS, "", storage_class.provisioner)
        if driver is None or not driver.storage_capacity:
            return None
        return self._by_class.get(storage_class.name, _NO_ROOM)

    def _restart(self) -> None:
        self._known, self._by_class = {}, {}
        self.changes.restart()

    def _take_in(self, namespace: str, name: str) -> int:
        key = (namespace, name)
        known = self._known.pop(key, None)
        if known is not None and known.topology is not None:
            topology = known.topology
            places = places_of_selector(topology)
            self.changes.note(known.class_name, places)
            self._by_class[known.class_name].discard(key, places, keys_of_selector(topology))
        found = self._found(namespace, name)
        if found is not None and found.topology is not None:
            self._known[key] = found
            topology, of_class = found.topology, self._by_class.setdefault(found.class_name, ByLabel())
            places = places_of_selector(topology)
            self.changes.note(found.class_name, places)
            of_class.add(key, found, places, keys_of_selector(topology))
            return 1 + _parts(topology) // _STEPS_OF_AN_OBJECT
        return 1

    def _found(self, namespace: str, name: str) -> CSIStorageCapacity | None:
        try:
            return self._objects.get(CSI_STORAGE_CAPACITIES, namespace, name)
        except Unreadable:
            return None  # others may tell of room


_NO_ROOM: Final[ByLabel[CSIStorageCapacity]] = ByLabel()

SUPPLY: Final[tuple[Kind[Any], ...]] = (PERSISTENT_VOLUMES, CSI_DRIVERS, CSI_STORAGE_CAPACITIES)
"""The kinds that this rests on."""
