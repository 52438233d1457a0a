"""Verdicts and raw scores that are kept, of the plugins that read no more than nodes and the pods on them.

Per plugin and pod signature: the nodes that were judged, and what was said of those it rejects. Before each use they
are brought up to date by the journal of changed nodes, so that a plain filter by node costs its calls once a workload
and next to nothing after that. kube-scheduler had such a cache and gave it up: locks and a look-up for every node cost
it more than its predicates, and invalidation was scattered. Here there is one thread, one journal, and one set for all
plugins.

What keeps it sound: absent is not judged, hence not passed; no Error is kept; a node that the snapshot has otherwise
than the request, the node that the pod itself stands on and nodes with nominated pods are judged afresh by the caller
and never stored; objects of declared kinds count by their version. An evaluation and what is remembered of it see the
same entries: what the last one used is held, whatever is given up meanwhile.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from itertools import filterfalse
from typing import Final

from app.framework.filter_result import FilterResult
from app.framework.node_info import HypotheticalPods
from app.framework.status import Status
from app.kube.core_v1 import Pod
from app.runtime.cache_entries import NAME_BYTES, PluginEntry
from app.runtime.slots import PluginSlot
from app.runtime.snapshot import Snapshot

_REJECTION_BYTES: Final = 300
"""Of a name with its status, which may be one of its own."""

_MOST_AGAIN: Final = 256
"""Rejected nodes that are judged again where they changed; if more did, they are judged when asked for."""

_CROWDED_COST: Final = 8
"""Cost of a verdict on a node with imagined pods, in verdicts without."""

_SERIALS: Final = itertools.count(1)
"""No number is given out twice, whatever is given up and made anew."""

Evaluate = Callable[["CachedVerdicts", Sequence[str]], FilterResult]
"""What the plugin of a ``CachedVerdicts`` says now of nodes of the snapshot. Raises ``PluginError``."""


class _EvaluatedNodes:
    """Which nodes of the snapshot were judged: some, or all but ``open``. Once it is all, only what is not is kept."""

    __slots__ = ("open", "some")

    def __init__(self) -> None:
        self.some: set[str] | None = set()
        self.open: set[str] = set()

    def add(self, names: Iterable[str], nodes: Collection[str]) -> None:
        if self.some is None:
            self.open.difference_update(names)
            return
        self.some.update(names)
        if len(self.some) >= len(nodes):
            self.some = None

    def drop(self, names: Iterable[str], nodes: Collection[str]) -> None:
        """They came, changed or are gone."""
        if self.some is not None:
            self.some.difference_update(names)
            return
        self.open.update(names)
        if len(self.open) > len(nodes):
            self.open.intersection_update(nodes)

    def clear(self) -> None:
        self.some, self.open = set(), set()

    def missing(self, names: Iterable[str]) -> list[str]:
        """Those of ``names`` that are not judged."""
        if self.some is not None:
            return list(filterfalse(self.some.__contains__, names))
        return list(filter(self.open.__contains__, names)) if self.open else []

    def size(self) -> int:
        """Names that are kept for it."""
        return len(self.open) + len(self.some or ())


class CachedVerdicts(PluginEntry):
    """What one plugin said of nodes. One that is judged and not ``rejected`` passes.

    ``stands``: moves whenever a rejection no longer stands; never seen before for another ``CachedVerdicts``.
    ``beside``: pods that every node is imagined to run too.
    """

    __slots__ = ("beside", "judged", "rejected", "serial", "stamp")

    def __init__(self, key: Hashable, slot: PluginSlot, pod: Pod, objects: Hashable, snapshot: Snapshot) -> None:
        super().__init__(key, slot, pod, objects, snapshot)
        self.serial = self.stamp = next(_SERIALS)
        self.judged = _EvaluatedNodes()
        self.rejected: dict[str, Status] = {}
        self.beside: HypotheticalPods | None = None

    def at_once(self) -> int:
        """Maximum number of nodes in one step, fewer with imagined pods on them."""
        return super().at_once() if self.beside is None else max(1, super().at_once() // _CROWDED_COST)

    def weight(self) -> int:
        """Bytes, as estimated."""
        return super().weight() + NAME_BYTES * self.judged.size() + _REJECTION_BYTES * len(self.rejected)

    def refresh(self, snapshot: Snapshot, judge: Evaluate) -> None:
        """Nodes that changed count as not judged; those that were rejected are judged again at once."""
        changed = self.changed(snapshot)
        if changed is None:
            self.judged.clear()
            self.rejected.clear()
            self.stamp = next(_SERIALS)
        elif changed:
            self.judged.drop(changed, snapshot.base_nodes)
            again = [name for name in changed if name in self.rejected]
            if again:
                self._again(again, snapshot, judge)

    def _again(self, names: Sequence[str], snapshot: Snapshot, judge: Evaluate) -> None:
        before = {name: self.rejected.pop(name) for name in names}
        try:
            if len(names) <= min(_MOST_AGAIN, self.at_once()):
                self.judge([name for name in names if name in snapshot.base_nodes], snapshot, judge)
        finally:
            if any(self.rejected.get(name) != status for name, status in before.items()):
                self.stamp = next(_SERIALS)

    def judge(self, names: Sequence[str], snapshot: Snapshot, judge: Evaluate) -> None:
        """Have nodes of the snapshot judged that are not."""
        if names:
            result = judge(self, names)
            self.rejected.update(result.rejected())
            self.judged.add(names, snapshot.base_nodes)
