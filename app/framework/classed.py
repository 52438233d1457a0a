"""Scores of many nodes that take few values."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Self

from msgspec import Struct


class Classed(Struct, frozen=True):
    """``of``: the class of each node, in the order of the candidates · ``scores``: the score of each class.

    Nodes of one class score alike, and there are far fewer classes than nodes: what follows (normalising, weights, the
    wire's scale) is done once a class.
    """

    of: Sequence[Hashable]
    scores: Mapping[Any, int]

    @classmethod
    def by_value(cls, scores: Sequence[int]) -> Self:
        """A class for each value."""
        return cls(scores, {value: value for value in set(scores)})

    def each(self) -> list[int]:
        """Node by node. Raises ``KeyError`` for a class without a score."""
        return list(map(self.scores.__getitem__, self.of))

    def by_name(self, names: Iterable[str]) -> dict[str, int]:
        """``names`` are those of the candidates."""
        return dict(zip(names, self.each(), strict=True))
