"""From a pod to the PersistentVolumeClaim that keeps its home, where a rule says that claims do.

A pod may use several: one that a single node can mount comes before one that many can, and then the first by name. A
claim that many nodes can mount keeps the home of a pod that uses it alone: several are meant to be spread. More than
``MOST_OTHERS`` share it whatever they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from app.framework.interface import Objects
from app.kube.core_v1 import Pod
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS
from app.kube.persistent_volumes import READ_WRITE_ONCE_POD, PersistentVolumeClaim
from app.kube.selectors import Selector

MOST_OTHERS: Final = 64
"""Other pods of a claim that are looked at, for each of its pods: those that play no part may be thousands."""

_OF_ONE_NODE: Final = frozenset({"ReadWriteOnce", READ_WRITE_ONCE_POD})
_SERVED: Final = frozenset({("v1", "Pod"), ("v1", PERSISTENT_VOLUME_CLAIMS.kind)})


class Claims:
    """``selector`` says by their labels which claims keep homes."""

    def __init__(self, selector: Selector, objects: Objects) -> None:
        self._selector = selector
        self._objects = objects
        self._pods: Final = objects.by_claim()

    @property
    def pods(self) -> Mapping[str, Mapping[str, Pod]]:
        """The pods of all claims, by UID and the claim's key."""
        return self._pods

    def of(self, pod: Pod) -> PersistentVolumeClaim | str | None:
        """The claim that keeps the pod's home; the name of one of its claims that is not in the picture.

        Raises ``Unreadable``.
        """
        names = _names(pod)
        if not names or _serves_another(pod):
            return None
        kept: list[PersistentVolumeClaim] = []
        for name in sorted(names):
            claim = self._objects.get(PERSISTENT_VOLUME_CLAIMS, pod.namespace, name)
            if claim is None:
                return name
            if self.keeps(claim):
                kept.append(claim)
        found = min(kept, key=lambda it: (_is_of_many(it), it.name), default=None)
        return None if found is None or (_is_of_many(found) and self._is_shared(found, pod)) else found

    def keeps(self, claim: PersistentVolumeClaim) -> bool:
        """Whether the claim is one of those that keep homes."""
        return self._selector.matches(claim.labels)

    def newest(self, pod: Pod) -> Pod | None:
        """The pod as it is now, by a claim of its; ``None`` if it is gone."""
        found = (self._pods.get(_key(pod, it), {}).get(pod.uid) for it in _names(pod))
        return next((it for it in found if it is not None), None)

    def in_common(self, pod: Pod, other: Pod) -> bool:
        """Whether both name the same claim; none is looked up."""
        return pod.namespace == other.namespace and not _names(pod).isdisjoint(_names(other))

    def _is_shared(self, claim: PersistentVolumeClaim, pod: Pod) -> bool:
        there = self._pods.get(_key(pod, claim.name), {})
        if len(there) - (pod.uid in there) > MOST_OTHERS:
            return True
        return any(it.uid != pod.uid and not it.terminating and not _serves_another(it) for it in there.values())


def _names(pod: Pod) -> AbstractSet[str]:
    return {it.claim for it in pod.spec.volumes if it.claim}


def _key(pod: Pod, claim: str) -> str:
    return f"{pod.namespace}/{claim}"


def _is_of_many(claim: PersistentVolumeClaim) -> bool:
    """Whether several nodes can mount it at a time."""
    return not _OF_ONE_NODE.issuperset(claim.access_modes)


def _serves_another(pod: Pod) -> bool:
    """Whether it lives for another pod, as those by which KubeVirt attaches volumes, or fills a claim for one."""
    return pod.owner is not None and (pod.owner.api_version, pod.owner.kind) in _SERVED
