"""Volumes of a pod that affect its placement: volumes with a claim, and disks that the pod spec names directly.

Volumes from other sources (ConfigMaps, Secrets, tokens, …) are dropped, so most pods have no volumes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from app.kube import csi_migration
from app.kube.csi_migration import MigratedVolume, Untranslatable
from app.kube.decoding import Decoder
from app.kube.meta_v1 import LARGEST_PART, Oversized

VOLUMES: Final = "spec.volumes"

MOST_VOLUMES: Final = 256
"""Maximum number of volumes of one pod that affect its placement. If there are more, no volume is read."""

GCE_DISK: Final = "gcePersistentDisk"
EBS_DISK: Final = "awsElasticBlockStore"
ISCSI_DISK: Final = "iscsi"
RBD_DISK: Final = "rbd"

_ONE_PLACE: Final = ("",)

T = TypeVar("T")


class Disk(Struct, frozen=True, gc=False):
    """Disk named in a pod spec. ``monitors`` and ``pool`` are set only for RBD images."""

    kind: str
    name: str
    read_only: bool = False
    monitors: tuple[str, ...] = ()
    pool: str = ""

    @property
    def image(self) -> tuple[str, str, str]:
        """Identity of the disk: (kind, name, pool)."""
        return self.kind, self.name, self.pool

    @property
    def places(self) -> tuple[str, ...]:
        """Locations of the disk. Disks with equal ``image`` can conflict only if they share a location.

        The locations of an RBD disk are its monitors, so an RBD disk without monitors never conflicts. Every other disk
        has one location.
        """
        return self.monitors if self.kind == RBD_DISK else _ONE_PLACE

    @property
    def is_exclusive(self) -> bool:
        """True if the pod uses the disk exclusively. An EBS disk is used exclusively even if it is read-only."""
        return not self.read_only or self.kind == EBS_DISK


class PodVolume(Struct, frozen=True, gc=False):
    """Volume of a pod. A valid volume has one source, but a volume with several sources is read, too.

    ``claim``: name in the source ``persistentVolumeClaim``; ``None`` without this source. ``ephemeral``: true if a
    claim is created for the pod; ``claim_name`` returns its name.
    ``migrated``: CSI equivalent of an in-tree volume, or ``None``. ``untranslatable``: error if an in-tree volume has
    no equivalent; otherwise empty.
    """

    name: str
    claim: str | None = None
    ephemeral: bool = False
    disks: tuple[Disk, ...] = ()
    migrated: MigratedVolume | None = None
    untranslatable: str = ""

    @property
    def is_attachable(self) -> bool:
        """True if the volume might belong to a CSI driver, and so count towards the driver's volume limit of a node."""
        return self.claim is not None or self.ephemeral or self.migrated is not None or bool(self.untranslatable)

    def claim_name(self, pod_name: str) -> str | None:
        """Return the name of the volume's claim; ``None`` without a claim. ``pod_name``: name of the volume's pod."""
        if self.claim is not None:
            return self.claim
        return f"{pod_name}-{self.name}" if self.ephemeral else None


class Disks:
    """Locations of one pod's disks, by ``Disk.image``: of all disks, and of those that the pod uses exclusively."""

    __slots__ = ("_at",)

    def __init__(self, volumes: Iterable[PodVolume]) -> None:
        self._at: dict[tuple[str, str, str], tuple[set[str], set[str]]] = {}
        for volume in volumes:
            for disk in volume.disks:
                every, exclusive = self._at.setdefault(disk.image, (set(), set()))
                every.update(disk.places)
                if disk.is_exclusive:
                    exclusive.update(disk.places)

    def __bool__(self) -> bool:
        return bool(self._at)

    def conflict(self, volumes: Iterable[PodVolume]) -> bool:
        """Return whether ``volumes`` and this pod share a disk that one of them uses exclusively."""
        return any(self._is_taken(disk) for it in volumes for disk in it.disks)

    def _is_taken(self, disk: Disk) -> bool:
        locations = self._at.get(disk.image)
        if locations is None:
            return False
        every, exclusive = locations
        return not (every if disk.is_exclusive else exclusive).isdisjoint(disk.places)


class VolumeSources(Struct, rename="camel"):
    """Volume of a pod in JSON, reduced to the sources that affect placement. The sources stay raw."""

    name: Raw = Raw()
    persistent_volume_claim: Raw = Raw()
    ephemeral: Raw = Raw()
    gce_persistent_disk: Raw = Raw()
    aws_elastic_block_store: Raw = Raw()
    iscsi: Raw = Raw()
    rbd: Raw = Raw()
    azure_disk: Raw = Raw()
    cinder: Raw = Raw()
    portworx_volume: Raw = Raw()

    def sources(self) -> tuple[Raw, ...]:
        """Return the JSON of each source, empty if absent."""
        return (
            self.persistent_volume_claim,
            self.ephemeral,
            self.gce_persistent_disk,
            self.aws_elastic_block_store,
            self.iscsi,
            self.rbd,
            self.azure_disk,
            self.cinder,
            self.portworx_volume,
        )


class _ClaimSourceObject(Struct, rename="camel"):
    claim_name: str | None = None


class _EphemeralObject(Struct):
    pass


