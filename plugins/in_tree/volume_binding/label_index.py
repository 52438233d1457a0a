"""Index of volumes or CSIStorageCapacity objects by the labels of the nodes that can use them."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar

from app.framework.resources import add
from app.kube.node_affinity import RequiredNodeAffinity
from app.kube.selectors import IN, Selector

T = TypeVar("T")

Topology = tuple[str, tuple[str, ...]]
"""(key, values) of a node label. A node must have the label with one of the values."""

ANYWHERE: Final[Collection[Topology]] = ()
"""Empty collection of topologies. It does not restrict the nodes, so any node might be able to use the object."""


def topologies_of_affinity(affinity: RequiredNodeAffinity | None) -> Collection[Topology] | None:
    """Return topologies such that each node that matches the affinity has at least one of them.

    The result is ``ANYWHERE`` if no such topologies can be derived, and ``None`` if the affinity matches no node.
    """
    if affinity is None or affinity.terms is None:
        return ANYWHERE
    topologies = []
    for term in affinity.terms:
        if not term.can_match:
            continue
        topology = next(((it.key, it.values) for it in term.expressions if it.operator == IN), None)
        if topology is None:
            return ANYWHERE
        topologies.append(topology)
    return topologies or None


def topologies_of_selector(selector: Selector) -> Collection[Topology]:
    """Return topologies that each matching node has; ``ANYWHERE`` if none can be derived from the selector."""
    topology = next(((it.key, it.values) for it in selector.requirements if it.operator == IN), None)
    return ANYWHERE if topology is None else (topology,)


def keys_of_affinity(affinity: RequiredNodeAffinity | None) -> frozenset[str]:
    """Return the keys of the node labels that the affinity reads."""
    if affinity is None:
        return frozenset()
    terms = (it.key for term in affinity.terms or () for it in term.expressions)
    return frozenset((*terms, *(key for key, _ in affinity.node_selector)))


def keys_of_selector(selector: Selector) -> frozenset[str]:
    """Return the keys of the node labels that the selector reads."""
    return frozenset(it.key for it in selector.requirements)


class LabelIndex(Generic[T]):
    """Objects by name, indexed by the topologies of the nodes that can use them.

    Adding or removing an object costs one look-up for each value of its topologies. ``keys``: keys of the node labels
    that decide whether an object can be used, each with the number of objects that depend on it.
    """

    __slots__ = ("_anywhere", "_at", "keys")

    def __init__(self) -> None:
        self._anywhere: dict[Hashable, T] = {}
        self._at: dict[str, dict[str, dict[Hashable, T]]] = {}
        self.keys: dict[str, int] = {}

    def add(self, name: Hashable, member: T, topologies: Collection[Topology] | None, keys: Iterable[str]) -> None:
        """Add an object. Without effect if ``topologies`` is ``None``, because no node can use the object."""
        if topologies is None:
            return
        add(dict.fromkeys(keys, 1), self.keys)
        if not topologies:
            self._anywhere[name] = member
        for key, value in _pairs(topologies):
            self._at.setdefault(key, {}).setdefault(value, {})[name] = member

    def discard(self, name: Hashable, topologies: Collection[Topology] | None, keys: Iterable[str]) -> None:
        """Remove the object that was added with this name, these topologies and these keys."""
        if topologies is None:
            return
        add(dict.fromkeys(keys, 1), self.keys, -1)
        if not topologies:
            del self._anywhere[name]
        for key, value in _pairs(topologies):
            of_key = self._at[key]
            del of_key[value][name]
            if not of_key[value]:
                del of_key[value]
            if not of_key:
                del self._at[key]

    def candidates(self, labels: Mapping[str, str]) -> Iterator[T]:
        """Yield the objects that a node with these labels might be able to use, in any order.

        The caller must check each object. An object with several topologies can be yielded more than once.
        """
        yield from self._anywhere.values()
        for key, of_key in self._at.items():
            value = labels.get(key)
            if value is not None and value in of_key:
                yield from of_key[value].values()


def _pairs(topologies: Collection[Topology]) -> Collection[tuple[str, str]]:
    return dict.fromkeys((key, value) for key, values in topologies for value in values)
