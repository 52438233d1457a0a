"""VolumeBinding: rejects nodes on which a pod's claims cannot have volumes, and binds the pod only after its claims.

It annotates claims whose volumes are to be provisioned with the selected node. Homeport does not bind claims to volumes
or provision volumes, because the PersistentVolume controller and external provisioners do that.
"""

from plugins.in_tree.volume_binding.plugin import SPEC

__all__ = ["SPEC"]
