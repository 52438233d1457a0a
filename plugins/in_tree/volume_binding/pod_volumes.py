"""Volumes for the waiting claims of a pod on one node: existing volumes to bind, and volumes to provision."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from app.kube.persistent_volumes import PersistentVolume, PersistentVolumeClaim
from app.kube.storage_v1 import StorageClass
from plugins.in_tree.volume_binding.capacity_index import CapacityIndex
from plugins.in_tree.volume_binding.free_volumes import FreeVolumes, Rank, Work
from plugins.in_tree.volume_binding.volume_index import MatchingVolumes

REASON_BIND_CONFLICT: Final = "node(s) didn't find available persistent volumes to bind"
REASON_NOT_ENOUGH_SPACE: Final = "node(s) did not have enough free storage"

_VOLUMES_PER_STEP: Final = 1 << 14
"""Number of free volumes for which the intersection of two sets counts as one step."""


class PodVolumes(Struct, frozen=True):
    """Volumes for the waiting claims of a pod on one node; equivalent of kube-scheduler's ``PodVolumes``.

    ``static_bindings``: existing volumes by claim name. ``dynamic_provisions``: claims for which volumes are to be
    provisioned.
    """

    static_bindings: Mapping[str, PersistentVolume]
    dynamic_provisions: tuple[PersistentVolumeClaim, ...]


class Provision(Struct, frozen=True):
    """Volumes to provision in one StorageClass.

    ``size``: size in bytes of the largest volume; ``None`` if no claim requests a size.
    """

    class_name: str
    size: int | None


class StaticBinder:
    """Assigns existing volumes to claims on one node, claim by claim."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = labels
        self._usable: dict[FreeVolumes, int] = {}
        self._taken: set[str] = set()

    def volume(self, matching: MatchingVolumes) -> Work[PersistentVolume | None]:
        """Take a volume for a claim: the reserved one, or otherwise the smallest matching one that the node can use.

        Returns ``None`` if there is no such volume, or if the node cannot use the reserved one.
        """
        reserved = matching.reserved_volume(self._taken)
        if reserved is not None:
            if not reserved.is_usable_from(self._labels):
                return None
            self._taken.add(reserved.volume.name)
            return reserved.volume
        best: tuple[Rank, FreeVolumes, int] | None = None
        steps = 1
        for group, positions in matching.free:
            if group not in self._usable:
                self._usable[group] = yield from group.usable(self._labels)
            fit = self._usable[group] & positions
            if fit:
                position = (fit & -fit).bit_length() - 1
                rank = group.rank(position)
                if best is None or rank < best[0]:
                    best = (rank, group, position)
            steps += 1 + len(group) // _VOLUMES_PER_STEP
        yield steps
        if best is None:
            return None
        _, group, position = best
        self._usable[group] ^= 1 << position
        return group.volume(position)


class ProvisioningCheck:
    """Checks whether volumes of a class can be provisioned for one node."""

    def __init__(
        self, class_of: Callable[[str], StorageClass | None], capacities: CapacityIndex, labels: Mapping[str, str]
    ) -> None:
        self._class_of = class_of
        self._capacities = capacities
        self._labels = labels
        self._allowed: dict[str, StorageClass] = {}
        self._max_sizes: dict[str, int] = {}

    def refusal(self, provision: Provision) -> Work[str]:
        """Return the reason why the volumes cannot be provisioned; empty if they can."""
        name = provision.class_name
        storage_class = self._allowed.get(name)
        if storage_class is None:
            storage_class = self._class_of(name)
            if (
                storage_class is None
                or not self._capacities.provisions(storage_class)
                or not storage_class.allows(self._labels)
            ):
                return REASON_BIND_CONFLICT
            self._allowed[name] = storage_class
            yield 1 + len(storage_class.topologies)
        if provision.size is None:
            return ""
        if name not in self._max_sizes:
            self._max_sizes[name] = yield from self._capacities.max_size(storage_class, self._labels)
        return REASON_NOT_ENOUGH_SPACE if provision.size > self._max_sizes[name] else ""


def once(claims: Iterable[PersistentVolumeClaim]) -> Sequence[PersistentVolumeClaim]:
    """Return the claims of one namespace without repetitions, in order."""
    return tuple({it.name: it for it in claims}.values())


def provisions_of(claims: Iterable[PersistentVolumeClaim]) -> Sequence[Provision]:
    """Return the volumes to provision, in the order of the claims.

    Consecutive claims of one class become one entry with the largest size.
    """
    provisions: list[Provision] = []
    for provision in map(provision_of, once(claims)):
        last = provisions[-1] if provisions and provisions[-1].class_name == provision.class_name else None
        if last is None:
            provisions.append(provision)
        elif provision.size is not None and (last.size is None or provision.size > last.size):
            provisions[-1] = provision
    return provisions


def provision_of(claim: PersistentVolumeClaim) -> Provision:
    return Provision(claim.class_name, None if claim.request is None else claim.request.value())
