"""Logs of changes: which nodes or objects changed after a given change number."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import takewhile
from typing import Final, Generic, TypeVar

from app.kube.memo import Newest

MOST: Final = 1 << 17
"""Maximum number of entries of a log: enough for all that exist, and for some that were deleted."""

K = TypeVar("K", bound=Hashable)


class ChangeLog(Generic[K]):
    """Keys with the number of their last change, each listed once. ``since``: number at which the log begins."""

    __slots__ = ("_at", "_forgotten")

    def __init__(self, since: int = 0) -> None:
        self._at = Newest[K, int](MOST)
        self._forgotten = since

    def note(self, key: K, number: int) -> None:
        """Add a change. Numbers must increase."""
        if (forgotten := self._at.put(key, number)) is not None:
            self._forgotten = forgotten[1]

    def at(self, key: K) -> int:
        """Return the number of the key's last change; 0 if it is not listed."""
        return self._at.get(key, 0)

    def since(self, seen: int) -> list[K] | None:
        """Return the keys that changed after number ``seen``, the newest first; ``None`` if the log begins later."""
        if seen < self._forgotten:
            return None
        return [key for key, _ in takewhile(lambda it: it[1] > seen, reversed(self._at.items()))]


class NodeChanges:
    """Change log of node names with a counter of its own, ``now``. Implements ``runtime.Changes``."""

    __slots__ = ("_log", "now")

    def __init__(self) -> None:
        self.now = 0
        self._log = ChangeLog[str]()

    def note(self, name: str) -> None:
        """Record that a node was added, changed or deleted."""
        self.now += 1
        self._log.note(name, self.now)

    def at(self, name: str) -> int:
        """Return the number of the node's last change; 0 if it is not listed."""
        return self._log.at(name)

    def since(self, seen: int) -> Sequence[str] | None:
        """Return the nodes that changed after number ``seen``, the newest first; ``None`` if that is unknown."""
        return () if seen == self.now else self._log.since(seen)
