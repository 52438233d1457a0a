"""Schedules the pods of a stateful workload to its home, the node on which its first pod ran.

A workload is, for example, a virtual machine, one ordinal of a StatefulSet, or a custom resource. A home can be moved
by users and by migrations.

Not here: I/O. Homes are written through the handle's ``Writer`` and in the Binding.
"""

from plugins.sticky_node.plugin import SPEC

__all__ = ["SPEC"]
