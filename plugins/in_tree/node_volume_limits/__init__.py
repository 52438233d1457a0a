"""NodeVolumeLimits: rejects nodes on which the pod would exceed a CSI driver's limit of attached volumes.

VolumeBinding and VolumeZone check whether a node can use a volume at all; this plugin does not check that.
"""

from plugins.in_tree.node_volume_limits.plugin import SPEC

__all__ = ["SPEC"]
