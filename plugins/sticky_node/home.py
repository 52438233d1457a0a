"""Where a home is written down, and what may overwrite it.

A first bind writes the home onto the pod, in the Binding itself, so that no crash can separate the two. From there it
is copied to the owner, together with the UID of the pod it came from:

    homeport.dev/home       the node            (homeport.dev/home.3 for ordinal 3)
    homeport.dev/home-pod   the pod's UID       (homeport.dev/home-pod.3)

A home that is there is never overwritten, so a newer edit by a person wins. Nor does a home come back that a person
removed: the UID stays behind and tells that this pod's home was copied once.
"""

from __future__ import annotations

from typing import Final

from app.kube.core_v1 import Pod
from app.kube.meta_v1 import ANNOTATION_DOMAIN
from plugins.sticky_node.owners import Owner

HOME: Final = f"{ANNOTATION_DOMAIN}home"
HOME_POD: Final = f"{ANNOTATION_DOMAIN}home-pod"


def home_key(slot: str) -> str:
    return f"{HOME}.{slot}" if slot else HOME


def pod_key(slot: str) -> str:
    return f"{HOME_POD}.{slot}" if slot else HOME_POD


def recorded_home(owner: Owner) -> str:
    """The home on the owner; empty if there is none or a person removed it."""
    return owner.found.annotations.get(home_key(owner.slot), "")


def is_copied(owner: Owner, pod: Pod) -> bool:
    """Whether the home that this pod brought is, or once was, on the owner."""
    return owner.found.annotations.get(pod_key(owner.slot)) == pod.uid


def had_home(owner: Owner) -> bool:
    """Whether a home was ever copied here: then an older pod on its way out has no say any more."""
    return pod_key(owner.slot) in owner.found.annotations


def annotations_for(owner: Owner, pod: Pod, node_name: str) -> dict[str, str | None]:
    """What a copied home looks like on the owner."""
    return {home_key(owner.slot): node_name, pod_key(owner.slot): pod.uid}
