"""PersistentVolumes and PersistentVolumeClaims, reduced to the fields that Homeport reads."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Raw, Struct

from app.kube.csi_migration import InTreeSources, MigratedVolume, migrated_affinity
from app.kube.decoding import Decoder
from app.kube.labels import LabelSet
from app.kube.meta_v1 import (
    MetadataObject,
    ObjectKey,
    Oversized,
    OwnerReference,
    annotations_of,
    controller_of,
    labels_of,
    labels_or_empty,
    parse_map,
    required,
    shared,
)
from app.kube.node_affinity import RequiredNodeAffinity
from app.kube.quantity import ZERO, OverlongQuantity, Quantity, quantity_of
from app.kube.selectors import Selector, selector_or_error
from app.kube.volume_affinity import affinity_by_labels_of, affinity_of, without_match_fields

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""Annotation of a claim. Its value is the name of the node for which the volume must be provisioned."""

READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"

_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_FILESYSTEM: Final = "Filesystem"
_LOST: Final = "Lost"
_AVAILABLE: Final = "Available"
_STORAGE: Final = "storage"
_LONGEST: Final = 253
"""Maximum characters of the name of a StorageClass or of a claim's selected node. Longer names are truncated."""

_OVERLONG: Final = "{}.storage: a quantity that is too long to be read"
_MOST_MODES: Final = 16
"""Maximum number of access modes that are read; Kubernetes defines four."""


