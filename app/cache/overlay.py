"""The picture as it would be without some pods, or with others: read while the overlay is open, and nothing moves.

A pod is not its own peer, a nominated pod may come, victims would be gone: each is a few pods that are left out or
added. What differs because of them is worked out where it is asked for, as small changes to what is kept; kept counts,
stamps, versions and node infos stay what they are. Whatever an overlay does not touch is given out as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, KeysView, Mapping, Sequence
from typing import Final, TypeVar

from app.cache.claims import claim_keys
from app.cache.domains import Domains
from app.cache.selections import Scope, covers
from app.cache.topologies import new_stamp
from app.framework.counts import DomainCounts
from app.framework.node_info import NodeInfo
from app.kube.core_v1 import Pod
from app.kube.meta_v1 import ObjectKey
from app.kube.selectors import Selector

V = TypeVar("V")

Moves = Mapping[ObjectKey, tuple[Pod | None, Pod | None]]
"""Each pod as the picture has it, and as it is to be seen; ``None`` where it is not there."""

_KEPT: Final = object()


class Overlaid(Mapping[str, V]):
    """``table`` with some ``rows`` in place of its own. A row that is ``None`` is not there."""

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
        row = self._rows.get(key, _KEPT)  # type: ignore[call-overload]  # whatever is asked for
        return key in self._table if row is _KEPT else row is not None

    def __iter__(self) -> Iterator[str]:
        rows, table = self._rows, self._table
        yield from (key for key in table if rows.get(key, _KEPT) is not None)
        yield from (key for key, row in rows.items() if row is not None and key not in table)

    def __len__(self) -> int:
        return len(self._table) + sum((row is not None) - (key in self._table) for key, row in self._rows.items())

    def keys(self) -> KeysView[str]:
        """Those of the table where they are the same: a plain dict's answer to who asks for thousands at once."""
        same = all(row is not None and key in self._table for key, row in self._rows.items())
        return self._table.keys() if same else super().keys()


class OverlaidDomains:
    """Implements ``framework.DomainCounts``: kept counts, each changed by ``deltas``. Domains stay what they are."""

    __slots__ = ("_counts", "_deltas", "_kept", "_minimum", "_stamps")

    def __init__(self, kept: Domains, deltas: Mapping[str, int]) -> None:
        self._kept = kept
        self._counts = kept.counts
        self._deltas = deltas
        self._minimum: int | None = None
        self._stamps: dict[int, int] = {}

    def count(self, value: str) -> int:
        return self._counts.get(value, 0) + self._deltas.get(value, 0)

    def minimum(self, deltas: Mapping[str, int] | None = None) -> int:
        if deltas:
            return self._kept.minimum(_sum(self._deltas, deltas))
        if self._minimum is None:
            self._minimum = self._kept.minimum(self._deltas)
        return self._minimum

    def size(self) -> int:
        return self._kept.size()

    def nodes_by_domain(self) -> Mapping[str, int]:
        return self._kept.nodes_by_domain()

    def domain_of(self, node: str) -> str | None:
        return self._kept.domain_of(node)

    def is_empty(self) -> bool:
        return not self.above(0)

    def above(self, limit: int) -> Collection[str]:
        kept, crossing = self._kept.above(limit), self._crossing(limit)
        return frozenset(kept).symmetric_difference(crossing) if crossing else kept

    def stamp(self, limit: int) -> int:
        """The kept one where it says the same, if somebody has asked for it: to ask here must not move another's."""
        kept = self._kept.stamps.get(limit)
        if kept is not None and not self._crossing(limit):
            return kept
        if limit not in self._stamps:
            self._stamps[limit] = new_stamp()
        return self._stamps[limit]

    def _crossing(self, limit: int) -> list[str]:
        """The domains that are above the limit here and not there, or the other way round."""
        count = self._kept.count
        return [value for value, delta in self._deltas.items() if (count(value) > limit) != (self.count(value) > limit)]


class CountedMoves:
    """What some pods that left or came change of kept counts. Implements ``counters.CountOverlay``.

    ``is_counted`` says which pods these counts include.
    """

    __slots__ = ("_counted", "_domains", "_is_counted", "moves")

    def __init__(self, moves: Moves, is_counted: Callable[[Pod], bool]) -> None:
        self.moves = moves
        self._is_counted = is_counted
        self._counted: list[tuple[Pod, int]] | None = None
        self._domains: dict[Domains, DomainCounts] = {}

    def pods_by_node(self, namespace: Scope, selector: Selector, kept: Mapping[str, int]) -> Mapping[str, int]:
        """Counts by node, from the ``kept`` ones."""
        deltas = self._deltas(namespace, selector)
        if not any(deltas.values()):
            return kept
        found = _sum(kept, deltas)
        for node in deltas:
            if not found[node]:
                del found[node]
        return found

    def domains(self, kept: Domains) -> DomainCounts:
        """Counts by domain, from the ``kept`` ones."""
        found = self._domains.get(kept)
        if found is None:
            deltas = self._deltas(kept.selection.namespace, kept.selection.selector)
            found = self._domains[kept] = overlaid(kept, deltas)
        return found

    def moved(self) -> list[tuple[Pod, int]]:
        """The counted pods that left (-1) or came (1)."""
        if self._counted is None:
            self._counted = []
            for old, new in self.moves.values():
                if old is not None and self._is_counted(old):
                    self._counted.append((old, -1))
                if new is not None and self._is_counted(new):
                    self._counted.append((new, 1))
        return self._counted

    def _deltas(self, namespace: Scope, selector: Selector) -> Mapping[str, int]:
        """By how many more pods of a selection there are on a node; by none where as many left as came."""
        found: dict[str, int] = {}
        for pod, delta in self.moved():
            if covers(namespace, pod.namespace) and selector.matches(pod.labels):
                found[pod.node_name] = found.get(pod.node_name, 0) + delta
        return found


