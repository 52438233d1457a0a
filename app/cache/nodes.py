"""Interface through which plugins read the nodes of the cluster cache."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from app.cache.cluster import Cluster
from app.framework.listers import ImageState
from app.framework.node_info import NodeInfo
from app.kube.kinds import NODES


class Nodes:
    """Nodes and node infos of a cluster. Implements ``framework.NodeLister``."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def list(self) -> Collection[NodeInfo]:
        return self._cluster.nodes.values()

    def get(self, name: str) -> NodeInfo | None:
        if self._cluster.unreadable:
            self._cluster.unreadable.require(NODES, "", name)
        return self._cluster.nodes.get(name)

    def uses_of_claim(self, namespace: str, name: str) -> int:
        return self._cluster.uses_of_claim(namespace, name)

    @property
    def mounts_generation(self) -> int:
        return self._cluster.mounts_generation

    @property
    def generation(self) -> int:
        return self._cluster.node_generation

    def images(self, names: Iterable[str]) -> Mapping[str, ImageState]:
        return self._cluster.aggregates.images(names)
