"""NodeVolumeLimits: rejects nodes to which no more volumes of the pod's CSI drivers can be attached.

It does not check whether a node can use a volume at all: VolumeBinding and VolumeZone do.
"""

from plugins.in_tree.node_volume_limits.plugin import SPEC

__all__ = ["SPEC"]
