"""Homes in the making: made by binds under way, or made and not on their owner yet. Gone with the process."""

from __future__ import annotations

from collections.abc import Collection

from app.kube.core_v1 import Pod
from plugins.sticky_node.home import Claim
from plugins.sticky_node.owners import Owner, Slot


class Making:
    """Claims by their pod's UID. Several pods of one owner may be on their way, the later ones held by the first.

    Whichever arrives makes the home: where the first does not, the next holds the others.
    """

    def __init__(self) -> None:
        self._claims: dict[str, Claim] = {}
        self._of_owner: dict[Slot, dict[str, Claim]] = {}
        self._made: set[str] = set()

    def begin(self, claim: Claim) -> None:
        """A bind is under way that makes the home if it succeeds."""
        self._claims[claim.pod.uid] = claim
        self._of_owner.setdefault(claim.owner.key, {})[claim.pod.uid] = claim

    def arrived(self, claim: Claim) -> None:
        """The pod is there, and the home is not on its owner."""
        self.begin(claim)
        self._made.add(claim.pod.uid)

    def keep(self, claim: Claim) -> None:
        """Its owner cannot be written now. It takes the place of what earlier pods of the owner made."""
        self.arrived(claim)
        for other in list(self._of_owner[claim.owner.key].values()):
            if other.pod.uid != claim.pod.uid and self.is_made(other.pod):
                self.drop(other.pod)

    def drop(self, pod: Pod) -> None:
        """By the pod, not its owner: a machine that is stopped during a bind takes the way to it along."""
        claim = self._claims.pop(pod.uid, None)
        if claim is None:
            return
        self._made.discard(pod.uid)
        of_owner = self._of_owner[claim.owner.key]
        del of_owner[pod.uid]
        if not of_owner:
            del self._of_owner[claim.owner.key]

    def of(self, pod: Pod) -> Claim | None:
        return self._claims.get(pod.uid)

    def holds(self, owner: Owner, pod: Pod) -> Claim | None:
        """The claim that holds ``pod``, a pod of the owner: the first of another pod that may yet make the home.

        Where it is to replace a home, it holds already, and the home it replaces does not.
        """
        claims = self._of_owner.get(owner.key, {}).values()
        return next((it for it in claims if it.pod.uid != pod.uid and it.decides and it.makes(owner)), None)

    def is_made(self, pod: Pod) -> bool:
        """Whether the pod is there, and waits to have its home recorded."""
        return pod.uid in self._made

    def made(self) -> Collection[Claim]:
        """Those whose pods are there."""
        return [self._claims[uid] for uid in self._made]
