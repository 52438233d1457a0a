"""Kinds of Kubernetes objects, each with its API version and the decoder of its objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Generic, Protocol, TypeVar

from msgspec import Raw

from app.kube.apps_v1 import Workload, decode_workload
from app.kube.core_decoding import decode_node, decode_pod
from app.kube.core_v1 import Node, Pod
from app.kube.kubevirt_v1 import VirtualMachineInstance, decode_instance
from app.kube.meta_v1 import ObjectKey, OwnerReference, PartialObject, decode_partial
from app.kube.persistent_volumes import PersistentVolume, PersistentVolumeClaim, decode_claim, decode_volume
from app.kube.policy_v1 import PodDisruptionBudget, decode_budget
from app.kube.priority_classes import PriorityClass, decode_priority_class
from app.kube.resource_claims import decode_resource_claim
from app.kube.resource_slices import decode_device_class, decode_slice
from app.kube.resource_v1 import DeviceClass, ResourceClaim, ResourceSlice
from app.kube.services import Namespace, Service, decode_namespace, decode_service
from app.kube.storage_v1 import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    StorageClass,
    VolumeAttachment,
    decode_attachment,
    decode_capacity,
    decode_class,
    decode_csi_driver,
    decode_csi_node,
)


class KubeObject(Protocol):
    """Properties that all decoded objects have."""

    @property
    def key(self) -> ObjectKey: ...
    @property
    def uid(self) -> str: ...


class AnnotatedObject(KubeObject, Protocol):
    """Decoded object that can have a home annotation and an owner."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def resource_version(self) -> str: ...
    @property
    def annotations(self) -> Mapping[str, str]: ...
    @property
    def owner(self) -> OwnerReference | None: ...


T_co = TypeVar("T_co", bound=KubeObject, covariant=True)


class Kind(Generic[T_co]):
    """Kind of objects that a snapshot can contain. Kinds with the same ``api_version`` and ``kind`` are equal.

    If ``metadata_only``, only the metadata of the objects is requested.
    """

    __slots__ = ("_hash", "api_version", "decode", "kind", "metadata_only")

    def __init__(
        self, api_version: str, kind: str, decode: Callable[[bytes | Raw], T_co], *, metadata_only: bool = False
    ) -> None:
        self.api_version = api_version
        self.kind = kind
        self.decode = decode
        self.metadata_only = metadata_only
        self._hash = hash((api_version, kind))  # computed once, because each look-up of an object uses it

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kind) and (self.api_version, self.kind) == (other.api_version, other.kind)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"{self.api_version} {self.kind}"


PODS: Final[Kind[Pod]] = Kind("v1", "Pod", decode_pod)
NODES: Final[Kind[Node]] = Kind("v1", "Node", decode_node)
NAMESPACES: Final[Kind[Namespace]] = Kind("v1", "Namespace", decode_namespace, metadata_only=True)
SERVICES: Final[Kind[Service]] = Kind("v1", "Service", decode_service)
REPLICATION_CONTROLLERS: Final[Kind[Service]] = Kind("v1", "ReplicationController", decode_service)
REPLICA_SETS: Final[Kind[Workload]] = Kind("apps/v1", "ReplicaSet", decode_workload)
STATEFUL_SETS: Final[Kind[Workload]] = Kind("apps/v1", "StatefulSet", decode_workload)
POD_DISRUPTION_BUDGETS: Final[Kind[PodDisruptionBudget]] = Kind("policy/v1", "PodDisruptionBudget", decode_budget)
PRIORITY_CLASSES: Final[Kind[PriorityClass]] = Kind("scheduling.k8s.io/v1", "PriorityClass", decode_priority_class)
VIRTUAL_MACHINE_INSTANCES: Final[Kind[VirtualMachineInstance]] = Kind(
    "kubevirt.io/v1", "VirtualMachineInstance", decode_instance
)

PERSISTENT_VOLUME_CLAIMS: Final[Kind[PersistentVolumeClaim]] = Kind("v1", "PersistentVolumeClaim", decode_claim)
PERSISTENT_VOLUMES: Final[Kind[PersistentVolume]] = Kind("v1", "PersistentVolume", decode_volume)
STORAGE_CLASSES: Final[Kind[StorageClass]] = Kind("storage.k8s.io/v1", "StorageClass", decode_class)
CSI_NODES: Final[Kind[CSINode]] = Kind("storage.k8s.io/v1", "CSINode", decode_csi_node)
CSI_DRIVERS: Final[Kind[CSIDriver]] = Kind("storage.k8s.io/v1", "CSIDriver", decode_csi_driver)
VOLUME_ATTACHMENTS: Final[Kind[VolumeAttachment]] = Kind("storage.k8s.io/v1", "VolumeAttachment", decode_attachment)
CSI_STORAGE_CAPACITIES: Final[Kind[CSIStorageCapacity]] = Kind(
    "storage.k8s.io/v1", "CSIStorageCapacity", decode_capacity
)
RESOURCE_CLAIMS: Final[Kind[ResourceClaim]] = Kind("resource.k8s.io/v1", "ResourceClaim", decode_resource_claim)
RESOURCE_SLICES: Final[Kind[ResourceSlice]] = Kind("resource.k8s.io/v1", "ResourceSlice", decode_slice)
DEVICE_CLASSES: Final[Kind[DeviceClass]] = Kind("resource.k8s.io/v1", "DeviceClass", decode_device_class)

_OWNERS: Final[Mapping[tuple[str, str], Kind[AnnotatedObject]]] = {
    (it.api_version, it.kind): it
    for it in (REPLICA_SETS, STATEFUL_SETS, PERSISTENT_VOLUME_CLAIMS, VIRTUAL_MACHINE_INSTANCES)
}


def owner_kind(api_version: str, kind: str) -> Kind[AnnotatedObject]:
    """Return the kind of an owner. If it is not in ``_OWNERS``, for example a Job, only metadata is requested."""
    known = _OWNERS.get((api_version, kind))
    return known if known is not None else partial_kind(api_version, kind)


def partial_kind(api_version: str, kind: str) -> Kind[PartialObject]:
    """Return a kind for which only the metadata of objects is requested and decoded."""
    return Kind(api_version, kind, decode_partial, metadata_only=True)
