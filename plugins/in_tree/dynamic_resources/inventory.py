"""Slices by node and pool, the devices that claims have, classes by name and resource.

Derived from objects of the cluster. An object that changes is taken in by itself, and many in bounded steps.
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
from plugins.in_tree.dynamic_resources.allocator import Use
from plugins.in_tree.dynamic_resources.pools import Gathering, PoolID
from plugins.in_tree.dynamic_resources.uses import Uses

_KINDS: Final[tuple[Kind[Any], ...]] = (RESOURCE_SLICES, RESOURCE_CLAIMS, DEVICE_CLASSES)
_DEVICES_OF_AN_OBJECT: Final = 8
"""A slice with more devices counts as several objects where it is taken in."""

_EVERYWHERE: Final = ""
"""In place of the node of slices that more than one may see."""

Stand: TypeAlias = Mapping[PoolID, tuple[Use, Sequence[ResourceSlice]]]
"""By pool: what claims have of it, and its slices."""

Object = TypeVar("Object", bound=KubeObject)
Group = TypeVar("Group", bound=Hashable)
Member = TypeVar("Member")


class _Groups(Generic[Group, Member]):
    """Objects in groups, each by its key. What a group is made into stays the same object while the group does."""

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
        found = self._made.get(group)
        if found is None:
            members = self._members.get(group)
            if members is None:
                return ()
            found = self._made[group] = tuple(members.values())
        return found


class Inventory:
    """To be refreshed before it is asked; all else is a look-up."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._following = (
            Following(objects, RESOURCE_SLICES, self._take_in_slice, self._restart_slices),
            Following(objects, RESOURCE_CLAIMS, self._take_in_claim, self._restart_claims),
        )
        self._classes_seen = -1
        self.slices_version = 0
        """Until it moves, each device of the slices that are held here is the same object."""
        self._by_resource: Mapping[str, DeviceClass] = {}
        self._last_shared_pools: Stand = {}
        self._restart_slices()
        self._restart_claims()

    def _restart_slices(self) -> None:
        self._slices: dict[ObjectKey, ResourceSlice] = {}
        self._on_node = _Groups[str, ResourceSlice]()
        self._of_pool = _Groups[PoolID, ResourceSlice]()
        self.gathering = Gathering(self.of_pool)
        self._shared_pools: Stand | None = None
        self.slices_version += 1

    def _restart_claims(self) -> None:
        self._claims: dict[ObjectKey, ResourceClaim] = {}
        self._uses = Uses()
        self._extended = _Groups[str, ResourceClaim]()
        self._shared_pools = None

    def refresh(self) -> None:
        """Bring it up to date with the cluster. Raises ``Unprepared`` where that is too much for one step."""
        all_prepared(it.catch_up for it in self._following)
        version = self.classes_version()
        if self._classes_seen != version:
            self._classes_seen = version
            self._by_resource = _by_resource(tuple(self._objects.every(DEVICE_CLASSES)))

    def refresh_at_once(self) -> None:
        """Like ``refresh``, for callers that cannot wait: a search refreshes first, so little has changed since."""
        try:
            self.refresh()
        except Unprepared as missing:
            for _ in missing.steps:
                pass
            self.refresh_at_once()

    def versions(self) -> tuple[int, ...]:
        """Moves whenever anything here may."""
        return tuple(self._objects.version(it) for it in _KINDS)

    def classes_version(self) -> int:
        return self._objects.version(DEVICE_CLASSES)

    def slices_for(self, node: str) -> tuple[tuple[ResourceSlice, ...], tuple[ResourceSlice, ...]]:
        """Those of the node alone, and those that other nodes may see too. Equal objects while they stay the same."""
        return self._on_node.of(node) if node else (), self._on_node.of(_EVERYWHERE)

    def of_pool(self, pool: PoolID) -> Sequence[ResourceSlice]:
        """All slices of a pool, of whatever generation."""
        return self._of_pool.of(pool)

    def use(self, pool: PoolID) -> Use:
        """What claims have of the devices of a pool."""
        return self._uses.of(pool)

    def stand_of(self, slices: Iterable[ResourceSlice]) -> Stand:
        """How the pools of some slices stand. Equal while that is the same."""
        return {it: (self.use(it), self.of_pool(it)) for it in {each.pool_id for each in slices}}

    def stand_of_shared_pools(self) -> Stand:
        """Of the pools that more than one node may see. The same object while that is the same."""
        if self._shared_pools is None:
            found = self.stand_of(self._on_node.of(_EVERYWHERE))
            self._shared_pools = self._last_shared_pools if found == self._last_shared_pools else found
            self._last_shared_pools = self._shared_pools
        return self._shared_pools

    def device_class(self, name: str) -> DeviceClass | None:
        return self._objects.get(DEVICE_CLASSES, "", name)

    def class_of_resource(self, resource: str) -> DeviceClass | None:
        """The class that stands behind an extended resource; ``None`` for what device plugins provide."""
        return self._by_resource.get(resource)

    def extended_claim(self, name: str, uid: str) -> ResourceClaim | None:
        """The claim that a scheduler has made for the extended resources of a pod."""
        return next((it for it in self._extended.of(uid) if (name, uid) in it.extended_for), None)

    def _take_in_slice(self, namespace: str, name: str) -> int:
        found = self._readable(RESOURCE_SLICES, namespace, name)
        self._put_slice((namespace, name), found)
        return 1 if found is None else 1 + len(found.devices) // _DEVICES_OF_AN_OBJECT

    def _take_in_claim(self, namespace: str, name: str) -> int:
        self._put_claim((namespace, name), self._readable(RESOURCE_CLAIMS, namespace, name))
        return 1

    def _readable(self, kind: Kind[Object], namespace: str, name: str) -> Object | None:
        try:
            return self._objects.get(kind, namespace, name)
        except Unreadable:
            return None

    def _put_slice(self, key: ObjectKey, found: ResourceSlice | None) -> None:
        self._shared_pools = None
        self.slices_version += 1
        known = self._slices.pop(key, None)
        if known is not None:
            self.gathering.forget(known)
        if known is not None and (found is None or _place(known) != _place(found)):
            self._on_node.remove(_place(known), key)
        if known is not None and (found is None or known.pool_id != found.pool_id):
            self._of_pool.remove(known.pool_id, key)
        if found is not None:
            self._slices[key] = found
            self.gathering.take_in(found)
            self._on_node.add(_place(found), key, found)
            self._of_pool.add(found.pool_id, key, found)

    def _put_claim(self, key: ObjectKey, found: ResourceClaim | None) -> None:
        self._shared_pools = None
        known = self._claims.pop(key, None)
        if known is not None:
            self._uses.count(known, -1)
            for uid in {uid for _, uid in known.extended_for}:
                self._extended.remove(uid, key)
        if found is not None and (found.allocation is not None or found.extended_for):
            self._claims[key] = found
            self._uses.count(found, 1)
            for uid in {uid for _, uid in found.extended_for}:
                self._extended.add(uid, key, found)


def _place(found: ResourceSlice) -> str:
    return _EVERYWHERE if found.counter_sets else found.node_name


def _by_resource(classes: Sequence[DeviceClass]) -> dict[str, DeviceClass]:
    """Of two classes for one resource the newer one, then the one whose name comes first."""
    found: dict[str, DeviceClass] = {}
    by_age = sorted(sorted(classes, key=lambda it: it.name), key=lambda it: it.created, reverse=True)
    for it in by_age:
        if it.extended_resource:
            found.setdefault(it.extended_resource, it)
    found.update((DEVICE_CLASS_RESOURCE + it.name, it) for it in classes)
    return found
