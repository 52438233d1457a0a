"""InterPodAffinity: where a pod may run, and had better run, by the pods that are there already."""

from plugins.in_tree.inter_pod_affinity.plugin import SPEC

__all__ = ["SPEC"]
