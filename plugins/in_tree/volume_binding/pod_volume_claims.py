"""Finds the PersistentVolumeClaims of a pod: bound claims, and claims that wait for the pod's node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from app.framework.claims import claim_not_found, is_for_pod, not_for_pod
from app.framework.objects import Objects
from app.framework.status import TOO_LONG
from app.kube.core_v1 import Pod
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS, STORAGE_CLASSES
from app.kube.persistent_volumes import PersistentVolumeClaim
from app.kube.quoting import quoted
from app.kube.storage_v1 import WAIT_FOR_FIRST_CONSUMER
from app.kube.volumes import VOLUMES

REASON_IMMEDIATE: Final = "pod has unbound immediate PersistentVolumeClaims"
REASON_LONG_VOLUMES: Final = TOO_LONG.format(VOLUMES)


class NoNodeFits(Exception):  # not an error: the pod is rejected
    """The pod fits on no node because of its claims. ``reason`` is kube-scheduler's text, if it has one."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class MissingBindingMode(Exception):
    """A StorageClass has no volumeBindingMode, although the API server always stores one."""

    def __init__(self, name: str) -> None:
        super().__init__(f"VolumeBindingMode not set for StorageClass {quoted(name)}")


class PodVolumeClaims(Struct, frozen=True):
    """Claims of a pod in the order of its volumes, with repetitions.

    ``waiting``: unbound claims of a class with volumeBindingMode WaitForFirstConsumer.
    """

    bound: tuple[PersistentVolumeClaim, ...]
    waiting: tuple[PersistentVolumeClaim, ...]


def claims_of(objects: Objects, pod: Pod) -> Iterator[PersistentVolumeClaim]:
    """Yield all claims of a pod.

    Raises ``NoNodeFits`` if the pod's volumes are oversized, or at the first claim that rules out every node.
    """
    if VOLUMES in pod.spec.oversized:
        raise NoNodeFits(REASON_LONG_VOLUMES)
    for volume in pod.spec.volumes:
        name = volume.claim_name(pod.name)
        if name is None:
            continue
        claim = objects.get(PERSISTENT_VOLUME_CLAIMS, pod.namespace, name)
        own = volume.claim is None
        if claim is None and own:
            waiting = "waiting for ephemeral volume controller to create the persistentvolumeclaim"
            raise NoNodeFits(f"{waiting} {quoted(name)}")
        if claim is None:
            raise NoNodeFits(claim_not_found(name))
        if claim.lost:
            lost = f"bound to non-existent persistentvolume {quoted(claim.volume_name)}"
            raise NoNodeFits(f"persistentvolumeclaim {quoted(name)} {lost}")
        if claim.terminating:
            raise NoNodeFits(f"persistentvolumeclaim {quoted(name)} is being deleted")
        if own and not is_for_pod(claim, pod):
            raise NoNodeFits(not_for_pod(claim, pod))
        yield claim


def pod_volume_claims(objects: Objects, pod: Pod) -> PodVolumeClaims:
    """Return the claims of a pod.

    Raises ``NoNodeFits`` (also for unbound immediate claims), ``MissingBindingMode`` or ``Unreadable``.
    """
    claims = tuple(claims_of(objects, pod))
    unbound = [it for it in claims if not it.is_bound]
    waits = [_waits(objects, it) for it in unbound]
    if not all(waits):
        raise NoNodeFits(REASON_IMMEDIATE)
    return PodVolumeClaims(tuple(it for it in claims if it.is_bound), tuple(unbound))


def _waits(objects: Objects, claim: PersistentVolumeClaim) -> bool:
    """Return true if an unbound claim waits for its pod's node. Raises ``MissingBindingMode``.

    A claim that names a volume does not wait, because the PersistentVolume controller binds it to that volume.
    """
    storage_class = objects.get(STORAGE_CLASSES, "", claim.class_name) if claim.class_name else None
    if storage_class is None:
        return False
    if storage_class.binding_mode is None:
        raise MissingBindingMode(claim.class_name)
    return storage_class.binding_mode == WAIT_FOR_FIRST_CONSUMER and not claim.volume_name
