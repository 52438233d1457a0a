"""VolumeBinding: rejects nodes on which a pod's claims cannot have volumes, and binds the pod only after its claims.

It annotates claims whose volumes are to be provisioned with the selected node. The PersistentVolume controller binds
claims to volumes and external provisioners provision volumes; Homeport only waits for them.
"""

from plugins.in_tree.volume_binding.plugin import SPEC

__all__ = ["SPEC"]
