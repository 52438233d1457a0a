"""What there is for claims without a volume: PersistentVolumes that are free, and room to make new ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cmp_to_key
from typing import Any, Final

from msgspec import Struct

from app.framework.interface import Objects
from app.kube.kinds import CSI_DRIVERS, CSI_STORAGE_CAPACITIES, PERSISTENT_VOLUMES, Kind
from app.kube.node_affinity import NodeMatcher, RequiredNodeAffinity
from app.kube.persistent_volumes import PersistentVolume, PersistentVolumeClaim
from app.kube.quantity import ZERO, Quantity
from app.kube.storage_v1 import CSIStorageCapacity, StorageClass
from plugins.volume_binding.by_label import ByLabel, places_of_affinity, places_of_selector

_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_MOST_KEPT: Final = 128
"""Claims of which the volumes that would do are kept: those of the pods that are being scheduled."""


class UnreadableRequest(Exception):
    """What a claim asks for makes no sense, or is more than is read."""


class Placed(Struct, frozen=True):
    """A volume, and the nodes from which it can be used: all where ``matcher`` is ``None``."""

    volume: PersistentVolume
    matcher: NodeMatcher | None

    def is_usable_from(self, labels: Mapping[str, str]) -> bool:
        """By the labels of a node alone: its name plays no part."""
        return self.matcher is None or self.matcher.matches("", labels)


class Fitting(Struct, frozen=True):
    """The volumes that would do for a claim. ``kept``: for this claim alone; ``free``: the smallest first."""

    kept: tuple[Placed, ...]
    free: ByLabel[Placed]

    def smallest(self, labels: Mapping[str, str], taken: Collection[str]) -> PersistentVolume | None:
        """The one for a node, less those that are ``taken``. One that is kept for the claim is it, or there is none."""
        for it in self.kept:
            if it.volume.name not in taken:
                return it.volume if it.is_usable_from(labels) else None
        fits = (it.volume for it in self.free.near(labels) if it.is_usable_from(labels))
        return next((volume for volume in fits if volume.name not in taken), None)


class Volumes:
    """PersistentVolumes by their class, put in order once for as long as none of them changes."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._version = -1
        self._by_class: dict[str, list[Placed]] = {}
        self._fitting: dict[object, Fitting] = {}
        self._matchers: dict[RequiredNodeAffinity, NodeMatcher] = {}

    def fitting(self, claim: PersistentVolumeClaim) -> Fitting:
        """Raises ``UnreadableRequest`` or ``Unreadable``."""
        self._refresh()
        found = self._fitting.get(claim.identity)
        if found is None:
            if len(self._fitting) >= _MOST_KEPT:
                self._fitting.clear()
            found = self._fitting[claim.identity] = self._found(claim)
        return found

    def placed(self, volume: PersistentVolume, affinity: RequiredNodeAffinity | None) -> Placed:
        """A volume with its matcher: many have the same."""
        if affinity is None:
            return Placed(volume, None)
        matcher = self._matchers.get(affinity)
        if matcher is None:
            if len(self._matchers) >= _MOST_KEPT * _MOST_KEPT:
                self._matchers.clear()
            matcher = self._matchers[affinity] = affinity.compiled()
        return Placed(volume, matcher)

    def _refresh(self) -> None:
        version = self._objects.version(PERSISTENT_VOLUMES)
        if version == self._version:
            return
        self._by_class, self._fitting = {}, {}
        for volume in self._objects.in_namespace(PERSISTENT_VOLUMES, ""):
            if not volume.terminating and (volume.claim is not None or volume.available):
                self._by_class.setdefault(volume.class_name, []).append(self.placed(volume, volume.affinity))
        for found in self._by_class.values():
            found.sort(key=lambda it: it.volume.name)
            found.sort(key=_capacity)
        self._version = version

    def _found(self, claim: PersistentVolumeClaim) -> Fitting:
        if claim.invalid:
            text = f"error creating internal label selector for claim: {claim.namespace}/{claim.name}: {claim.invalid}"
            raise UnreadableRequest(text)
        alike = [it for it in self._by_class.get(claim.class_name, ()) if _is_alike(it.volume, claim)]
        kept = tuple(it for it in alike if it.volume.claim is not None)
        free = (it for it in alike if it.volume.claim is None and _is_wanted(it.volume, claim))
        return Fitting(kept, ByLabel((it, places_of_affinity(it.volume.affinity)) for it in free))


def _is_alike(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether a volume, kept for the claim or free, is of the size and sort that the claim asks for."""
    if volume.claim is not None and not volume.claim.is_to(claim):
        return False
    if (claim.request or ZERO).exceeds(volume.capacity) or volume.volume_mode != claim.volume_mode:
        return False
    return volume.attributes_class == claim.attributes_class


def _is_wanted(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """What is asked of a free volume beside that."""
    if not volume.available or not set(claim.access_modes) <= set(volume.access_modes):
        return False
    return claim.selector is None or claim.selector.matches(volume.labels)


def _compared(one: Quantity, other: Quantity) -> int:
    return one.exceeds(other) - other.exceeds(one)


_by_size: Final = cmp_to_key(_compared)


def _capacity(found: Placed) -> Any:
    return _by_size(found.volume.capacity)


def smallest_first(claims: Iterable[PersistentVolumeClaim]) -> list[PersistentVolumeClaim]:
    """By the size they ask for; of equal ones in their order."""
    return sorted(claims, key=lambda it: _by_size(it.request or ZERO))


class Room:
    """What CSIStorageCapacity says of how large a volume can be made, and for which nodes."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._version = -1
        self._by_class: dict[str, ByLabel[CSIStorageCapacity]] = {}

    def is_made(self, storage_class: StorageClass) -> bool:
        """Whether volumes of the class are made at all."""
        return storage_class.provisioner not in ("", _NO_PROVISIONER)

    def suffices(self, claim: PersistentVolumeClaim, storage_class: StorageClass, labels: Mapping[str, str]) -> bool:
        """Whether the class's driver can make the volume for a node; a driver that does not say can."""
        if claim.request is None:
            return True
        driver = self._objects.get(CSI_DRIVERS, "", storage_class.provisioner)
        if driver is None or not driver.storage_capacity:
            return True
        size = claim.request.value()
        return any(_has_room(it, size, labels) for it in self._near(storage_class.name, labels))

    def _near(self, class_name: str, labels: Mapping[str, str]) -> Iterator[CSIStorageCapacity]:
        version = self._objects.version(CSI_STORAGE_CAPACITIES)
        if version != self._version:
            by_class: dict[str, list[CSIStorageCapacity]] = {}
            for it in self._objects.every(CSI_STORAGE_CAPACITIES):
                by_class.setdefault(it.class_name, []).append(it)
            self._by_class = {name: _indexed(found) for name, found in by_class.items()}
            self._version = version
        found = self._by_class.get(class_name)
        return iter(()) if found is None else found.near(labels)


def _indexed(found: Iterable[CSIStorageCapacity]) -> ByLabel[CSIStorageCapacity]:
    return ByLabel((it, places_of_selector(it.topology)) for it in found if it.topology is not None)


def _has_room(found: CSIStorageCapacity, size: int, labels: Mapping[str, str]) -> bool:
    return found.limit is not None and found.limit >= size and bool(found.topology and found.topology.matches(labels))


SUPPLY: Final[tuple[Kind[Any], ...]] = (PERSISTENT_VOLUMES, CSI_DRIVERS, CSI_STORAGE_CAPACITIES)
"""The kinds that this rests on."""
