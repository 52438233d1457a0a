"""NodeAffinity: filters nodes by nodeSelector and required node affinity, and scores them by preferred node affinity.

Verdicts, reason texts and scores are those of kube-scheduler's in-tree plugin of the same name (Kubernetes 1.36).

Terms are matched and validated in ``app.kube``, because PodTopologySpread matches them, too.
"""

from plugins.in_tree.node_affinity.plugin import SPEC

__all__ = ["SPEC"]
