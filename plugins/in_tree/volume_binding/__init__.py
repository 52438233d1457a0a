"""VolumeBinding: rejects nodes where a pod's claims cannot have volumes, and delays its bind until the claims are
bound.

It selects the node for claims whose volumes are to be provisioned. It binds no claim to an existing volume and
provisions none: the PersistentVolume controller and external provisioners do that.
"""

from plugins.in_tree.volume_binding.plugin import SPEC

__all__ = ["SPEC"]
