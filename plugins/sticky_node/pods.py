"""Properties of pods that matter to homes: ordinal, PersistentVolumeClaims, reachable volumes, and the active pod.

If a pod uses several claims, claims that only a single node can mount take precedence; among equals, the first by name
is used. A claim that many nodes can mount keeps a home only if a single pod uses it. Pods that share it are meant to be
spread. A claim with more than ``MOST_OTHERS`` other pods counts as shared without a check.

Only bound volumes restrict nodes. A volume that is missing or unreadable restricts nothing, because kube-scheduler's
VolumeBinding rejects such a pod itself.

Kubernetes does not verify owner references. Everyone with the permission to create pods in a namespace can set them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from msgspec import Struct

from app.framework.objects import Objects, Unreadable
from app.kube.core_v1 import Node, Pod
from app.kube.kinds import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STATEFUL_SETS,
    VIRTUAL_MACHINE_INSTANCES,
    AnnotatedObject,
    Kind,
    owner_kind,
)
from app.kube.kubevirt_v1 import VirtualMachineInstance
from app.kube.meta_v1 import OwnerReference
from app.kube.node_affinity import NodeMatcher, NodeSelectorTerm, RequiredNodeAffinity
from app.kube.persistent_volumes import READ_WRITE_ONCE_POD, PersistentVolume, PersistentVolumeClaim
from app.kube.selectors import IN, Selector
from plugins.sticky_node.args import LEADER_WORKER_SET

MOST_SLOTS: Final = 1024
"""Maximum number of slots of one object. Slots with the shortest names, and so the lowest ordinals, are used first.

