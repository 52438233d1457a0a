"""Selects, from the snapshot, the nodes that a refused pod might fit. The sampling guard, second looks and preemption
use it.
"""

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
from app.verbs.stepwise import decide_prepared, run_stepwise

_READ: Final = frozenset((AFFINITY, NODE_SELECTOR, TOLERATIONS))
"""Pod fields that ``_open_to`` evaluates."""


class InTree(Protocol):
    """Interface that evaluates the in-tree filters of a profile for one pod and one node."""

    async def whole(self, pod: Pod) -> Pod | None:
        """Return the pod with all fields that these filters read; ``None`` if it cannot be read or was replaced."""
        ...

    async def verdict(self, whole: Pod, node_name: str) -> NodeVerdict:
        """Return the verdict on a pod that the method ``whole`` returned, for the node. Never raises."""
        ...


async def candidate_nodes(cluster: Cluster, framework: Framework, pod: Pod) -> list[str]:
    """Return the names of nodes that the profile's filters pass, and that are open to the pod.

    A node is open if its cordon, taints and labels allow the pod. Free resources, volumes and ports are checked only as
    far as the profile's filters check them. Raises ``PluginError``.
    """
    is_open = _open_to(pod)
    names: list[str] = []

    def look(name: str) -> None:
        info = cluster.nodes.get(name)
        if info is not None and is_open(info.node):
            names.append(name)

    await run_stepwise(map(look, await decide_prepared(partial(_passing, cluster, framework, pod))))
    return names


def _passing(cluster: Cluster, framework: Framework, pod: Pod) -> list[str]:
    with cluster.without(pod.uid, pod.key):
        nodes = Candidates.of(cluster.nodes)
        rejected = framework.filters.feasible(CycleState(), pod, nodes).rejected
        return [name for name in nodes.names if name not in rejected]


def _open_to(pod: Pod) -> Callable[[Node], bool]:
    """Return a function that is true for nodes that NodeUnschedulable, NodeAffinity and TaintToleration pass.

    It is false for all nodes if a field of the pod that these plugins read was too large to be decoded.
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
    """Return the names of the nodes with the highest score; ``nodes`` must not be empty.

    Raises ``PluginError`` or ``Unprepared``.
    """
    return framework.scoring.score(CycleState(), pod, nodes).best
