"""The claims of a pod with what they lead to, as the plugins for volumes look them up."""

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


def claim_not_found(name: str) -> str:
    """What kube-scheduler says of a claim that does not exist."""
    return not_found("persistentvolumeclaim", name)


def volume_not_found(name: str) -> str:
    """The same of a PersistentVolume."""
    return not_found("persistentvolume", name)


def class_not_found(name: str) -> str:
    """The same of a StorageClass."""
    return not_found("storageclass.storage.k8s.io", name)


def is_for_pod(claim: PersistentVolumeClaim, pod: Pod | Mounts) -> bool:
    """Whether a claim was made for the pod, as that of an ephemeral volume has to be."""
    return claim.namespace == pod.namespace and claim.owner is not None and claim.owner.uid == pod.uid


def not_for_pod(claim: PersistentVolumeClaim, pod: Pod | Mounts) -> str:
    """What kube-scheduler says where it was not."""
    return f"PVC {claim.namespace}/{claim.name} was not created for pod {pod} (pod is not owner)"


def claims_signature(objects: Objects, pod: Pod) -> Hashable:
    """The volumes of a pod with the claims, PersistentVolumes and StorageClasses that they lead to, all hashable.

    ``NO_CLAIMS`` where it has no volume that matters. Equal for two pods only if all these are. Raises ``Unreadable``.
    """
    volumes = pod.spec.volumes
    if not volumes and VOLUMES not in pod.spec.oversized:
        return NO_CLAIMS
    named = (pod.name, pod.uid) if any(it.ephemeral for it in volumes) else ()
    names = dict.fromkeys(it.claim_name(pod.name) for it in volumes)
    found = tuple(_led_to(objects, pod.namespace, it) for it in names if it is not None)
    return (pod.namespace, *named, volumes, pod.spec.oversized, found)


def _led_to(objects: Objects, namespace: str, name: str) -> Hashable:
    claim = objects.get(PERSISTENT_VOLUME_CLAIMS, namespace, name)
    if claim is None:
        return None
    volume = objects.get(PERSISTENT_VOLUMES, "", claim.volume_name) if claim.volume_name else None
    storage_class = objects.get(STORAGE_CLASSES, "", claim.class_name) if claim.class_name else None
    return (claim.identity, volume, storage_class)