About this many homes, with all their annotations, fit into the API server's limit of 256 KiB for annotations.
"""

_NUMBERS: Final = re.compile(r"[0-9-]*")


def is_slot(text: str) -> bool:
    """Return true for an ordinal, for a place in a LeaderWorkerSet such as ``2-0``, and for an empty slot."""
    return _NUMBERS.fullmatch(text) is not None


def slots(annotations: Mapping[str, str], *of: str, per_ordinal: bool) -> list[str]:
    """Return the slots of the annotations with these names. A kind without ordinals has at most the empty slot."""
    if not per_ordinal:
        return [""] if any(it in annotations for it in of) else []
    present = {key[len(it) + 1 :] for key in annotations for it in of if key == it or key.startswith(f"{it}.")}
    return sorted(present, key=lambda it: (len(it), it))[:MOST_SLOTS]


MOST_OTHERS: Final = 64
"""Maximum number of other pods of a claim that are examined for one pod, because thousands of pods can use a claim."""

_OF_ONE_NODE: Final = frozenset({"ReadWriteOnce", READ_WRITE_ONCE_POD})
_SERVED: Final = frozenset({("v1", "Pod"), ("v1", PERSISTENT_VOLUME_CLAIMS.kind)})


class HomeClaims:
    """Finds the PersistentVolumeClaims that keep homes. ``selector`` selects them by their labels."""

    def __init__(self, selector: Selector, objects: Objects) -> None:
        self._selector = selector
        self._objects = objects
        self._pods: Final = objects.by_claim()

    @property
    def pods(self) -> Mapping[str, Mapping[str, Pod]]:
        """Pods by UID, grouped by the key (``namespace/name``) of a claim that they use."""
        return self._pods

    def of(self, pod: Pod) -> PersistentVolumeClaim | str | None:
        """Return the claim that keeps the pod's home; ``None`` if no claim does. If one of the pod's claims is not in
        the snapshot, return its name. Raises ``Unreadable``.
        """
        names = _names(pod)
        if not names or _is_helper(pod):
            return None
        selected: list[PersistentVolumeClaim] = []
        for name in sorted(names):
            claim = self._objects.get(PERSISTENT_VOLUME_CLAIMS, pod.namespace, name)
            if claim is None:
                return name
            if self.keeps(claim):
                selected.append(claim)
        best = min(selected, key=lambda it: (_is_of_many(it), it.name), default=None)
        return None if best is None or (_is_of_many(best) and self._is_shared(best, pod)) else best

    def keeps(self, claim: PersistentVolumeClaim) -> bool:
        """Return true if the selector selects the claim, so that it can keep homes."""
        return self._selector.matches(claim.labels)

    def newest(self, pod: Pod) -> Pod | None:
        """Return the newest version of a pod, found by its claims; ``None`` if it was deleted or uses none."""
        known = (self._pods.get(_claim_key(pod, it), {}).get(pod.uid) for it in _names(pod))
        return next((it for it in known if it is not None), None)

    def in_common(self, pod: Pod, other: Pod) -> bool:
        """Return true if both pods use the same PersistentVolumeClaim, without looking it up."""
        return pod.namespace == other.namespace and not _names(pod).isdisjoint(_names(other))

    def _is_shared(self, claim: PersistentVolumeClaim, pod: Pod) -> bool:
        there = self._pods.get(_claim_key(pod, claim.name), {})
        if len(there) - (pod.uid in there) > MOST_OTHERS:
            return True
        return any(it.uid != pod.uid and not it.terminating and not _is_helper(it) for it in there.values())


def _names(pod: Pod) -> AbstractSet[str]:
    return {it.claim for it in pod.spec.volumes if it.claim}


def _claim_key(pod: Pod, claim: str) -> str:
    return f"{pod.namespace}/{claim}"


def _is_of_many(claim: PersistentVolumeClaim) -> bool:
    """Return true if several nodes can mount the claim at a time."""
    return not _OF_ONE_NODE.issuperset(claim.access_modes)


def _is_helper(pod: Pod) -> bool:
    """Return true for a helper pod, whose controller is a pod or a claim: KubeVirt's hotplug pods, and pods that fill a
    claim.
    """
    return pod.owner is not None and (pod.owner.api_version, pod.owner.kind) in _SERVED


HOSTNAME: Final = "kubernetes.io/hostname"

_MOST_KEPT: Final = 4096
"""Maximum number of cached matchers. Local volumes of different nodes hardly ever share one."""


class RestrictedVolume(Struct, frozen=True):
    """Bound volume that only some nodes can use: a node must match at least one of ``affinities``.

    There are two affinities if a CSI driver can replace an in-tree driver: each node uses one of the two drivers.
    """

    claim: str
    volume: str
    affinities: tuple[RequiredNodeAffinity, ...]

    def __str__(self) -> str:
        return f"PersistentVolumeClaim {self.claim} is bound to PersistentVolume {self.volume}"


class BoundVolumes:
    """Looks up the bound volumes of pods that have no node yet."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._matchers: dict[RequiredNodeAffinity, NodeMatcher] = {}

    def unreached(self, pod: Pod, node: Node | str) -> RestrictedVolume | None:
        """Return the pod's first volume that the node cannot use; ``None`` if there is none.

        ``node``: a node, or the name of a deleted node. The labels of a deleted node are unknown. So a volume counts as
        unusable there only if every term of its affinity names other hosts.
        """
        for volume in self._bound(pod):
            if isinstance(node, str):
                reached = any(_may_match(it, node) for it in volume.affinities)
            else:
                reached = any(self._matcher(it).matches(node.name, node.labels) for it in volume.affinities)
            if not reached:
                return volume
        return None

    def _bound(self, pod: Pod) -> Iterator[RestrictedVolume]:
        for pending in pod.spec.pending_volumes:
            name = pending.claim_name(pod.name)
            volume = self._volume(pod.namespace, name) if name else None
            if volume is not None and name and volume.affinity is not None:
                also = () if volume.migrated is None else (volume.migrated_affinity,)
                affinities = tuple(affinity for affinity in (volume.affinity, *also) if affinity is not None)
                if len(affinities) == 1 + len(also):
                    yield RestrictedVolume(name, volume.name, affinities)

    def _volume(self, namespace: str, name: str) -> PersistentVolume | None:
        try:
            claim = self._objects.get(PERSISTENT_VOLUME_CLAIMS, namespace, name)
            if claim is None or not claim.is_bound:
                return None
            return self._objects.get(PERSISTENT_VOLUMES, "", claim.volume_name)
        except Unreadable:
            return None

    def _matcher(self, affinity: RequiredNodeAffinity) -> NodeMatcher:
        matcher = self._matchers.get(affinity)
        if matcher is None:
            if len(self._matchers) >= _MOST_KEPT:
                self._matchers.clear()
            matcher = self._matchers[affinity] = affinity.compiled()
        return matcher


def _may_match(affinity: RequiredNodeAffinity, name: str) -> bool:
    """Return true if the affinity might match the node ``name``, whose labels are unknown."""
    return any(_term_may_match(it, name) for it in affinity.terms or ()) or not affinity.terms


def _term_may_match(term: NodeSelectorTerm, name: str) -> bool:
    """Return true if the term might match a node of that name.

    The hostname label usually is the node's name, with or without its domain.
    """
    short = name.partition(".")[0]
    named = [it.values for it in term.expressions if it.key == HOSTNAME and it.operator == IN]
    return all(any(value in (name, short) or value.partition(".")[0] == name for value in it) for it in named)


MIGRATION_JOB: Final = "kubevirt.io/migrationJobUID"


