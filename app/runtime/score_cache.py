"""Raw scores that are kept, of the plugins that read no more than nodes and the pods on them.

Each plugin's are kept by pod signature, as verdicts are. On top of these, all of a profile's together: of each node
the row of what they gave it. So a node is looked up once, whatever the number of plugins, and what follows is done once
a row: there are far fewer rows than nodes.
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
"""Of scores by plugin, and of rows: each."""

_ROW_BYTES: Final = 300

_ROWS_A_NODE: Final = 2
"""More rows than so many times the nodes, and most are of no node any more: they are begun anew."""

_FEWEST_ROWS: Final = 64

_SERIALS: Final = itertools.count(1)

Score = Callable[["CachedScores", Sequence[str]], Sequence[int]]
"""The raw scores that the plugin of a ``CachedScores`` gives nodes of the snapshot now. Raises ``PluginError``."""


class CachedScores(PluginEntry):
    """The raw scores that one plugin gave nodes."""

    __slots__ = ("scores", "serial")

    def __init__(self, key: Hashable, slot: PluginSlot, pod: Pod, objects: Hashable, snapshot: Snapshot) -> None:
        super().__init__(key, slot, pod, objects, snapshot)
        self.serial = next(_SERIALS)
        self.scores: dict[str, int] = {}

    def weight(self) -> int:
        """Bytes, as estimated."""
        return super().weight() + 2 * NAME_BYTES * len(self.scores)

    def refresh(self, snapshot: Snapshot) -> None:
        """Nodes that changed are not scored."""
        changed = self.changed(snapshot)
        if changed is None:
            self.scores.clear()
        else:
            for name in changed:
                self.scores.pop(name, None)


class _ScoreRows(CacheEntry):
    """Of each node the number of its row: what each of several plugins gave it."""

    __slots__ = ("_each", "_numbers", "of", "rows")

    def __init__(self, each: Sequence[CachedScores], snapshot: Snapshot) -> None:
        super().__init__(snapshot, pods=any(it.pods for it in each))
        self._each = each
        self.of: dict[str, int] = {}
        self.rows: list[tuple[int, ...]] = []
        self._numbers: dict[tuple[int, ...], int] = {}

    def weight(self) -> int:
        """Bytes, as estimated."""
        return NAME_BYTES * len(self.of) * 2 + _ROW_BYTES * len(self.rows)

    def refresh(self, snapshot: Snapshot) -> None:
        """Nodes that changed have no row."""
        changed = self.changed(snapshot)
        if changed is None or len(self.rows) > max(_FEWEST_ROWS, _ROWS_A_NODE * len(snapshot.base_nodes)):
            self.of, self.rows, self._numbers = {}, [], {}
        else:
            for name in changed:
                self.of.pop(name, None)

    def add(self, names: Sequence[str]) -> None:
        """All of the plugins have scored ``names``."""
        numbers, rows = self._numbers, self.rows
        for name, row in zip(names, self._given(names), strict=True):
            number = numbers.get(row)
            if number is None:
                number = numbers[row] = len(rows)
                rows.append(row)
            self.of[name] = number

    def _given(self, names: Sequence[str]) -> Iterator[tuple[int, ...]]:
        return zip(*(map(it.scores.__getitem__, names) for it in self._each), strict=True)

    def checking(self, snapshot: Snapshot) -> Iterator[str]:
        """In words, if a row is not what the plugins' own scores are; empty for each step in which all are."""
        names = list(self.of)
        for start in range(0, len(names), PIECE):
            self.refresh(snapshot)
            for kept in self._each:
                kept.refresh(snapshot)
            known = (self.of, *(it.scores for it in self._each))
            some = [name for name in names[start : start + PIECE] if all(name in it for it in known)]
            same = [self.rows[self.of[name]] for name in some] == list(self._given(some))
            yield "" if same else f"kept rows of {', '.join(it.slot.name for it in self._each)} differ"


