"""Keeps a pod from nodes that have too little left of what it requests, and compares the others by what they have.

Verdicts, reason texts and scores are those of kube-scheduler's in-tree plugin of the same name (Kubernetes 1.36, and
1.35 where that is meant).

Not here: what pods request and nodes have. That is summed up by the picture of the cluster.
"""

from plugins.in_tree.node_resources_fit.plugin import SPEC

__all__ = ["SPEC"]
