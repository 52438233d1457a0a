"""DynamicResources: rejects nodes where a pod's ResourceClaims cannot be used or allocated.

It scores nodes higher if they can satisfy the earlier of several alternative requests. Verdicts, reason texts and
scores are those of kube-scheduler's in-tree plugin of the same name (Kubernetes 1.36).

Homeport allocates no devices: the scheduler that calls it does. A pod is bound only once its claims are allocated.
"""

from plugins.in_tree.dynamic_resources.plugin import SPEC

__all__ = ["SPEC"]
