"""Verdicts of one profile, and the nodes that pass several of its plugins: what is kept of them, for so many bytes."""

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
"""Of verdicts, and of what passes all: each."""

_MOST_HELD: Final = 256
"""Entries that are held for the evaluation that used them: a profile has fewer plugins."""

_MOST_CROWDED_BYTES: Final = 16 << 20
"""Of verdicts beside imagined pods: fewer than of others, which these must not displace."""


class PassingNodes(CacheEntry):
    """The nodes that pass several plugins, for the pods of one signature with each: one look a name, whatever they are.

    ``blocked``: nodes that at least one of them rejects. ``passing``: those that all pass, as long as not all nodes of
    the snapshot were judged; from then on all others pass, but for those that are ``open``.
    """

    __slots__ = ("blocked", "open", "passing")

    def __init__(self, each: Sequence[CachedVerdicts], snapshot: Snapshot) -> None:
        super().__init__(snapshot, pods=any(it.pods for it in each))
        self.blocked = set[str]().union(*(it.rejected for it in each))
        self.open: set[str] = set()
        self.passing: set[str] | None = set()
        if all(it.judged.some is None for it in each):
            self.open = set[str]().union(*(it.judged.open for it in each)) - self.blocked
            self.passing = None

    def weight(self) -> int:
        """Bytes, as estimated."""
        return ENTRY_BYTES + NAME_BYTES * (len(self.blocked) + len(self.open) + len(self.passing or ()))

    def refresh(self, snapshot: Snapshot) -> None:
        """Nodes that changed are not judged."""
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
        """Those of ``names`` that pass, if nothing needs to be judged for it: the usual case, one look a name."""
        if self.passing is None:
            return None if self.open else self.left(names)
        left = self.left(names)
        return left if len(left) == len(names) else None

    def left(self, names: Sequence[str]) -> Sequence[str]:
        """Those of ``names`` that pass, none of them ``missing``; names of no node too once all nodes are judged."""
        if self.passing is not None:
            return list(filter(self.passing.__contains__, names))
        return list(filterfalse(self.blocked.__contains__, names)) if self.blocked else names

    def missing(self, names: Sequence[str], snapshot: Snapshot) -> list[str]:
        """Those of ``names``, each once, that are nodes and not judged."""
        nodes = snapshot.base_nodes
        if self.passing is None:
            return [it for it in dict.fromkeys(filter(self.open.__contains__, names)) if it in nodes]
        if len(self.passing) + len(self.blocked) >= len(nodes):
            return []
        new = filterfalse(self.passing.__contains__, names)
        return [nodes[it].name for it in dict.fromkeys(new) if it not in self.blocked and it in nodes]

    def judge(self, each: Sequence[CachedVerdicts], names: Sequence[str], snapshot: Snapshot, judge: Evaluate) -> None:
        """Have nodes judged that are not, by one plugin after the other up to the first that rejects."""
        left = names
        for kept in each:
            kept.judge(kept.judged.missing(left), snapshot, judge)
            rejected = kept.rejected
            self.blocked.update(it for it in left if it in rejected)
            left = [it for it in left if it not in rejected] if rejected else left
        if self.passing is None:
            self.open.difference_update(names)
            return
        self.passing.update(left)
        if len(self.passing) + len(self.blocked) >= len(snapshot.base_nodes):
            self.passing = None


def _are_too_many(each: Iterable[CachedVerdicts], names: Sequence[str]) -> bool:
    """Whether the plugins have to judge more of ``names`` than they can in one step."""
    left, share = names, 0.0
    for kept in each:
        share += len(kept.judged.missing(left)) / kept.at_once()
        left = [it for it in left if it not in kept.rejected]
    return share > 1


