"""Nodes by zone with their requested CPU and memory, and the resources of one node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from app.cache.cluster import Cluster
from app.framework.node_info import NodeInfo
from app.kube.core_v1 import Node
from app.kube.extras import NotDecoded

ZONE: Final = "topology.kubernetes.io/zone"
_NODES_PER_STEP: Final = 256
_NOT_READY: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})


class NodeCondition(StrEnum):
    """Why a node keeps out pods, unless they tolerate it; ``READY`` if it keeps out none.

    A node counts as not ready if it has one of the node lifecycle controller's taints ``not-ready`` and
    ``unreachable``.
    """

    READY = "ready"
    CORDONED = "cordoned"
    NOT_READY = "notReady"
    TAINTED = "tainted"


class NodeCell(Struct, frozen=True, array_like=True):
    """Node on the map, encoded as a JSON array.

    ``cpu`` and ``memory``: requested share of the allocatable amount, in percent, rounded up. It can be
    above 100, and is ``None`` if requests are not decoded. ``pods``: number of pods.
    """

    name: str
    cpu: int | None
    memory: int | None
    pods: int
    condition: NodeCondition


def add_cells(cluster: Cluster, zones: dict[str, list[NodeCell]]) -> Iterator[None]:
    """Add the cell of each node to its zone, in short steps. Nodes without a zone are in zone ``""``."""
    for number, name in enumerate(sorted(cluster.nodes)):
        if number % _NODES_PER_STEP == _NODES_PER_STEP - 1:
            yield
        info = cluster.nodes.get(name)
        if info is not None:
            zones.setdefault(info.node.labels.get(ZONE, ""), []).append(cell_of(info))


def cell_of(info: NodeInfo) -> NodeCell:
    cpu, memory = (_percent(info, it) for it in ("cpu", "memory"))
    return NodeCell(info.name, cpu, memory, len(info.pods), condition_of(info.node))


def condition_of(node: Node) -> NodeCondition:
    """Return the first condition that applies: not ready, cordoned, tainted, else ready."""
    if any(taint.key in _NOT_READY for taint in node.taints):
        return NodeCondition.NOT_READY
    if node.unschedulable:
        return NodeCondition.CORDONED
    return NodeCondition.TAINTED if any(it.keeps_out for it in node.taints) else NodeCondition.READY


def _percent(info: NodeInfo, resource: str) -> int | None:
    """Return the requested share in percent, rounded up; ``None`` if requests are not decoded.

    If the node has none of the resource, return 100 if its pods request any, else 0.
    """
    try:
        available, requested = info.allocatable.get(resource, 0), info.requested.get(resource, 0)
    except NotDecoded:
        return None
    if not available:
        return 100 if requested else 0
    return -(-100 * requested // available)


def resources_of(info: NodeInfo) -> Mapping[str, tuple[int, int]]:
    """Return the requested and the allocatable amount of each resource that the node has, except ``pods``.

    Empty if requests are not decoded.
    """
    try:
        requested, allocatable = info.requested, info.allocatable
    except NotDecoded:
        return {}
    return {name: (requested.get(name, 0), allocatable[name]) for name in sorted(allocatable) if name != "pods"}