def overlaid(kept: Domains, by_node: Mapping[str, int]) -> DomainCounts:
    """Kept counts by domain with some more, or less, on some nodes."""
    deltas: dict[str, int] = {}
    for node, delta in by_node.items():
        value = kept.domain_of(node)
        if value is not None:
            deltas[value] = deltas.get(value, 0) + delta
    return OverlaidDomains(kept, deltas) if any(deltas.values()) else kept


class Overlay(CountedMoves):
    """Some pods left out of a picture, others added, each as it is: one with ``node_name`` runs there.

    It holds for one synchronous evaluation, in which the picture does not change.
    """

    __slots__ = ("_nodes", "_nominated")

    def __init__(self, moves: Moves) -> None:
        super().__init__(moves, is_counted)
        self._nodes: Mapping[str, NodeInfo] | None = None
        self._nominated: Mapping[str, Mapping[str, Pod]] | None = None

    def nodes(self, kept: Mapping[str, NodeInfo]) -> Mapping[str, NodeInfo]:
        """The node infos, with others for the nodes that pods left or came to."""
        if self._nodes is None:
            rows = {
                name: _node_info(kept[name], gone, came)
                for name, (gone, came) in self._rows(_nodes_of).items()
                if name in kept
            }
            self._nodes = Overlaid(kept, rows) if rows else kept
        return self._nodes

    def touched(self) -> Collection[str]:
        """The nodes that pods left or came to."""
        return self._rows(_nodes_of).keys()

    def nominated(self, kept: Mapping[str, Mapping[str, Pod]]) -> Mapping[str, Mapping[str, Pod]]:
        """Waiting pods by UID, by the node they are nominated to."""
        if self._nominated is None:
            self._nominated = self._grouped(kept, _nominations_of)
        return self._nominated

    def controlled(self, kind: str, kept: Mapping[str, Mapping[str, Pod]]) -> Mapping[str, Mapping[str, Pod]]:
        """Pods by UID, by the UID of their controller of the kind of this name."""

        def controllers_of(pod: Pod) -> Sequence[str]:
            return (pod.owner.uid,) if pod.owner is not None and pod.owner.kind == kind else ()

        return self._grouped(kept, controllers_of)

    def claiming(self, kept: Mapping[str, Mapping[str, Pod]]) -> Mapping[str, Mapping[str, Pod]]:
        """Pods by UID, by the claims that they name."""
        return self._grouped(kept, claim_keys)

    def annotated(self, kept: Sequence[Pod]) -> Sequence[Pod]:
        """Bound pods with annotations."""
        forms = (new for _, new in self.moves.values() if new is not None)
        came = (pod for pod in forms if pod.annotations and pod.node_name)
        return [*(pod for pod in kept if pod.key not in self.moves), *came]

    def _grouped(
        self, kept: Mapping[str, Mapping[str, Pod]], rows_of: Callable[[Pod], Sequence[str]]
    ) -> Mapping[str, Mapping[str, Pod]]:
        rows: dict[str, Mapping[str, Pod] | None] = {}
        for name, (gone, came) in self._rows(rows_of).items():
            stay = {uid: pod for uid, pod in kept.get(name, {}).items() if uid not in gone}
            rows[name] = stay | came or None
        return Overlaid(kept, rows) if rows else kept

    def _rows(self, rows_of: Callable[[Pod], Sequence[str]]) -> dict[str, tuple[set[str], dict[str, Pod]]]:
        """By row: the UIDs that are gone from it, and the pods that came."""
        found: dict[str, tuple[set[str], dict[str, Pod]]] = {}
        for old, new in self.moves.values():
            if old is not None:
                for row in rows_of(old):
                    found.setdefault(row, (set(), {}))[0].add(old.uid)
            if new is not None:
                for row in rows_of(new):
                    found.setdefault(row, (set(), {}))[1][new.uid] = new
        return found


class Groups(Mapping[str, Mapping[str, Pod]]):
    """Groups of pods as they are seen at each look: plugins keep it from when they are built."""

    __slots__ = ("_seen",)

    def __init__(self, seen: Callable[[], Mapping[str, Mapping[str, Pod]]]) -> None:
        self._seen = seen

    def __getitem__(self, group: str) -> Mapping[str, Pod]:
        return self._seen()[group]

    def __iter__(self) -> Iterator[str]:
        return iter(self._seen())

    def __len__(self) -> int:
        return len(self._seen())


def is_counted(pod: Pod) -> bool:
    """Whether kept counts include it."""
    return bool(pod.node_name) and not pod.terminating


def is_placed(pod: Pod) -> bool:
    """Whether it is on a node, terminating or not."""
    return bool(pod.node_name)


def nomination_of(pod: Pod) -> str:
    """The node a waiting pod is nominated to; empty for none."""
    return "" if pod.node_name or pod.spec.gated else pod.nominated_node_name


def _nominations_of(pod: Pod) -> Sequence[str]:
    nominated = nomination_of(pod)
    return (nominated,) if nominated else ()


def _nodes_of(pod: Pod) -> Sequence[str]:
    return (pod.node_name,) if pod.node_name else ()


def _node_info(kept: NodeInfo, gone: set[str], came: Mapping[str, Pod]) -> NodeInfo:
    stay = kept.without_pods(gone) if gone else kept
    return stay.with_pods(came.values()) if came else stay


def _sum(counts: Mapping[str, int], deltas: Mapping[str, int]) -> dict[str, int]:
    found = dict(counts)
    for key, delta in deltas.items():
        found[key] = found.get(key, 0) + delta
    return found