class ActivePods:
    """Finds the active pod of a virtual machine among its pods, and among pods that falsely name it as controller."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._of_instance: Final = objects.by_controller(VIRTUAL_MACHINE_INSTANCES)

    def decides(self, pod: Pod, node_name: str, controller: AnnotatedObject) -> bool:
        """Return true if the pod is allowed to make the home once it is on that node; false if the node does not exist.

        For owners outside KubeVirt, only the node is checked. ``controller``: the object that the pod's
        controller reference names.
        """
        if not self._objects.has_node(node_name):
            return False
        if not isinstance(controller, VirtualMachineInstance):
            return True
        return is_active(pod, node_name, controller, self._of_instance.get(controller.uid, {}))

    def pods(self, controller: AnnotatedObject) -> Collection[Pod]:
        """Return all pods of a virtual machine in their newest versions; empty for owners outside KubeVirt."""
        return tuple(self._of_instance.get(controller.uid, {}).values())

    def of(self, machine: VirtualMachineInstance) -> Pod | None:
        """Return the pod in which the virtual machine runs; ``None`` if its node is unpublished or has no such pod."""
        pods = self._of_instance.get(machine.uid, {}).values()
        there = [it for it in pods if it.node_name == machine.node_name != "" and it.namespace == machine.namespace]
        return max(there, key=lambda it: (it.created, it.uid), default=None)


def is_target(pod: Pod) -> bool:
    """Return true if the pod is the target of a migration or an evacuation.

    Pods inherit the label from the VirtualMachineInstance. KubeVirt does not let users write it there.
    """
    return MIGRATION_JOB in pod.labels and pod.owner is not None and pod.owner.kind == VIRTUAL_MACHINE_INSTANCES.kind


def is_active(pod: Pod, node_name: str, machine: VirtualMachineInstance, pods: Mapping[str, Pod]) -> bool:
    """Return true if the pod, once on that node, is the virtual machine's active pod by KubeVirt's own rule.

    That is the newest pod controlled by the instance on ``status.nodeName``, or on any node while that is empty
    (``CurrentVMIPod`` of ``pkg/controller/controller.go``). If two pods were created in the same second, KubeVirt can
    take either one; Homeport chooses by UID.

    A virtual machine without a node cannot migrate. If it has a migration target, the instance in the snapshot is
    outdated, and the target is ignored.
    """
    where = machine.node_name
    if where and where != node_name:
        return False
    return all(
        (it.created, it.uid) < (pod.created, pod.uid)
        for it in pods.values()
        if it.uid != pod.uid
        and it.namespace == machine.namespace
        and (it.node_name == where if where else not is_target(it))
    )


_JOBS: Final = owner_kind("batch/v1", "Job")

_COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""Label of the pods of an indexed Job, from Kubernetes 1.28 on."""

LEADER_WORKER_SETS: Final = owner_kind(*LEADER_WORKER_SET)
LEADER_SET: Final = "leaderworkerset.sigs.k8s.io/name"
_GROUP: Final = "leaderworkerset.sigs.k8s.io/group-index"
_WORKER: Final = "leaderworkerset.sigs.k8s.io/worker-index"


def slot_of(pod: Pod, kinds: Sequence[Kind[Any]]) -> str | None:
    """Return the pod's slot, from labels or from the number at the end of its name; ``None`` if they give none."""
    if kinds[-1] == LEADER_WORKER_SETS:
        return _place_in_group(pod)
    if kinds[0] == _JOBS:
        index = pod.labels.get(_COMPLETION_INDEX, "")
        return index if _is_number(index) else None
    return _ordinal(pod, kinds[0])


def _ordinal(pod: Pod, controller: Kind[Any]) -> str | None:
    """Return the number at the end of the pod's name; ``None`` if there is none. If the pod's controller is a
    StatefulSet, the result is also ``None`` unless the rest of the name is that of the StatefulSet.
    """
    name, dash, number = pod.name.rpartition("-")
    if not dash or not _is_number(number):
        return None
    is_other = controller == STATEFUL_SETS and pod.owner is not None and pod.owner.name != name
    return None if is_other else number


def _place_in_group(pod: Pod) -> str | None:
    """Return ``group-worker``; ``None`` if the pod lacks the labels or the name that a LeaderWorkerSet gives it. The
    leader is worker 0.
    """
    leader, group, worker = _leader_of(pod), pod.labels.get(_GROUP, ""), pod.labels.get(_WORKER, "")
    if not leader or not _is_number(worker):
        return None
    expected = leader if worker == "0" else f"{leader}-{worker}"
    return f"{group}-{worker}" if pod.name == expected else None


def _leader_of(pod: Pod) -> str:
    """Return the name of the group's leader pod and of its workers' StatefulSet; empty if the labels are invalid."""
    name, group = pod.labels.get(LEADER_SET, ""), pod.labels.get(_GROUP, "")
    return f"{name}-{group}" if name and _is_number(group) else ""


def is_led_by_pod(pod: Pod, controller: OwnerReference | None) -> bool:
    """Return true if the controller of the workers' StatefulSet is their leader pod.

    The leader pod is the end of the chain of owner references, so the LeaderWorkerSet is found by a label.
    """
    if controller is None or (controller.api_version, controller.kind) != ("v1", "Pod"):
        return False
    leader = _leader_of(pod)
    return leader != "" and leader == controller.name == (pod.owner.name if pod.owner is not None else "")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
