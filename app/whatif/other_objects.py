"""Objects of a request that create no pods, but that filters read, such as claims, namespaces and Services."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from app.cache.cluster import Cluster
from app.config.manifest_fields import BadField, explained, mapping_at, text_at
from app.kube.kinds import (
    DEVICE_CLASSES,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    RESOURCE_CLAIMS,
    SERVICES,
    STORAGE_CLASSES,
    Kind,
)
from app.kube.names import is_subdomain
from app.whatif.pod_templates import json_of
from app.whatif.simulated import ManifestPods, uid_of

_CLUSTER_WIDE: Final[frozenset[Kind[Any]]] = frozenset(
    {NAMESPACES, PERSISTENT_VOLUMES, STORAGE_CLASSES, DEVICE_CLASSES}
)
_WITH_STATE: Final[frozenset[Kind[Any]]] = frozenset({PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, RESOURCE_CLAIMS})
"""Kinds of which an object in the cluster takes precedence over its manifest.

A manifest lacks the state of the object, such as the bound volume.
"""

_READ: Final[Mapping[tuple[str, str], Kind[Any]]] = {
    (it.api_version, it.kind): it for it in (*_CLUSTER_WIDE, PERSISTENT_VOLUME_CLAIMS, RESOURCE_CLAIMS, SERVICES)
}
_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""Label that the API server gives each Namespace."""


def add_object(obj: Mapping[str, Any], namespace: str, cluster: Cluster, changes: ManifestPods) -> bool:
    """Return true if filters read the object's kind, and then add the object to ``changes.objects``.

    If an object in the cluster takes precedence (``_WITH_STATE``), only add a note instead. ``namespace``: used if the
    object names none. Raises ``BadField``.
    """
    kind = _READ.get((text_at(obj, ("apiVersion",)), str(obj["kind"])))
    if kind is None:
        return False
    name = text_at(obj, ("metadata", "name"))
    if not is_subdomain(name):
        raise BadField(("metadata", "name"), "is not a valid name" if name else "is missing")
    given = "" if kind in _CLUSTER_WIDE else text_at(obj, ("metadata", "namespace")) or namespace
    if kind in _WITH_STATE and cluster.others.get(kind, given, name) is not None:
        changes.notes.append(f"{kind.kind}/{'/'.join(filter(None, (given, name)))} exists, so it is used as it is now")
        return True
    metadata = {**mapping_at(obj, ("metadata",)), "uid": uid_of(kind.kind, given, name), "resourceVersion": "1"}
    if given:
        metadata["namespace"] = given
    if kind == NAMESPACES:
        metadata["labels"] = {**mapping_at(obj, ("metadata", "labels")), _NAME_LABEL: name}
    document = {key: value for key, value in obj.items() if key != "status"} | {"metadata": metadata}
    try:
        changes.objects.append((kind, cluster.decoder(kind)(json_of(document, ()))))
    except msgspec.DecodeError as error:
        raise BadField(*explained(str(error), document)) from None
    return True
