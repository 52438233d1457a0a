"""Which volumes of CSI drivers a pod has, by what its claims lead to; and which nodes rest on that."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from app.framework.claims import claim_not_found, is_for_pod, not_for_pod
from app.framework.objects import Objects, Unreadable
from app.framework.resources import Mounts
from app.framework.status import unresolvable
from app.kube.csi_migration import DRIVERS, NOT_COUNTED
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES, Kind
from app.kube.meta_v1 import ObjectKey
from app.kube.persistent_volumes import PersistentVolumeClaim
from app.kube.volumes import PodVolume

OF_CLAIMS: Final[tuple[Kind[Any], ...]] = (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES)
"""What says which volume a claim is."""

NOWHERE: Final = ""
"""A pod that runs nowhere yet."""

_NOT_MADE_YET: Final = "\0"
"""Begins the handle of a volume that is still to be made; no handle of a driver does."""

Volumes = Mapping[str, str]
"""Volumes by their name in the cluster, driver and handle, each with its driver."""


class UncountableVolume(Exception):
    """A volume of a pod is not what it should be: nothing can be said of a node that has to count it."""


class NoClaim(Exception):  # no error: no node will do
    """``status`` says so."""

    def __init__(self, namespace: str, name: str) -> None:
        super().__init__(name)
        self.status = unresolvable(f"looking up PVC {namespace}/{name}: {claim_not_found(name)}")


class _Source(NamedTuple):
    """What a claim leads to: the name of its volume in the cluster, and by what it was found."""

    volume: str
    driver: str
    volume_name: str
    class_name: str


_NO_SOURCE: Final = _Source("", "", "", "")


class Resting:
    """Nodes by the objects on which their counts rest. Almost all are those of one node."""

    __slots__ = ("_at",)

    def __init__(self) -> None:
        self._at: dict[object, str | set[str]] = {}

    def __len__(self) -> int:
        return len(self._at)

    def add(self, key: object, node: str) -> bool:
        """Returns whether several nodes rest on it."""
        known = self._at.get(key)
        if known is None:
            self._at[key] = node
        elif isinstance(known, set):
            known.add(node)
            return True
        elif known != node:
            self._at[key] = {known, node}
            return True
        return False

    def pop(self, key: object) -> Collection[str]:
        """They no longer do: who counts them anew says so again."""
        found = self._at.pop(key, ())
        return (found,) if isinstance(found, str) else found

    def clear(self) -> None:
        self._at.clear()


class Sources:
    """Looks up the volumes of pods, and keeps which nodes these are on.

    Of a claim that several nodes share it is kept what it led to: a tenant can have it change as often as he likes, and
    only a change that leads elsewhere is one for these nodes.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._on_claims = Resting()
        self._on_owners = Resting()
        self._on_volumes = Resting()
        self._on_classes = Resting()
        self._shared: dict[ObjectKey, _Source] = {}

    def __len__(self) -> int:
        """Objects on which nodes rest, or did."""
        return sum(map(len, self._every()))

    def clear(self) -> None:
        """Nothing is counted any more."""
        for it in self._every():
            it.clear()
        self._shared.clear()

    def _every(self) -> tuple[Resting, ...]:
        return self._on_claims, self._on_owners, self._on_volumes, self._on_classes

    def resting_on(self, kind: Kind[Any], key: ObjectKey) -> Iterator[str]:
        """The nodes for which a change of an object is one. They are to be counted anew."""
        if kind is PERSISTENT_VOLUME_CLAIMS:
            yield from self._on_owners.pop(key)
            known = self._shared.get(key)
            if known is None or known != self._as_it_is(key):
                self._shared.pop(key, None)
                yield from self._on_claims.pop(key)
        else:
            yield from (self._on_volumes if kind is PERSISTENT_VOLUMES else self._on_classes).pop(key[1])

    def _as_it_is(self, key: ObjectKey) -> _Source | None:
        try:
            claim = self._objects.get(PERSISTENT_VOLUME_CLAIMS, *key)
            return None if claim is None else self._source(claim, NOWHERE, told=True)
        except Unreadable:
            return None

    def of_pod(self, pod: Mounts, node: str, *, told: bool = True) -> Iterator[tuple[str, str]]:
        """Volumes with their drivers, of a pod on ``node``, or a new one, which is ``NOWHERE``.

        ``told``: for a node that tells of its CSI drivers. Raises ``UncountableVolume`` or ``Unreadable``; and
        ``NoClaim`` for a new pod.
        """
        for volume in pod.volumes:
            name = volume.claim_name(pod.name)
            if name is None:
                yield from _in_line(volume) if told else ()
                continue
            if not name:
                raise UncountableVolume("PersistentVolumeClaim had no name")
            found = self._of_claim(pod, name, volume, node, told=told)
            if found.volume:
                yield found.volume, found.driver

    def _of_claim(self, pod: Mounts, name: str, volume: PodVolume, node: str, *, told: bool) -> _Source:
        key = (pod.namespace, name)
        is_shared = node != NOWHERE and self._on_claims.add(key, node)
        if node != NOWHERE and volume.claim is None:
            self._on_owners.add(key, node)
        claim = self._objects.get(PERSISTENT_VOLUME_CLAIMS, pod.namespace, name)
        if claim is None:
            if node == NOWHERE:
                raise NoClaim(pod.namespace, name)
            return _NO_SOURCE
        if volume.claim is None and not is_for_pod(claim, pod):
            raise UncountableVolume(not_for_pod(claim, pod))
        found = self._source(claim, node, told=told)
        if is_shared:
            self._shared[key] = found
        return found

    def _source(self, claim: PersistentVolumeClaim, node: str, *, told: bool) -> _Source:
        """Nothing for what is no volume of a CSI driver."""
        driver, handle = self._volume_of(claim, node, told=told)
        name = f"{driver}/{handle}" if driver and handle else ""
        return _Source(name, driver, claim.volume_name, claim.class_name)

    def _volume_of(self, claim: PersistentVolumeClaim, node: str, *, told: bool) -> tuple[str, str]:
        if not claim.volume_name:
            return self._volume_to_be(claim, node, told=told)
        self.rests_on_volume(claim.volume_name, node)
        found = self._objects.get(PERSISTENT_VOLUMES, "", claim.volume_name)
        if found is None:
            return self._volume_to_be(claim, node, told=told)
        if found.is_csi:
            return found.driver, found.handle
        return (found.migrated.driver, found.migrated.handle) if told and found.migrated is not None else ("", "")

    def _volume_to_be(self, claim: PersistentVolumeClaim, node: str, *, told: bool) -> tuple[str, str]:
        """Of a volume that is not there: by the class, which will have it made, and one of its own."""
        if not claim.class_name:
            return "", ""
        if node != NOWHERE:
            self._on_classes.add(claim.class_name, node)
        found = self._objects.get(STORAGE_CLASSES, "", claim.class_name)
        if found is None or found.provisioner in NOT_COUNTED:
            return "", ""
        driver = found.provisioner
        if driver in DRIVERS:
            driver = DRIVERS[driver] if told else ""
        return driver, f"{_NOT_MADE_YET}{claim.namespace}/{claim.name}"

    def rests_on_volume(self, name: str, node: str) -> None:
        """What is counted for a node rests on a PersistentVolume."""
        if node != NOWHERE:
            self._on_volumes.add(name, node)


def _in_line(volume: PodVolume) -> Iterator[tuple[str, str]]:
    """The volume of a disk that the pod names itself, with the driver that does the in-tree one's work."""
    if volume.untranslatable:
        raise UncountableVolume(f"converting volume({volume.name}) from inline to csi: {volume.untranslatable}")
    if volume.migrated is not None:
        yield f"{volume.migrated.driver}/{volume.migrated.handle}", volume.migrated.driver
