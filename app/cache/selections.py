"""Number of pods by node that a selector matches.

A ``Group`` counts the pods with equal labels, and a ``Selection`` adds up all groups that its selector matches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from app.cache.bounded import COUNT_BYTES, ENTRY_BYTES, NODE_BYTES
from app.kube.labels import LabelSet
from app.kube.selectors import IN, Selector

if TYPE_CHECKING:
    from app.cache.domains import Domains

_REQUIREMENT_BYTES: Final = 500

_MOST_PAIRS: Final = 16
"""Maximum number of label values, and of namespaces, by which a selection is indexed.

With more values, the selection is compared with every new label set of its namespaces. With more namespaces, it is
indexed for all namespaces.
"""

EVERYWHERE: Final = ""
"""Scope of all namespaces. No namespace has an empty name."""

Scope = str | frozenset[str]
"""One namespace, a set of namespaces, or ``EVERYWHERE``."""

SelectionKey = tuple[Scope, Selector]


def covers(scope: Scope, namespace: str) -> bool:
    """Return true if the scope includes the namespace."""
    return namespace in scope if isinstance(scope, frozenset) else scope in (namespace, EVERYWHERE)


class SteppedEntry(Protocol):
    """Cache entry that is built in steps.

    ``rest``: iterator, each step of which does a part of the remaining work; ``None`` if the entry is complete or
    evicted.
    """

    rest: Iterator[None] | None

    def weight(self) -> int: ...


class Group:
    """Number of pods by node, for the pods of one namespace with one label set.

    ``selections``: the cached selections whose selectors match these labels; the values are ``None``.
    """

    __slots__ = ("labels", "nodes", "selections")

    def __init__(self, labels: LabelSet) -> None:
        self.labels = labels
        self.nodes: dict[str, int] = {}
        self.selections: dict[Selection, None] = {}


class Selection:
    """Number of pods by node, for the pods that one selector matches in a scope. Implements ``SteppedEntry``.

    ``domains``: the counts by topology domain that are derived from this selection. ``is_cached``: false once the
    owner has evicted it.
    """

    __slots__ = ("domains", "groups", "is_cached", "namespace", "nodes", "rest", "selector")

    def __init__(self, namespace: Scope, selector: Selector) -> None:
        self.namespace = namespace
        self.selector = selector
        self.nodes: dict[str, int] = {}
        self.groups: dict[Group, None] = {}
        self.domains: dict[Domains, None] = {}
        self.rest: Iterator[None] | None = None
        self.is_cached = True

    def weight(self) -> int:
        """Return the estimated bytes, plus a charge for comparing each new label set with the requirements."""
        requirements = sum(_REQUIREMENT_BYTES + NODE_BYTES * len(it.values) for it in self.selector.requirements)
        key = requirements + NODE_BYTES * len(self.namespace)
        return ENTRY_BYTES + key + COUNT_BYTES * (len(self.nodes) + len(self.groups))

    def join(self, group: Group) -> None:
        """Add a matching group. Its later changes are counted too. Call this only while ``domains`` is empty."""
        group.selections[self] = None
        self.groups[group] = None
        nodes = self.nodes
        for node, count in group.nodes.items():
            nodes[node] = nodes.get(node, 0) + count

    def join_late(self, group: Group) -> None:
        """Add a matching group like ``join``, and also update the counts in ``domains``."""
        group.selections[self] = None
        self.groups[group] = None
        for node, count in group.nodes.items():
            self.add(node, count)

    def add(self, node: str, delta: int) -> None:
        """Change the number of pods on a node, and in its domains, by ``delta``."""
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
    """Return the index keys of a selector. For each pod that it matches, ``found_under`` yields one of these keys.

    If matching pods must have one of at most ``_MOST_PAIRS`` values of a label, the keys are (scope, label key, value).
    Else they are (scope,). There is a scope for each namespace, or only ``EVERYWHERE`` for more than ``_MOST_PAIRS``.
    """
    required = [it for it in selector.requirements if it.operator == IN]
    fewest = min(required, key=lambda it: len(it.values), default=None)
    scopes = namespaces if len(namespaces) <= _MOST_PAIRS else (EVERYWHERE,)
    if fewest is None or len(fewest.values) > _MOST_PAIRS:
        return [(it,) for it in scopes]
    return [(it, fewest.key, value) for it in scopes for value in fewest.values]


def found_under(namespace: str, labels: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Yield the index keys under which all selectors that can match a pod with these labels are found.

    See ``pairs_of``.
    """
    for scope in (namespace, EVERYWHERE):
        yield (scope,)
        for key, value in labels.items():
            yield (scope, key, value)


def run_next_step(entry: SteppedEntry) -> None:
    """Run the next step of the entry's remaining work. Mark the entry as complete after the last step."""
    if entry.rest is not None:
        try:
            next(entry.rest)
        except StopIteration:
            entry.rest = None
