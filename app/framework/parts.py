"""The parts of pods and nodes that a plugin may say it reads: what it does not name can neither matter nor be seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, unique
from typing import Final

from app.kube.extras import Extra


@unique
class Part(Enum):
    """Parts of a pod, by the path under which a plugin finds them below ``Pod``; of nodes alone below ``node``."""

    NAMESPACE = "namespace"
    LABELS = "labels"
    ANNOTATIONS = "annotations"
    """Those of our domain, as everywhere."""

    OWNER = "owner"
    NODE_NAME = "node_name"
    SCHEDULER_NAME = "spec.scheduler_name"
    PRIORITY = "spec.priority"
    AFFINITY = "spec.affinity"
    """``nodeSelector`` and required node affinity."""

    TOLERATIONS = "spec.tolerations"
    SPREAD = "spec.spread"
    RESOURCES = "spec.resources"
    """Requests; of nodes, what is allocatable. This and what follows is decoded only where a plugin names it."""

    PORTS = "spec.ports"
    """Host ports."""

    IMAGES = "spec.images"
    """Of nodes, those that are there already."""

    PREFERRED_AFFINITY = "spec.preferred_affinity"
    SCHEDULING_GATES = "spec.scheduling_gates"
    """The names of the gates."""

    FEATURES = "spec.features"
    """What a pod needs of its node; of nodes, what they declare."""

    POD_AFFINITY = "spec.pod_affinity"
    """Terms between pods, those of the pods that are there already included (``Handle.terms``)."""

    VOLUMES = "spec.volumes"
    """Claims, and disks that are named in the pod."""

    CLAIMS = "spec.claims"
    """Resource claims, and containers with extended resources."""

    PENDING_VOLUMES = "spec.pending_volumes"
    """Those with a claim, of a pod that has no node yet: of others they are neither read nor kept."""

    DISRUPTION = "disruption"
    """preemptionPolicy, when it was started, and whether it goes for a pod of higher priority."""

    NODE_STATE = "node.state"
    """Its conditions, its systemUUID, and whether it is being deleted."""


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
    Part.NODE_STATE: Extra.NODE_STATE,
}

_OF_NODES: Final = "node."


def extras_of(parts: Iterable[Part]) -> frozenset[Extra]:
    """Those of ``parts`` that are decoded on demand."""
    return frozenset(_EXTRAS[part] for part in parts if part in _EXTRAS)


def paths_of_pod(parts: Iterable[Part]) -> tuple[str, ...]:
    """Where those of ``parts`` that are of a pod are found, in order."""
    return tuple(sorted(part.value for part in parts if not part.value.startswith(_OF_NODES)))
