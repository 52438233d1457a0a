"""From which nodes the bound volumes of a pod can be used, by the node affinity of their PersistentVolumes.

Only volumes that are bound say anything. What cannot be read, or is not there, says nothing: kube-scheduler's own
VolumeBinding refuses such a pod, or knows better.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from app.framework.interface import Objects, Unreadable
from app.kube.core_v1 import Node, Pod
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from app.kube.node_affinity import NodeMatcher, NodeSelectorTerm, RequiredNodeAffinity
from app.kube.persistent_volumes import PersistentVolume
from app.kube.selectors import IN

HOSTNAME: Final = "kubernetes.io/hostname"
_MOST_KEPT: Final = 4096
"""Matchers; hardly two local volumes of different nodes share one."""


class Bound(Struct, frozen=True):
    """A volume that cannot be used from everywhere: any of ``affinities`` has to match.

    There are two where a CSI driver may do the work of an in-tree one: which counts, each node says for itself.
    """

    claim: str
    volume: str
    affinities: tuple[RequiredNodeAffinity, ...]

    def __str__(self) -> str:
        return f"PersistentVolumeClaim {self.claim} is bound to PersistentVolume {self.volume}"


class Volumes:
    """Looks up the claims of pods that have no node yet."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._matchers: dict[RequiredNodeAffinity, NodeMatcher] = {}

    def unreached(self, pod: Pod, node: Node | str) -> Bound | None:
        """The first volume of the pod that cannot be used from a node.

        Of a node that is gone, by its name, that can only be said where all terms name hosts, and not it.
        """
        for found in self._bound(pod):
            if isinstance(node, str):
                reached = any(_may_mean(it, node) for it in found.affinities)
            else:
                reached = any(self._matcher(it).matches(node.name, node.labels) for it in found.affinities)
            if not reached:
                return found
        return None

    def _bound(self, pod: Pod) -> Iterator[Bound]:
        for it in pod.spec.pending_volumes:
            name = it.claim_name(pod.name)
            volume = self._volume(pod.namespace, name) if name else None
            if volume is not None and name and volume.affinity is not None:
                also = () if volume.migrated is None else (volume.migrated_affinity,)
                affinities = tuple(found for found in (volume.affinity, *also) if found is not None)
                if len(affinities) == 1 + len(also):
                    yield Bound(name, volume.name, affinities)

    def _volume(self, namespace: str, name: str) -> PersistentVolume | None:
        try:
            claim = self._objects.get(PERSISTENT_VOLUME_CLAIMS, namespace, name)
            if claim is None or not claim.is_bound:
                return None
            return self._objects.get(PERSISTENT_VOLUMES, "", claim.volume_name)
        except Unreadable:
            return None

    def _matcher(self, affinity: RequiredNodeAffinity) -> NodeMatcher:
        found = self._matchers.get(affinity)
        if found is None:
            if len(self._matchers) >= _MOST_KEPT:
                self._matchers.clear()
            found = self._matchers[affinity] = affinity.compiled()
        return found


def _may_mean(affinity: RequiredNodeAffinity, name: str) -> bool:
    """Whether a node of that name may match, whatever its labels were."""
    return any(_may_be(it, name) for it in affinity.terms or ()) or not affinity.terms


def _may_be(term: NodeSelectorTerm, name: str) -> bool:
    """The label is mostly the node's name, and often that without its domain."""
    short = name.partition(".")[0]
    named = [it.values for it in term.expressions if it.key == HOSTNAME and it.operator == IN]
    return all(any(value in (name, short) or value.partition(".")[0] == name for value in it) for it in named)
