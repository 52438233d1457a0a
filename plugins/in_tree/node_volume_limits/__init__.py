"""Keeps a pod from nodes to which no more volumes of its CSI drivers can be attached.

Not here: whether a volume can be used from a node at all. ``VolumeBinding`` and ``VolumeZone`` say that.
"""

from plugins.in_tree.node_volume_limits.plugin import SPEC

__all__ = ["SPEC"]
