"""Stores: reflectors, listings and the loader of a saved cluster change one kind in the snapshot through a store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

from app.cache.cluster import Cluster
from app.kube.core_v1 import Node, Pod
from app.kube.kinds import NODES, PODS, Kind, KubeObject
from app.kube.meta_v1 import ObjectKey

T_contra = TypeVar("T_contra", contravariant=True)


class Store(Protocol[T_contra]):
    """Objects of one kind in the snapshot. All methods are synchronous, so no task sees a partial change."""

    newest_wins: bool
    """If true, ``upsert`` ignores versions that are older than the known version. Without effect for nodes.

    It is false during the list after etcd was restored from a backup, because a restore makes versions smaller.
    """

    def upsert(self, obj: T_contra) -> None: ...

    def delete(self, key: ObjectKey, uid: str) -> None:
        """Remove an object. If ``uid`` is not empty, remove the object only if it has this UID."""
        ...

    def keys(self) -> Iterator[ObjectKey]:
        """Yield the keys of all known objects. The snapshot can change between two yields.

        The reflector calls this when a list begins, and later deletes the objects that the list lacks.
        """
        ...

    def has(self, key: ObjectKey) -> bool:
        """Return true if an object with this key is in the snapshot."""
        ...

    def count(self) -> int:
        """Return the number of objects."""
        ...

    def mark_unreadable(self, key: ObjectKey, cause: str) -> None:
        """Record that an object exists but cannot be decoded or stored."""
        ...

    def mark_readable(self, key: ObjectKey) -> None:
        """Record that an unreadable object was deleted, or can be decoded and stored now."""
        ...


class _CacheStore:
    """Base class of the stores for all kinds."""

    def __init__(self, cluster: Cluster, kind: Kind[Any]) -> None:
        self._cluster = cluster
        self._kind = kind
        self.newest_wins = True

    def count(self) -> int:
        return self._cluster.count_of(self._kind)

    def mark_unreadable(self, key: ObjectKey, cause: str) -> None:
        self._cluster.mark_unreadable(self._kind, key, cause)

    def mark_readable(self, key: ObjectKey) -> None:
        self._cluster.mark_readable(self._kind, key)


class PodStore(_CacheStore):
    """Store of pods.

    If a pod was known when a list began and is not in the list, it was deleted, even if its bind is in flight. But
    before the list ends, a new pod with the same name can be created, read outside of the watch, and even bound. So
    ``delete`` without a UID keeps a pod that was added after the call of ``keys``.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, PODS)
        self._pending: set[str] = set()

    def upsert(self, obj: Pod) -> None:
        self._cluster.upsert_pod(obj, newest_wins=self.newest_wins)

    def delete(self, key: ObjectKey, uid: str) -> None:
        if uid or not self._is_newer_than_list(key):
            self._cluster.delete_pod(key, uid)

    def _is_newer_than_list(self, key: ObjectKey) -> bool:
        """Return true if the pod was added after the call of ``keys``.

        Only pending pods can be added after that call, because only pending pods are read outside of the watch. Assumed
        pods are still pending in the API server.
        """
        known = self._cluster.pod(*key)
        return known is not None and self._is_pending(known) and known.uid not in self._pending

    def _is_pending(self, pod: Pod) -> bool:
        """Return true if the API server might still have the pod as pending: it has no node, or it is only assumed."""
        return not pod.node_name or self._cluster.assumed.get(pod.uid) is not None

    def keys(self) -> Iterator[ObjectKey]:
        self._pending.clear()
        for pod in self._cluster.pods():
            if self._is_pending(pod):
                self._pending.add(pod.uid)
            yield pod.key

    def has(self, key: ObjectKey) -> bool:
        return self._cluster.pod(*key) is not None


class NodeStore(_CacheStore):
    """Store of nodes."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, NODES)

    def upsert(self, obj: Node) -> None:
        self._cluster.upsert_node(obj)

    def delete(self, key: ObjectKey, uid: str) -> None:
        known = self._cluster.nodes.get(key[1])
        if known is not None and uid in ("", known.node.uid):
            self._cluster.delete_node(key[1])

    def keys(self) -> Iterator[ObjectKey]:
        return (("", name) for name in tuple(self._cluster.nodes))

    def has(self, key: ObjectKey) -> bool:
        return key[1] in self._cluster.nodes


class OtherStore(_CacheStore):
    """Store of a kind other than pods and nodes."""

    def __init__(self, cluster: Cluster, kind: Kind[Any]) -> None:
        super().__init__(cluster, kind)
        self._objects = cluster.others

    def upsert(self, obj: KubeObject) -> None:
        self._objects.upsert(self._kind, obj, newest_wins=self.newest_wins)

    def delete(self, key: ObjectKey, uid: str) -> None:
        self._objects.delete(self._kind, key, uid)

    def keys(self) -> Iterator[ObjectKey]:
        return self._objects.keys(self._kind)

    def has(self, key: ObjectKey) -> bool:
        return self._objects.get(self._kind, *key) is not None


def store_for(cluster: Cluster, kind: Kind[Any]) -> Store[Any]:
    """Create the store for a kind."""
    if kind == PODS:
        return PodStore(cluster)
    return NodeStore(cluster) if kind == NODES else OtherStore(cluster, kind)
