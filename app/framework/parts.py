"""The parts of pods and nodes that a plugin may say it reads: what it does not name can neither matter nor be seen."""

from __future__ import annotations

from enum import Enum, unique


@unique
class Part(Enum):
    """Parts of a pod, by the path below ``Pod`` under which a plugin finds them."""

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
