"""Where the objects of one kind go: one small sink per kind, the same for a live watch and a saved cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

from app.cluster.store import Cluster
from app.kube.core_v1 import Node, Pod
from app.kube.kinds import NODES, PODS, Kind, KubeObject
from app.kube.meta_v1 import ObjectKey

T_contra = TypeVar("T_contra", contravariant=True)


class Sink(Protocol[T_contra]):
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


class PodSink:
    """Pods. One with a bind in flight is left alone by a list that lacks it: what becomes of the bind will tell."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.newest_wins = True

    def upsert(self, obj: Pod) -> None:
        self._cluster.upsert_pod(obj, newest_wins=self.newest_wins)

    def delete(self, key: ObjectKey, uid: str) -> None:
        if uid or key not in {pod.key for pod in self._cluster.assumed.in_flight()}:
            self._cluster.delete_pod(key, uid)

    def keys(self) -> Iterator[ObjectKey]:
        return (pod.key for pod in self._cluster.pods())

    def has(self, key: ObjectKey) -> bool:
        return self._cluster.pod(*key) is not None


class NodeSink:
    """Nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.newest_wins = True

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


class ObjectSink:
    """Any other kind."""

    def __init__(self, cluster: Cluster, kind: Kind[Any]) -> None:
        self._objects = cluster.others
        self._kind = kind
        self.newest_wins = True

    def upsert(self, obj: KubeObject) -> None:
        self._objects.upsert(self._kind, obj, newest_wins=self.newest_wins)

    def delete(self, key: ObjectKey, uid: str) -> None:
        self._objects.delete(self._kind, key, uid)

    def keys(self) -> Iterator[ObjectKey]:
        return self._objects.keys(self._kind)

    def has(self, key: ObjectKey) -> bool:
        return self._objects.get(self._kind, *key) is not None


def sink_for(cluster: Cluster, kind: Kind[Any]) -> Sink[Any]:
    """The sink of a kind."""
    if kind == PODS:
        return PodSink(cluster)
    return NodeSink(cluster) if kind == NODES else ObjectSink(cluster, kind)
