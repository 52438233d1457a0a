"""Scores of many nodes by class. Nodes of one class have the same score, and there are far fewer classes than nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import repeat
from typing import Any, Self, overload

from msgspec import Struct


class SparseClasses(Sequence[Hashable]):
    """Class of each node in ``names``: its entry in ``others``, otherwise ``usual``. ``others`` has no other nodes."""

    __slots__ = ("names", "others", "usual")

    def __init__(self, names: Sequence[str], usual: Hashable, others: Mapping[str, Hashable]) -> None:
        self.names = names
        self.usual = usual
        self.others = others

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Hashable]:
        others, usual = self.others, self.usual
        return (others.get(name, usual) for name in self.names)

    @overload
    def __getitem__(self, index: int) -> Hashable: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Hashable]: ...
    def __getitem__(self, index: int | slice) -> Hashable | Sequence[Hashable]:
        if isinstance(index, slice):
            return list(self)[index]
        return self.others.get(self.names[index], self.usual)


class ScoreClasses(Struct, frozen=True):
    """Scores of many nodes. ``of``: class of each node, in order of the candidates. ``scores``: score by class.

    There are far fewer classes than nodes, so normalizing, weighting and scaling compute one score per class.
    """

    of: Sequence[Hashable]
    scores: Mapping[Any, int]
    all_used: bool = False
    """True if each class in ``scores`` certainly has a node; False if this is unknown."""

    @classmethod
    def by_value(cls, scores: Sequence[int]) -> Self:
        """Return the ``ScoreClasses`` of nodes with these scores. Nodes with equal scores form a class."""
        return cls(scores, {value: value for value in set(scores)}, all_used=True)

    def classes(self) -> Set[Hashable]:
        """Return the classes that have a node."""
        of = self.of
        if self.all_used:
            return self.scores.keys()
        if not isinstance(of, SparseClasses):
            return set(of)
        used = set(of.others.values())
        return used | {of.usual} if len(of.others) < len(of) else used

    def sizes(self) -> Mapping[Hashable, int]:
        """Return the number of nodes by class."""
        of = self.of
        if not isinstance(of, SparseClasses):
            return Counter(of)
        counts = Counter(of.others.values())
        if len(of.others) < len(of):
            counts[of.usual] += len(of) - len(of.others)
        return counts

    def weighted(self, weight: int, more: int = 0) -> dict[Any, int]:
        """Return the score of each class times ``weight``, plus ``more``."""
        return {key: value * weight + more for key, value in self.scores.items()}

    def each(self, weight: int = 1, more: int = 0) -> list[int]:
        """Return the score of each node times ``weight``, plus ``more``. Raises ``KeyError`` for a class without a
        score.
        """
        scores, of = self.weighted(weight, more), self.of
        if not isinstance(of, SparseClasses):
            return list(map(scores.__getitem__, of))
        others = {name: scores[key] for name, key in of.others.items()}
        if len(others) == len(of.names):
            return list(map(others.__getitem__, of.names))
        return list(map(others.get, of.names, repeat(scores[of.usual])))

    def by_name(self, names: Iterable[str]) -> dict[str, int]:
        """Return the scores by node name. ``names``: names of the candidates, in order."""
        return dict(zip(names, self.each(), strict=True))
