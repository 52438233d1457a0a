"""Logs of changes. Each change has a number; a log returns the nodes or objects that changed after a given number."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import takewhile
from typing import Final, Generic, TypeVar

from app.kube.memo import Newest

MOST: Final = 1 << 17
"""Maximum number of keys in a log: enough for all nodes, or objects of a kind, and some deleted ones."""

K = TypeVar("K", bound=Hashable)


class ChangeLog(Generic[K]):
    """Log that lists each changed key once, with the number of its last change.

    ``since``: number at which the log begins. The log lists only changes with a larger number.
    """

    __slots__ = ("_at", "_forgotten")

    def __init__(self, since: int = 0) -> None:
        self._at = Newest[K, int](MOST)
        self._forgotten = since

    def note(self, key: K, number: int) -> None:
        """Add a change of a key. ``number`` must be larger than that of any earlier change."""
        if (forgotten := self._at.put(key, number)) is not None:
            self._forgotten = forgotten[1]

    def at(self, key: K) -> int:
        """Return the number of the key's last change; 0 if the key is not listed."""
        return self._at.get(key, 0)

    def since(self, seen: int) -> list[K] | None:
        """Return the keys that changed after number ``seen``, the latest change first.

        Return ``None`` if the log begins after ``seen``, because any key can have changed then.
        """
        if seen < self._forgotten:
            return None
        return [key for key, _ in takewhile(lambda it: it[1] > seen, reversed(self._at.items()))]


class NodeChanges:
    """Change log of nodes, by name. ``now``: number of the last change. Implements ``runtime.snapshot.NodeJournal``."""

    __slots__ = ("_log", "now")

    def __init__(self) -> None:
        self.now = 0
        self._log = ChangeLog[str]()

    def note(self, name: str) -> None:
        """Record that a node was added, changed or deleted; in ``Cluster.pod_changes``, that its pods changed."""
        self.now += 1
        self._log.note(name, self.now)

    def at(self, name: str) -> int:
        """Return the number of the node's last change; 0 if the node is not listed."""
        return self._log.at(name)

    def since(self, seen: int) -> Sequence[str] | None:
        """Return the nodes that changed after number ``seen``, the latest change first.

        Return ``None`` if the log begins after ``seen``, because any node can have changed then.
        """
        return () if seen == self.now else self._log.since(seen)
