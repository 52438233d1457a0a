"""What pods say that matters to homes: their ordinal, their claims, where their volumes can be used, who is active.

A pod may use several claims. One that a single node can mount comes before one that many can, and then the first by
name. A claim that many nodes can mount keeps the home of a pod that uses it alone: several are meant to be spread. More
than ``MOST_OTHERS`` other pods share it whatever they are.

Only bound volumes restrict nodes. A volume that cannot be read, or does not exist, restricts nothing: kube-scheduler's
own VolumeBinding refuses such a pod, or knows better.

An owner reference is as trustworthy as the right to create pods in its namespace: Kubernetes does not check it.
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
"""Of one object that are looked at, those with the shortest names first, and so the lowest ordinals.

With all that Homeport writes beside a home, the 256 KiB of annotations that the API server takes hold about as many.
"""

_NUMBERS: Final = re.compile(r"[0-9-]*")


def is_slot(text: str) -> bool:
    """Return whether a pod may have it: an ordinal, several numbers (a place in a group), or nothing."""
    return _NUMBERS.fullmatch(text) is not None


def slots(annotations: Mapping[str, str], *of: str, per_ordinal: bool) -> list[str]:
    """The slots for which an annotation ``of`` these is there: only ``""``, where the kind tells no ordinals apart."""
    if not per_ordinal:
        return [""] if any(it in annotations for it in of) else []
    present = {key[len(it) + 1 :] for key in annotations for it in of if key == it or key.startswith(f"{it}.")}
    return sorted(present, key=lambda it: (len(it), it))[:MOST_SLOTS]


MOST_OTHERS: Final = 64
"""Other pods of a claim that are looked at, for each of its pods: those that play no part may be thousands."""

_OF_ONE_NODE: Final = frozenset({"ReadWriteOnce", READ_WRITE_ONCE_POD})
_SERVED: Final = frozenset({("v1", "Pod"), ("v1", PERSISTENT_VOLUME_CLAIMS.kind)})


class HomeClaims:
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
        """Return whether the claim is one of those that keep homes."""
        return self._selector.matches(claim.labels)

    def newest(self, pod: Pod) -> Pod | None:
        """The pod as it is now, by a claim of its; ``None`` if it is gone."""
        known = (self._pods.get(_claim_key(pod, it), {}).get(pod.uid) for it in _names(pod))
        return next((it for it in known if it is not None), None)

    def in_common(self, pod: Pod, other: Pod) -> bool:
        """Return whether both name the same claim; none is looked up."""
        return pod.namespace == other.namespace and not _names(pod).isdisjoint(_names(other))

    def _is_shared(self, claim: PersistentVolumeClaim, pod: Pod) -> bool:
        there = self._pods.get(_claim_key(pod, claim.name), {})
        if len(there) - (pod.uid in there) > MOST_OTHERS:
            return True
        return any(it.uid != pod.uid and not it.terminating and not _serves_another(it) for it in there.values())


def _names(pod: Pod) -> AbstractSet[str]:
    return {it.claim for it in pod.spec.volumes if it.claim}


def _claim_key(pod: Pod, claim: str) -> str:
    return f"{pod.namespace}/{claim}"


def _is_of_many(claim: PersistentVolumeClaim) -> bool:
    """Return whether several nodes can mount it at a time."""
    return not _OF_ONE_NODE.issuperset(claim.access_modes)


def _serves_another(pod: Pod) -> bool:
    """Whether it lives for another pod, as those by which KubeVirt attaches volumes, or fills a claim for one."""
    return pod.owner is not None and (pod.owner.api_version, pod.owner.kind) in _SERVED


HOSTNAME: Final = "kubernetes.io/hostname"

_MOST_KEPT: Final = 4096
"""Matchers; hardly two local volumes of different nodes share one."""


class RestrictedVolume(Struct, frozen=True):
    """A volume that cannot be used from everywhere: any of ``affinities`` has to match.

    There are two where a CSI driver may do the work of an in-tree one: which counts, each node says for itself.
    """

    claim: str
    volume: str
    affinities: tuple[RequiredNodeAffinity, ...]

    def __str__(self) -> str:
        return f"PersistentVolumeClaim {self.claim} is bound to PersistentVolume {self.volume}"


class BoundVolumes:
    """Looks up the claims of pods that have no node yet."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._matchers: dict[RequiredNodeAffinity, NodeMatcher] = {}

    def unreached(self, pod: Pod, node: Node | str) -> RestrictedVolume | None:
        """The first volume of the pod that cannot be used from a node.

        Of a node that is gone, by its name, that can only be said where all terms name hosts, and not it.
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
        for it in pod.spec.pending_volumes:
            name = it.claim_name(pod.name)
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
    """Return whether a node of that name may match, whatever its labels were."""
    return any(_term_may_match(it, name) for it in affinity.terms or ()) or not affinity.terms


def _term_may_match(term: NodeSelectorTerm, name: str) -> bool:
    """The label is mostly the node's name, and often that without its domain."""
    short = name.partition(".")[0]
    named = [it.values for it in term.expressions if it.key == HOSTNAME and it.operator == IN]
    return all(any(value in (name, short) or value.partition(".")[0] == name for value in it) for it in named)


