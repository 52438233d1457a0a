"""Overlay: shows the cluster without some pods, with additional pods, or with changed nodes, during one evaluation.

An evaluation omits, for example, the evaluated pod itself or the victims of preemption, and adds nominated pods. The
overlay changes no cached counts, stamps, versions or node infos. If the overlay affects a result, the result is
computed from the cached one; other results are returned unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, KeysView, Mapping, Sequence, Set
from typing import Final, TypeVar

from app.cache.claims import claim_keys
from app.cache.domains import Domains
from app.cache.selections import Scope, covers
from app.cache.topologies import new_stamp
from app.framework.counts import DomainCounts
from app.framework.node_info import NodeInfo
from app.kube.core_v1 import Node, Pod
from app.kube.meta_v1 import ObjectKey
from app.kube.selectors import Selector

V = TypeVar("V")

Moves = Mapping[ObjectKey, tuple[Pod | None, Pod | None]]
"""Pods that an overlay changes, by key: (version in the cluster, version in the overlay). ``None``: absent there."""

_NOT_REPLACED: Final = object()
_NOTHING_REPLACED: Final[Mapping[str, Node]] = {}


class Overlaid(Mapping[str, V]):
    """View of the mapping ``table`` in which ``rows`` replace or add values. ``None`` in ``rows`` removes a key."""

    __slots__ = ("_rows", "_table")

    def __init__(self, table: Mapping[str, V], rows: Mapping[str, V | None]) -> None:
        self._table = table
        self._rows = rows

    def __getitem__(self, key: str) -> V:
        if key not in self._rows:
            return self._table[key]
        row = self._rows[key]
        if row is None:
            raise KeyError(key)
        return row

    def __contains__(self, key: object) -> bool:
        row = self._rows.get(key, _NOT_REPLACED)  # type: ignore[call-overload]  # any object can be looked up
        return key in self._table if row is _NOT_REPLACED else row is not None

    def __iter__(self) -> Iterator[str]:
        rows, table = self._rows, self._table
        yield from (key for key in table if rows.get(key, _NOT_REPLACED) is not None)
        yield from (key for key, row in rows.items() if row is not None and key not in table)

    def __len__(self) -> int:
        return len(self._table) + sum((row is not None) - (key in self._table) for key, row in self._rows.items())

    def keys(self) -> KeysView[str]:
        """Return the keys. If the table has the same keys, return those of the table, because a dict is faster."""
        same = all(row is not None and key in self._table for key, row in self._rows.items())
        return self._table.keys() if same else super().keys()


class OverlaidDomains:
    """Cached counts by domain, changed by ``deltas``. Implements ``framework.DomainCounts``.

    The set of domains does not change, because counts by domain ignore an overlay's changes to nodes.
    """

    __slots__ = ("_cached", "_counts", "_deltas", "_minimum", "_stamps")

    def __init__(self, cached: Domains, deltas: Mapping[str, int]) -> None:
        self._cached = cached
        self._counts = cached.counts
        self._deltas = deltas
        self._minimum: int | None = None
        self._stamps: dict[int, int] = {}

    def count(self, value: str) -> int:
        return self._counts.get(value, 0) + self._deltas.get(value, 0)

    def minimum(self, deltas: Mapping[str, int] | None = None) -> int:
        if deltas:
            return self._cached.minimum(_sum(self._deltas, deltas))
        if self._minimum is None:
            self._minimum = self._cached.minimum(self._deltas)
        return self._minimum

    def extremes(self, deltas: Mapping[str, int], among: Set[str] | None = None) -> tuple[int, int]:
        return self._cached.extremes(_sum(self._deltas, deltas), among)

    def size(self) -> int:
        return self._cached.size()

    def nodes_by_domain(self) -> Mapping[str, int]:
        return self._cached.nodes_by_domain()

    def domain_of(self, node: str) -> str | None:
        return self._cached.domain_of(node)

    def is_empty(self) -> bool:
        return not self.above(0)

    def above(self, limit: int) -> Collection[str]:
        above, crossing = self._cached.above(limit), self._crossing(limit)
        return frozenset(above).symmetric_difference(crossing) if crossing else above

    def stamp(self, limit: int) -> int:
        """Return a number that changes when the set of domains above ``limit`` changes.

        Return the cached stamp if there is one and the overlay does not change this set. Else return a new stamp, which
        stays the same within this overlay.
        """
        stamp = self._cached.stamps.get(limit)
        if stamp is not None and not self._crossing(limit):
            return stamp
        if limit not in self._stamps:
            # ``Domains.stamp`` is not called, because it could drop the stamp of another limit.
            self._stamps[limit] = new_stamp()
        return self._stamps[limit]

    def _crossing(self, limit: int) -> list[str]:
        """Return the domains that are above the limit only with the overlay, or only without it."""
        count = self._cached.count
        return [value for value, delta in self._deltas.items() if (count(value) > limit) != (self.count(value) > limit)]


class CountedMoves:
    """Changes that omitted and added pods make to cached counts. Implements ``counters.CountOverlay``.

    ``is_counted``: returns true for a pod that the cached counts include.
    """

    __slots__ = ("_counted", "_domains", "_is_counted", "moves")

    def __init__(self, moves: Moves, is_counted: Callable[[Pod], bool]) -> None:
        self.moves = moves
        self._is_counted = is_counted
        self._counted: list[tuple[Pod, int]] | None = None
        self._domains: dict[Domains, DomainCounts] = {}

    def pods_by_node(self, namespace: Scope, selector: Selector, cached: Mapping[str, int]) -> Mapping[str, int]:
        """Return the number of matching pods by node, without zeros: ``cached`` with the overlay's changes."""
        deltas = self._deltas(namespace, selector)
        if not any(deltas.values()):
            return cached
        counts = _sum(cached, deltas)
        for node in deltas:
            if not counts[node]:
                del counts[node]
        return counts

    def domains(self, cached: Domains) -> DomainCounts:
        """Return the number of pods by domain: the ``cached`` numbers with the overlay's changes."""
        counts = self._domains.get(cached)
        if counts is None:
            deltas = self._deltas(cached.selection.namespace, cached.selection.selector)
            counts = self._domains[cached] = overlaid(cached, deltas)
        return counts

    def moved(self) -> list[tuple[Pod, int]]:
        """Return the counted pods that the overlay omits, each with -1, and the counted pods that it adds, with 1."""
        if self._counted is None:
            self._counted = []
            for old, new in self.moves.values():
                if old is not None and self._is_counted(old):
                    self._counted.append((old, -1))
                if new is not None and self._is_counted(new):
                    self._counted.append((new, 1))
        return self._counted

    def _deltas(self, namespace: Scope, selector: Selector) -> Mapping[str, int]:
        """Return the change of the number of matching pods by node. A change can be 0."""
        deltas: dict[str, int] = {}
        for pod, delta in self.moved():
            if covers(namespace, pod.namespace) and selector.matches(pod.labels):
                deltas[pod.node_name] = deltas.get(pod.node_name, 0) + delta
        return deltas


