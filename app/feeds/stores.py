"""Where the objects of one kind go: one small store per kind, the same for a live watch and a saved cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

from app.cache.cluster import Cluster
from app.kube.core_v1 import Node, Pod
from app.kube.kinds import NODES, PODS, Kind, KubeObject
from app.kube.meta_v1 import ObjectKey

T_contra = TypeVar("T_contra", contravariant=True)


class Store(Protocol[T_contra]):
    """Takes in what is seen of one kind. Synchronous: the picture is never half changed."""

    newest_wins: bool
    """Whether a form that is older than the one known is left out; not while a list is taken of a restored cluster."""

    def upsert(self, obj: T_contra) -> None: ...

    def delete(self, key: ObjectKey, uid: str) -> None:
        """Forget an object; with a ``uid`` only if it is still that one."""
        ...

    def keys(self) -> Iterator[ObjectKey]:
        """What a fresh list has to confirm, or it is gone. The picture may change while it is read."""
        ...

    def has(self, key: ObjectKey) -> bool: ...

    def count(self) -> int:
        """Return the number of objects."""
        ...

    def mark_unreadable(self, key: ObjectKey, cause: str) -> None:
        """An object exists in a form that cannot be read."""
        ...

    def mark_readable(self, key: ObjectKey) -> None:
        """One that was left out is gone, or can be read again."""
        ...


class _CacheStore:
    """What the stores have in common."""

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
    """Pods. A list that lacks a pod says that it is gone, with its bind in flight too: it will not come back.

    That is a word about pods that were there when the list began. One of the same name that was made since, and read
    past the watch, is none of them, and may be bound by the time the list is through.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, PODS)
        self._unbound: set[str] = set()

    def upsert(self, obj: Pod) -> None:
        self._cluster.upsert_pod(obj, newest_wins=self.newest_wins)

    def delete(self, key: ObjectKey, uid: str) -> None:
        if uid or not self._came_since(key):
            self._cluster.delete_pod(key, uid)

    def _came_since(self, key: ObjectKey) -> bool:
        """Whether a pod was made since the keys were read. Only what waits is read past the watch, and then bound."""
        known = self._cluster.pod(*key)
        return known is not None and self._may_be_bound(known) and known.uid not in self._unbound

    def _may_be_bound(self, pod: Pod) -> bool:
        return not pod.node_name or self._cluster.assumed.get(pod.uid) is not None

    def keys(self) -> Iterator[ObjectKey]:
        self._unbound.clear()
        for pod in self._cluster.pods():
            if self._may_be_bound(pod):
                self._unbound.add(pod.uid)
            yield pod.key

    def has(self, key: ObjectKey) -> bool:
        return self._cluster.pod(*key) is not None


class NodeStore(_CacheStore):
    """Nodes."""

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
    """Any other kind."""

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
    """The store of a kind."""
    if kind == PODS:
        return PodStore(cluster)
    return NodeStore(cluster) if kind == NODES else OtherStore(cluster, kind)
