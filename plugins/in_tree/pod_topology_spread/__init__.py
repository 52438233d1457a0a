"""Keeps the pods of a workload spread over zones, hosts or any other domain that node labels name.

Verdicts, reason texts and scores are those of kube-scheduler's in-tree plugin of the same name (Kubernetes 1.36).

Not here: counting pods. Counts are kept by the picture of the cluster and only asked for.
"""

from plugins.in_tree.pod_topology_spread.plugin import SPEC

__all__ = ["SPEC"]
