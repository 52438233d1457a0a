"""Keeps a pod from nodes where its claims cannot have their volumes, and from being bound before they have them.

Not here: binding a claim to a volume that is there already, or making one. Controllers and provisioners do that.
"""

from plugins.in_tree.volume_binding.plugin import SPEC

__all__ = ["SPEC"]
