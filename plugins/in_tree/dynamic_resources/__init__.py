"""Keeps a pod from nodes where its resource claims cannot be used or met; prefers the alternatives that it names first.

Verdicts, reason texts and scores are those of kube-scheduler's in-tree plugin of the same name (Kubernetes 1.36).

Not here: allocating. A claim is given its devices by the scheduler in front of us; a pod whose claims have none yet is
not bound.
"""

from plugins.in_tree.dynamic_resources.plugin import SPEC

__all__ = ["SPEC"]
