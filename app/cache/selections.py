"""Number of pods that a selector matches, by node.

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
"""Estimated bytes of a requirement without its values, plus an allowance for the time of comparisons."""

_MOST_KEYS: Final = 16
"""Maximum number of label values, and of namespaces, by which a selector is indexed.

If a selector has no In requirement with at most this number of values, it is indexed only by namespace. If there are
more namespaces, it is indexed for all namespaces.
"""

EVERYWHERE: Final = ""
"""Scope that includes all namespaces. It is not the name of a namespace, because no such name is empty."""

Scope = str | frozenset[str]
"""One namespace, a set of namespaces, or ``EVERYWHERE``."""

SelectionKey = tuple[Scope, Selector]
"""Scope and selector of a selection."""


def covers(scope: Scope, namespace: str) -> bool:
    """Return true if the scope includes the namespace."""
    return namespace in scope if isinstance(scope, frozenset) else scope in (namespace, EVERYWHERE)


class SteppedEntry(Protocol):
    """Cache entry that is built in steps.

    ``rest``: iterator over the remaining steps of work; ``None`` if the entry is complete or was evicted.
    """

    rest: Iterator[None] | None

    def weight(self) -> int: ...


class Group:
    """Number of pods by node (``nodes``), for the pods of one namespace with one label set.

    ``selections``: ordered set (the values are ``None``) of the cached selections that include these pods.
    """

    __slots__ = ("labels", "nodes", "selections")

    def __init__(self, labels: LabelSet) -> None:
        self.labels = labels
        self.nodes: dict[str, int] = {}
        self.selections: dict[Selection, None] = {}


class Selection:
    """Number of pods by node (``nodes``), for the pods that one selector matches in a scope. A ``SteppedEntry``.

    ``namespace``: the scope. ``domains``: the counts by topology domain that are derived from this selection.
    ``is_cached``: false once ``Counters.leave`` has unlinked the selection. A ``TermMatch`` stores its numbers or
    weights of pods in selections too; these have no groups, and their scope and selector have no meaning.
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
        """Return the estimated bytes, plus an allowance for the time of comparisons with new label sets."""
        requirements = sum(_REQUIREMENT_BYTES + NODE_BYTES * len(it.values) for it in self.selector.requirements)
        key = requirements + NODE_BYTES * len(self.namespace)
        return ENTRY_BYTES + key + COUNT_BYTES * (len(self.nodes) + len(self.groups))

    def join(self, group: Group) -> None:
        """Add a matching group; its changes then also change this selection. Use only while ``domains`` is empty."""
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


def selector_index_keys(namespaces: Collection[str], selector: Selector) -> list[tuple[str, ...]]:
    """Return the index keys of a selector. For each pod that it matches, ``pod_index_keys`` yields one of these keys.

    If the selector requires one of at most ``_MOST_KEYS`` values of a label, each key is (scope, label key, value).
    Else each key is (scope,). A scope is a namespace; it is ``EVERYWHERE`` if there are more than ``_MOST_KEYS``
    namespaces.
    """
    required = [it for it in selector.requirements if it.operator == IN]
    fewest = min(required, key=lambda it: len(it.values), default=None)
    scopes = namespaces if len(namespaces) <= _MOST_KEYS else (EVERYWHERE,)
    if fewest is None or len(fewest.values) > _MOST_KEYS:
        return [(it,) for it in scopes]
    return [(it, fewest.key, value) for it in scopes for value in fewest.values]


def pod_index_keys(namespace: str, labels: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Yield the index keys for a pod with these labels. Every selector that can match the pod has one of these keys.

    See ``selector_index_keys``.
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
