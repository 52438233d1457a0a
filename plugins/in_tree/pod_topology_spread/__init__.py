"""PodTopologySpread: spreads the pods of a workload over zones, hosts or other domains defined by node labels.

Without the option ``beyond``, verdicts, reason texts and scores are those of kube-scheduler's in-tree plugin of the
same name (Kubernetes 1.36). The numbers of matching pods by domain come from the snapshot.
"""

from plugins.in_tree.pod_topology_spread.plugin import SPEC

__all__ = ["SPEC"]
