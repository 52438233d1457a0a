"""VolumeBinding: rejects nodes that cannot use the volumes of a pod's claims, or on which claims cannot get volumes. It
delays the bind of the pod until its claims are bound.

It writes the selected node as an annotation on claims whose volumes must be provisioned. The PersistentVolume
controller binds claims to volumes and external provisioners provision volumes; Homeport only waits for them.
"""

from plugins.in_tree.volume_binding.plugin import SPEC

__all__ = ["SPEC"]
