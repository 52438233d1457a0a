"""PersistentVolumeClaims of generic ephemeral volumes. A controller creates one for each such volume of a new pod."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from app.cache.cluster import Cluster
from app.config.manifest_fields import BadField, explained, mapping_at
from app.config.mistakes import Place
from app.framework.claims import is_for_pod
from app.kube.core_v1 import Pod
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS
from app.kube.meta_v1 import OwnerReference
from app.kube.persistent_volumes import PersistentVolumeClaim
from app.whatif.pod_templates import json_of
from app.whatif.simulated import uid_of

_TEMPLATE: Final = ("ephemeral", "volumeClaimTemplate")


def claims_like(cluster: Cluster, source: str, pod: Pod) -> Iterator[PersistentVolumeClaim]:
    """Yield the missing claims of a new pod's ephemeral volumes, as copies of claims of the pod named ``source``.

    Claims that ``source`` lacks are left out.
    """
    for volume in pod.spec.parts.volumes or ():
        if volume.claim is not None or not volume.ephemeral:
            continue
        name = f"{pod.name}-{volume.name}"
        known = cluster.others.get(PERSISTENT_VOLUME_CLAIMS, pod.namespace, name)
        if known is not None and is_for_pod(known, pod):
            continue
        like = cluster.others.get(PERSISTENT_VOLUME_CLAIMS, pod.namespace, f"{source}-{volume.name}")
        if like is not None:
            owner = OwnerReference("Pod", pod.name, "v1", pod.uid, controller=True)
            yield replace(unbound(like, name), owner=owner)


def unbound(source: PersistentVolumeClaim, name: str) -> PersistentVolumeClaim:
    """Return an unbound copy of a claim with another name."""
    return replace(
        source,
        name=name,
        uid=uid_of("PersistentVolumeClaim", source.namespace, name),
        resource_version="1",
        volume_name="",
        selected_node=None,
        bind_completed=False,
        lost=False,
        terminating=False,
    )


def claims_of_template(spec: Mapping[str, Any], place: Place, pods: Iterable[Pod]) -> Iterator[PersistentVolumeClaim]:
    """Yield the claims of the ephemeral volumes of new pods. Raises ``BadField``.

    ``spec``: of the pods' template. ``place``: path of ``spec`` in the manifest.
    """
    templates = [
        (number, volume, mapping_at(volume, _TEMPLATE))
        for number, volume in enumerate(spec.get("volumes") or ())
        if isinstance(volume, dict) and volume.get("ephemeral")
    ]
    if not templates:
        return
    for pod in pods:
        for number, volume, template in templates:
            name = f"{pod.name}-{volume.get('name')}"
            identity = {
                "name": name,
                "namespace": pod.namespace,
                "uid": uid_of("PersistentVolumeClaim", pod.namespace, name),
                "resourceVersion": "1",
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
                ],
            }
            metadata = {**mapping_at(template, ("metadata",)), **identity}
            document = {"metadata": metadata, "spec": mapping_at(template, ("spec",))}
            try:
                yield PERSISTENT_VOLUME_CLAIMS.decode(json_of(document, ()))
            except msgspec.DecodeError as error:
                field, message = explained(str(error), document)
                raise BadField((*place, "volumes", number, *_TEMPLATE, *field), message) from None