class PersistentVolumeClaim(Struct, frozen=True, gc=False):
    """PersistentVolumeClaim. ``volume_name`` is the PersistentVolume to which the claim is bound, or which it requests.

    ``class_name`` is empty if the claim has no StorageClass. ``labels`` are empty if they are oversized. ``request`` is
    the requested size. ``request``, ``selector`` and ``selected_node`` are ``None`` if absent. ``lost`` is true in the
    phase Lost: the claim's volume no longer exists.

    ``invalid``: error if the selector is invalid, or if the selector or the size is too long; otherwise empty. An
    invalid selector is ``None``. If the selector or the size is too long, both are ``None``.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    labels: LabelSet
    annotations: Mapping[str, str]
    owner: OwnerReference | None
    class_name: str
    volume_name: str
    access_modes: tuple[str, ...]
    request: Quantity | None
    selector: Selector | None
    invalid: str
    volume_mode: str
    attributes_class: str
    selected_node: str | None
    bind_completed: bool
    lost: bool
    terminating: bool

    @property
    def key(self) -> ObjectKey:
        return (self.namespace, self.name)

    @property
    def is_bound(self) -> bool:
        """True if the claim names its volume and the binding is complete."""
        return bool(self.volume_name) and self.bind_completed

    @property
    def identity(self) -> tuple[object, ...]:
        """Values of the fields that volume plugins read: all except ``resource_version``, labels and annotations."""
        return (
            *(self.namespace, self.name, self.uid, self.class_name, self.volume_name, self.access_modes, self.request),
            *(self.selector, self.invalid, self.volume_mode, self.attributes_class, self.selected_node),
            *(self.bind_completed, self.lost, self.terminating, self.owner),
        )


class ClaimReference(Struct, frozen=True, gc=False):
    """Claim to which a volume is bound, or for which the volume is reserved. A reservation can lack the UID."""

    namespace: str
    name: str
    uid: str

    def is_to(self, claim: PersistentVolumeClaim) -> bool:
        """Return whether this is a reference to ``claim``. Without UID, namespace and name decide."""
        return (self.namespace, self.name) == claim.key and self.uid in ("", claim.uid)


class PersistentVolume(Struct, frozen=True, gc=False):
    """PersistentVolume. ``affinity`` is ``None`` if it excludes no node.

    ``claim`` is ``None`` if the volume is neither bound nor reserved. ``available`` is true in the phase Available.
    ``driver`` and ``handle`` are empty unless it is a CSI volume. ``in_tree_plugin`` is empty unless its plugin is in
    ``csi_migration.DRIVERS``. For such a volume, ``migrated`` is the equivalent CSI volume and ``migrated_affinity``
    its affinity. If the volume cannot be translated, ``migrated`` is ``None`` and ``untranslatable`` is the error.
    """

    name: str
    uid: str
    resource_version: str
    labels: LabelSet
    class_name: str
    capacity: Quantity
    access_modes: tuple[str, ...]
    claim: ClaimReference | None
    affinity: RequiredNodeAffinity | None
    volume_mode: str
    attributes_class: str
    available: bool
    terminating: bool
    driver: str = ""
    handle: str = ""
    is_csi: bool = False
    in_tree_plugin: str = ""
    migrated: MigratedVolume | None = None
    migrated_affinity: RequiredNodeAffinity | None = None
    untranslatable: str = ""

    @property
    def key(self) -> ObjectKey:
        return ("", self.name)


class _ResourcesObject(Struct):
    requests: Raw = Raw()


class _VolumeClaimSpecObject(Struct, rename="camel"):
    access_modes: list[str] | None = None
    resources: _ResourcesObject | None = None
    selector: Raw = Raw()
    storage_class_name: str | None = None
    volume_attributes_class_name: str | None = None
    volume_mode: str | None = None
    volume_name: str | None = None


class _PhaseObject(Struct):
    phase: str | None = None


class _VolumeClaimObject(Struct):
    metadata: MetadataObject
    spec: _VolumeClaimSpecObject | None = None
    status: _PhaseObject | None = None


class _ClaimReferenceObject(Struct):
    namespace: str | None = None
    name: str | None = None
    uid: str | None = None


class _CsiObject(Struct, rename="camel"):
    driver: str | None = None
    volume_handle: str | None = None


class _VolumeSpecObject(InTreeSources, rename="camel"):
    access_modes: list[str] | None = None
    capacity: Raw = Raw()
    claim_ref: _ClaimReferenceObject | None = None
    node_affinity: Raw = Raw()
    storage_class_name: str | None = None
    volume_attributes_class_name: str | None = None
    volume_mode: str | None = None
    csi: _CsiObject | None = None


class _VolumeObject(Struct):
    metadata: MetadataObject
    spec: _VolumeSpecObject | None = None
    status: _PhaseObject | None = None


_CLAIMS: Final = Decoder[_VolumeClaimObject](_VolumeClaimObject)
_VOLUMES: Final = Decoder[_VolumeObject](_VolumeObject)
_AMOUNTS: Final[Decoder[dict[str, Raw] | None]] = Decoder(dict[str, Raw] | None)


_selector_of: Final = shared("spec.selector", selector_or_error)


def _storage_in(field: str, raw: Raw) -> Quantity | None:
    """Return the amount of ``storage`` in a resource list; ``None`` if absent.

    Raises ``OverlongQuantity``, or ``msgspec.ValidationError`` with ``field`` in its message.
    """
    data = bytes(raw)
    try:
        amounts = _AMOUNTS.decode(data) if data else None
        amount = None if amounts is None else amounts.get(_STORAGE)
        return None if amount is None else quantity_of(amount)
    except msgspec.DecodeError as error:
        raise msgspec.ValidationError(f"{field}: {error}") from None


def _modes(modes: Iterable[str] | None) -> tuple[str, ...]:
    """Return the distinct access modes, at most ``_MOST_MODES``."""
    return tuple(sys.intern(it) for it in tuple(dict.fromkeys(modes or ()))[:_MOST_MODES])


def _annotations(raw: Raw) -> Mapping[str, str | None]:
    """Decode all annotations. To save time, return an empty mapping if the text contains no key of ``_READ``."""
    data = bytes(raw)
    if not any(it in data for it in _READ):
        return {}
    try:
        return parse_map(data) or {}
    except msgspec.DecodeError as error:
        raise msgspec.ValidationError(f"metadata.annotations: {error}") from None


_READ: Final = tuple(it.encode() for it in (SELECTED_NODE, _BIND_COMPLETED, _BETA_CLASS))


def _bounded(name: str | None) -> str:
    """Return the name; empty for ``None``. Truncate an overlong name and append "…", so that it matches no object."""
    text = name or ""
    return sys.intern(text if len(text) <= _LONGEST else text[:_LONGEST] + "…")


def _class_name(annotations: Mapping[str, str | None], field: str | None) -> str:
    """Return the StorageClass name. The beta annotation takes precedence over the field of the spec."""
    return _bounded(annotations.get(_BETA_CLASS, field))


def decode_claim(raw: bytes | Raw) -> PersistentVolumeClaim:
    """Decode one PersistentVolumeClaim. Raises ``msgspec.DecodeError``."""
    claim = _CLAIMS.decode(raw)
    meta, spec = claim.metadata, claim.spec or _VolumeClaimSpecObject()
    annotations = _annotations(meta.annotations)
    selector, request, invalid = _selector_and_request(spec)
    return PersistentVolumeClaim(
        namespace=sys.intern(meta.namespace or "default"),
        name=required(meta.name, "metadata.name"),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        labels=labels_or_empty(meta.labels),
        annotations=annotations_of(meta.annotations),
        owner=controller_of(meta.owner_references),
        class_name=_class_name(annotations, spec.storage_class_name),
        volume_name=spec.volume_name or "",
        access_modes=_modes(spec.access_modes),
        request=request,
        selector=selector,
        invalid=invalid,
        volume_mode=sys.intern(spec.volume_mode or _FILESYSTEM),
        attributes_class=sys.intern(spec.volume_attributes_class_name or ""),
        selected_node=_selected(annotations),
        bind_completed=_BIND_COMPLETED in annotations,
        lost=claim.status is not None and claim.status.phase == _LOST,
        terminating=bool(meta.deletion_timestamp),
    )


def _selector_and_request(spec: _VolumeClaimSpecObject) -> tuple[Selector | None, Quantity | None, str]:
    """Return (selector, requested size, error).

    If the selector is invalid, or selector or size is too long, the error is returned, so the claim is still decoded.
    Raises ``msgspec.ValidationError`` for wrong types and for a text that is not a quantity.
    """
    requests = spec.resources.requests if spec.resources is not None else Raw()
    try:
        selector, invalid = _selector_of(spec.selector)
        return selector, _storage_in("spec.resources.requests", requests), invalid
    except Oversized as error:
        return None, None, str(error)
    except OverlongQuantity:
        return None, None, _OVERLONG.format("spec.resources.requests")


def _selected(annotations: Mapping[str, str | None]) -> str | None:
    return _bounded(annotations[SELECTED_NODE]) if SELECTED_NODE in annotations else None


def decode_volume(raw: bytes | Raw) -> PersistentVolume:
    """Decode one PersistentVolume. Raises ``msgspec.DecodeError``."""
    volume = _VOLUMES.decode(raw)
    meta, spec = volume.metadata, volume.spec or _VolumeSpecObject()
    try:
        labels, affinity = labels_of(meta.labels), affinity_by_labels_of(spec.node_affinity)
        capacity = _storage_in("spec.capacity", spec.capacity)
    except Oversized as error:
        raise msgspec.ValidationError(str(error)) from None
    except OverlongQuantity:
        raise msgspec.ValidationError(_OVERLONG.format("spec.capacity")) from None
    plugin, migrated, untranslatable = spec.migrated(labels)
    return PersistentVolume(
        name=sys.intern(required(meta.name, "metadata.name")),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        labels=labels,
        class_name=_class_name(_annotations(meta.annotations), spec.storage_class_name),
        capacity=capacity or ZERO,
        access_modes=_modes(spec.access_modes),
        claim=_reference(spec.claim_ref),
        affinity=affinity,
        volume_mode=sys.intern(spec.volume_mode or _FILESYSTEM),
        attributes_class=sys.intern(spec.volume_attributes_class_name or ""),
        available=volume.status is not None and volume.status.phase == _AVAILABLE,
        terminating=bool(meta.deletion_timestamp),
        driver=sys.intern((spec.csi and spec.csi.driver) or ""),
        handle=(spec.csi and spec.csi.volume_handle) or "",
        is_csi=spec.csi is not None,
        in_tree_plugin=plugin,
        migrated=migrated,
        migrated_affinity=None
        if migrated is None
        else without_match_fields(migrated_affinity(plugin, affinity_of(spec.node_affinity), labels)),
        untranslatable=untranslatable,
    )


def _reference(reference: _ClaimReferenceObject | None) -> ClaimReference | None:
    return (
        None
        if reference is None
        else ClaimReference(reference.namespace or "", reference.name or "", reference.uid or "")
    )
