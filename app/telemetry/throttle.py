"""Throttle for log lines that can repeat without end."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final

LINE_SECONDS: Final = 60.0
"""Minimum interval between two log lines of one key, because clients and faults can repeat at any rate."""


MOST_KEYS: Final = 256
"""Maximum number of keys with a period of their own; keys beyond it share one."""

_OTHERS: Final = "(others)"


class Throttle:
    """Passes one line of each key in ``seconds`` and counts the others."""

    def __init__(self, seconds: float = LINE_SECONDS, clock: Callable[[], float] = monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._next: dict[str, float] = {}
        self._held_back: dict[str, int] = {}

    def admit(self, key: str) -> int | None:
        """Return the number of lines suppressed since the last one, or ``None`` if this line must be suppressed."""
        if key not in self._next and len(self._next) >= MOST_KEYS:
            key = _OTHERS
        now = self._clock()
        if now < self._next.get(key, now):
            self._held_back[key] = self._held_back.get(key, 0) + 1
            return None
        self._next[key] = now + self._seconds
        return self._held_back.pop(key, 0)
