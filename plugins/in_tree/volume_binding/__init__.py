"""VolumeBinding: rejects nodes on which a pod's claims cannot get volumes, and binds the pod only after its claims are
bound.

It writes the selected node as an annotation on claims whose volumes must be provisioned. The PersistentVolume
controller binds claims to volumes and external provisioners provision volumes; Homeport only waits for them.
"""

from plugins.in_tree.volume_binding.plugin import SPEC

__all__ = ["SPEC"]
