"""What there is for claims without a volume: PersistentVolumes that are free, and room to make new ones."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from heapq import merge
from operator import attrgetter, itemgetter
from typing import Any, Final

from msgspec import Struct

from app.framework.following import Following
from app.framework.interface import Objects, Unreadable
from app.kube.kinds import CSI_DRIVERS, CSI_STORAGE_CAPACITIES, PERSISTENT_VOLUMES, Kind
from app.kube.meta_v1 import ObjectKey
from app.kube.node_affinity import NodeMatcher, RequiredNodeAffinity
from app.kube.persistent_volumes import ClaimReference, PersistentVolume, PersistentVolumeClaim
from app.kube.quantity import ZERO, Quantity
from app.kube.selectors import Selector
from app.kube.storage_v1 import CSIStorageCapacity, StorageClass
from plugins.volume_binding.by_label import (
    ByLabel,
    Place,
    keys_of_affinity,
    keys_of_selector,
    places_of_affinity,
    places_of_selector,
)

_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_NANO: Final = 9
_MOST_MATCHERS: Final = 1 << 14
_MOST_SELECTORS: Final = 32
"""Of claims, by which free volumes of one sort are put apart."""

UNLIMITED: Final = 2**63
NOTHING: Final = -UNLIMITED
"""Sizes that no claim exceeds, or every one does: a claim's has 64 bits with its sign."""

Rank = tuple[int | Fraction, str]
"""Size and name: the smallest volume comes first."""

_Sort = tuple[str, str, tuple[str, ...]]
"""Mode, attributes and access modes of a volume."""


class UnreadableRequest(Exception):
    """What a claim asks for makes no sense, or is more than is read."""


class Placed(Struct, frozen=True):
    """A volume, and the nodes from which it can be used: all where ``matcher`` is ``None``."""

    volume: PersistentVolume
    matcher: NodeMatcher | None

    def is_usable_from(self, labels: Mapping[str, str]) -> bool:
        """By the labels of a node alone: its name plays no part."""
        return self.matcher is None or self.matcher.matches("", labels)


class Wanted(Struct, frozen=True):
    """What claims ask of a free volume: those that ask for the same share what is free. ``least``: its size."""

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


class Fitting:
    """The volumes that would do for a claim. ``kept``: for this claim alone; free ones come the smallest first."""

    __slots__ = ("_free", "kept", "wanted")

    def __init__(self, wanted: Wanted, kept: Sequence[Placed], free: Sequence[ByLabel[Placed]]) -> None:
        self.wanted = wanted
        self.kept = kept
        self._free = free

    def __bool__(self) -> bool:
        """Whether there is one for any node, as far as that is seen without a look at nodes."""
        return bool(self.kept or self._free)

    def free(self, labels: Mapping[str, str]) -> Iterator[PersistentVolume]:
        """Those that a node with these labels can use."""
        each = [it.near(labels, self.wanted.least) for it in self._free]
        ranked = each[0] if len(each) == 1 else merge(*each, key=itemgetter(0))
        return (it.volume for _, it in ranked if it.is_usable_from(labels))

    def keys(self) -> frozenset[str]:
        """The labels of nodes by which it is told whether these can be used."""
        kept = (keys_of_affinity(it.volume.affinity) for it in self.kept)
        return frozenset[str]().union(*kept, *(it.keys for it in self._free))

    def of_its_own(self, taken: Container[str]) -> Placed | None:
        """The volume that is kept for the claim, less those that are ``taken``: it is that one, or there is none."""
        return next((it for it in self.kept if it.volume.name not in taken), None)


class _Stored(Struct, frozen=True):
    """A volume where it was put."""

    placed: Placed
    rank: Rank
    places: Collection[Place] | None
    keys: frozenset[str]


class _Shelf:
    """Free volumes of one class and sort; those that a selector selects are put apart once somebody asks for them."""

    __slots__ = ("_every", "_selected", "all")

    def __init__(self) -> None:
        self.all: ByLabel[Placed] = ByLabel()
        self._every: dict[str, _Stored] = {}
        self._selected: dict[Selector, ByLabel[Placed]] = {}

    def __bool__(self) -> bool:
        return bool(self._every)

    def put(self, found: _Stored) -> None:
        self._every[found.placed.volume.name] = found
        for it in self._of(found):
            it.add(found.rank, found.placed, found.places, found.keys)

    def take(self, found: _Stored) -> None:
        del self._every[found.placed.volume.name]
        for it in self._of(found):
            it.discard(found.rank, found.places, found.keys)

    def _of(self, found: _Stored) -> Iterator[ByLabel[Placed]]:
        yield self.all
        labels = found.placed.volume.labels
        yield from (it for selector, it in self._selected.items() if selector.matches(labels))

    def selected(self, selector: Selector | None) -> ByLabel[Placed]:
        if selector is None:
            return self.all
        found = self._selected.get(selector)
        if found is None:
            if len(self._selected) >= _MOST_SELECTORS:
                del self._selected[next(iter(self._selected))]
            found = self._selected[selector] = ByLabel()
            for it in self._every.values():
                if selector.matches(it.placed.volume.labels):
                    found.add(it.rank, it.placed, it.places, it.keys)
        return found


