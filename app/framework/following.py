"""Keeps what a plugin derives from objects of one kind right: object by object, and never all in one step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from app.framework.interface import Objects, Unprepared
from app.kube.kinds import Kind
from app.kube.meta_v1 import ObjectKey

AT_ONCE: Final = 256
"""Objects that are taken in at one go: some milliseconds."""

_STEP: Final = 64


class Following:
    """The objects of a kind that came, changed or went and were not taken in yet.

    ``take`` is told a namespace and a name: what is derived from that object is to be made anew, from the object as it
    is by then or from none. ``restart``: nothing that was derived holds; all objects are told. What is taken in stays
    so: who comes back after ``Unprepared`` goes on where it was.
    """

    def __init__(
        self, objects: Objects, kind: Kind[Any], take: Callable[[str, str], None], restart: Callable[[], None]
    ) -> None:
        self._objects = objects
        self._kind = kind
        self._take = take
        self._restart = restart
        self._seen = -1
        self._behind = False
        self._changed: dict[ObjectKey, None] = {}
        self._every: Iterator[ObjectKey] = iter(())

    def catch_up(self) -> None:
        """Take in all that changed. Raises ``Unprepared`` where that is too much for one step."""
        version = self._objects.version(self._kind)
        if version != self._seen:
            self._look(version)
        if self._behind:
            self._go_on(AT_ONCE)
        if self._behind:
            raise Unprepared(self._steps())

    def _look(self, version: int) -> None:
        changed = self._objects.changed(self._kind, self._seen)
        if changed is None:
            self._restart()
            self._changed.clear()
            self._every = (it.key for it in self._objects.every(self._kind))
        else:
            self._changed.update((key, None) for key, _ in changed)
        self._seen, self._behind = version, True

    def _go_on(self, most: int) -> None:
        for _ in islice(self._taking(), most):
            pass

    def _taking(self) -> Iterator[None]:
        """Take in one object each. Those that changed come first, since they may change again."""
        while self._changed:
            self._take(*next(reversed(self._changed)))
            self._changed.popitem()
            yield
        for key in self._every:
            self._take(*key)
            yield
        self._behind = False

    def _steps(self) -> Iterator[None]:
        while self._behind:
            self._go_on(_STEP)
            yield
