"""Things that can be used from some nodes only, found by the labels of a node without a look at each of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import merge
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar

from app.framework.resources import add
from app.kube.node_affinity import RequiredNodeAffinity
from app.kube.selectors import IN, Selector

T = TypeVar("T")

Place = tuple[str, tuple[str, ...]]
"""A label and its values, one of which a node must have."""

ANYWHERE: Final[Collection[Place]] = ()


def places_of_affinity(affinity: RequiredNodeAffinity | None) -> Collection[Place] | None:
    """What any node that it matches has one of; ``ANYWHERE`` if nothing is known, ``None`` if it matches no node."""
    if affinity is None or affinity.terms is None:
        return ANYWHERE
    found = []
    for term in affinity.terms:
        if not term.can_match:
            continue
        place = next(((it.key, it.values) for it in term.expressions if it.operator == IN), None)
        if place is None:
            return ANYWHERE
        found.append(place)
    return found or None


def places_of_selector(selector: Selector) -> Collection[Place]:
    """The same of a selector."""
    place = next(((it.key, it.values) for it in selector.requirements if it.operator == IN), None)
    return ANYWHERE if place is None else (place,)


def keys_of_affinity(affinity: RequiredNodeAffinity | None) -> frozenset[str]:
    """The labels by which it tells nodes apart."""
    if affinity is None:
        return frozenset()
    terms = (it.key for term in affinity.terms or () for it in term.expressions)
    return frozenset((*terms, *(key for key, _ in affinity.node_selector)))


def keys_of_selector(selector: Selector) -> frozenset[str]:
    """The same of a selector."""
    return frozenset(it.key for it in selector.requirements)


class _Row(Generic[T]):
    """Things by rank."""

    __slots__ = ("_ranks", "_things")

    def __init__(self) -> None:
        self._ranks: list[Any] = []
        self._things: list[T] = []

    def __bool__(self) -> bool:
        return bool(self._ranks)

    def add(self, rank: Any, thing: T) -> None:
        ranks = self._ranks
        index = len(ranks) if not ranks or ranks[-1] < rank else bisect_left(ranks, rank)
        ranks.insert(index, rank)
        self._things.insert(index, thing)

    def discard(self, rank: Any) -> None:
        index = bisect_left(self._ranks, rank)
        del self._ranks[index], self._things[index]

    def since(self, least: Any) -> Iterator[tuple[Any, T]]:
        start = 0 if least is None else bisect_left(self._ranks, least)
        rest = range(start, len(self._ranks))
        return zip(map(self._ranks.__getitem__, rest), map(self._things.__getitem__, rest), strict=True)


class ByLabel(Generic[T]):
    """Things by rank, each with the places where it may be used. What is ``near`` has still to be looked at.

    No two have one rank. One that comes or goes costs a look-up in each of its places. ``keys``: the labels of nodes by
    which it is told whether the things can be used, with how many of them it is told so.
    """

    __slots__ = ("_anywhere", "_at", "keys")

    def __init__(self) -> None:
        self._anywhere: _Row[T] = _Row()
        self._at: dict[str, dict[str, _Row[T]]] = {}
        self.keys: dict[str, int] = {}

    def add(self, rank: Any, thing: T, places: Collection[Place] | None, keys: Iterable[str]) -> None:
        if places is None:
            return
        add(dict.fromkeys(keys, 1), self.keys)
        if not places:
            self._anywhere.add(rank, thing)
        for key, value in _pairs(places):
            self._at.setdefault(key, {}).setdefault(value, _Row()).add(rank, thing)

    def discard(self, rank: Any, places: Collection[Place] | None, keys: Iterable[str]) -> None:
        """Take out what came with this rank, these places and keys."""
        if places is None:
            return
        add(dict.fromkeys(keys, 1), self.keys, -1)
        if not places:
            self._anywhere.discard(rank)
        for key, value in _pairs(places):
            of_key = self._at[key]
            of_key[value].discard(rank)
            if not of_key[value]:
                del of_key[value]
            if not of_key:
                del self._at[key]

    def __bool__(self) -> bool:
        return bool(self._anywhere or self._at)

    def near(self, labels: Mapping[str, str], least: Any = None) -> Iterator[tuple[Any, T]]:
        """By rank, from ``least`` on, those that a node with these labels may be able to use."""
        rows = [self._anywhere] if self._anywhere else []
        rows.extend(self._rows(labels))
        if len(rows) == 1:
            return rows[0].since(least)
        return _once(merge(*(it.since(least) for it in rows), key=itemgetter(0))) if rows else iter(())

    def _rows(self, labels: Mapping[str, str]) -> Iterator[_Row[T]]:
        for key, of_key in self._at.items():
            value = labels.get(key)
            if value is not None and value in of_key:
                yield of_key[value]


def _pairs(places: Collection[Place]) -> Collection[tuple[str, str]]:
    return dict.fromkeys((key, value) for key, values in places for value in values)


def _once(found: Iterator[tuple[Any, T]]) -> Iterator[tuple[Any, T]]:
    """What is in several places comes once."""
    last = None
    for it in found:
        if it[0] != last:
            yield it
        last = it[0]
