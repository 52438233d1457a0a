"""Which nodes changed since when: each is listed once, by its last change, as kube-scheduler orders its node infos."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.kube.memo import Newest

MOST: Final = 1 << 17
"""Names that are listed: nodes there are, and some that are gone."""


class NodeChanges:
    """Implements ``runtime.CountOverlay``."""

    __slots__ = ("_at", "_forgotten", "now")

    def __init__(self) -> None:
        self.now = 0
        self._at = Newest[str, int](MOST)
        self._forgotten = 0

    def note(self, name: str) -> None:
        """A node came, changed or is gone."""
        self.now += 1
        if (forgotten := self._at.put(name, self.now)) is not None:
            self._forgotten = forgotten[1]

    def at(self, name: str) -> int:
        """Return the number of the node's last change, 0 if none is listed."""
        return self._at.get(name, 0)

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
