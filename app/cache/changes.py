"""What changed since when: each thing is listed once, by its last change, as kube-scheduler orders its node infos."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.kube.meta_v1 import ObjectKey

MOST: Final = 1 << 17
"""Names that are listed: nodes there are, and some that are gone."""


class NodeChanges:
    """Implements ``runtime.Changes``."""

    __slots__ = ("_at", "_forgotten", "now")

    def __init__(self) -> None:
        self.now = 0
        self._at: dict[str, int] = {}
        self._forgotten = 0

    def note(self, name: str) -> None:
        """A node came, changed or is gone."""
        self.now += 1
        self._at.pop(name, None)
        self._at[name] = self.now
        if len(self._at) > MOST:
            self._forgotten = self._at.pop(next(iter(self._at)))

    def since(self, seen: int) -> Sequence[str] | None:
        if seen == self.now:
            return ()
        if seen < self._forgotten:
            return None
        found: list[str] = []
        for name, at in reversed(self._at.items()):
            if at <= seen:
                break
            found.append(name)
        return found


MOST_OBJECTS: Final = 1 << 13
"""Objects of one kind that are listed: what changes between two calls, and not what there is."""


class ObjectChanges:
    """Which objects of one kind changed, from the number ``begun`` on; who counts the changes gives each its number."""

    __slots__ = ("_at", "_forgotten")

    def __init__(self, begun: int) -> None:
        self._at: dict[ObjectKey, int] = {}
        self._forgotten = begun

    def note(self, key: ObjectKey, now: int) -> None:
        """An object came, changed or is gone."""
        self._at.pop(key, None)
        self._at[key] = now
        if len(self._at) > MOST_OBJECTS:
            self._forgotten = self._at.pop(next(iter(self._at)))

    def since(self, seen: int) -> Sequence[ObjectKey] | None:
        """Those that changed after the number ``seen``; ``None``: not known."""
        if seen < self._forgotten:
            return None
        found: list[ObjectKey] = []
        for key, at in reversed(self._at.items()):
            if at <= seen:
                break
            found.append(key)
        return found