class VerdictCache(PluginCache):
    """Verdicts of one profile. Bounded by bytes, what was used last stays."""

    def __init__(self, snapshot: Snapshot, most_bytes: int = _MOST_BYTES) -> None:
        super().__init__(snapshot)
        self._verdicts: LruCache[Hashable, CachedVerdicts] = LruCache(most_bytes)
        self._passes: LruCache[Hashable, PassingNodes] = LruCache(most_bytes)
        self._crowded: LruCache[Hashable, CachedVerdicts] = LruCache(min(most_bytes, _MOST_CROWDED_BYTES))
        self._held: dict[Hashable, CachedVerdicts] = {}

    def of(self, slot: PluginSlot, pod: Pod) -> CachedVerdicts:
        """The verdicts of a plugin on pods like this one. Not brought up to date."""
        found = self._entry(CachedVerdicts, self._verdicts, slot, pod, self._held)
        if len(self._held) >= _MOST_HELD:
            self._held.clear()
        self._held[found.key] = found
        return found

    def passing(
        self, slots: Sequence[PluginSlot], pod: Pod, names: Sequence[str], judge: Evaluate
    ) -> tuple[Sequence[CachedVerdicts], PassingNodes, Sequence[str]]:
        """What the plugins say, what they let through, and those of ``names`` that pass, in order.

        All of ``names`` that are nodes of the snapshot are judged; other names can be among those that pass. Raises
        ``PluginError``, or ``Unprepared`` where there are too many to be judged at once.
        """
        self._held.clear()
        snapshot = self._snapshot
        each = [self.of(slot, pod) for slot in slots]
        for kept in each:
            kept.refresh(snapshot, judge)
        key = tuple(it.serial for it in each)
        found = self._passes.get(key)
        if found is None or (found.passing is not None and all(it.judged.some is None for it in each)):
            found = PassingNodes(each, snapshot)
            self._passes.put(key, found, found.weight())
        else:
            found.refresh(snapshot)
        left = found.passing_of(names)
        if left is None:
            new = found.missing(names, snapshot)
            if len(new) > step_size(each) and _are_too_many(each, new):
                raise Unprepared(self._in_steps(each, new, judge))
            if new:
                self._judge(key, found, each, new, judge)
            left = found.left(names)
        return each, found, left

    def rejected_beside(
        self, slots: Sequence[PluginSlot], pod: Pod, beside: Sequence[Pod], names: Sequence[str], judge: Evaluate
    ) -> set[str]:
        """Return the nodes in ``names`` that a plugin rejects if all pods ``beside`` run there too.

        Raises ``PluginError``, or ``Unprepared`` where there are too many to be judged at once.
        """
        snapshot, rejected = self._snapshot, set[str]()
        for slot in slots:
            kept = self._entry(CachedVerdicts, self._crowded, slot, pod, beside=beside)
            if kept.beside is None:
                kept.beside = HypotheticalPods(beside)
            kept.refresh(snapshot, judge)
            missing = [name for name in kept.judged.missing(names) if name in snapshot.base_nodes]
            if len(missing) > kept.at_once():
                raise Unprepared(self._crowded_in_steps(kept, beside, missing, judge))
            self._judge_crowded(kept, missing, judge)
            if kept.rejected:
                rejected.update(filter(kept.rejected.__contains__, names))
        return rejected

    def _judge_crowded(self, kept: CachedVerdicts, names: Sequence[str], judge: Evaluate) -> None:
        if names:
            kept.judge(names, self._snapshot, judge)
            self._crowded.put(kept.key, kept, kept.weight())

    def _crowded_in_steps(
        self, kept: CachedVerdicts, beside: Sequence[Pod], names: Sequence[str], judge: Evaluate
    ) -> Iterator[None]:
        """Judge ``names`` some at a time, as long as none of ``beside`` has a place: then others are asked about."""
        for start in range(0, len(names), STEP):
            if any(self._snapshot.place_of(it.uid, it.key) for it in beside):
                return
            kept.refresh(self._snapshot, judge)
            some = [it for it in names[start : start + STEP] if it in self._snapshot.base_nodes]
            self._judge_crowded(kept, kept.judged.missing(some), judge)
            yield

    def _judge(
        self, key: Hashable, found: PassingNodes, each: Sequence[CachedVerdicts], names: Sequence[str], judge: Evaluate
    ) -> None:
        try:
            found.judge(each, names, self._snapshot, judge)
        finally:
            self.weigh(each)
            self._passes.put(key, found, found.weight())

    def _in_steps(self, each: Sequence[CachedVerdicts], names: Sequence[str], judge: Evaluate) -> Iterator[None]:
        """Judge ``names`` some at a time, each on the snapshot as it is then."""
        nodes, step = self._snapshot.base_nodes, step_size(each)
        for start in range(0, len(names), step):
            some: Sequence[str] = [it for it in names[start : start + step] if it in nodes]
            for kept in each:
                kept.refresh(self._snapshot, judge)
                kept.judge(kept.judged.missing(some), self._snapshot, judge)
                some = [it for it in some if it not in kept.rejected]
            yield
        self.weigh(each)

    def weigh(self, each: Iterable[CachedVerdicts]) -> None:
        """They may have grown."""
        for kept in each:
            self._verdicts.put(kept.key, kept, kept.weight())

    def rejection_stamp(self, slot: PluginSlot, pod: Pod, judge: Evaluate) -> Hashable:
        """Equal as long as every rejection stands that the plugin gave pods like this one. Raises ``PluginError``."""
        kept = self.of(slot, pod)
        kept.refresh(self._snapshot, judge)
        return kept.stamp

    def checking_verdicts(self, judge: Evaluate) -> Iterator[str]:
        """What is kept and differs from what plugins say now, by plugin; empty for each step in which nothing does.

        A plugin that fails is left out: no Error is kept.
        """
        for kept in (*self._verdicts.values(), *self._crowded.values()):
            names = list(self._snapshot.base_nodes)
            for start in range(0, len(names), PIECE):
                if kept.objects != self._objects(kept.slot):
                    break  # made anew when it is used next
                try:
                    yield self._differs(kept, names[start : start + PIECE], judge)
                except PluginError:
                    break

    def _differs(self, kept: CachedVerdicts, names: Sequence[str], judge: Evaluate) -> str:
        """The snapshot may have changed since ``names`` were read."""
        kept.refresh(self._snapshot, judge)
        missing = {*kept.judged.missing(names)}
        known = [it for it in names if it not in missing and it in self._snapshot.base_nodes]
        rejected = {it: kept.rejected[it] for it in known if it in kept.rejected}
        same = not known or dict(judge(kept, known).rejected()) == rejected
        return "" if same else f"kept verdicts of {kept.slot.name} differ"