class Volumes:
    """PersistentVolumes that a claim may be bound to: those kept for one by its name, free ones by class and size.

    A volume that changes is put elsewhere, and nothing else is touched.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._following = Following(objects, PERSISTENT_VOLUMES, self._take_in, self._restart)
        self._known: dict[str, _Stored] = {}
        self._kept: dict[tuple[str, str, str], dict[str, _Stored]] = {}
        self._free: dict[str, dict[_Sort, _Shelf]] = {}
        self._matchers: dict[RequiredNodeAffinity, NodeMatcher] = {}

    def fitting(self, claim: PersistentVolumeClaim) -> Fitting:
        """Raises ``UnreadableRequest``, ``Unreadable`` or ``Unprepared``."""
        self._objects.in_namespace(PERSISTENT_VOLUMES, "")  # all have to be readable: any of them may be the one
        self._following.catch_up()
        if claim.invalid:
            text = f"error creating internal label selector for claim: {claim.namespace}/{claim.name}: {claim.invalid}"
            raise UnreadableRequest(text)
        wanted = Wanted.by(claim)
        return Fitting(wanted, self._kept_for(claim, wanted), self._free_for(wanted))

    def _kept_for(self, claim: PersistentVolumeClaim, wanted: Wanted) -> Sequence[Placed]:
        found = self._kept.get((claim.class_name, claim.namespace, claim.name))
        if found is None:
            return ()
        fit = (it for it in found.values() if it.rank >= wanted.least and _is_for(it.placed.volume, claim))
        return [it.placed for it in sorted(fit, key=attrgetter("rank"))]

    def _free_for(self, wanted: Wanted) -> Sequence[ByLabel[Placed]]:
        alike = (wanted.volume_mode, wanted.attributes_class)
        shelves = self._free.get(wanted.class_name, {})
        found = (it for (*of, modes), it in shelves.items() if tuple(of) == alike and wanted.access_modes <= {*modes})
        return [it for it in (shelf.selected(wanted.selector) for shelf in found) if it]

    def placed(self, volume: PersistentVolume, affinity: RequiredNodeAffinity | None) -> Placed:
        """A volume with its matcher: many have the same."""
        if affinity is None:
            return Placed(volume, None)
        matcher = self._matchers.get(affinity)
        if matcher is None:
            if len(self._matchers) >= _MOST_MATCHERS:
                self._matchers.clear()
            matcher = self._matchers[affinity] = affinity.compiled()
        return Placed(volume, matcher)

    def _restart(self) -> None:
        self._known, self._kept, self._free = {}, {}, {}

    def _take_in(self, _namespace: str, name: str) -> None:
        known = self._known.pop(name, None)
        if known is not None:
            self._remove(known)
        try:
            volume = self._objects.get(PERSISTENT_VOLUMES, "", name)
        except Unreadable:
            return  # nothing is said of free volumes as long as one cannot be read
        if volume is None or volume.terminating or (volume.claim is None and not volume.available):
            return
        rank = (_size(volume.capacity), name)
        affinity = volume.affinity
        stored = _Stored(self.placed(volume, affinity), rank, places_of_affinity(affinity), keys_of_affinity(affinity))
        self._put(name, stored)

    def _put(self, name: str, found: _Stored) -> None:
        volume = found.placed.volume
        self._known[name] = found
        if volume.claim is not None:
            self._kept.setdefault(_claim_of(volume.class_name, volume.claim), {})[name] = found
        else:
            self._free.setdefault(volume.class_name, {}).setdefault(_sort_of(volume), _Shelf()).put(found)

    def _remove(self, known: _Stored) -> None:
        volume = known.placed.volume
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

    def is_made(self, storage_class: StorageClass) -> bool:
        """Whether volumes of the class are made at all."""
        return storage_class.provisioner not in ("", _NO_PROVISIONER)

    def most(self, storage_class: StorageClass, labels: Mapping[str, str]) -> int:
        """How many bytes a volume may have that the class's driver makes for a node; a driver that does not say can
        make any. Raises ``Unprepared``.
        """
        found = self._of(storage_class)
        if found is None:
            return UNLIMITED
        near = (it for _, it in found.near(labels))
        limits = (it.limit for it in near if it.limit is not None and it.topology and it.topology.matches(labels))
        return max(limits, default=NOTHING)

    def keys(self, storage_class: StorageClass) -> Collection[str]:
        """The labels of nodes on which that depends. Raises ``Unprepared``."""
        found = self._of(storage_class)
        return () if found is None else found.keys

    def _of(self, storage_class: StorageClass) -> ByLabel[CSIStorageCapacity] | None:
        """What there is of a class; ``None`` where its driver does not say."""
        driver = self._objects.get(CSI_DRIVERS, "", storage_class.provisioner)
        if driver is None or not driver.storage_capacity:
            return None
        self._following.catch_up()
        return self._by_class.get(storage_class.name, _NO_ROOM)

    def _restart(self) -> None:
        self._known, self._by_class = {}, {}

    def _take_in(self, namespace: str, name: str) -> None:
        key = (namespace, name)
        known = self._known.pop(key, None)
        if known is not None and known.topology is not None:
            topology = known.topology
            self._by_class[known.class_name].discard(key, places_of_selector(topology), keys_of_selector(topology))
        found = self._found(namespace, name)
        if found is not None and found.topology is not None:
            self._known[key] = found
            topology, of_class = found.topology, self._by_class.setdefault(found.class_name, ByLabel())
            of_class.add(key, found, places_of_selector(topology), keys_of_selector(topology))

    def _found(self, namespace: str, name: str) -> CSIStorageCapacity | None:
        try:
            return self._objects.get(CSI_STORAGE_CAPACITIES, namespace, name)
        except Unreadable:
            return None  # others may tell of room


_NO_ROOM: Final[ByLabel[CSIStorageCapacity]] = ByLabel()

SUPPLY: Final[tuple[Kind[Any], ...]] = (PERSISTENT_VOLUMES, CSI_DRIVERS, CSI_STORAGE_CAPACITIES)
"""The kinds that this rests on."""
