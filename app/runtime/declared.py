"""``Objects`` limited to the kinds that one plugin declares. Access to another kind is refused, because a kind that is
not watched would look empty.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from app.framework.objects import Objects
from app.kube.core_v1 import Pod
from app.kube.kinds import NODES, PODS, Kind, KubeObject
from app.kube.meta_v1 import ObjectKey

Object = TypeVar("Object", bound=KubeObject)

_ELSEWHERE: Final[dict[Kind[Any], str]] = {
    NODES: "nodes are read through Handle.nodes, or from the NodeInfo in hand",
    PODS: "pods are read from NodeInfo.pods, or counted by Handle.counts",
}
"""Kinds that are refused even if they are declared, each with the interface to use instead, for error messages."""

_MOST_KNOWN: Final = 64
"""Maximum number of ``Kind`` objects cached by identity. Without it, a plugin that creates a ``Kind`` at each call
would let the cache grow forever.
"""


class UndeclaredKind(LookupError):
    """Error: a plugin asks for a kind that it does not declare, or for pods or nodes. This is a bug of the plugin."""

    def __init__(self, plugin: str, kind: Kind[Any]) -> None:
        instead = _ELSEWHERE.get(kind, "name the kind in kinds= of its Needs")
        super().__init__(f'plugin "{plugin}" asks Handle.objects for {kind}: {instead}')


class DeclaredObjects:
    """Implements ``framework.Objects`` for one plugin with the objects of ``kinds`` in ``objects``.

    Methods that return objects of a kind, or their version, raise ``UndeclaredKind`` for any other kind, and always for
    pods and nodes. The methods from ``annotated_pods`` on only look up pods and nodes. All plugins can call them.
    """

    __slots__ = ("_declared", "_get", "_in_namespace", "_known", "_objects", "_plugin", "_version")

    def __init__(self, plugin: str, kinds: Iterable[Kind[Any]], objects: Objects) -> None:
        self._plugin = plugin
        self._declared = frozenset(kinds) - _ELSEWHERE.keys()
        self._known = {id(kind): kind for kind in self._declared}
        self._objects = objects
        self._get = objects.get
        self._in_namespace = objects.in_namespace
        self._version = objects.version

    def _require(self, kind: Kind[Any]) -> None:
        """Raise ``UndeclaredKind`` unless the kind is declared. Cache the identity of a declared kind, because
        comparing kinds by value takes longer than looking up an object.
        """
        if kind not in self._declared:
            raise UndeclaredKind(self._plugin, kind)
        if len(self._known) < _MOST_KNOWN:
            self._known[id(kind)] = kind

    def get(self, kind: Kind[Object], namespace: str, name: str) -> Object | None:
        if id(kind) not in self._known:
            self._require(kind)
        return self._get(kind, namespace, name)

    def in_namespace(self, kind: Kind[Object], namespace: str) -> Collection[Object]:
        if id(kind) not in self._known:
            self._require(kind)
        return self._in_namespace(kind, namespace)

    def version(self, kind: Kind[Any], namespace: str | None = None) -> int:
        if id(kind) not in self._known:
            self._require(kind)
        return self._version(kind, namespace)

    def every(self, kind: Kind[Object]) -> Iterator[Object]:
        self._require(kind)
        return self._objects.every(kind)

    def changed(self, kind: Kind[Object], seen: int) -> Collection[tuple[ObjectKey, Object | None]] | None:
        if id(kind) not in self._known:
            self._require(kind)
        return self._objects.changed(kind, seen)

    def annotated_pods(self) -> Collection[Pod]:
        return self._objects.annotated_pods()

    def by_controller(self, kind: Kind[Any]) -> Mapping[str, Mapping[str, Pod]]:
        return self._objects.by_controller(kind)

    def by_claim(self) -> Mapping[str, Mapping[str, Pod]]:
        return self._objects.by_claim()

    def has_node(self, name: str) -> bool:
        return self._objects.has_node(name)

    def misses_node(self, name: str) -> bool:
        return self._objects.misses_node(name)
