"""Index of the PersistentVolumes that claims can be bound to.

Methods of ``FreeVolumes`` whose run time grows with the number of volumes are generators (``Work``), except ``put``
and ``take``.
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
from plugins.in_tree.volume_binding.changes import ClassChanges
from plugins.in_tree.volume_binding.free_volumes import (
    PARTS_PER_STEP,
    FreeVolumes,
    IndexedVolume,
    LocatedVolume,
    Rank,
    SelectedPositions,
)
from plugins.in_tree.volume_binding.label_index import keys_of_affinity, topologies_of_affinity

_NANO: Final = 9
_MAX_MATCHERS: Final = 1 << 14
"""Maximum number of cached compiled node affinities."""

_MAX_SELECTION_BYTES: Final = 64 << 20
"""Maximum estimated size in bytes of the cached sets of selected volumes, including their selectors."""

STEPS_PER_OBJECT: Final = 4
"""Number of steps that ``catch_up`` counts as one object. So an object with a long affinity counts as several."""

_GroupKey = tuple[str, str, tuple[str, ...]]
"""(volume mode, VolumeAttributesClass, access modes) of a volume."""


class InvalidClaimSelector(Exception):
    """The selector of a claim is invalid or too long to be decoded."""


class VolumeRequirements(Struct, frozen=True):
    """Requirements of a claim on a free volume. Claims with equal requirements share the matching volumes.

    ``min_rank``: lower limit of the ranks of volumes that are large enough.
    """

    class_name: str
    volume_mode: str
    attributes_class: str
    access_modes: frozenset[str]
    min_rank: Rank
    selector: Selector | None

    @classmethod
    def by(cls, claim: PersistentVolumeClaim) -> VolumeRequirements:
        min_rank = (_size(claim.request or ZERO), "")
        modes = frozenset(claim.access_modes)
        return cls(claim.class_name, claim.volume_mode, claim.attributes_class, modes, min_rank, claim.selector)


class MatchingVolumes(Struct, frozen=True, eq=False):
    """Volumes that match a claim; their node affinity is not checked.

    ``reserved``: volumes whose claimRef names the claim. ``free``: (group, set of positions) of free volumes.
    """

    reserved: Sequence[LocatedVolume]
    free: Sequence[tuple[FreeVolumes, int]]

    def __bool__(self) -> bool:
        """Return true if any volume matches."""
        return bool(self.reserved or self.free)

    def reserved_volume(self, taken: Container[str]) -> LocatedVolume | None:
        """Return the smallest reserved volume that is not in ``taken``; ``None`` if there is none.

        A claim with a reserved volume cannot be bound to any other volume.
        """
        return next((it for it in self.reserved if it.volume.name not in taken), None)


class VolumeIndex:
    """PersistentVolumes that claims can be bound to: reserved ones by claim, free ones by class and group.

    A changed volume is moved within the index; the other volumes are not read.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._following = Following(objects, PERSISTENT_VOLUMES, self._update, self._restart)
        self._indexed: dict[str, IndexedVolume] = {}
        self._reserved: dict[tuple[str, str, str], dict[str, IndexedVolume]] = {}
        self._free: dict[str, dict[_GroupKey, FreeVolumes]] = {}
        self._selections: Memo[tuple[FreeVolumes, Selector], SelectedPositions] = Memo(_MAX_SELECTION_BYTES)
        self._matchers: dict[RequiredNodeAffinity, NodeMatcher] = {}
        self.changes = ClassChanges()

    def catch_up(self) -> None:
        """Process the changed volumes. Raises ``Unprepared`` if there are too many to process at once."""
        self._following.catch_up()

    def reserved_for(self, claim: PersistentVolumeClaim, min_rank: Rank) -> Sequence[LocatedVolume]:
        """Return the volumes reserved for the claim, with at least ``min_rank``, the smallest first.

        StorageClass, VolumeAttributesClass and volume mode match; access modes and labels are not checked.
        """
        by_name = self._reserved.get((claim.class_name, claim.namespace, claim.name), {})
        fit = (it for it in by_name.values() if it.rank >= min_rank and _is_for(it.located.volume, claim))
        return [it.located for it in sorted(fit, key=attrgetter("rank"))]

    def groups(self, required: VolumeRequirements) -> Sequence[FreeVolumes]:
        """Return the groups of free volumes with the required classes and modes. Sizes and labels of the volumes are
        not checked.
        """
        mode_and_class = (required.volume_mode, required.attributes_class)
        groups = self._free.get(required.class_name, {})
        return [
            it
            for (*of, modes), it in groups.items()
            if tuple(of) == mode_and_class and required.access_modes <= {*modes}
        ]

    def located(self, volume: PersistentVolume, affinity: RequiredNodeAffinity | None) -> LocatedVolume:
        """Return a volume with ``affinity`` compiled. Volumes with an equal affinity share the matcher."""
        if affinity is None:
            return LocatedVolume(volume, None)
        matcher = self._matchers.get(affinity)
        if matcher is None:
            if len(self._matchers) >= _MAX_MATCHERS:
                self._matchers.clear()
            matcher = self._matchers[affinity] = affinity.compiled()
        return LocatedVolume(volume, matcher, 1 + affinity.size() // PARTS_PER_STEP)

    def _restart(self) -> None:
        self._indexed, self._reserved, self._free = {}, {}, {}
        self.changes.restart()

    def _update(self, _namespace: str, name: str) -> int:
        previous = self._indexed.pop(name, None)
        if previous is not None:
            self._remove(previous)
        try:
            volume = self._objects.get(PERSISTENT_VOLUMES, "", name)
        except Unreadable:
            return 1  # ignored, because no claim is matched while any volume is unreadable
        if volume is None or volume.terminating or (volume.claim is None and not volume.available):
            return 1
        rank = (_size(volume.capacity), name)
        affinity = volume.affinity
        indexed = IndexedVolume(
            self.located(volume, affinity), rank, topologies_of_affinity(affinity), keys_of_affinity(affinity)
        )
        self._put(name, indexed)
        return 1 + indexed.located.steps // STEPS_PER_OBJECT

    def _put(self, name: str, indexed: IndexedVolume) -> None:
        volume = indexed.located.volume
        self._indexed[name] = indexed
        self._note(indexed)
        if volume.claim is not None:
            self._reserved.setdefault(_claim_of(volume.class_name, volume.claim), {})[name] = indexed
            return
        groups, group_key = self._free.setdefault(volume.class_name, {}), _group_key(volume)
        if group_key not in groups:
            groups[group_key] = FreeVolumes(self._selections)
        groups[group_key].put(indexed)

    def _remove(self, indexed: IndexedVolume) -> None:
        volume = indexed.located.volume
        self._note(indexed)
        if volume.claim is not None:
            claim = _claim_of(volume.class_name, volume.claim)
            del self._reserved[claim][volume.name]
            if not self._reserved[claim]:
                del self._reserved[claim]
            return
        groups, group_key = self._free[volume.class_name], _group_key(volume)
        groups[group_key].take(indexed)
        if not groups[group_key]:
            del groups[group_key]
        if not groups:
            del self._free[volume.class_name]

    def _note(self, indexed: IndexedVolume) -> None:
        volume = indexed.located.volume
        claim = None if volume.claim is None else (volume.claim.namespace, volume.claim.name)
        self.changes.note(volume.class_name, indexed.topologies, claim)


def _claim_of(class_name: str, reference: ClaimReference) -> tuple[str, str, str]:
    return class_name, reference.namespace, reference.name


def _group_key(volume: PersistentVolume) -> _GroupKey:
    return volume.volume_mode, volume.attributes_class, volume.access_modes


def _is_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return true if the volume's claimRef, volume mode and VolumeAttributesClass match the claim.

    The UID of the claimRef is compared only if it is set.
    """
    if volume.claim is None or not volume.claim.is_to(claim) or volume.volume_mode != claim.volume_mode:
        return False
    return volume.attributes_class == claim.attributes_class


def _size(amount: Quantity) -> int | Fraction:
    """Return a quantity as a number in billionths that compares exactly and quickly."""
    power: int = 10 ** abs(amount.scale + _NANO)
    return amount.unscaled * power if amount.scale + _NANO >= 0 else Fraction(amount.unscaled, power)


def smallest_first(claims: Iterable[PersistentVolumeClaim]) -> list[PersistentVolumeClaim]:
    """Sort claims by requested size; claims of equal size remain in order."""
    return sorted(claims, key=lambda it: _size(it.request or ZERO))


SUPPLY_KINDS: Final[tuple[Kind[Any], ...]] = (PERSISTENT_VOLUMES, CSI_DRIVERS, CSI_STORAGE_CAPACITIES)
"""Kinds of the objects, besides StorageClasses, that determine which volumes claims can get."""
