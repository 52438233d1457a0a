"""Which pods a selector matches, by node: groups of one label set, and the selections that they feed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from app.kube.labels import LabelSet
from app.kube.selectors import IN, Selector

if TYPE_CHECKING:
    from app.cache.domains import Domains

_ENTRY_BYTES: Final = 1000
_NODE_BYTES: Final = 50
_COUNT_BYTES: Final = 150
_REQUIREMENT_BYTES: Final = 500

_MOST_PAIRS: Final = 16
"""Of a selection: one with more is looked at for every label set of its namespace."""

EVERYWHERE: Final = ""
"""The scope of all namespaces: none has this name."""

Scope = str | frozenset[str]
"""A namespace, some of them, or ``EVERYWHERE``."""

SelectionKey = tuple[Scope, Selector]


def covers(scope: Scope, namespace: str) -> bool:
    return namespace in scope if isinstance(scope, frozenset) else scope in (namespace, EVERYWHERE)


class LabelledPod(Protocol):
    """What is counted by its labels: a pod."""

    @property
    def namespace(self) -> str: ...
    @property
    def labels(self) -> LabelSet: ...


class PlacedPod(LabelledPod, Protocol):
    """The same with all that a recount asks of it."""

    @property
    def uid(self) -> str: ...
    @property
    def node_name(self) -> str: ...
    @property
    def terminating(self) -> bool: ...


class SteppedEntry(Protocol):
    """An entry that is made in pieces. ``rest`` makes one more at each step; ``None``: it is whole, or given up."""

    rest: Iterator[None] | None

    def weight(self) -> int: ...


class Group:
    """All pods of one namespace with one label set. ``selections`` are those that match it."""

    __slots__ = ("labels", "nodes", "selections")

    def __init__(self, labels: LabelSet) -> None:
        self.labels = labels
        self.nodes: dict[str, int] = {}
        self.selections: dict[Selection, None] = {}


class Selection:
    """Pods that one selector matches in a scope, by node. ``rest``: what is still to be counted."""

    __slots__ = ("domains", "groups", "kept", "namespace", "nodes", "rest", "selector")

    def __init__(self, namespace: Scope, selector: Selector) -> None:
        self.namespace = namespace
        self.selector = selector
        self.nodes: dict[str, int] = {}
        self.groups: dict[Group, None] = {}
        self.domains: dict[Domains, None] = {}
        self.rest: Iterator[None] | None = None
        self.kept = True

    def weight(self) -> int:
        """Bytes, and something for the requirements: each label set never seen is judged by all of them."""
        asked = sum(_REQUIREMENT_BYTES + _NODE_BYTES * len(it.values) for it in self.selector.requirements)
        asked += _NODE_BYTES * len(self.namespace)
        return _ENTRY_BYTES + asked + _COUNT_BYTES * (len(self.nodes) + len(self.groups))

    def join(self, group: Group) -> None:
        """Count the pods of a group that it matches, from now on too."""
        group.selections[self] = None
        self.groups[group] = None
        nodes = self.nodes
        for node, count in group.nodes.items():
            nodes[node] = nodes.get(node, 0) + count

    def join_late(self, group: Group) -> None:
        """The same once there may be domains, which count them then."""
        group.selections[self] = None
        self.groups[group] = None
        for node, count in group.nodes.items():
            self.add(node, count)

    def add(self, node: str, delta: int) -> None:
        nodes = self.nodes
        count = nodes.get(node, 0) + delta
        if count:
            nodes[node] = count
        else:
            nodes.pop(node, None)
        for domains in self.domains:
            value = domains.topology.domain.get(node)
            if value is not None:
                domains.add(value, delta)


def pairs_of(namespaces: Collection[str], selector: Selector) -> list[tuple[str, ...]]:
    """Under what a selector is to be found by the pods that it may match: by a pair that these must have, else by the
    namespace alone. Of many namespaces: under ``EVERYWHERE``.
    """
    required = [it for it in selector.requirements if it.operator == IN]
    fewest = min(required, key=lambda it: len(it.values), default=None)
    scopes = namespaces if len(namespaces) <= _MOST_PAIRS else (EVERYWHERE,)
    if fewest is None or len(fewest.values) > _MOST_PAIRS:
        return [(it,) for it in scopes]
    return [(it, fewest.key, value) for it in scopes for value in fewest.values]


def found_under(namespace: str, labels: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """All ``pairs_of`` under which there may be selectors that match a pod."""
    for scope in (namespace, EVERYWHERE):
        yield (scope,)
        for key, value in labels.items():
            yield (scope, key, value)


def run_next_step(made: SteppedEntry) -> None:
    """Make one piece more."""
    if made.rest is not None:
        try:
            next(made.rest)
        except StopIteration:
            made.rest = None
