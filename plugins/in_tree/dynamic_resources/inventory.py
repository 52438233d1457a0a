"""Index of ResourceSlices by node and pool, of devices allocated to claims, and of DeviceClasses by extended resource.

The index is updated object by object. If there are many changes, other requests can run in between.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

from app.framework.counts import Unprepared, all_prepared
from app.framework.following import Following
from app.framework.objects import Objects, Unreadable
from app.kube.claims import DEVICE_CLASS_RESOURCE
from app.kube.kinds import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES, Kind, KubeObject
from app.kube.meta_v1 import ObjectKey
from app.kube.resource_v1 import DeviceClass, ResourceClaim, ResourceSlice
from plugins.in_tree.dynamic_resources.allocated_devices import AllocatedDevices
from plugins.in_tree.dynamic_resources.allocator import PoolAllocations
from plugins.in_tree.dynamic_resources.pools import PoolBuilder, PoolID

_KINDS: Final[tuple[Kind[Any], ...]] = (RESOURCE_SLICES, RESOURCE_CLAIMS, DEVICE_CLASSES)
_DEVICES_PER_OBJECT: Final = 8
"""Number of devices that count as one object, so that indexing a large slice counts as indexing several objects."""

_EVERYWHERE: Final = ""
"""Key, in place of a node name, for slices that several nodes can use, and for slices with counter sets."""

PoolStates: TypeAlias = Mapping[PoolID, tuple[PoolAllocations, Sequence[ResourceSlice]]]
"""Allocated devices and slices of each pool."""

Object = TypeVar("Object", bound=KubeObject)
Group = TypeVar("Group", bound=Hashable)
Member = TypeVar("Member")


class _Groups(Generic[Group, Member]):
    """Members by group, then by object key.

    ``of`` returns a tuple of the members of a group. Until the group changes, each call returns the same tuple object.
    """

    def __init__(self) -> None:
        self._members: dict[Group, dict[ObjectKey, Member]] = {}
        self._made: dict[Group, tuple[Member, ...]] = {}

    def add(self, group: Group, key: ObjectKey, member: Member) -> None:
        self._members.setdefault(group, {})[key] = member
        self._made.pop(group, None)

    def remove(self, group: Group, key: ObjectKey) -> None:
        members = self._members[group]
        del members[key]
        self._made.pop(group, None)
        if not members:
            del self._members[group]

    def of(self, group: Group) -> tuple[Member, ...]:
        members = self._made.get(group)
        if members is None:
            by_key = self._members.get(group)
            if by_key is None:
                return ()
            members = self._made[group] = tuple(by_key.values())
        return members


class Inventory:
    """Index of slices, claims and classes. Callers must call ``refresh`` before a look-up."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._following = (
            Following(objects, RESOURCE_SLICES, self._update_slice, self._restart_slices),
            Following(objects, RESOURCE_CLAIMS, self._update_claim, self._restart_claims),
        )
        self._classes_seen = -1
        self.slices_version = 0
        """Number that changes when slices change. While it is unchanged, no ``Device`` object is replaced."""
        self._by_resource: Mapping[str, DeviceClass] = {}
        self._last_shared_pools: PoolStates = {}
        self._restart_slices()
        self._restart_claims()

    def _restart_slices(self) -> None:
        self._slices: dict[ObjectKey, ResourceSlice] = {}
        self._on_node = _Groups[str, ResourceSlice]()
        self._of_pool = _Groups[PoolID, ResourceSlice]()
        self.pool_builder = PoolBuilder(self.slices_of_pool)
        self._shared_pools: PoolStates | None = None
        self.slices_version += 1

    def _restart_claims(self) -> None:
        self._claims: dict[ObjectKey, ResourceClaim] = {}
        self._uses = AllocatedDevices()
        self._extended = _Groups[str, ResourceClaim]()
        self._shared_pools = None

    def refresh(self) -> None:
        """Update the index from the snapshot. Raises ``Unprepared`` if the update is too much work at once."""
        all_prepared(it.catch_up for it in self._following)
        version = self.classes_version()
        if self._classes_seen != version:
            self._classes_seen = version
            self._by_resource = _by_resource(tuple(self._objects.every(DEVICE_CLASSES)))

    def refresh_at_once(self) -> None:
        """Update the index completely, without yielding.

        Usually only a few objects have changed, because each PreFilter also updates the index.
        """
        try:
            self.refresh()
        except Unprepared as missing:
            for _ in missing.steps:
                pass
            self.refresh_at_once()

    def versions(self) -> tuple[int, ...]:
        """Return ``Objects.version`` of each indexed kind. The index can change only if a number changes."""
        return tuple(self._objects.version(it) for it in _KINDS)

    def classes_version(self) -> int:
        """Return a number that changes when a DeviceClass changes."""
        return self._objects.version(DEVICE_CLASSES)

    def slices_for(self, node: str) -> tuple[tuple[ResourceSlice, ...], tuple[ResourceSlice, ...]]:
        """Return (the node's own slices, the slices of ``_EVERYWHERE``). Each call returns the same two tuple objects
        until a slice in them changes.
        """
        return self._on_node.of(node) if node else (), self._on_node.of(_EVERYWHERE)

    def slices_of_pool(self, pool: PoolID) -> Sequence[ResourceSlice]:
        """Return all slices of a pool, of every generation."""
        return self._of_pool.of(pool)

    def allocations(self, pool: PoolID) -> PoolAllocations:
        """Return the devices of a pool that are allocated to claims, except those with admin access."""
        return self._uses.of(pool)

    def pool_states(self, slices: Iterable[ResourceSlice]) -> PoolStates:
        """Return the allocations and slices of each pool of ``slices``.

        Repeated calls return equal results until an allocation or slice changes.
        """
        return {it: (self.allocations(it), self.slices_of_pool(it)) for it in {each.pool_id for each in slices}}

    def shared_pool_states(self) -> PoolStates:
        """Return ``pool_states`` of the slices of ``_EVERYWHERE``: the same mapping object until a state changes."""
        if self._shared_pools is None:
            states = self.pool_states(self._on_node.of(_EVERYWHERE))
            self._shared_pools = self._last_shared_pools if states == self._last_shared_pools else states
            self._last_shared_pools = self._shared_pools
        return self._shared_pools

    def device_class(self, name: str) -> DeviceClass | None:
        """Return the DeviceClass with this name; ``None`` if it does not exist."""
        return self._objects.get(DEVICE_CLASSES, "", name)

    def class_of_resource(self, resource: str) -> DeviceClass | None:
        """Return the class that provides an extended resource; ``None`` if no class provides it."""
        return self._by_resource.get(resource)

    def extended_claim(self, name: str, uid: str) -> ResourceClaim | None:
        """Return the claim that a scheduler created for the extended resources of a pod; ``None`` if there is none."""
        return next((it for it in self._extended.of(uid) if (name, uid) in it.extended_for), None)

    def _update_slice(self, namespace: str, name: str) -> int:
        current = self._readable(RESOURCE_SLICES, namespace, name)
        self._put_slice((namespace, name), current)
        return 1 if current is None else 1 + len(current.devices) // _DEVICES_PER_OBJECT

    def _update_claim(self, namespace: str, name: str) -> int:
        self._put_claim((namespace, name), self._readable(RESOURCE_CLAIMS, namespace, name))
        return 1

    def _readable(self, kind: Kind[Object], namespace: str, name: str) -> Object | None:
        try:
            return self._objects.get(kind, namespace, name)
        except Unreadable:
            return None

    def _put_slice(self, key: ObjectKey, current: ResourceSlice | None) -> None:
        self._shared_pools = None
        self.slices_version += 1
        known = self._slices.pop(key, None)
        if known is not None:
            self.pool_builder.forget(known)
        if known is not None and (current is None or _place(known) != _place(current)):
            self._on_node.remove(_place(known), key)
        if known is not None and (current is None or known.pool_id != current.pool_id):
            self._of_pool.remove(known.pool_id, key)
        if current is not None:
            self._slices[key] = current
            self.pool_builder.prepare(current)
            self._on_node.add(_place(current), key, current)
            self._of_pool.add(current.pool_id, key, current)

    def _put_claim(self, key: ObjectKey, current: ResourceClaim | None) -> None:
        self._shared_pools = None
        known = self._claims.pop(key, None)
        if known is not None:
            self._uses.count(known, -1)
            for uid in {uid for _, uid in known.extended_for}:
                self._extended.remove(uid, key)
        if current is not None and (current.allocation is not None or current.extended_for):
            self._claims[key] = current
            self._uses.count(current, 1)
            for uid in {uid for _, uid in current.extended_for}:
                self._extended.add(uid, key, current)


def _place(resource_slice: ResourceSlice) -> str:
    return _EVERYWHERE if resource_slice.counter_sets else resource_slice.node_name


def _by_resource(classes: Sequence[DeviceClass]) -> dict[str, DeviceClass]:
    """Return the class of each extended resource. If several classes provide it, the newest one is used; among equally
    new ones, the first by name.

    Each class also provides the resource ``deviceclass.resource.kubernetes.io/<name of the class>``.
    """
    by_resource: dict[str, DeviceClass] = {}
    by_age = sorted(
        sorted(classes, key=lambda device_class: device_class.name),
        key=lambda device_class: device_class.created,
        reverse=True,
    )
    for device_class in by_age:
        if device_class.extended_resource:
            by_resource.setdefault(device_class.extended_resource, device_class)
    by_resource.update((DEVICE_CLASS_RESOURCE + device_class.name, device_class) for device_class in classes)
    return by_resource
