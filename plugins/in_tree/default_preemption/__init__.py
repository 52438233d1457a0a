"""DefaultPreemption: selects a node for an unschedulable pod, and victims whose eviction would let the pod fit there.

The plugin evicts no pods. The scheduler that calls Homeport does. With ``preemption: Own``, Homeport's leader evicts
pods for topology spread (``app.controllers.preemption``).
"""

from plugins.in_tree.default_preemption.plugin import SPEC

__all__ = ["SPEC"]
