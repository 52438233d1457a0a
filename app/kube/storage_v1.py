"""Objects of ``storage.k8s.io/v1``, reduced to the fields that affect the placement of pods with volumes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec
from msgspec import Raw, Struct

from app.kube.decoding import Decoder
from app.kube.meta_v1 import MetadataObject, ObjectKey, Oversized, parse_map, required, shared
from app.kube.quantity import MalformedQuantity, OverlongQuantity, quantity_of
from app.kube.selectors import IN, InvalidSelector, Selector, decode_selector, requirement, selector

WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"

_MIGRATED: Final = "storage.alpha.kubernetes.io/migrated-plugins"
_MIGRATED_BYTES: Final = _MIGRATED.encode()
_MOST_DRIVERS: Final = 1024
"""Maximum number of CSI drivers, and of migrated plugins, that are read from one CSINode. The rest is dropped."""


class StorageClass(Struct, frozen=True, gc=False):
    """StorageClass. ``binding_mode`` is ``None`` if not set.

    If ``restricted``, a node must match one of ``topologies``. Terms that are empty or cannot be parsed are omitted,
    because they match no node.
    """

    name: str
    uid: str
    provisioner: str
    binding_mode: str | None
    restricted: bool
    topologies: tuple[Selector, ...]

    @property
    def key(self) -> ObjectKey:
        return ("", self.name)

    def allows(self, labels: Mapping[str, str]) -> bool:
        """Return whether the class allows volumes to be provisioned for a node with these labels."""
        return not self.restricted or any(it.matches(labels) for it in self.topologies)


class CSINode(Struct, frozen=True, gc=False):
    """CSINode: the CSI drivers of one node.

    ``limits``: maximum number of attached volumes by driver, without drivers that report no limit. ``migrated``: the
    in-tree plugins that are migrated to a CSI driver on the node.
    """

    name: str
    uid: str
    limits: Mapping[str, int]
    migrated: frozenset[str]

    @property
    def key(self) -> ObjectKey:
        return ("", self.name)


class CSIDriver(Struct, frozen=True, gc=False):
    """CSIDriver. If ``storage_capacity`` is true, the scheduler must check the driver's CSIStorageCapacity objects."""

    name: str
    uid: str
    storage_capacity: bool

    @property
    def key(self) -> ObjectKey:
        return ("", self.name)


class VolumeAttachment(Struct, frozen=True, gc=False):
    """VolumeAttachment. ``volume_name`` is the PersistentVolume, or ``None`` for an inline volume of a pod."""

    name: str
    uid: str
    attacher: str
    node_name: str
    volume_name: str | None

    @property
    def key(self) -> ObjectKey:
        return ("", self.name)


class CSIStorageCapacity(Struct, frozen=True, gc=False):
    """CSIStorageCapacity: maximum size of a new volume of a class on the nodes that ``topology`` selects.

    A ``topology`` of ``None`` selects no node. ``limit`` is ``maximumVolumeSize``, or else ``capacity``, in bytes;
    ``None`` if neither is set.
    """

    namespace: str
    name: str
    uid: str
    class_name: str
    topology: Selector | None
    limit: int | None

    @property
    def key(self) -> ObjectKey:
        return (self.namespace, self.name)


class _ExpressionObject(Struct):
    key: str | None = None
    values: list[str] | None = None


class _TopologyObject(Struct, rename="camel"):
    match_label_expressions: list[_ExpressionObject] | None = None


class _StorageClassObject(Struct, rename="camel"):
    metadata: MetadataObject
    provisioner: str | None = None
    volume_binding_mode: str | None = None
    allowed_topologies: Raw = Raw()


class _AllocatableObject(Struct):
    count: int | None = None


class _NodeDriverObject(Struct):
    name: str | None = None
    allocatable: _AllocatableObject | None = None


class _CSINodeSpecObject(Struct):
    drivers: list[_NodeDriverObject] | None = None


class _CSINodeObject(Struct):
    metadata: MetadataObject
    spec: _CSINodeSpecObject | None = None


class _DriverSpecObject(Struct, rename="camel"):
    storage_capacity: bool | None = None


class _DriverObject(Struct):
    metadata: MetadataObject
    spec: _DriverSpecObject | None = None


class _SourceObject(Struct, rename="camel"):
    persistent_volume_name: str | None = None


class _AttachmentSpecObject(Struct, rename="camel"):
    attacher: str | None = None
    node_name: str | None = None
    source: _SourceObject | None = None


class _AttachmentObject(Struct):
    metadata: MetadataObject
    spec: _AttachmentSpecObject | None = None


class _StorageCapacityObject(Struct, rename="camel"):
    metadata: MetadataObject
    storage_class_name: str | None = None
    node_topology: Raw = Raw()
    capacity: Raw = Raw()
    maximum_volume_size: Raw = Raw()


_CLASSES: Final = Decoder[_StorageClassObject](_StorageClassObject)
_NODES: Final = Decoder[_CSINodeObject](_CSINodeObject)
_DRIVERS: Final = Decoder[_DriverObject](_DriverObject)
_ATTACHMENTS: Final = Decoder[_AttachmentObject](_AttachmentObject)
_CAPACITIES: Final = Decoder[_StorageCapacityObject](_StorageCapacityObject)
_TOPOLOGIES: Final[Decoder[list[_TopologyObject] | None]] = Decoder(list[_TopologyObject] | None)


