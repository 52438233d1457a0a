"""Brings a stateful workload back to the node it lived on: a virtual machine, a StatefulSet's pod, a custom resource.

Not here: any I/O of its own. Homes are written through the handle's ``Writer`` and on the Binding.
"""

from plugins.sticky_node.plugin import SPEC

__all__ = ["SPEC"]
