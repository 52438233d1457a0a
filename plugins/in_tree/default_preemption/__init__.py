"""DefaultPreemption: selects a node for an unschedulable pod, and victims whose eviction would let the pod fit there.

Homeport does not evict the victims itself.
"""

from plugins.in_tree.default_preemption.plugin import SPEC

__all__ = ["SPEC"]