def overlaid(cached: Domains, by_node: Mapping[str, int]) -> DomainCounts:
    """Return cached counts by domain with the changes in ``by_node``: numbers to add to the counts, by node."""
    deltas: dict[str, int] = {}
    for node, delta in by_node.items():
        value = cached.domain_of(node)
        if value is not None:
            deltas[value] = deltas.get(value, 0) + delta
    return OverlaidDomains(cached, deltas) if any(deltas.values()) else cached


class Overlay(CountedMoves):
    """Omitted and added pods of a cluster. An added pod with a ``node_name`` is on that node.

    ``replaced``: changed nodes by name. Only node infos show them: counts by domain, indexes and aggregates do not.
    Valid for one synchronous evaluation, during which the cluster does not change.
    """

    __slots__ = ("_nodes", "_nominated", "replaced")

    def __init__(self, moves: Moves, replaced: Mapping[str, Node] = _NOTHING_REPLACED) -> None:
        super().__init__(moves, is_counted)
        self.replaced = replaced
        self._nodes: Mapping[str, NodeInfo] | None = None
        self._nominated: Mapping[str, Mapping[str, Pod]] | None = None

    def nodes(self, cached: Mapping[str, NodeInfo]) -> Mapping[str, NodeInfo]:
        """Return the ``cached`` node infos, with new node infos for known nodes that are changed or have other pods."""
        if self._nodes is None:
            rows = {name: cached[name].with_node(node) for name, node in self.replaced.items() if name in cached}
            rows |= {
                name: _node_info(rows.get(name, cached[name]), omitted, added)
                for name, (omitted, added) in self._rows(_nodes_of).items()
                if name in cached
            }
            self._nodes = Overlaid(cached, rows) if rows else cached
        return self._nodes

    def touched(self) -> Collection[str]:
        """Return the nodes that are changed, or on which pods are omitted or added."""
        return self._rows(_nodes_of).keys() | self.replaced.keys()

    def nominated(self, cached: Mapping[str, Mapping[str, Pod]]) -> Mapping[str, Mapping[str, Pod]]:
        """Return the pending pods by nominated node and by UID: ``cached`` with the changes of the overlay."""
        if self._nominated is None:
            self._nominated = self._grouped(cached, _nominations_of)
        return self._nominated

    def controlled(self, kind: str, cached: Mapping[str, Mapping[str, Pod]]) -> Mapping[str, Mapping[str, Pod]]:
        """Return the pods of controllers of ``kind``, by controller UID and pod UID: ``cached`` with the overlay's
        changes.
        """

        def controllers_of(pod: Pod) -> Sequence[str]:
            return (pod.owner.uid,) if pod.owner is not None and pod.owner.kind == kind else ()

        return self._grouped(cached, controllers_of)

    def claiming(self, cached: Mapping[str, Mapping[str, Pod]]) -> Mapping[str, Mapping[str, Pod]]:
        """Return the pods by claim (``namespace/name``) and by UID: ``cached`` with the changes of the overlay."""
        return self._grouped(cached, claim_keys)

    def annotated(self, cached: Sequence[Pod]) -> Sequence[Pod]:
        """Return the bound pods with annotations of Homeport's domain. ``cached``: these pods without the overlay."""
        shown = (new for _, new in self.moves.values() if new is not None)
        added = (pod for pod in shown if pod.annotations and pod.node_name)
        return [*(pod for pod in cached if pod.key not in self.moves), *added]

    def _grouped(
        self, cached: Mapping[str, Mapping[str, Pod]], rows_of: Callable[[Pod], Sequence[str]]
    ) -> Mapping[str, Mapping[str, Pod]]:
        """Return the groups of pods in ``cached`` with the changes of the overlay. ``rows_of``: see ``_rows``."""
        rows: dict[str, Mapping[str, Pod] | None] = {}
        for name, (omitted, added) in self._rows(rows_of).items():
            rest = {uid: pod for uid, pod in cached.get(name, {}).items() if uid not in omitted}
            rows[name] = rest | added or None
        return Overlaid(cached, rows) if rows else cached

    def _rows(self, rows_of: Callable[[Pod], Sequence[str]]) -> dict[str, tuple[set[str], dict[str, Pod]]]:
        """Return for each affected row the UIDs of its omitted pods, and its added pods by UID.

        ``rows_of``: returns the rows in which a pod is listed, for example its node, or the claims that it names.
        """
        rows: dict[str, tuple[set[str], dict[str, Pod]]] = {}
        for old, new in self.moves.values():
            if old is not None:
                for row in rows_of(old):
                    rows.setdefault(row, (set(), {}))[0].add(old.uid)
            if new is not None:
                for row in rows_of(new):
                    rows.setdefault(row, (set(), {}))[1][new.uid] = new
        return rows


