"""Loss of some nodes on a scratch cluster, in three variants, and its reversal.

Topology spread treats the variants differently. A domain whose nodes are gone does not count. A domain of tainted nodes
counts, unless the constraint has ``nodeTaintsPolicy: Honor`` or the profile ``untoleratedDomains: Ignore``. A domain
without room counts as before the loss.

All variants of all domains use one copy of the cluster, because copying a large cluster takes a second.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from typing import Final, Self

from msgspec import Struct
from msgspec.structs import replace

from app.framework.node_info import Candidates
from app.homes.lists import HomeLists
from app.homes.protocol import HomesPlugin, Policy
from app.kube.core_v1 import Node, Pod
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from app.kube.node_affinity import RequiredNodeAffinity
from app.kube.node_state import FALSE, UNKNOWN
from app.kube.taints import NO_EXECUTE, NO_SCHEDULE, Taint, stays_with
from app.runtime.framework import Framework
from app.runtime.search import Search
from app.runtime.slots import declares
from app.whatif.placing import Placement, Placer
from app.whatif.scratch import ScratchCluster

UNREACHABLE: Final = "node.kubernetes.io/unreachable"
TAINTS: Final = (Taint(UNREACHABLE, NO_SCHEDULE), Taint(UNREACHABLE, NO_EXECUTE))
"""Taints that the node lifecycle controller sets on a node without heartbeats."""

DAEMON_SET: Final = "DaemonSet"
STATIC: Final = "Node"
"""Kind of the owner of a static pod."""

WAITING_OWNERS: Final = frozenset(("StatefulSet", "VirtualMachineInstance"))
"""Kinds of owners whose controllers create a new pod only after the old one is gone from the API server.

