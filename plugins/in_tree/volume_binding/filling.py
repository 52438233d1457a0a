"""Plan for waiting claims on one node: existing volumes to bind and volumes to provision."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from app.kube.persistent_volumes import PersistentVolume, PersistentVolumeClaim
from app.kube.storage_v1 import StorageClass
from plugins.in_tree.volume_binding.room import Room
from plugins.in_tree.volume_binding.shelf import Rank, Shelf, Work
from plugins.in_tree.volume_binding.supply import Fitting

REASON_NO_VOLUME: Final = "node(s) didn't find available persistent volumes to bind"
REASON_NO_ROOM: Final = "node(s) did not have enough free storage"

_VOLUMES_OF_A_STEP: Final = 1 << 14
"""Number of free volumes whose set intersection counts as one step."""


class Plan(Struct, frozen=True):
    """Waiting claims on a node. ``bound``: existing volumes by claim. ``made``: claims to provision volumes for."""

    bound: Mapping[str, PersistentVolume]
    made: tuple[PersistentVolumeClaim, ...]


class Need(Struct, frozen=True):
    """Volumes of a class to provision. ``size``: the largest in bytes; ``None`` if no claim requests a size."""

    class_name: str
    size: int | None


class Taking:
    """Assigns existing volumes to claims on one node, one claim after the other."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = labels
        self._left: dict[Shelf, int] = {}
        self._taken: set[str] = set()

    def volume(self, fitting: Fitting) -> Work[PersistentVolume | None]:
        """Take the volume reserved for the claim, or else the smallest that fits."""
        own = fitting.of_its_own(self._taken)
        if own is not None:
            if not own.is_usable_from(self._labels):
                return None
            self._taken.add(own.volume.name)
            return own.volume
        best: tuple[Rank, Shelf, int] | None = None
        steps = 1
        for shelf, positions in fitting.free:
            if shelf not in self._left:
                self._left[shelf] = yield from shelf.usable(self._labels)
            fit = self._left[shelf] & positions
            if fit:
                position = (fit & -fit).bit_length() - 1
                rank = shelf.rank(position)
                if best is None or rank < best[0]:
                    best = (rank, shelf, position)
            steps += 1 + len(shelf) // _VOLUMES_OF_A_STEP
        yield steps
        if best is None:
            return None
        _, shelf, position = best
        self._left[shelf] ^= 1 << position
        return shelf.volume(position)


class Making:
    """Decides by class whether volumes can be provisioned for one node."""

    def __init__(self, class_of: Callable[[str], StorageClass | None], room: Room, labels: Mapping[str, str]) -> None:
        self._class_of = class_of
        self._room = room
        self._labels = labels
        self._allowed: dict[str, StorageClass] = {}
        self._most: dict[str, int] = {}

    def refusal(self, need: Need) -> Work[str]:
        """Return the reason why a volume cannot be provisioned; empty if it can."""
        name = need.class_name
        found = self._allowed.get(name)
        if found is None:
            found = self._class_of(name)
            if found is None or not self._room.is_made(found) or not found.allows(self._labels):
                return REASON_NO_VOLUME
            self._allowed[name] = found
            yield 1 + len(found.topologies)
        if need.size is None:
            return ""
        if name not in self._most:
            self._most[name] = yield from self._room.most(found, self._labels)
        return REASON_NO_ROOM if need.size > self._most[name] else ""


def once(claims: Iterable[PersistentVolumeClaim]) -> Sequence[PersistentVolumeClaim]:
    return tuple({it.name: it for it in claims}.values())


def needs_of(claims: Iterable[PersistentVolumeClaim]) -> Sequence[Need]:
    """Return needs in the order of the claims; consecutive claims of one class become the largest of them."""
    needs: list[Need] = []
    for need in map(need_of, once(claims)):
        last = needs[-1] if needs and needs[-1].class_name == need.class_name else None
        if last is None:
            needs.append(need)
        elif need.size is not None and (last.size is None or need.size > last.size):
            needs[-1] = need
    return needs


def need_of(claim: PersistentVolumeClaim) -> Need:
    return Need(claim.class_name, None if claim.request is None else claim.request.value())