class _GceDiskObject(Struct, rename={"pd_name": "pdName", "read_only": "readOnly"}):
    pd_name: str | None = None
    read_only: bool | None = None

    def disk(self) -> Disk:
        return Disk(GCE_DISK, self.pd_name or "", bool(self.read_only))


class _VolumeIdObject(Struct, rename={"volume_id": "volumeID"}):
    volume_id: str | None = None

    def disk(self) -> Disk:
        return Disk(EBS_DISK, self.volume_id or "")


class _IscsiObject(Struct, rename={"read_only": "readOnly"}):
    iqn: str | None = None
    read_only: bool | None = None

    def disk(self) -> Disk:
        return Disk(ISCSI_DISK, self.iqn or "", bool(self.read_only))


class _RbdObject(Struct, rename={"read_only": "readOnly"}):
    monitors: list[str] | None = None
    pool: str | None = None
    image: str | None = None
    read_only: bool | None = None

    def disk(self) -> Disk:
        return Disk(RBD_DISK, self.image or "", bool(self.read_only), tuple(self.monitors or ()), self.pool or "")


class _AzureObject(Struct, rename={"disk_uri": "diskURI"}):
    disk_uri: str | None = None
    kind: str | None = None


_TEXT: Final[Decoder[str | None]] = Decoder(str | None)
_CLAIM: Final[Decoder[_ClaimSourceObject | None]] = Decoder(_ClaimSourceObject | None)
_EPHEMERAL: Final[Decoder[_EphemeralObject | None]] = Decoder(_EphemeralObject | None)
_GCE: Final[Decoder[_GceDiskObject | None]] = Decoder(_GceDiskObject | None)
_VOLUME_ID: Final[Decoder[_VolumeIdObject | None]] = Decoder(_VolumeIdObject | None)
_ISCSI: Final[Decoder[_IscsiObject | None]] = Decoder(_IscsiObject | None)
_RBD: Final[Decoder[_RbdObject | None]] = Decoder(_RbdObject | None)
_AZURE: Final[Decoder[_AzureObject | None]] = Decoder(_AzureObject | None)


def volumes_of(volumes: Iterable[VolumeSources]) -> tuple[PodVolume, ...]:
    """Return the volumes that affect placement, in order. Raises ``Oversized`` or ``msgspec.ValidationError``."""
    relevant = [it for it in volumes if any(it.sources())]
    if not relevant:
        return ()
    if len(relevant) > MOST_VOLUMES or sum(_size(it) for it in relevant) > LARGEST_PART:
        raise Oversized(VOLUMES)
    return tuple(_volumes(relevant))


def with_claims(volumes: Iterable[VolumeSources]) -> tuple[PodVolume, ...]:
    """Return only the volumes that have a claim, including generic ephemeral volumes.

    Raises ``Oversized`` or ``msgspec.ValidationError``.
    """
    return tuple(it for it in volumes_of(volumes) if it.claim is not None or it.ephemeral)


def _size(volume: VolumeSources) -> int:
    return sum(len(bytes(raw)) for raw in (volume.name, *volume.sources()))


def _volumes(volumes: Iterable[VolumeSources]) -> Iterator[PodVolume]:
    for source in volumes:
        try:
            volume = _volume(source)
        except msgspec.DecodeError as error:
            raise msgspec.ValidationError(f"{VOLUMES}: {error}") from None
        if volume.is_attachable or volume.disks:
            yield volume


def _volume(source: VolumeSources) -> PodVolume:
    claim = _read(_CLAIM, source.persistent_volume_claim)
    gce, ebs = _read(_GCE, source.gce_persistent_disk), _read(_VOLUME_ID, source.aws_elastic_block_store)
    iscsi, rbd = _read(_ISCSI, source.iscsi), _read(_RBD, source.rbd)
    migrated, untranslatable = _migrated(source, gce, ebs)
    return PodVolume(
        _read(_TEXT, source.name) or "",
        None if claim is None else claim.claim_name or "",
        _read(_EPHEMERAL, source.ephemeral) is not None,
        tuple(it.disk() for it in (gce, ebs, iscsi, rbd) if it is not None),
        migrated,
        untranslatable,
    )


def _read(decoder: Decoder[T | None], raw: Raw) -> T | None:
    data = bytes(raw)
    return decoder.decode(data) if data else None


def _migrated(
    source: VolumeSources, gce: _GceDiskObject | None, ebs: _VolumeIdObject | None
) -> tuple[MigratedVolume | None, str]:
    """Return (CSI equivalent, ``""``); (``None``, error) if not translatable; (``None``, ``""``) if not in-tree."""
    try:
        if gce is not None:
            return csi_migration.gce_disk(gce.pd_name or ""), ""
        if ebs is not None:
            return csi_migration.ebs_disk(ebs.volume_id or ""), ""
        azure = _read(_AZURE, source.azure_disk)
        if azure is not None:
            return csi_migration.azure_disk(azure.disk_uri or "", azure.kind), ""
        for raw, translate in (
            (source.cinder, csi_migration.cinder_volume),
            (source.portworx_volume, csi_migration.portworx_volume),
        ):
            named = _read(_VOLUME_ID, raw)
            if named is not None:
                return translate(named.volume_id or ""), ""
    except Untranslatable as error:
        return None, str(error)
    return None, ""