def _parse_topologies(data: bytes) -> tuple[bool, tuple[Selector, ...]]:
    terms = _TOPOLOGIES.decode(data) or ()
    return bool(terms), tuple(_terms(terms))


def _terms(terms: Iterable[_TopologyObject]) -> Iterator[Selector]:
    """Yield the selectors of the terms that can match a node."""
    for term in terms:
        expressions = term.match_label_expressions
        if not expressions:
            continue
        try:
            yield selector(requirement(it.key or "", IN, it.values or ()) for it in expressions)
        except InvalidSelector:
            continue


def _parse_selector(data: bytes) -> Selector | None:
    try:
        return decode_selector(data)
    except InvalidSelector:
        return None


_topologies_of: Final = shared("allowedTopologies", _parse_topologies)
_topology_of: Final = shared("nodeTopology", _parse_selector)


def decode_class(raw: bytes | Raw) -> StorageClass:
    """Decode one StorageClass. Raises ``msgspec.DecodeError``."""
    class_object = _CLASSES.decode(raw)
    try:
        restricted, topologies = _topologies_of(class_object.allowed_topologies)
    except Oversized as error:
        raise msgspec.ValidationError(str(error)) from None
    return StorageClass(
        name=sys.intern(required(class_object.metadata.name, "metadata.name")),
        uid=class_object.metadata.uid or "",
        provisioner=sys.intern(class_object.provisioner or ""),
        binding_mode=class_object.volume_binding_mode,
        restricted=restricted,
        topologies=topologies,
    )


def decode_csi_node(raw: bytes | Raw) -> CSINode:
    """Decode one CSINode. Raises ``msgspec.DecodeError``."""
    node = _NODES.decode(raw)
    drivers = ((node.spec and node.spec.drivers) or ())[:_MOST_DRIVERS]
    return CSINode(
        name=sys.intern(required(node.metadata.name, "metadata.name")),
        uid=node.metadata.uid or "",
        limits={
            sys.intern(it.name or ""): it.allocatable.count
            for it in drivers
            if it.allocatable is not None and it.allocatable.count is not None
        },
        migrated=_migrated(node.metadata.annotations),
    )


def _migrated(annotations: Raw) -> frozenset[str]:
    data = bytes(annotations)
    if _MIGRATED_BYTES not in data:
        return frozenset()
    try:
        plugins = (parse_map(data) or {}).get(_MIGRATED)
    except msgspec.DecodeError as error:
        raise msgspec.ValidationError(f"metadata.annotations: {error}") from None
    return frozenset(map(sys.intern, (plugins or "").split(",")[:_MOST_DRIVERS])) - {""}


def decode_csi_driver(raw: bytes | Raw) -> CSIDriver:
    """Decode one CSIDriver. Raises ``msgspec.DecodeError``."""
    driver = _DRIVERS.decode(raw)
    return CSIDriver(
        name=sys.intern(required(driver.metadata.name, "metadata.name")),
        uid=driver.metadata.uid or "",
        storage_capacity=bool(driver.spec and driver.spec.storage_capacity),
    )


def decode_attachment(raw: bytes | Raw) -> VolumeAttachment:
    """Decode one VolumeAttachment. Raises ``msgspec.DecodeError``."""
    attachment = _ATTACHMENTS.decode(raw)
    spec = attachment.spec or _AttachmentSpecObject()
    return VolumeAttachment(
        name=required(attachment.metadata.name, "metadata.name"),
        uid=attachment.metadata.uid or "",
        attacher=sys.intern(spec.attacher or ""),
        node_name=sys.intern(spec.node_name or ""),
        volume_name=None if spec.source is None else spec.source.persistent_volume_name,
    )


def decode_capacity(raw: bytes | Raw) -> CSIStorageCapacity:
    """Decode one CSIStorageCapacity. Raises ``msgspec.DecodeError``."""
    capacity = _CAPACITIES.decode(raw)
    meta = capacity.metadata
    try:
        topology = _topology_of(capacity.node_topology)
    except Oversized as error:
        raise msgspec.ValidationError(str(error)) from None
    largest = _bytes("maximumVolumeSize", capacity.maximum_volume_size)
    return CSIStorageCapacity(
        namespace=sys.intern(meta.namespace or "default"),
        name=required(meta.name, "metadata.name"),
        uid=meta.uid or "",
        class_name=sys.intern(capacity.storage_class_name or ""),
        topology=topology,
        limit=_bytes("capacity", capacity.capacity) if largest is None else largest,
    )


def _bytes(field: str, raw: Raw) -> int | None:
    """Return the quantity in bytes; ``None`` if not set. Raises ``msgspec.ValidationError``, which names ``field``."""
    data = bytes(raw)
    if data in (b"", b"null"):
        return None
    try:
        return quantity_of(raw).value()
    except MalformedQuantity as error:
        raise msgspec.ValidationError(f"{field}: {error}") from None
    except OverlongQuantity:
        raise msgspec.ValidationError(f"{field}: a quantity that is too long to be read") from None
