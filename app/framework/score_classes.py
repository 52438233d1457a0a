"""Scores of many nodes that take few values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import repeat
from typing import Any, Self, overload

from msgspec import Struct


class SparseClasses(Sequence[Hashable]):
    """The classes of nodes most of which are of one: of ``usual`` but for the ``others``, by name."""

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
    """``of``: the class of each node, in the order of the candidates · ``scores``: the score of each class.

    Nodes of one class score alike, and there are far fewer classes than nodes: what follows (normalising, weights, the
    wire's scale) is done once a class.
    """

    of: Sequence[Hashable]
    scores: Mapping[Any, int]
    all_used: bool = False
    """Whether each class in ``scores`` has a node."""

    @classmethod
    def by_value(cls, scores: Sequence[int]) -> Self:
        """A class for each value."""
        return cls(scores, {value: value for value in set(scores)}, all_used=True)

    def classes(self) -> Set[Hashable]:
        """The classes that nodes are of."""
        of = self.of
        if self.all_used:
            return self.scores.keys()
        if not isinstance(of, SparseClasses):
            return set(of)
        found = set(of.others.values())
        return found | {of.usual} if len(of.others) < len(of) else found

    def sizes(self) -> Mapping[Hashable, int]:
        """How many nodes are of each class."""
        of = self.of
        if not isinstance(of, SparseClasses):
            return Counter(of)
        found = Counter(of.others.values())
        if len(of.others) < len(of):
            found[of.usual] += len(of) - len(of.others)
        return found

    def weighted(self, weight: int, more: int = 0) -> dict[Any, int]:
        """The score of each class times ``weight``, and ``more``."""
        return {key: value * weight + more for key, value in self.scores.items()}

    def each(self, weight: int = 1, more: int = 0) -> list[int]:
        """The same node by node. Raises ``KeyError`` for a class without a score."""
        scores, of = self.weighted(weight, more), self.of
        if not isinstance(of, SparseClasses):
            return list(map(scores.__getitem__, of))
        others = {name: scores[key] for name, key in of.others.items()}
        if len(others) == len(of.names):
            return list(map(others.__getitem__, of.names))
        return list(map(others.get, of.names, repeat(scores[of.usual])))

    def by_name(self, names: Iterable[str]) -> dict[str, int]:
        """``names`` are those of the candidates."""
        return dict(zip(names, self.each(), strict=True))
