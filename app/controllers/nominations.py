"""Distinguishes nominations by the sampling guard from those by schedulers. Only nominations by schedulers reserve
capacity.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from app.cache.cluster import Cluster
from app.kube.core_v1 import Pod
from app.kube.memo import Newest

_MOST: Final = 4096
"""Maximum number of remembered nominations by the guard. Older ones are treated like nominations by schedulers."""


class CountedNominations:
    """Nominations that filters count as if the pod ran on the node: all except those by the sampling guard.

    The guard's nominations reserve no capacity. Otherwise a nomination that fails would have rejected other pods for
    nothing. Hard constraints stay safe, because bind checks them against the newest snapshot.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nodes = Newest[str, str](_MOST)

    def on(self, cluster: Cluster) -> CountedNominations:
        """Return the nominations in another snapshot of the same cluster, with the same record of the guard's
        nominations.
        """
        other = CountedNominations(cluster)
        other._nodes = self._nodes
        return other

    def put(self, uid: str, node_name: str) -> None:
        """Record that the sampling guard nominates the pod with this UID to the node."""
        self._nodes.put(uid, node_name)

    def drop(self, uid: str) -> None:
        """Forget the guard's nomination of the pod with this UID, if there is one."""
        self._nodes.pop(uid, None)

    def is_ours(self, pod: Pod) -> bool:
        """Return true if the pod's current nomination is by the sampling guard."""
        return bool(pod.nominated_node_name) and self._nodes.get(pod.uid) == pod.nominated_node_name

    def nominated(self, node_name: str) -> Collection[Pod]:
        """Return the pods nominated to the node, without those that the sampling guard nominated."""
        return [pod for pod in self._cluster.nominated(node_name) if not self.is_ours(pod)]

    @property
    def nominated_nodes(self) -> Collection[str]:
        """Names of the nodes for which ``nominated`` returns at least one pod."""
        every = self._cluster.nominated_nodes
        return {name for name in every if self.nominated(name)} if every else ()

    @property
    def generation(self) -> int:
        return self._cluster.generation
