"""Says who would have to go so that a pod fits which no node will do for, and to which node it is then nominated.

Not here: evictions. Nothing is evicted.
"""

from plugins.in_tree.default_preemption.plugin import SPEC

__all__ = ["SPEC"]
