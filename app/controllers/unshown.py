"""Nodes that Homeport and the in-tree filters that read node and pod alone pass, by the picture."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from app.cache.cluster import Cluster
from app.framework.cycle_state import CycleState
from app.framework.handle import NodeVerdict
from app.framework.node_info import Candidates
from app.kube.core_v1 import NODE_SELECTOR, TOLERATIONS, Node, Pod
from app.kube.node_affinity import AFFINITY
from app.kube.taints import UNSCHEDULABLE, Tolerance
from app.runtime.framework import Framework
from app.verbs.slices import in_slices, prepared

_READ: Final = frozenset((AFFINITY, NODE_SELECTOR, TOLERATIONS))


class InTree(Protocol):
    """In-tree filters, asked about one pod and one node."""

    async def whole(self, pod: Pod) -> Pod | None:
        """Return the pod with all that these filters read of it; ``None`` if that is not known."""
        ...

    async def verdict(self, whole: Pod, node_name: str) -> NodeVerdict:
        """Judge a pod that ``whole`` returned. Never raises."""
        ...


async def candidate_nodes(cluster: Cluster, framework: Framework, pod: Pod) -> list[str]:
    """The nodes that our filters pass and that no in-tree filter rejects for what is written on node and pod.

    Whether there is room, volumes or ports, only the scheduler knows. Raises ``PluginError``.
    """
    is_open = _open_to(pod)
    found: list[str] = []

    def look(name: str) -> None:
        info = cluster.nodes.get(name)
        if info is not None and is_open(info.node):
            found.append(name)

    await in_slices(map(look, await prepared(partial(_passing, cluster, framework, pod))))
    return found


def _passing(cluster: Cluster, framework: Framework, pod: Pod) -> list[str]:
    with cluster.without(pod.uid, pod.key):
        nodes = Candidates.of(cluster.nodes)
        rejected = framework.filters.feasible(CycleState(), pod, nodes).rejected
        return [name for name in nodes.names if name not in rejected]


def _open_to(pod: Pod) -> Callable[[Node], bool]:
    """NodeUnschedulable, NodeAffinity and TaintToleration: what the slim models are enough for.

    To a pod of which what they rest on is not read, no node is open.
    """
    spec = pod.spec
    if not _READ.isdisjoint(spec.oversized):
        return lambda _: False
    tolerance, affinity = Tolerance(spec.tolerations), spec.affinity.compiled()
    takes_unschedulable = tolerance.tolerates(UNSCHEDULABLE)

    def is_open(node: Node) -> bool:
        if node.unschedulable and not takes_unschedulable:
            return False
        if node.taints and not tolerance.tolerates_all(node.taints):
            return False
        return affinity.matches(node.name, node.labels)

    return is_open


def best(framework: Framework, pod: Pod, nodes: Candidates) -> list[str]:
    """Those of ``nodes``, at least one, that our scores put first. Raises ``PluginError``."""
    return framework.scoring.score(CycleState(), pod, nodes).best
