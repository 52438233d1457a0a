"""What there is, and what of it is taken: slices by node and pool, devices of claims, classes by name and resource.

Derived from the objects of the picture and kept until one of their kind changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.framework.interface import Objects
from app.kube.claims import DEVICE_CLASS_RESOURCE
from app.kube.kinds import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES, Kind
from app.kube.resource_v1 import Amount, Amounts, DeviceClass, ResourceClaim, ResourceSlice
from plugins.dynamic_resources.allocator import NO_USE, Use
from plugins.dynamic_resources.pools import PoolID

_KINDS: Final[tuple[Kind[Any], ...]] = (RESOURCE_SLICES, RESOURCE_CLAIMS, DEVICE_CLASSES)
_NOTHING: Final[tuple[ResourceSlice, ...]] = ()


class Inventory:
    """To be refreshed before it is asked; all else is a look-up."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._versions: dict[Kind[Any], int] = {}
        self._on_node: Mapping[str, tuple[ResourceSlice, ...]] = {}
        self._anywhere: tuple[ResourceSlice, ...] = ()
        self._of_pool: Mapping[PoolID, Sequence[ResourceSlice]] = {}
        self._uses: Mapping[PoolID, Use] = {}
        self._extended: Mapping[str, tuple[ResourceClaim, ...]] = {}
        self._by_resource: Mapping[str, DeviceClass] = {}

    def refresh(self) -> None:
        """Bring it up to date with the picture."""
        if self._moved(RESOURCE_SLICES):
            self._read_slices()
        if self._moved(RESOURCE_CLAIMS):
            self._read_claims()
        if self._moved(DEVICE_CLASSES):
            self._by_resource = _by_resource(tuple(self._objects.every(DEVICE_CLASSES)))

    def versions(self) -> tuple[int, ...]:
        """Moves whenever anything here may."""
        return tuple(self._objects.version(it) for it in _KINDS)

    def classes_version(self) -> int:
        return self._objects.version(DEVICE_CLASSES)

    def slices_for(self, node: str) -> tuple[tuple[ResourceSlice, ...], tuple[ResourceSlice, ...]]:
        """Those of the node alone, and those that other nodes may see too. Equal objects while they stay the same."""
        return self._on_node.get(node, _NOTHING), self._anywhere

    def of_pool(self, pool: PoolID) -> Sequence[ResourceSlice]:
        """All slices of a pool, of whatever generation."""
        return self._of_pool.get(pool, _NOTHING)

    def use(self, pool: PoolID) -> Use:
        """What claims have of the devices of a pool."""
        return self._uses.get(pool, NO_USE)

    def device_class(self, name: str) -> DeviceClass | None:
        return self._objects.get(DEVICE_CLASSES, "", name)

    def class_of_resource(self, resource: str) -> DeviceClass | None:
        """The class that stands behind an extended resource; ``None`` for what device plugins provide."""
        return self._by_resource.get(resource)

    def extended_claim(self, name: str, uid: str) -> ResourceClaim | None:
        """The claim that a scheduler has made for the extended resources of a pod."""
        return next((it for it in self._extended.get(uid, ()) if (name, uid) in it.extended_for), None)

    def _moved(self, kind: Kind[Any]) -> bool:
        version = self._objects.version(kind)
        if self._versions.get(kind) == version:
            return False
        self._versions[kind] = version
        return True

    def _read_slices(self) -> None:
        on_node: dict[str, list[ResourceSlice]] = {}
        anywhere: list[ResourceSlice] = []
        of_pool: dict[PoolID, list[ResourceSlice]] = {}
        for it in self._objects.every(RESOURCE_SLICES):
            of_pool.setdefault(it.pool_id, []).append(it)
            if it.node_name and not it.counter_sets:
                on_node.setdefault(it.node_name, []).append(it)
            else:
                anywhere.append(it)
        self._on_node = {node: tuple(found) for node, found in on_node.items()}
        self._anywhere = tuple(anywhere)
        self._of_pool = {pool: tuple(found) for pool, found in of_pool.items()}

    def _read_claims(self) -> None:
        taken: dict[PoolID, set[str]] = {}
        shared: dict[PoolID, dict[str, dict[str, Amount] | None]] = {}
        extended: dict[str, tuple[ResourceClaim, ...]] = {}
        for claim in self._objects.every(RESOURCE_CLAIMS):
            for _, uid in claim.extended_for:
                extended[uid] = (*extended.get(uid, ()), claim)
            if claim.allocation is None:
                continue
            for it in claim.allocation.devices:
                if it.admin_access:
                    continue
                driver, pool, device = it.device
                if it.shared:
                    of_pool = shared.setdefault((driver, pool), {})
                    of_pool[device] = _sum(of_pool.get(device), it.consumed)
                else:
                    taken.setdefault((driver, pool), set()).add(device)
        self._extended = extended
        self._uses = {
            pool: Use(frozenset(taken.get(pool, ())), shared.get(pool, {})) for pool in taken.keys() | shared.keys()
        }


def _sum(known: dict[str, Amount] | None, more: Amounts | None) -> dict[str, Amount] | None:
    if more is None:
        return known
    found = dict(known or {})
    for name, amount in more.items():
        found[name] = found.get(name, 0) + amount
    return found


def _by_resource(classes: Sequence[DeviceClass]) -> dict[str, DeviceClass]:
    """Of two classes for one resource the newer one, then the one whose name comes first."""
    found: dict[str, DeviceClass] = {}
    by_age = sorted(sorted(classes, key=lambda it: it.name), key=lambda it: it.created, reverse=True)
    for it in by_age:
        if it.extended_resource:
            found.setdefault(it.extended_resource, it)
    found.update((DEVICE_CLASS_RESOURCE + it.name, it) for it in classes)
    return found
