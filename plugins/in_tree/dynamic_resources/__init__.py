"""DynamicResources: rejects nodes where a pod's ResourceClaims cannot be used or allocated.

If a request has several alternatives, nodes that can satisfy an earlier one score higher. Verdicts, reason texts and
scores are those of kube-scheduler's in-tree plugin of the same name (Kubernetes 1.36).

Homeport does not allocate devices; the scheduler that calls it allocates them. A pod is bound only after its claims are
allocated and reserved for it.
"""

from plugins.in_tree.dynamic_resources.plugin import SPEC

__all__ = ["SPEC"]
