"""Goes over objects by turns: who was stopped before the end begins there the next time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from app.kube.kinds import AnnotatedObject, Kind

T = TypeVar("T", bound=AnnotatedObject)


class Every(Protocol):
    """Where the objects are from: the picture, or ``Owners``, with ``None`` in place of those that keep no homes."""

    def every(self, kind: Kind[T]) -> Iterator[T | None]: ...


class Turns(Generic[T]):
    """All objects of some kinds."""

    def __init__(self, objects: Every, kinds: Iterable[Kind[T]]) -> None:
        self._objects = objects
        self._kinds = tuple(kinds)
        self._at = ""

    def __iter__(self) -> Iterator[tuple[Kind[T], T | None]]:
        """Each once, as it is by then; ``None`` in place of each that is passed over, which takes time as well."""
        first = self._at
        is_there = not first
        for kind, found in self._every():
            is_there = is_there or (found is not None and found.uid == first)
            if is_there and found is not None:
                self._at = found.uid
            yield kind, found if is_there else None
        for kind, found in self._every() if first else ():
            if found is not None:
                if is_there and found.uid == first:
                    break
                self._at = found.uid
            yield kind, found
        self._at = ""

    def _every(self) -> Iterator[tuple[Kind[T], T | None]]:
        for kind in self._kinds:
            for found in self._objects.every(kind):
                yield kind, found
