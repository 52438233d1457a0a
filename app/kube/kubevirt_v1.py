"""KubeVirt's VirtualMachineInstance, reduced to the fields that show which of its pods runs the virtual machine."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

from msgspec import Raw, Struct

from app.kube.decoding import Decoder
from app.kube.meta_v1 import MetadataObject, ObjectKey, OwnerReference, annotations_of, controller_of, required


class VirtualMachineInstance(Struct, frozen=True, gc=False):
    """VirtualMachineInstance. ``node_name`` is ``status.nodeName``, empty until the pod with the machine is ready.

    ``moved_from`` and ``moved_to`` are ``sourceNode`` and ``targetNode`` of ``status.migrationState``. They describe
    the current or last migration, even if it failed, and are empty before the first migration.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    annotations: Mapping[str, str]
    owner: OwnerReference | None
    node_name: str
    moved_from: str = ""
    moved_to: str = ""

    @property
    def key(self) -> ObjectKey:
        return (self.namespace, self.name)


class _MigrationStateObject(Struct, rename="camel"):
    source_node: str | None = None
    target_node: str | None = None


class _InstanceStatusObject(Struct, rename="camel"):
    node_name: str | None = None
    migration_state: _MigrationStateObject | None = None


class _InstanceObject(Struct):
    metadata: MetadataObject
    status: _InstanceStatusObject | None = None


_DECODER: Final = Decoder[_InstanceObject](_InstanceObject)


def decode_instance(raw: bytes | Raw) -> VirtualMachineInstance:
    """Decode one VirtualMachineInstance. Raises ``msgspec.DecodeError``."""
    instance = _DECODER.decode(raw)
    meta = instance.metadata
    status = instance.status or _InstanceStatusObject()
    moved = status.migration_state or _MigrationStateObject()
    return VirtualMachineInstance(
        namespace=sys.intern(meta.namespace or "default"),
        name=required(meta.name, "metadata.name"),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        annotations=annotations_of(meta.annotations),
        owner=controller_of(meta.owner_references),
        node_name=sys.intern(status.node_name or ""),
        moved_from=sys.intern(moved.source_node or ""),
        moved_to=sys.intern(moved.target_node or ""),
    )