KubeVirt does so because the virtual machine could still run on the unreachable node (kubevirt#3332, #6682).
"""

_STEP: Final = 256


class LossVariant(StrEnum):
    """Variant of a loss."""

    GONE = "gone"
    """The nodes are deleted, and so are their pods."""

    TAINTED = "tainted"
    """The nodes are unreachable. Their pods are evicted, except pods of DaemonSets, static pods, and pods that tolerate
    the taint without a limit.

    No kubelet confirms the end of the evicted pods, so they stay Terminating.
    """

    FULL = "full"
    """The pods are lost, but the nodes stay, without room: topology spread still counts their domain."""


class LostDomain(Struct, frozen=True):
    """Nodes that are lost together. ``pods``: pods on them, without static pods, in the order of the scheduling queue.

    ``static``: number of static pods.
    """

    value: str
    nodes: Sequence[Node]
    pods: Sequence[Pod]
    static: int

    @classmethod
    def of(cls, scratch: ScratchCluster, value: str, nodes: Sequence[Node]) -> Self:
        every = [pod for node in nodes for pod in scratch.cluster.nodes[node.name].pods.values()]
        pods = sorted((it for it in every if not is_static(it)), key=lambda it: (-it.spec.priority, it.created, it.key))
        return cls(value, nodes, pods, len(every) - len(pods))

    @property
    def names(self) -> frozenset[str]:
        return frozenset(it.name for it in self.nodes)


def nodes_by_value(scratch: ScratchCluster, key: str) -> dict[str, list[Node]]:
    """Return the nodes with the label ``key``, by the label's value."""
    nodes: dict[str, list[Node]] = {}
    for info in scratch.cluster.nodes.values():
        if key in info.node.labels:
            nodes.setdefault(info.node.labels[key], []).append(info.node)
    return nodes


def is_static(pod: Pod) -> bool:
    return pod.owner is not None and pod.owner.kind == STATIC


def is_recreated(pod: Pod) -> bool:
    """Return True if a controller replaces a lost pod by one that can run on another node."""
    return pod.owner is not None and pod.owner.kind not in (DAEMON_SET, STATIC)


def stays_terminating(pod: Pod, variant: LossVariant) -> bool:
    """Return True if a lost pod's controller creates no other while this one is Terminating on its unreachable node."""
    return variant is LossVariant.TAINTED and pod.owner is not None and pod.owner.kind in WAITING_OWNERS


def is_lost(pod: Pod, variant: LossVariant) -> bool:
    """Return True if the variant removes a pod from its lost node.

    On tainted nodes, pods of DaemonSets, static pods, and pods that tolerate the taint without a limit stay.
    """
    if variant is not LossVariant.TAINTED:
        return True
    is_daemon = pod.owner is not None and pod.owner.kind in (DAEMON_SET, STATIC)
    return not (is_daemon or stays_with(pod.spec.tolerations, TAINTS[1]))


class LossTrial:
    """One variant of a loss on the scratch cluster. ``lost``: pods that are lost, without static and Terminating pods.

    ``evicts_nothing``: true in the variant tainted if no node would be ready. The node lifecycle controller then stops
    all evictions, so no pod is lost.
    """

    def __init__(self, scratch: ScratchCluster, domain: LostDomain, variant: LossVariant) -> None:
        self._scratch = scratch
        self._cluster = scratch.cluster
        self._domain = domain
        self._variant = variant
        self._removed: list[Pod] = []
        self.evicts_nothing = variant is LossVariant.TAINTED and not _is_ready_elsewhere(scratch, domain.names)
        self.lost: Sequence[Pod] = [
            it for it in domain.pods if not it.terminating and is_lost(it, variant) and not self.evicts_nothing
        ]
        self._closed = domain.names if variant is not LossVariant.GONE else frozenset()
        self.placer = LossPlacer(scratch, self._closed)
        self.placements: list[Placement] = []

    def begin(self) -> Iterator[None]:
        """Remove pods and change nodes as the variant requires, in steps. Nothing is done if ``evicts_nothing``."""
        if self.evicts_nothing:
            return
        for number, node in enumerate(self._domain.nodes):
            for pod in tuple(self._cluster.base_nodes[node.name].pods.values()):
                if is_lost(pod, self._variant):
                    self._removed.append(pod)
                    self._cluster.delete_pod(pod.key, pod.uid)
            if self._variant is LossVariant.GONE:
                self._cluster.delete_node(node.name)
            elif self._variant is LossVariant.TAINTED:
                self._cluster.upsert_node(unreachable(node))
            if number % _STEP == _STEP - 1:
                yield

    def placer_that_evicts_nothing(self) -> LossPlacer:
        return LossPlacer(self._scratch, self._closed, preempts=False)

    def undo(self) -> Iterator[None]:
        """Restore nodes and pods as they were before ``begin``, in steps."""
        new = {it.pod.uid for it in self.placements}
        for number, placement in enumerate(self.placements):
            self._cluster.delete_pod(placement.pod.key, placement.pod.uid)
            if number % _STEP == _STEP - 1:
                yield
        if self._variant is not LossVariant.FULL:
            for node in self._domain.nodes:
                self._cluster.upsert_node(node)
        for number, pod in enumerate((*self._removed, *(it for it in self.placer.victims if it.uid not in new))):
            self._cluster.upsert_pod(pod)
            if number % _STEP == _STEP - 1:
                yield


class LossPlacer(Placer):
    """Places new pods for lost ones. Pods that wait for their home during a grace period start elsewhere after it.

    Pods whose home has the policy ``soft`` start elsewhere at once.

    ``after_grace``: UIDs of the pods that start elsewhere after their grace period. ``victims``: pods that were evicted
    to make room, including pods that this placer placed.
    """

    def __init__(self, scratch: ScratchCluster, closed: Collection[str], *, preempts: bool = True) -> None:
        """``closed``: names of lost nodes that still exist. No pod starts there, even if it tolerates their taints."""
        super().__init__(scratch, preempts=preempts)
        self._closed = closed
        self._homes: dict[str, tuple[HomeLists, Search]] = {}
        self._open: tuple[int, Sequence[str]] = (-1, ())
        self.after_grace: set[str] = set()
        self.victims: list[Pod] = []

    def candidates(self, pod: Pod) -> Candidates:
        nodes = super().candidates(pod)
        if not self._closed:
            return nodes
        if self._open[0] != self._cluster.node_set:
            self._open = self._cluster.node_set, tuple(it for it in nodes.names if it not in self._closed)
        return nodes.among(self._open[1])

    def place(self, pod: Pod) -> Placement:
        placement = super().place(pod)
        if self._preempts:
            self.victims += placement.victims
        return placement

    def tried(self, framework: Framework, pod: Pod, search: Search | None = None) -> Placement:
        self.after_grace.discard(pod.uid)
        placement = super().tried(framework, pod, search)
        if not rejected_for_home(framework, placement):
            return placement
        name = framework.scheduler_name
        if name not in self._homes:
            self._homes[name] = HomeLists((framework,), self._scratch.guard), framework.search_without(HomesPlugin)
        homes, elsewhere = self._homes[name]
        home = homes.home_of(framework, pod)
        if home is None or home.policy not in (Policy.GRACE, Policy.SOFT):
            return placement
        later = super().tried(framework, pod, elsewhere)
        if later.node and home.policy is Policy.GRACE:
            self.after_grace.add(pod.uid)
        return later


def _is_ready_elsewhere(scratch: ScratchCluster, names: Collection[str]) -> bool:
    """Return True unless the snapshot shows for each node outside ``names`` that it is not ready."""
    nodes = (it.node for name, it in scratch.cluster.base_nodes.items() if name not in names)
    return any(it.parts.state is None or it.parts.state.ready not in (FALSE, UNKNOWN) for it in nodes)


def rejected_for_home(framework: Framework, placement: Placement) -> bool:
    """Return True if a plugin that keeps homes rejects at least one node."""
    plugins = framework.plugins
    return any(declares(type(plugins.get(it.plugin)), HomesPlugin) for it, _ in placement.rejections)


def unreachable(node: Node) -> Node:
    """Return a node as the node lifecycle controller marks it once the kubelet sends no more heartbeats."""
    taints = (*(it for it in node.taints if it.key != UNREACHABLE), *TAINTS)
    if node.parts.state is None:
        return replace(node, taints=taints)
    state = replace(node.parts.state, ready=UNKNOWN)
    return replace(node, taints=taints, parts=replace(node.parts, state=state))


class VolumeTies:
    """Finds pods with a volume that only the nodes ``names`` can use."""

    def __init__(self, scratch: ScratchCluster, names: Collection[str]) -> None:
        self._cluster = scratch.cluster
        self._names = names
        self._known: dict[RequiredNodeAffinity, bool] = {}

    def has(self, pod: Pod) -> bool:
        """Return True if the pod has a bound volume that no node outside ``names`` can use.

        The result is False if no profile reads the volumes of running pods.
        """
        others = self._cluster.others
        for pod_volume in pod.spec.parts.volumes or pod.spec.parts.pending_volumes or ():
            name = pod_volume.claim_name(pod.name)
            claim = name and others.get(PERSISTENT_VOLUME_CLAIMS, pod.namespace, name)
            volume = claim and claim.volume_name and others.get(PERSISTENT_VOLUMES, "", claim.volume_name)
            affinity = volume and (volume.affinity or volume.migrated_affinity)
            if affinity and self._is_only_here(affinity):
                return True
        return False

    def _is_only_here(self, affinity: RequiredNodeAffinity) -> bool:
        if affinity not in self._known:
            matcher = affinity.compiled()
            nodes = self._cluster.base_nodes.items()
            self._known[affinity] = all(
                name in self._names for name, it in nodes if matcher.matches(name, it.node.labels)
            )
        return self._known[affinity]
