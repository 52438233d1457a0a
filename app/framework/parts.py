"""Parts of pods and nodes that a plugin can declare as its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, unique
from typing import Final

from app.kube.extras import Extra


@unique
class Part(Enum):
    """Part of a pod or node. The value is the attribute path below ``Pod``. For parts that only nodes have, it begins
    with ``node.``.
    """

    NAMESPACE = "namespace"
    LABELS = "labels"
    ANNOTATIONS = "annotations"
    """Annotations of the domain ``homeport.dev``."""

    OWNER = "owner"
    NODE_NAME = "node_name"
    SCHEDULER_NAME = "spec.scheduler_name"
    PRIORITY = "spec.priority"
    AFFINITY = "spec.affinity"
    """``nodeSelector`` and required node affinity."""

    TOLERATIONS = "spec.tolerations"
    SPREAD = "spec.spread"
    RESOURCES = "spec.resources"
    """Requests of pods, and allocatable resources of nodes.

    This part and the following ones are decoded only if a plugin of some profile declares them.
    """

    PORTS = "spec.ports"
    """Host ports."""

    IMAGES = "spec.images"
    """Images of the pod's containers and image volumes; for nodes, images present on the node."""

    PREFERRED_AFFINITY = "spec.preferred_affinity"
    SCHEDULING_GATES = "spec.scheduling_gates"
    """Names of the scheduling gates."""

    FEATURES = "spec.features"
    """Node features that a pod requires; for nodes, the declared features."""

    POD_AFFINITY = "spec.pod_affinity"
    """Pod affinity and anti-affinity terms, including those of existing pods (``Handle.terms``)."""

    VOLUMES = "spec.volumes"
    """Volumes that have a claim or name a disk."""

    CLAIMS = "spec.claims"
    """Resource claims, and containers with extended resources."""

    PENDING_VOLUMES = "spec.pending_volumes"
    """Volumes with a claim, decoded only for pods without a node."""

    DISRUPTION = "disruption"
    """``preemptionPolicy``, start time, readiness, the phase Pending, and the condition of victims of preemption."""

    DELETION_COST = "deletion_cost"
    """Annotation ``controller.kubernetes.io/pod-deletion-cost``."""

    NODE_STATE = "node.state"
    """Conditions, systemUUID and deletion state of a node."""


_EXTRAS: Final[Mapping[Part, Extra]] = {
    Part.RESOURCES: Extra.RESOURCES,
    Part.PORTS: Extra.PORTS,
    Part.IMAGES: Extra.IMAGES,
    Part.PREFERRED_AFFINITY: Extra.PREFERRED_AFFINITY,
    Part.SCHEDULING_GATES: Extra.SCHEDULING_GATES,
    Part.FEATURES: Extra.FEATURES,
    Part.POD_AFFINITY: Extra.POD_AFFINITY,
    Part.VOLUMES: Extra.VOLUMES,
    Part.CLAIMS: Extra.CLAIMS,
    Part.PENDING_VOLUMES: Extra.PENDING_VOLUMES,
    Part.DISRUPTION: Extra.DISRUPTION,
    Part.DELETION_COST: Extra.DELETION_COST,
    Part.NODE_STATE: Extra.NODE_STATE,
}

"""``Extra`` of each part that is decoded only if a plugin declares it."""

_OF_NODES: Final = "node."
"""Beginning of the paths of parts that only nodes have."""


def extras_of(parts: Iterable[Part]) -> frozenset[Extra]:
    """Return the ``Extra`` of each part that is decoded only if a plugin declares it; other parts have no ``Extra``."""
    return frozenset(_EXTRAS[part] for part in parts if part in _EXTRAS)


def paths_of_pod(parts: Iterable[Part]) -> tuple[str, ...]:
    """Return the attribute paths of ``parts``, sorted, without the parts that only nodes have."""
    return tuple(sorted(part.value for part in parts if not part.value.startswith(_OF_NODES)))
