"""Incremental updates of data that a plugin derives from all objects of one kind, in bounded steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from app.framework.counts import Unprepared
from app.framework.objects import Objects
from app.kube.kinds import Kind
from app.kube.meta_v1 import ObjectKey

AT_ONCE: Final = 256
"""Cost (number of ordinary objects) at which ``catch_up`` stops, because so many take some milliseconds to process."""

_STEP: Final = 64
"""Cost (number of ordinary objects) at which one step of ``Unprepared`` ends."""


class Following:
    """Queue of the objects of a kind that were added, changed or deleted since they were last processed.

    ``take`` is called with the namespace and name of an object, which might have been deleted. It updates the derived
    data and returns its own cost, as the number of ordinary objects that take the same time. ``restart`` is called to
    discard all derived data; then every object is processed again. After ``Unprepared``, the next ``catch_up``
    continues with the objects that are left.
    """

    def __init__(
        self, objects: Objects, kind: Kind[Any], take: Callable[[str, str], int], restart: Callable[[], None]
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
        """Process all changes. If their cost reaches ``AT_ONCE``, raise ``Unprepared`` with steps for the rest."""
        version = self._objects.version(self._kind)
        if version != self._seen:
            self._add_changes(version)
        if self._behind:
            self._process(AT_ONCE)
        if self._behind:
            raise Unprepared(self._steps())

    def _add_changes(self, version: int) -> None:
        """Queue the objects that changed up to ``version``. If these are unknown, restart and queue all objects."""
        changed = self._objects.changed(self._kind, self._seen)
        if changed is None:
            self._restart()
            self._changed.clear()
            self._every = (it.key for it in self._objects.every(self._kind))
        else:
            self._changed.update((key, None) for key, _ in changed)
        self._seen, self._behind = version, True

    def _process(self, most: int) -> None:
        """Process queued objects until their total cost is at least ``most``, or until the queue is empty."""
        done = 0
        for count in self._processed():
            done += count
            if done >= most:
                return

    def _processed(self) -> Iterator[int]:
        """Process one object per iteration and yield its cost: changed objects first, the latest change at the front.

        After a ``restart``, all objects follow.
        """
        while self._changed:
            count = self._take(*next(reversed(self._changed)))
            self._changed.popitem()
            yield count
        for key in self._every:
            yield self._take(*key)
        self._behind = False

    def _steps(self) -> Iterator[None]:
        while self._behind:
            self._process(_STEP)
            yield
