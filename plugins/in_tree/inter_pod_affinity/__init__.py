"""InterPodAffinity: filters and scores nodes by the (anti-)affinity terms of the incoming pod and of existing pods."""

from plugins.in_tree.inter_pod_affinity.plugin import SPEC

__all__ = ["SPEC"]
