"""NodeResourcesFit: rejects nodes without enough free resources for the pod, and scores nodes by resource usage.

Verdicts, reason texts and scores are those of kube-scheduler's in-tree plugin of the same name, in Kubernetes 1.36 or
1.35 according to the profile.

The sums of requested resources come from the snapshot; this package does not compute them.
"""

from plugins.in_tree.node_resources_fit.plugin import SPEC

__all__ = ["SPEC"]
