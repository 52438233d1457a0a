"""Keeps a pod to the nodes that its nodeSelector and required node affinity name, and prefers those that it likes.

Verdicts, reason texts and scores are those of kube-scheduler's in-tree plugin of the same name (Kubernetes 1.36).

Not here: how terms match nodes, and what is wrong with them; PodTopologySpread needs the first as well.
"""

from plugins.in_tree.node_affinity.plugin import SPEC

__all__ = ["SPEC"]
