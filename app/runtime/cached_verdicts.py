"""Cached verdicts of one plugin on nodes, for plugins that read only nodes and the pods on them.

An entry belongs to one plugin and one pod signature. It holds the set of evaluated nodes and the rejections. An
evaluated node without a rejection passes. Before each use, an entry is updated from the journal of changed nodes. So a
filter evaluates each node about once per workload, and again only after the node has changed.

kube-scheduler had such a cache (the equivalence cache) and removed it. Its locks and its lookup per node cost more than
the predicates, and its invalidation was scattered over the code. Homeport has one thread, one journal of changes, and
one set lookup per node for all plugins.

The cache is correct because of these rules. A node that was not evaluated does not pass. An Error is never cached. Some
nodes are evaluated by the caller and never stored: nodes that the request sends and the snapshot lacks in this version,
and nodes with nominated pods. If verdicts depend on the pods of a node, the pod's own node and the ``overlaid_nodes``
are not stored either. A change of an object of a declared kind replaces the entry. Entries that the last evaluation
used stay available until the next one, even if they are evicted.
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
"""Estimated bytes of one entry in ``rejected``: a node name and a status."""

_MOST_AGAIN: Final = 256
"""Maximum number of changed nodes with a rejection that ``refresh`` evaluates again. If there are more, none of them is
evaluated until a request names it.
"""

_CROWDED_COST: Final = 8
"""Cost of a verdict on a node with hypothetical pods, as a multiple of a verdict without them."""

_SERIALS: Final = itertools.count(1)
"""Source of serial numbers and stamps. Two entries never have a number in common, even if one replaces the other."""

Evaluate = Callable[["CachedVerdicts", Sequence[str]], FilterResult]
"""Function that runs the plugin of an entry on nodes of the snapshot. Raises ``PluginError``."""


class _EvaluatedNodes:
    """Set of evaluated nodes. ``some``: their names, or ``None`` once every node has been evaluated. From then on,
    ``open`` holds the nodes that have changed and were not evaluated again.
    """

    __slots__ = ("open", "some")

    def __init__(self) -> None:
        self.some: set[str] | None = set()
        self.open: set[str] = set()

    def add(self, names: Iterable[str], nodes: Collection[str]) -> None:
        """Add names of evaluated nodes. Once all ``nodes`` of the snapshot are evaluated, ``some`` becomes ``None``."""
        if self.some is None:
            self.open.difference_update(names)
            return
        self.some.update(names)
        if len(self.some) >= len(nodes):
            self.some = None

    def drop(self, names: Iterable[str], nodes: Collection[str]) -> None:
        """Remove names of nodes that were added, changed or deleted."""
        if self.some is not None:
            self.some.difference_update(names)
            return
        self.open.update(names)
        if len(self.open) > len(nodes):
            self.open.intersection_update(nodes)

    def clear(self) -> None:
        self.some, self.open = set(), set()

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return the ``names`` of nodes without a verdict. Names of nodes that do not exist can be among them."""
        if self.some is not None:
            return list(filterfalse(self.some.__contains__, names))
        return list(filter(self.open.__contains__, names)) if self.open else []

    def size(self) -> int:
        """Return the number of stored names."""
        return len(self.open) + len(self.some or ())


class CachedVerdicts(PluginEntry):
    """Verdicts of one plugin on nodes. A node passes if it is in ``evaluated`` and not in ``rejected``.

    ``serial``: number of this entry; no other entry has it. ``stamp``: number that changes whenever a rejection becomes
    invalid; it differs between entries. ``hypothetical``: pods that the verdicts assume on every node, in addition to
    the node's own pods; ``None`` if they assume none.
    """

    __slots__ = ("evaluated", "hypothetical", "rejected", "serial", "stamp")

    def __init__(self, key: Hashable, slot: PluginSlot, pod: Pod, objects: Hashable, snapshot: Snapshot) -> None:
        super().__init__(key, slot, pod, objects, snapshot)
        self.serial = self.stamp = next(_SERIALS)
        self.evaluated = _EvaluatedNodes()
        self.rejected: dict[str, Status] = {}
        self.hypothetical: HypotheticalPods | None = None

    def at_once(self) -> int:
        """Return the maximum number of nodes in one step; smaller with hypothetical pods."""
        return super().at_once() if self.hypothetical is None else max(1, super().at_once() // _CROWDED_COST)

    def weight(self) -> int:
        """Return the estimated size in bytes."""
        return super().weight() + NAME_BYTES * self.evaluated.size() + _REJECTION_BYTES * len(self.rejected)

    def refresh(self, snapshot: Snapshot, evaluate: Evaluate) -> None:
        """Drop the verdicts on changed nodes. If few changed nodes were rejected, evaluate these again.

        The stamp then stays the same if their rejections are unchanged. If any node can have changed, drop all
        verdicts. Raises ``PluginError``.
        """
        changed = self.changed(snapshot)
        if changed is None:
            self.evaluated.clear()
            self.rejected.clear()
            self.stamp = next(_SERIALS)
        elif changed:
            self.evaluated.drop(changed, snapshot.base_nodes)
            again = [name for name in changed if name in self.rejected]
            if again:
                self._confirm(again, snapshot, evaluate)

    def _confirm(self, names: Sequence[str], snapshot: Snapshot, evaluate: Evaluate) -> None:
        """Drop the rejections of changed nodes and, if there are few, evaluate these nodes again. Change the stamp if a
        rejection is gone or differs.
        """
        before = {name: self.rejected.pop(name) for name in names}
        try:
            if len(names) <= min(_MOST_AGAIN, self.at_once()):
                self.evaluate([name for name in names if name in snapshot.base_nodes], snapshot, evaluate)
        finally:
            if any(self.rejected.get(name) != status for name, status in before.items()):
                self.stamp = next(_SERIALS)

    def evaluate(self, names: Sequence[str], snapshot: Snapshot, evaluate: Evaluate) -> None:
        """Evaluate nodes of the snapshot that have no verdict yet, and store the verdicts. Raises ``PluginError``."""
        if names:
            result = evaluate(self, names)
            self.rejected.update(result.rejected())
            self.evaluated.add(names, snapshot.base_nodes)
