"""Nominations that reserve capacity: those by schedulers and by the preemption controller, not those by the sampling
guard. Also the places that the preemption controller reserves for pods.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from app.cache.cluster import Cluster
from app.kube.core_v1 import Pod
from app.kube.memo import Newest
from app.kube.meta_v1 import ObjectKey

_MOST: Final = 4096
"""Maximum number of remembered nominations by the guard. Older ones are treated like nominations by schedulers."""


class CountedNominations:
    """Nominations that filters count as if the pod ran on the node: all except those by the sampling guard.

    The guard's nominations reserve no capacity. Otherwise a nomination that fails would have rejected other pods for
    nothing. Hard constraints stay safe, because bind checks them against the newest snapshot.

    A pod for which others are evicted counts on all nodes of the domains in which it takes a place. Otherwise a pod of
    lower priority could take this place on another node of the domain.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nodes = Newest[str, str](_MOST)
        self._reserved: dict[str, tuple[ObjectKey, str, frozenset[str]]] = {}

    def on(self, cluster: Cluster) -> CountedNominations:
        """Return the nominations in another snapshot of the same cluster. The record of the guard's nominations and the
        reserved places are shared.
        """
        other = CountedNominations(cluster)
        other._nodes, other._reserved = self._nodes, self._reserved
        return other

    def put(self, uid: str, node_name: str) -> None:
        """Record that the sampling guard nominates the pod with this UID to the node."""
        self._nodes.put(uid, node_name)

    def drop(self, uid: str) -> None:
        """Forget the guard's nomination of the pod with this UID, if there is one."""
        self._nodes.pop(uid, None)

    def reserve(self, pod: Pod, node_name: str) -> None:
        """While the pod waits, count it on this node and on all nodes of the same domains.

        These are the domains of the topology keys in the pod's hard spread constraints.
        """
        known = self._cluster.nodes.get(node_name)
        labels: Mapping[str, str] = {} if known is None else known.node.labels
        keys = {it.topology_key for it in pod.spec.spread if it.is_hard and it.topology_key in labels}
        nodes = self._cluster.nodes.items() if labels else ()
        names = {name for name, it in nodes if any(it.node.labels.get(key) == labels[key] for key in keys)}
        self._reserved[pod.uid] = (pod.key, node_name, frozenset((node_name, *names)))

    def release(self, uid: str) -> None:
        """End the reservation for the pod with this UID, if there is one."""
        self._reserved.pop(uid, None)

    def _waiting(self, uids: Iterable[str]) -> list[Pod]:
        """Return those of the pods with a reserved place that have no node yet, each nominated to its planned node.

        These are this snapshot's pods, because another snapshot can have decoded fewer of their fields.
        """
        reserved = [(uid, *self._reserved[uid]) for uid in uids]
        known = [(uid, node, self._cluster.pod(*key)) for uid, key, node, _ in reserved]
        return [
            pod if pod.nominated_node_name == node else pod.nominated(node)
            for uid, node, pod in known
            if pod is not None and pod.uid == uid and not pod.node_name
        ]

    def is_ours(self, pod: Pod) -> bool:
        """Return true if the pod's current nomination is by the sampling guard."""
        return bool(pod.nominated_node_name) and self._nodes.get(pod.uid) == pod.nominated_node_name

    def nominated(self, node_name: str) -> Collection[Pod]:
        """Return the pods that are nominated to the node, except by the guard, and the pods with a reserved place
        there.
        """
        nominated = [pod for pod in self._cluster.nominated(node_name) if not self.is_ours(pod)]
        here = [uid for uid, (*_, names) in self._reserved.items() if node_name in names]
        if here:
            known = {pod.uid for pod in nominated}
            nominated += [pod for pod in self._waiting(here) if pod.uid not in known]
        return nominated

    @property
    def nominated_nodes(self) -> Collection[str]:
        """Names of the nodes for which ``nominated`` returns at least one pod."""
        every = self._cluster.nominated_nodes
        if not every and not self._reserved:
            return ()
        nominated = {name for name in every if not all(map(self.is_ours, self._cluster.nominated(name)))}
        return nominated.union(*(self._reserved[pod.uid][2] for pod in self._waiting(self._reserved)))

    @property
    def generation(self) -> int:
        return self._cluster.generation
