"""Where a home is written down, and which pod's word for it still counts.

A first bind writes the home onto the pod, in the Binding itself, so that no crash can separate the two. From there it
is copied to the owner, together with the UID of the pod it came from:

    on the owner   homeport.dev/home         the node                                (homeport.dev/home.3: ordinal 3)
                   homeport.dev/home-pod     the UID of the pod that was heard last  (homeport.dev/home-pod.3)
    on the pod     homeport.dev/home         the node
                   homeport.dev/home-after   the ``home-pod`` its owner had then; absent if it had none

A pod's word is open as long as its owner still has that ``home-pod``, so of all pods that were bound without a home one
is heard, once. A home that is there is never overwritten, so a newer edit by a person wins, and closes what was open.
Nor does a home come back that a person removed: ``home-pod`` stays behind, and whose word is open was bound since.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from app.kube.core_v1 import Pod
from app.kube.meta_v1 import ANNOTATION_DOMAIN
from app.kube.names import is_subdomain, shown
from plugins.sticky_node.owners import Owner

HOME: Final = f"{ANNOTATION_DOMAIN}home"
HOME_POD: Final = f"{ANNOTATION_DOMAIN}home-pod"
HOME_AFTER: Final = f"{ANNOTATION_DOMAIN}home-after"


class Claim(Struct, frozen=True):
    """A pod's word for a home: it goes, or has gone, to ``node`` while its owner had none.

    ``after``: the owner's ``home-pod`` at that time · ``decides``: it was the machine's active pod when last looked at.
    """

    pod: Pod
    node: str
    owner: Owner
    after: str
    decides: bool

    def is_open(self, owner: Owner) -> bool:
        """Whether it may still be heard; ``owner`` in its newest form."""
        return home_pod(owner) == self.after != self.pod.uid


def home_key(slot: str) -> str:
    return f"{HOME}.{slot}" if slot else HOME


def pod_key(slot: str) -> str:
    return f"{HOME_POD}.{slot}" if slot else HOME_POD


def recorded_home(owner: Owner) -> str:
    """The home on the owner; empty if there is none or a person removed it."""
    return owner.found.annotations.get(home_key(owner.slot), "")


def readable(home: str) -> str:
    """What stands where a home does, for a person: anybody may have written anything there, of any length."""
    return home if is_subdomain(home) else shown(home)


def home_pod(owner: Owner) -> str:
    """The UID of the pod whose word was heard last; empty if none ever was."""
    return owner.found.annotations.get(pod_key(owner.slot), "")


def on_owner(owner: Owner, claim: Claim) -> dict[str, str | None]:
    """What a claim that is heard writes on its owner. Beside a home that is there it is closed, and nothing else."""
    heard: dict[str, str | None] = {pod_key(owner.slot): claim.pod.uid}
    return heard if recorded_home(owner) else {home_key(owner.slot): claim.node, **heard}


def on_pod(claim: Claim, there: Mapping[str, str]) -> dict[str, str]:
    """What the Binding says of a claim, in place of whatever stands ``there``."""
    after = {HOME_AFTER: claim.after} if claim.after or HOME_AFTER in there else {}
    return {HOME: claim.node, **after}


def no_word(there: Mapping[str, str]) -> dict[str, str]:
    """What the Binding says for a pod that makes no home: a Binding cannot remove what somebody else wrote there."""
    return {HOME: ""} if there.get(HOME) else {}