class LiveGroups(Mapping[str, Mapping[str, Pod]]):
    """Live view of groups of pods. Each access calls ``current``, which returns the groups at that time.

    So a plugin can store the view.
    """

    __slots__ = ("_current",)

    def __init__(self, current: Callable[[], Mapping[str, Mapping[str, Pod]]]) -> None:
        self._current = current

    def __getitem__(self, group: str) -> Mapping[str, Pod]:
        return self._current()[group]

    def __iter__(self) -> Iterator[str]:
        return iter(self._current())

    def __len__(self) -> int:
        return len(self._current())


def is_counted(pod: Pod) -> bool:
    """Return true if the pod is on a node and not terminating. ``Counts`` include only these pods."""
    return bool(pod.node_name) and not pod.terminating


def is_placed(pod: Pod) -> bool:
    """Return true if the pod is on a node, even if it is terminating. ``PodTerms`` include terminating pods too."""
    return bool(pod.node_name)


def nomination_of(pod: Pod) -> str:
    """Return the node to which a pending pod is nominated.

    Return ``""`` for a pod that has no nomination, is on a node, or has scheduling gates.
    """
    return "" if pod.node_name or pod.spec.gated else pod.nominated_node_name


def _nominations_of(pod: Pod) -> Sequence[str]:
    nominated = nomination_of(pod)
    return (nominated,) if nominated else ()


def _nodes_of(pod: Pod) -> Sequence[str]:
    return (pod.node_name,) if pod.node_name else ()


def _node_info(cached: NodeInfo, omitted: set[str], added: Mapping[str, Pod]) -> NodeInfo:
    """Return a node info without the ``omitted`` pods (UIDs) and with the ``added`` pods."""
    rest = cached.without_pods(omitted) if omitted else cached
    return rest.with_pods(added.values()) if added else rest


def _sum(counts: Mapping[str, int], deltas: Mapping[str, int]) -> dict[str, int]:
    total = dict(counts)
    for key, delta in deltas.items():
        total[key] = total.get(key, 0) + delta
    return total
