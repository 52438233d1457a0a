"""InterPodAffinity: filters and scores nodes by the affinity terms of the pod and of the pods already running."""

from plugins.in_tree.inter_pod_affinity.plugin import SPEC

__all__ = ["SPEC"]
