"""Separates nominations by the sampling guard from nominations by others, which alone reserve room."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from app.cache.cluster import Cluster
from app.kube.core_v1 import Pod
from app.kube.memo import Newest

_MOST: Final = 4096
"""Maximum number of own nominations remembered; the oldest are forgotten first, and then count like those of others."""


class CountedNominations:
    """Nominations that filters count: those of others, not those of the sampling guard, which are stored by pod UID.

    The guard's nominations reserve nothing. A filter that counted the pod on the node would reject other pods, although
    the nomination might fail. bind checks hard constraints against the newest snapshot in any case.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nodes = Newest[str, str](_MOST)

    def put(self, uid: str, node_name: str) -> None:
        """Record a nomination by the sampling guard."""
        self._nodes.put(uid, node_name)

    def drop(self, uid: str) -> None:
        self._nodes.pop(uid, None)

    def is_ours(self, pod: Pod) -> bool:
        """Return true if the pod has a nomination by the sampling guard."""
        return bool(pod.nominated_node_name) and self._nodes.get(pod.uid) == pod.nominated_node_name

    def nominated(self, node_name: str) -> Collection[Pod]:
        """Return the pods that others than the sampling guard nominated to the node."""
        return [pod for pod in self._cluster.nominated(node_name) if not self.is_ours(pod)]

    @property
    def nominated_nodes(self) -> Collection[str]:
        """Names of nodes to which others than the sampling guard nominated a pod."""
        every = self._cluster.nominated_nodes
        return {name for name in every if self.nominated(name)} if every else ()

    @property
    def generation(self) -> int:
        return self._cluster.generation