MIGRATION_JOB: Final = "kubevirt.io/migrationJobUID"


class ActivePods:
    """Tells the active pod of a virtual machine from its other pods, and from pods that only claim to be its."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._of_instance: Final = objects.by_controller(VIRTUAL_MACHINE_INSTANCES)

    def decides(self, pod: Pod, node_name: str, controller: AnnotatedObject) -> bool:
        """Return whether the home may be taken from the pod, once it is on that node.

        Pods of other kinds than KubeVirt's are told apart by their controller, and by ordinal, alone.
        """
        if not self._objects.has_node(node_name):
            return False
        if not isinstance(controller, VirtualMachineInstance):
            return True
        return is_active(pod, node_name, controller, self._of_instance.get(controller.uid, {}))

    def pods(self, controller: AnnotatedObject) -> Collection[Pod]:
        """All pods of a machine of KubeVirt's, as they are now; of other owners none."""
        return tuple(self._of_instance.get(controller.uid, {}).values())

    def of(self, machine: VirtualMachineInstance) -> Pod | None:
        """The pod in which the machine runs; ``None`` while KubeVirt does not say where that is."""
        pods = self._of_instance.get(machine.uid, {}).values()
        there = [it for it in pods if it.node_name == machine.node_name != "" and it.namespace == machine.namespace]
        return max(there, key=lambda it: (it.created, it.uid), default=None)


def is_target(pod: Pod) -> bool:
    """Return whether KubeVirt made the pod for a machine to move into, in a migration or an evacuation.

    KubeVirt lets nobody else write that label on an instance, from which its pods have theirs.
    """
    return MIGRATION_JOB in pod.labels and pod.owner is not None and pod.owner.kind == VIRTUAL_MACHINE_INSTANCES.kind


def is_active(pod: Pod, node_name: str, machine: VirtualMachineInstance, pods: Mapping[str, Pod]) -> bool:
    """Return whether the pod, once on that node, is the machine's by KubeVirt's own rule.

    That is the newest it controls on ``status.nodeName``, or anywhere while that is empty (``CurrentVMIPod`` of
    ``pkg/controller/controller.go``). Of two created in one second KubeVirt takes either; here the UID decides.

    A machine without a node does not migrate. If it has a target all the same, the watch of machines is late.
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
    """Return the pod's place among its owner's pods: the index its controller wrote, or the number its name ends in."""
    if kinds[-1] == LEADER_WORKER_SETS:
        return _place_in_group(pod)
    if kinds[0] == _JOBS:
        index = pod.labels.get(_COMPLETION_INDEX, "")
        return index if _is_number(index) else None
    return _ordinal(pod, kinds[0])


def _ordinal(pod: Pod, controller: Kind[Any]) -> str | None:
    """The number the pod's name ends in; of a StatefulSet only the pod that it names so itself has one."""
    name, dash, number = pod.name.rpartition("-")
    if not dash or not _is_number(number):
        return None
    is_other = controller == STATEFUL_SETS and pod.owner is not None and pod.owner.name != name
    return None if is_other else number


def _place_in_group(pod: Pod) -> str | None:
    """``group-worker``, if the pod has the name that a LeaderWorkerSet gives: its leader is worker 0."""
    leader, group, worker = _leader_of(pod), pod.labels.get(_GROUP, ""), pod.labels.get(_WORKER, "")
    if not leader or not _is_number(worker):
        return None
    expected = leader if worker == "0" else f"{leader}-{worker}"
    return f"{group}-{worker}" if pod.name == expected else None


def _leader_of(pod: Pod) -> str:
    """The name of the pod that leads the group; the StatefulSet of the group's workers has it, too."""
    name, group = pod.labels.get(LEADER_SET, ""), pod.labels.get(_GROUP, "")
    return f"{name}-{group}" if name and _is_number(group) else ""


def is_led_by_pod(pod: Pod, controller: OwnerReference | None) -> bool:
    """Whether that controller of the workers' StatefulSet is their leader, beyond which owner references do not lead.

    Pods are no kind that can be looked up by name: from there the label that names the LeaderWorkerSet does.
    """
    if controller is None or (controller.api_version, controller.kind) != ("v1", "Pod"):
        return False
    leader = _leader_of(pod)
    return leader != "" and leader == controller.name == (pod.owner.name if pod.owner is not None else "")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
