"""Which nominations are the sampling guard's own, and which count: those of everybody else."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from app.cache.cluster import Cluster
from app.kube.core_v1 import Pod
from app.kube.memo import Newest

_MOST: Final = 4096


class CountedNominations:
    """The nominations that are ours, by pod UID; and the nominations that count, which ours do not.

    One of ours reserves nothing: a filter that took the pod to be there already would reject others for what may never
    come. bind checks hard constraints on the newest picture whatever filter said.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nodes = Newest[str, str](_MOST)

    def put(self, uid: str, node_name: str) -> None:
        self._nodes.put(uid, node_name)

    def drop(self, uid: str) -> None:
        self._nodes.pop(uid, None)

    def is_ours(self, pod: Pod) -> bool:
        """Whether the pod carries a nomination, and one of ours."""
        return bool(pod.nominated_node_name) and self._nodes.get(pod.uid) == pod.nominated_node_name

    def nominated(self, node_name: str) -> Collection[Pod]:
        """Pods whose nomination to the node counts."""
        return [pod for pod in self._cluster.nominated(node_name) if not self.is_ours(pod)]

    @property
    def nominated_nodes(self) -> Collection[str]:
        """Nodes to which a pod is nominated whose nomination counts."""
        every = self._cluster.nominated_nodes
        return {name for name in every if self.nominated(name)} if every else ()

    @property
    def generation(self) -> int:
        return self._cluster.generation
