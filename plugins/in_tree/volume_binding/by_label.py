"""Index of things that only some nodes can use, by the labels of these nodes."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar

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
    places = []
    for term in affinity.terms:
        if not term.can_match:
            continue
        place = next(((it.key, it.values) for it in term.expressions if it.operator == IN), None)
        if place is None:
            return ANYWHERE
        places.append(place)
    return places or None


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


class ByLabel(Generic[T]):
    """Things by name, indexed by the places from which each can be used.

    Adding or removing one costs a look-up per place. ``keys``: the node labels that decide whether a thing can be used,
    each with the number of things that it decides about.
    """

    __slots__ = ("_anywhere", "_at", "keys")

    def __init__(self) -> None:
        self._anywhere: dict[Hashable, T] = {}
        self._at: dict[str, dict[str, dict[Hashable, T]]] = {}
        self.keys: dict[str, int] = {}

    def add(self, name: Hashable, thing: T, places: Collection[Place] | None, keys: Iterable[str]) -> None:
        if places is None:
            return
        add(dict.fromkeys(keys, 1), self.keys)
        if not places:
            self._anywhere[name] = thing
        for key, value in _pairs(places):
            self._at.setdefault(key, {}).setdefault(value, {})[name] = thing

    def discard(self, name: Hashable, places: Collection[Place] | None, keys: Iterable[str]) -> None:
        """Remove the thing that was added with this name, these places and keys."""
        if places is None:
            return
        add(dict.fromkeys(keys, 1), self.keys, -1)
        if not places:
            del self._anywhere[name]
        for key, value in _pairs(places):
            of_key = self._at[key]
            del of_key[value][name]
            if not of_key[value]:
                del of_key[value]
            if not of_key:
                del self._at[key]

    def near(self, labels: Mapping[str, str]) -> Iterator[T]:
        """The things that a node with these labels may be able to use, in any order, one with two places perhaps twice.

        Whether the node can use one remains to be checked.
        """
        yield from self._anywhere.values()
        for key, of_key in self._at.items():
            value = labels.get(key)
            if value is not None and value in of_key:
                yield from of_key[value].values()


def _pairs(places: Collection[Place]) -> Collection[tuple[str, str]]:
    return dict.fromkeys((key, value) for key, values in places for value in values)
