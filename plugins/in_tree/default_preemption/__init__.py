"""Selects the victims that would let an unschedulable pod fit, and the node to nominate it to.

Homeport evicts no pods.
"""

from plugins.in_tree.default_preemption.plugin import SPEC

__all__ = ["SPEC"]
