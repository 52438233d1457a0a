"""Messages and a cache key about a pod's claims, PersistentVolumes and StorageClasses, shared by the volume plugins."""

from __future__ import annotations

from collections.abc import Hashable

from app.framework.objects import Objects
from app.framework.resources import Mounts
from app.kube.core_v1 import Pod
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from app.kube.persistent_volumes import PersistentVolumeClaim
from app.kube.quoting import not_found
from app.kube.volumes import VOLUMES

NO_CLAIMS: Hashable = ()
"""Result of ``claims_signature`` for a pod without volumes that a volume plugin must check."""


def claim_not_found(name: str) -> str:
    """Return kube-scheduler's message for a claim that does not exist."""
    return not_found("persistentvolumeclaim", name)


def volume_not_found(name: str) -> str:
    """Return kube-scheduler's message for a PersistentVolume that does not exist."""
    return not_found("persistentvolume", name)


def class_not_found(name: str) -> str:
    """Return kube-scheduler's message for a StorageClass that does not exist."""
    return not_found("storageclass.storage.k8s.io", name)


def is_for_pod(claim: PersistentVolumeClaim, pod: Pod | Mounts) -> bool:
    """Return True if the pod owns the claim. The claim of an ephemeral volume must be owned by its pod."""
    return claim.namespace == pod.namespace and claim.owner is not None and claim.owner.uid == pod.uid


def not_for_pod(claim: PersistentVolumeClaim, pod: Pod | Mounts) -> str:
    """Return kube-scheduler's message for a claim that the pod does not own."""
    return f"PVC {claim.namespace}/{claim.name} was not created for pod {pod} (pod is not owner)"


def claims_signature(objects: Objects, pod: Pod) -> Hashable:
    """Return a hashable key of a pod's volumes with their claims, PersistentVolumes and StorageClasses.

    The result is ``NO_CLAIMS`` for a pod without volumes that a volume plugin must check. The keys of two pods are
    equal only if all these volumes and objects are equal. Claims are compared by ``PersistentVolumeClaim.identity``.
    Raises ``Unreadable``.
    """
    volumes = pod.spec.volumes
    if not volumes and VOLUMES not in pod.spec.oversized:
        return NO_CLAIMS
    named = (pod.name, pod.uid) if any(it.ephemeral for it in volumes) else ()
    names = dict.fromkeys(it.claim_name(pod.name) for it in volumes)
    claims = tuple(_claim_key(objects, pod.namespace, it) for it in names if it is not None)
    return (pod.namespace, *named, volumes, pod.spec.oversized, claims)


def _claim_key(objects: Objects, namespace: str, name: str) -> Hashable:
    claim = objects.get(PERSISTENT_VOLUME_CLAIMS, namespace, name)
    if claim is None:
        return None
    volume = objects.get(PERSISTENT_VOLUMES, "", claim.volume_name) if claim.volume_name else None
    storage_class = objects.get(STORAGE_CLASSES, "", claim.class_name) if claim.class_name else None
    return (claim.identity, volume, storage_class)
