"""Things that can be used from some nodes only, found by the labels of a node without a look at each of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar

from app.kube.node_affinity import RequiredNodeAffinity
from app.kube.selectors import IN, Selector

T = TypeVar("T")

Place = tuple[str, tuple[str, ...]]
"""A label and its values, one of which a node must have."""

ANYWHERE: Final[Collection[Place]] = ()

_rank: Final = itemgetter(0)


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


class ByLabel(Generic[T]):
    """Things by rank, each with the places where it may be used. What is ``near`` has still to be looked at.

    No two have one rank. One that comes or goes costs a look-up in each of its places.
    """

    __slots__ = ("_anywhere", "_at")

    def __init__(self) -> None:
        self._anywhere: list[tuple[Any, T]] = []
        self._at: dict[str, dict[str, list[tuple[Any, T]]]] = {}

    def add(self, rank: Any, thing: T, places: Collection[Place] | None) -> None:
        if places is None:
            return
        if not places:
            _insert(self._anywhere, rank, thing)
        for key, value in _pairs(places):
            _insert(self._at.setdefault(key, {}).setdefault(value, []), rank, thing)

    def discard(self, rank: Any, places: Collection[Place] | None) -> None:
        """Take out what came with this rank and these places."""
        if places is None:
            return
        if not places:
            _remove(self._anywhere, rank)
        for key, value in _pairs(places):
            of_key = self._at[key]
            _remove(of_key[value], rank)
            if not of_key[value]:
                del of_key[value]
            if not of_key:
                del self._at[key]

    def __bool__(self) -> bool:
        return bool(self._anywhere or self._at)

    def near(self, labels: Mapping[str, str], least: Any = None) -> Iterator[tuple[Any, T]]:
        """By rank, from ``least`` on, those that a node with these labels may be able to use."""
        places = [self._anywhere] if self._anywhere else []
        places.extend(self._places(labels))
        if len(places) == 1:
            return _from(places[0], least)
        return _once(merge(*(_from(it, least) for it in places), key=_rank)) if places else iter(())

    def _places(self, labels: Mapping[str, str]) -> Iterator[list[tuple[Any, T]]]:
        for key, of_key in self._at.items():
            value = labels.get(key)
            if value is not None and value in of_key:
                yield of_key[value]


def _pairs(places: Collection[Place]) -> Collection[tuple[str, str]]:
    return dict.fromkeys((key, value) for key, values in places for value in values)


def _insert(found: list[tuple[Any, T]], rank: Any, thing: T) -> None:
    if not found or found[-1][0] < rank:
        found.append((rank, thing))
    else:
        found.insert(bisect_left(found, rank, key=_rank), (rank, thing))


def _remove(found: list[tuple[Any, T]], rank: Any) -> None:
    del found[bisect_left(found, rank, key=_rank)]


def _from(found: list[tuple[Any, T]], least: Any) -> Iterator[tuple[Any, T]]:
    return iter(found) if least is None else islice(found, bisect_left(found, least, key=_rank), None)


def _once(found: Iterator[tuple[Any, T]]) -> Iterator[tuple[Any, T]]:
    """What is in several places comes once."""
    last = None
    for it in found:
        if it[0] != last:
            yield it
        last = it[0]
