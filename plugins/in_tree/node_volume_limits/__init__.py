"""NodeVolumeLimits: rejects nodes to which no more volumes of the pod's CSI drivers can be attached.

VolumeBinding and VolumeZone check whether a node can use a volume at all; this plugin does not check that.
"""

from plugins.in_tree.node_volume_limits.plugin import SPEC

__all__ = ["SPEC"]
