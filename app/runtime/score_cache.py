"""Cached raw scores, for plugins that read only nodes and the pods on them.

Scores of each plugin are cached by pod signature, like verdicts. In addition, each node has a row number. The row holds
the scores of all these plugins for the node, and nodes with equal scores share a row. So each node takes one lookup for
all plugins. The scores are then normalized and summed for each row, and there are far fewer rows than nodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import filterfalse
from typing import Any, Final

from app.framework.counts import Unprepared
from app.framework.score_classes import ScoreClasses
from app.kube.core_v1 import Pod
from app.runtime.cache_entries import NAME_BYTES, PIECE, CacheEntry, PluginCache, PluginEntry, step_size
from app.runtime.guard import PluginError
from app.runtime.lru_cache import LruCache
from app.runtime.slots import PluginSlot
from app.runtime.snapshot import Snapshot

_MOST_BYTES: Final = 48 << 20
"""Maximum bytes of the scores of plugins in one cache. The rows have a second limit of the same size."""

_ROW_BYTES: Final = 300
"""Estimated bytes of a row."""


_ROWS_PER_NODE: Final = 2
"""Maximum number of rows per node of the snapshot. If there are more rows, all are discarded, because most of them no
longer belong to a node.
"""

_FEWEST_ROWS: Final = 64
"""Number of rows that are allowed even if the snapshot has few nodes."""


_SERIALS: Final = itertools.count(1)
"""Source of serial numbers. A number is never used twice, so an evicted and recreated entry gets a new one."""


Score = Callable[["CachedScores", Sequence[str]], Sequence[int]]
"""Function that returns the raw scores of a plugin for nodes of the snapshot. Raises ``PluginError``."""


class CachedScores(PluginEntry):
    """Raw scores of one plugin by node. ``serial``: number of this entry; no other entry has it."""

    __slots__ = ("scores", "serial")

    def __init__(self, key: Hashable, slot: PluginSlot, pod: Pod, objects: Hashable, snapshot: Snapshot) -> None:
        super().__init__(key, slot, pod, objects, snapshot)
        self.serial = next(_SERIALS)
        self.scores: dict[str, int] = {}

    def weight(self) -> int:
        """Return the estimated size in bytes."""
        return super().weight() + 2 * NAME_BYTES * len(self.scores)

    def refresh(self, snapshot: Snapshot) -> None:
        """Drop the scores of changed nodes; drop all scores if any node can have changed."""
        changed = self.changed(snapshot)
        if changed is None:
            self.scores.clear()
        else:
            for name in changed:
                self.scores.pop(name, None)


class _ScoreRows(CacheEntry):
    """Row numbers by node name (``of``), and the ``rows``. A row holds the raw score of each plugin for a node."""

    __slots__ = ("_entries", "_numbers", "of", "rows")

    def __init__(self, entries: Sequence[CachedScores], snapshot: Snapshot) -> None:
        super().__init__(snapshot, pods=any(it.pods for it in entries))
        self._entries = entries
        self.of: dict[str, int] = {}
        self.rows: list[tuple[int, ...]] = []
        self._numbers: dict[tuple[int, ...], int] = {}

    def weight(self) -> int:
        """Return the estimated size in bytes."""
        return NAME_BYTES * len(self.of) * 2 + _ROW_BYTES * len(self.rows)

    def refresh(self, snapshot: Snapshot) -> None:
        """Drop the row numbers of changed nodes. Drop everything if any node can have changed, or if there are too many
        rows.
        """
        changed = self.changed(snapshot)
        if changed is None or len(self.rows) > max(_FEWEST_ROWS, _ROWS_PER_NODE * len(snapshot.base_nodes)):
            self.of, self.rows, self._numbers = {}, [], {}
        else:
            for name in changed:
                self.of.pop(name, None)

    def add(self, names: Sequence[str]) -> None:
        """Assign rows to the nodes ``names``, which each of the plugins has scored."""
        numbers, rows = self._numbers, self.rows
        for name, row in zip(names, self._scores_of(names), strict=True):
            number = numbers.get(row)
            if number is None:
                number = numbers[row] = len(rows)
                rows.append(row)
            self.of[name] = number

    def _scores_of(self, names: Sequence[str]) -> Iterator[tuple[int, ...]]:
        return zip(*(map(it.scores.__getitem__, names) for it in self._entries), strict=True)

    def checking(self, snapshot: Snapshot) -> Iterator[str]:
        """Compare rows with the scores of each plugin, in steps. Yields for each step a sentence that names the plugins
        if rows differ, or an empty string.
        """
        names = list(self.of)
        for start in range(0, len(names), PIECE):
            self.refresh(snapshot)
            for entry in self._entries:
                entry.refresh(snapshot)
            known = (self.of, *(it.scores for it in self._entries))
            some = [name for name in names[start : start + PIECE] if all(name in it for it in known)]
            same = [self.rows[self.of[name]] for name in some] == list(self._scores_of(some))
            yield "" if same else f"cached rows of {', '.join(it.slot.name for it in self._entries)} differ"


class ScoreCache(PluginCache):
    """Cache of the raw scores of one profile, limited in bytes; least recently used entries are evicted."""

    def __init__(self, snapshot: Snapshot, most_bytes: int = _MOST_BYTES) -> None:
        super().__init__(snapshot)
        self._scores: LruCache[Hashable, CachedScores] = LruCache(most_bytes)
        self._rows: LruCache[Hashable, _ScoreRows] = LruCache(most_bytes)

    def raw_scores(
        self, slots: Sequence[PluginSlot], pod: Pod, names: Sequence[str], score: Score
    ) -> dict[str, ScoreClasses]:
        """Return the raw scores of the nodes ``names`` by plugin. All the nodes must be in the snapshot.

        All plugins get the same classes: the class of a node is its row number.
        Raises ``PluginError``, or ``Unprepared`` if there are too many nodes to score at once.
        """
        entries = [self._entry(CachedScores, self._scores, slot, pod) for slot in slots]
        key = tuple(it.serial for it in entries)
        rows = self._rows.get(key)
        if rows is None:
            rows = _ScoreRows(entries, self._snapshot)
        rows.refresh(self._snapshot)
        of: list[Any] = list(map(rows.of.get, names))
        if None in of:
            self._add(
                key, rows, entries, [name for name, number in zip(names, of, strict=True) if number is None], score
            )
            of = list(map(rows.of.__getitem__, names))
        used = {number: rows.rows[number] for number in set(of)}
        return {
            slot.name: ScoreClasses(of, {number: row[place] for number, row in used.items()}, all_used=True)
            for place, slot in enumerate(slots)
        }

    def _add(
        self, key: Hashable, rows: _ScoreRows, entries: Sequence[CachedScores], names: Sequence[str], score: Score
    ) -> None:
        """Score ``names``, which have no row yet, and assign rows to them."""
        nodes = self._snapshot.base_nodes
        new = [nodes[it].name for it in dict.fromkeys(names)]
        if len(new) > step_size(entries) and self._are_too_many(entries, new):
            raise Unprepared(self._in_steps(entries, new, score))
        self._score(entries, new, score)
        rows.add(new)
        self._rows.put(key, rows, rows.weight())

    def _are_too_many(self, entries: Sequence[CachedScores], names: Sequence[str]) -> bool:
        """Return True if the plugins might have to score more of ``names`` than is allowed in one step.

        A plugin that has not scored some of these nodes counts as if it had scored none.
        """
        for entry in entries:
            entry.refresh(self._snapshot)
        all_names = set(names)
        return sum(len(names) / it.at_once() for it in entries if not it.scores.keys() >= all_names) > 1

    def _in_steps(self, entries: Sequence[CachedScores], names: Sequence[str], score: Score) -> Iterator[None]:
        """Score the nodes ``names`` in batches. Each batch uses the current snapshot."""
        nodes, step = self._snapshot.base_nodes, step_size(entries)
        for start in range(0, len(names), step):
            self._score(entries, [it for it in names[start : start + step] if it in nodes], score)
            yield

    def _score(self, entries: Sequence[CachedScores], names: Sequence[str], score: Score) -> None:
        """Score each of the nodes ``names`` with the plugins that have not scored it yet."""
        for entry in entries:
            entry.refresh(self._snapshot)
            new = list(filterfalse(entry.scores.__contains__, names))
            if new:
                entry.scores.update(zip(new, score(entry, new), strict=True))
                self._scores.put(entry.key, entry, entry.weight())

    def checking_scores(self, score: Score) -> Iterator[str]:
        """Compare cached scores with new ones, in steps. Yields for each step a sentence that names the plugin whose
        scores differ, or an empty string.

        A plugin that fails is skipped, because no Error is cached.
        """
        for entry in self._scores.values():
            names = list(entry.scores)
            for start in range(0, len(names), PIECE):
                if entry.objects != self._objects(entry.slot):
                    break  # its scores are outdated, and the entry is replaced at its next use
                entry.refresh(self._snapshot)
                some = [it for it in names[start : start + PIECE] if it in entry.scores]
                try:
                    same = [entry.scores[it] for it in some] == list(score(entry, some))
                except PluginError:
                    break
                yield "" if same else f"cached scores of {entry.slot.name} differ"
        for rows in self._rows.values():
            yield from rows.checking(self._snapshot)
