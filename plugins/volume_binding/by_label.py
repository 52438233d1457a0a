"""Things that can be used from some nodes only, found by the labels of a node without a look at each of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import merge
from typing import Final, Generic, TypeVar

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


class ByLabel(Generic[T]):
    """Things in an order, each with the places where it may be used. What is ``near`` has still to be looked at."""

    def __init__(self, found: Iterable[tuple[T, Collection[Place] | None]]) -> None:
        self._things: list[T] = []
        self._anywhere: list[int] = []
        self._at: dict[str, dict[str, list[int]]] = {}
        for thing, places in found:
            if places is not None:
                self._add(thing, places)

    def _add(self, thing: T, places: Collection[Place]) -> None:
        index = len(self._things)
        self._things.append(thing)
        if not places:
            self._anywhere.append(index)
        for key, values in places:
            of_key = self._at.setdefault(key, {})
            for value in values:
                of_value = of_key.setdefault(value, [])
                if not of_value or of_value[-1] != index:
                    of_value.append(index)

    def near(self, labels: Mapping[str, str]) -> Iterator[T]:
        """In their order, those that a node with these labels may be able to use."""
        places = [self._anywhere] if self._anywhere else []
        places.extend(self._places(labels))
        last = -1
        for index in merge(*places) if len(places) > 1 else (places[0] if places else ()):
            if index != last:
                yield self._things[index]
            last = index

    def _places(self, labels: Mapping[str, str]) -> Iterator[list[int]]:
        for key, of_key in self._at.items():
            value = labels.get(key)
            if value is not None and value in of_key:
                yield of_key[value]
