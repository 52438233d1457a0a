"""Cache of the verdicts of one profile's filters, limited in bytes. It has the verdicts of each plugin, and sets of the
nodes that pass all plugins.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import filterfalse
from typing import Final

from app.framework.counts import Unprepared
from app.framework.node_info import HypotheticalPods
from app.kube.core_v1 import Pod
from app.runtime.cache_entries import ENTRY_BYTES, NAME_BYTES, PIECE, STEP, CacheEntry, PluginCache, step_size
from app.runtime.cached_verdicts import CachedVerdicts, Evaluate
from app.runtime.guard import PluginError
from app.runtime.lru_cache import LruCache
from app.runtime.slots import PluginSlot
from app.runtime.snapshot import Snapshot

_MOST_BYTES: Final = 48 << 20
"""Maximum bytes of the verdicts in one cache. The sets of passing nodes have a second limit of the same size."""

_MOST_HELD: Final = 256
"""Maximum number of entries that stay available during the evaluation that uses them, even if they are evicted. An
evaluation uses one entry per plugin, and a profile has fewer plugins than this.
"""

_MOST_HYPOTHETICAL_BYTES: Final = 16 << 20
"""Maximum bytes of verdicts on nodes with hypothetical pods. They have their own limit, so that they do not evict other
verdicts.
"""


class PassingNodes(CacheEntry):
    """Set of the nodes that pass several plugins, so that each node takes one lookup for all these plugins.

    ``blocked``: nodes that at least one plugin rejects. ``passing``: nodes that pass all plugins. It becomes ``None``
    once all nodes of the snapshot have been evaluated. From then on, ``open`` holds the nodes that have changed and
    were not evaluated again. A node then passes if it is neither in ``blocked`` nor in ``open``.
    """

    __slots__ = ("blocked", "open", "passing")

    def __init__(self, entries: Sequence[CachedVerdicts], snapshot: Snapshot) -> None:
        super().__init__(snapshot, pods=any(it.pods for it in entries))
        self.blocked = set[str]().union(*(it.rejected for it in entries))
        self.open: set[str] = set()
        self.passing: set[str] | None = set()
        if all(it.evaluated.some is None for it in entries):
            self.open = set[str]().union(*(it.evaluated.open for it in entries)) - self.blocked
            self.passing = None

    def weight(self) -> int:
        """Return the estimated size in bytes."""
        return ENTRY_BYTES + NAME_BYTES * (len(self.blocked) + len(self.open) + len(self.passing or ()))

    def refresh(self, snapshot: Snapshot) -> None:
        """Drop the verdicts on changed nodes; drop all verdicts if any node can have changed."""
        changed = self.changed(snapshot)
        if changed is None:
            self.blocked, self.open, self.passing = set(), set(), set()
        elif changed:
            self.blocked.difference_update(changed)
            if self.passing is not None:
                self.passing.difference_update(changed)
            else:
                self.open.update(changed)
                if len(self.open) > len(snapshot.base_nodes):
                    self.open.intersection_update(snapshot.base_nodes)

    def passing_of(self, names: Sequence[str]) -> Sequence[str] | None:
        """Return the ``names`` of nodes that pass, or ``None`` if some of the nodes might have to be
        evaluated first.
        """
        if self.passing is None:
            return None if self.open else self.left(names)
        left = self.left(names)
        return left if len(left) == len(names) else None

    def left(self, names: Sequence[str]) -> Sequence[str]:
        """Return the ``names`` of nodes that pass. Before this call, all nodes that ``missing`` returns must be
        evaluated. Once all nodes have been evaluated, names of nodes that do not exist are returned, too.
        """
        if self.passing is not None:
            return list(filter(self.passing.__contains__, names))
        return list(filterfalse(self.blocked.__contains__, names)) if self.blocked else names

    def missing(self, names: Sequence[str], snapshot: Snapshot) -> list[str]:
        """Return the ``names`` of existing nodes that must be evaluated, each once."""
        nodes = snapshot.base_nodes
        if self.passing is None:
            return [it for it in dict.fromkeys(filter(self.open.__contains__, names)) if it in nodes]
        if len(self.passing) + len(self.blocked) >= len(nodes):
            return []
        new = filterfalse(self.passing.__contains__, names)
        return [nodes[it].name for it in dict.fromkeys(new) if it not in self.blocked and it in nodes]

    def evaluate(
        self, entries: Sequence[CachedVerdicts], names: Sequence[str], snapshot: Snapshot, evaluate: Evaluate
    ) -> None:
        """Evaluate nodes that have no verdict, and add them to the set. A plugin evaluates only the nodes that pass all
        previous plugins.
        """
        left = names
        for entry in entries:
            entry.evaluate(entry.evaluated.missing(left), snapshot, evaluate)
            rejected = entry.rejected
            self.blocked.update(it for it in left if it in rejected)
            left = [it for it in left if it not in rejected] if rejected else left
        if self.passing is None:
            self.open.difference_update(names)
            return
        self.passing.update(left)
        if len(self.passing) + len(self.blocked) >= len(snapshot.base_nodes):
            self.passing = None


def _are_too_many(entries: Iterable[CachedVerdicts], names: Sequence[str]) -> bool:
    """Return True if the plugins might have to evaluate more of ``names`` than is allowed in one step."""
    left, share = names, 0.0
    for entry in entries:
        share += len(entry.evaluated.missing(left)) / entry.at_once()
        left = [it for it in left if it not in entry.rejected]
    return share > 1


class VerdictCache(PluginCache):
    """Cache of the verdicts of one profile, limited in bytes; least recently used entries are evicted."""

    def __init__(self, snapshot: Snapshot, most_bytes: int = _MOST_BYTES) -> None:
        super().__init__(snapshot)
        self._verdicts: LruCache[Hashable, CachedVerdicts] = LruCache(most_bytes)
        self._passes: LruCache[Hashable, PassingNodes] = LruCache(most_bytes)
        self._hypothetical: LruCache[Hashable, CachedVerdicts] = LruCache(min(most_bytes, _MOST_HYPOTHETICAL_BYTES))
        self._held: dict[Hashable, CachedVerdicts] = {}

    def of(self, slot: PluginSlot, pod: Pod) -> CachedVerdicts:
        """Return the cached verdicts of a plugin for this pod's signature. Until ``refresh``, verdicts on changed nodes
        are outdated.
        """
        entry = self._entry(CachedVerdicts, self._verdicts, slot, pod, self._held)
        if len(self._held) >= _MOST_HELD:
            self._held.clear()
        self._held[entry.key] = entry
        return entry

    def passing(
        self, slots: Sequence[PluginSlot], pod: Pod, names: Sequence[str], evaluate: Evaluate
    ) -> tuple[Sequence[CachedVerdicts], PassingNodes, Sequence[str]]:
        """Return the entry of each plugin, the set of nodes that pass all plugins, and the ``names`` that pass, in
        the order of ``names``.

        Evaluates all ``names`` that are nodes of the snapshot; other names can be among those that pass. Raises
        ``PluginError``, or ``Unprepared`` if there are too many nodes to evaluate at once.
        """
        self._held.clear()
        snapshot = self._snapshot
        entries = [self.of(slot, pod) for slot in slots]
        for entry in entries:
            entry.refresh(snapshot, evaluate)
        key = tuple(it.serial for it in entries)
        common = self._passes.get(key)
        if common is None or (common.passing is not None and all(it.evaluated.some is None for it in entries)):
            common = PassingNodes(entries, snapshot)
            self._passes.put(key, common, common.weight())
        else:
            common.refresh(snapshot)
        left = common.passing_of(names)
        if left is None:
            new = common.missing(names, snapshot)
            if len(new) > step_size(entries) and _are_too_many(entries, new):
                raise Unprepared(self._in_steps(entries, new, evaluate))
            if new:
                self._evaluate(key, common, entries, new, evaluate)
            left = common.left(names)
        return entries, common, left

    def rejected_with_pods(
        self,
        slots: Sequence[PluginSlot],
        pod: Pod,
        hypothetical: Sequence[Pod],
        names: Sequence[str],
        evaluate: Evaluate,
    ) -> set[str]:
        """Return the nodes in ``names`` that a plugin rejects if all pods in ``hypothetical`` run on the node, too.

        Raises ``PluginError``, or ``Unprepared`` if there are too many nodes to evaluate at once.
        """
        snapshot, rejected = self._snapshot, set[str]()
        for slot in slots:
            entry = self._entry(CachedVerdicts, self._hypothetical, slot, pod, hypothetical=hypothetical)
            if entry.hypothetical is None:
                entry.hypothetical = HypotheticalPods(hypothetical)
            entry.refresh(snapshot, evaluate)
            missing = [name for name in entry.evaluated.missing(names) if name in snapshot.base_nodes]
            if len(missing) > entry.at_once():
                raise Unprepared(self._hypothetical_in_steps(entry, hypothetical, missing, evaluate))
            self._evaluate_hypothetical(entry, missing, evaluate)
            if entry.rejected:
                rejected.update(filter(entry.rejected.__contains__, names))
        return rejected

    def _evaluate_hypothetical(self, entry: CachedVerdicts, names: Sequence[str], evaluate: Evaluate) -> None:
        if names:
            entry.evaluate(names, self._snapshot, evaluate)
            self._hypothetical.put(entry.key, entry, entry.weight())

    def _hypothetical_in_steps(
        self, entry: CachedVerdicts, hypothetical: Sequence[Pod], names: Sequence[str], evaluate: Evaluate
    ) -> Iterator[None]:
        """Evaluate the nodes ``names`` in batches. Stop once the snapshot has a pod of ``hypothetical`` on a node,
        because the caller then repeats the query without this pod.
        """
        for start in range(0, len(names), STEP):
            if any(self._snapshot.place_of(it.uid, it.key) for it in hypothetical):
                return
            entry.refresh(self._snapshot, evaluate)
            some = [it for it in names[start : start + STEP] if it in self._snapshot.base_nodes]
            self._evaluate_hypothetical(entry, entry.evaluated.missing(some), evaluate)
            yield

    def _evaluate(
        self,
        key: Hashable,
        common: PassingNodes,
        entries: Sequence[CachedVerdicts],
        names: Sequence[str],
        evaluate: Evaluate,
    ) -> None:
        """Evaluate ``names`` with all plugins, and update the stored sizes of ``entries`` and ``common``."""
        try:
            common.evaluate(entries, names, self._snapshot, evaluate)
        finally:
            self.weigh(entries)
            self._passes.put(key, common, common.weight())

    def _in_steps(self, entries: Sequence[CachedVerdicts], names: Sequence[str], evaluate: Evaluate) -> Iterator[None]:
        """Evaluate the nodes ``names`` in batches. Each batch uses the current snapshot."""
        nodes, step = self._snapshot.base_nodes, step_size(entries)
        for start in range(0, len(names), step):
            some: Sequence[str] = [it for it in names[start : start + step] if it in nodes]
            for entry in entries:
                entry.refresh(self._snapshot, evaluate)
                entry.evaluate(entry.evaluated.missing(some), self._snapshot, evaluate)
                some = [it for it in some if it not in entry.rejected]
            yield
        self.weigh(entries)

    def weigh(self, entries: Iterable[CachedVerdicts]) -> None:
        """Update the stored sizes of entries that might have grown."""
        for entry in entries:
            self._verdicts.put(entry.key, entry, entry.weight())

    def rejection_stamp(self, slot: PluginSlot, pod: Pod, evaluate: Evaluate) -> Hashable:
        """Return a stamp that stays equal while all of the plugin's rejections of pods with this signature are valid.

        Raises ``PluginError``.
        """
        entry = self.of(slot, pod)
        entry.refresh(self._snapshot, evaluate)
        return entry.stamp

    def checking_verdicts(self, evaluate: Evaluate) -> Iterator[str]:
        """Compare cached verdicts with new ones, in steps. Yields for each step a sentence that names the plugin whose
        verdicts differ, or an empty string.

        A plugin that fails is skipped, because no Error is cached.
        """
        for entry in (*self._verdicts.values(), *self._hypothetical.values()):
            names = list(self._snapshot.base_nodes)
            for start in range(0, len(names), PIECE):
                if entry.objects != self._objects(entry.slot):
                    break  # its verdicts are outdated, and the entry is replaced at its next use
                try:
                    yield self._differs(entry, names[start : start + PIECE], evaluate)
                except PluginError:
                    break

    def _differs(self, entry: CachedVerdicts, names: Sequence[str], evaluate: Evaluate) -> str:
        """Compare the cached verdicts on ``names`` with new ones. Return a sentence if they differ, else ``""``. Nodes
        without a cached verdict, and nodes that have left the snapshot, are ignored.
        """
        entry.refresh(self._snapshot, evaluate)
        missing = {*entry.evaluated.missing(names)}
        known = [it for it in names if it not in missing and it in self._snapshot.base_nodes]
        rejected = {it: entry.rejected[it] for it in known if it in entry.rejected}
        same = not known or dict(evaluate(entry, known).rejected()) == rejected
        return "" if same else f"cached verdicts of {entry.slot.name} differ"
