"""PersistentVolumes that claims can be bound to, and room to make new ones.

Whatever grows with the number of volumes is a generator that yields often (``Work``): see ``placing``.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from fractions import Fraction
from operator import attrgetter
from typing import Any, Final

from msgspec import Struct

from app.framework.following import Following
from app.framework.objects import Objects, Unreadable
from app.kube.kinds import CSI_DRIVERS, CSI_STORAGE_CAPACITIES, PERSISTENT_VOLUMES, Kind
from app.kube.memo import Memo
from app.kube.node_affinity import NodeMatcher, RequiredNodeAffinity
from app.kube.persistent_volumes import ClaimReference, PersistentVolume, PersistentVolumeClaim
from app.kube.quantity import ZERO, Quantity
from app.kube.selectors import Selector
from plugins.in_tree.volume_binding.by_label import keys_of_affinity, places_of_affinity
from plugins.in_tree.volume_binding.changes import Changes
from plugins.in_tree.volume_binding.shelf import PARTS_OF_A_STEP, Placed, Rank, Selection, Shelf, Stored

_NANO: Final = 9
_MOST_MATCHERS: Final = 1 << 14

_MOST_SELECTED_BYTES: Final = 64 << 20
"""Memory for the volumes that selectors of claims select, the selectors included."""

STEPS_OF_AN_OBJECT: Final = 4
"""An object with a longer affinity counts as several where objects are taken in."""

_Sort = tuple[str, str, tuple[str, ...]]
"""Mode, attributes and access modes of a volume."""


class UnreadableRequest(Exception):
    """The request of a claim is invalid, or longer than what is read."""


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


class Volumes:
    """PersistentVolumes that a claim may be bound to: those kept for one by its name, free ones by class and size.

    A volume that changes is put elsewhere, and nothing else is touched.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._following = Following(objects, PERSISTENT_VOLUMES, self._take_in, self._restart)
        self._known: dict[str, Stored] = {}
        self._kept: dict[tuple[str, str, str], dict[str, Stored]] = {}
        self._free: dict[str, dict[_Sort, Shelf]] = {}
        self._selections: Memo[tuple[Shelf, Selector], Selection] = Memo(_MOST_SELECTED_BYTES)
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
        return Placed(volume, matcher, 1 + affinity.size() // PARTS_OF_A_STEP)

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
        stored = Stored(self.placed(volume, affinity), rank, places_of_affinity(affinity), keys_of_affinity(affinity))
        self._put(name, stored)
        return 1 + stored.placed.steps // STEPS_OF_AN_OBJECT

    def _put(self, name: str, found: Stored) -> None:
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

    def _remove(self, known: Stored) -> None:
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

    def _note(self, found: Stored) -> None:
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


SUPPLY: Final[tuple[Kind[Any], ...]] = (PERSISTENT_VOLUMES, CSI_DRIVERS, CSI_STORAGE_CAPACITIES)
"""The kinds that this rests on."""