class ScoreCache(PluginCache):
    """Raw scores of one profile. Bounded by bytes, what was used last stays."""

    def __init__(self, snapshot: Snapshot, most_bytes: int = _MOST_BYTES) -> None:
        super().__init__(snapshot)
        self._scores: LruCache[Hashable, CachedScores] = LruCache(most_bytes)
        self._rows: LruCache[Hashable, _ScoreRows] = LruCache(most_bytes)

    def raw_scores(
        self, slots: Sequence[PluginSlot], pod: Pod, names: Sequence[str], score: Score
    ) -> dict[str, ScoreClasses]:
        """By plugin, the raw scores of ``names``, all of them nodes of the snapshot. Nodes have one class with all.

        Raises ``PluginError``, or ``Unprepared`` where there are too many to be scored at once.
        """
        each = [self._entry(CachedScores, self._scores, slot, pod) for slot in slots]
        key = tuple(it.serial for it in each)
        rows = self._rows.get(key)
        if rows is None:
            rows = _ScoreRows(each, self._snapshot)
        rows.refresh(self._snapshot)
        of: list[Any] = list(map(rows.of.get, names))
        if None in of:
            self._add(key, rows, each, [name for name, number in zip(names, of, strict=True) if number is None], score)
            of = list(map(rows.of.__getitem__, names))
        used = {number: rows.rows[number] for number in set(of)}
        return {
            slot.name: ScoreClasses(of, {number: row[place] for number, row in used.items()}, all_used=True)
            for place, slot in enumerate(slots)
        }

    def _add(
        self, key: Hashable, rows: _ScoreRows, each: Sequence[CachedScores], names: Sequence[str], score: Score
    ) -> None:
        """Score ``names``, which have no row, and give them one."""
        nodes = self._snapshot.base_nodes
        new = [nodes[it].name for it in dict.fromkeys(names)]
        if len(new) > step_size(each) and self._are_too_many(each, new):
            raise Unprepared(self._in_steps(each, new, score))
        self._score(each, new, score)
        rows.add(new)
        self._rows.put(key, rows, rows.weight())

    def _are_too_many(self, each: Sequence[CachedScores], names: Sequence[str]) -> bool:
        """Whether the plugins have to score more of ``names`` than they can in one step."""
        for kept in each:
            kept.refresh(self._snapshot)
        wanted = set(names)
        return sum(len(names) / it.at_once() for it in each if not it.scores.keys() >= wanted) > 1

    def _in_steps(self, each: Sequence[CachedScores], names: Sequence[str], score: Score) -> Iterator[None]:
        """Have ``names`` scored some at a time, each as it is then."""
        nodes, step = self._snapshot.base_nodes, step_size(each)
        for start in range(0, len(names), step):
            self._score(each, [it for it in names[start : start + step] if it in nodes], score)
            yield

    def _score(self, each: Sequence[CachedScores], names: Sequence[str], score: Score) -> None:
        """Have those of ``names`` scored that are not, by each plugin."""
        for kept in each:
            kept.refresh(self._snapshot)
            new = list(filterfalse(kept.scores.__contains__, names))
            if new:
                kept.scores.update(zip(new, score(kept, new), strict=True))
                self._scores.put(kept.key, kept, kept.weight())

    def checking_scores(self, score: Score) -> Iterator[str]:
        """What is kept and differs from what plugins say now, by plugin; empty for each step in which nothing does.

        A plugin that fails is left out: no Error is kept.
        """
        for kept in self._scores.values():
            names = list(kept.scores)
            for start in range(0, len(names), PIECE):
                if kept.objects != self._objects(kept.slot):
                    break  # made anew when it is used next
                kept.refresh(self._snapshot)
                some = [it for it in names[start : start + PIECE] if it in kept.scores]
                try:
                    same = [kept.scores[it] for it in some] == list(score(kept, some))
                except PluginError:
                    break
                yield "" if same else f"kept scores of {kept.slot.name} differ"
        for rows in self._rows.values():
            yield from rows.checking(self._snapshot)
