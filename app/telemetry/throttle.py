"""Limits how often a log line is written, because clients or faults can cause the same line at any rate."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final

LINE_SECONDS: Final = 60.0
"""Minimum interval between two log lines of one key."""


MOST_KEYS: Final = 256
"""Maximum number of keys that are throttled separately. All further keys are throttled together, as one key."""

_OTHERS: Final = "(others)"


class Throttle:
    """Admits at most one log line per key in each period of ``seconds``, and counts the suppressed ones."""

    def __init__(self, seconds: float = LINE_SECONDS, clock: Callable[[], float] = monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._next: dict[str, float] = {}
        self._held_back: dict[str, int] = {}

    def admit(self, key: str) -> int | None:
        """Return ``None`` if a line of this key must be suppressed.

        Else return the number of lines of the key that were suppressed since the last admitted line.
        """
        if key not in self._next and len(self._next) >= MOST_KEYS:
            key = _OTHERS
        now = self._clock()
        if now < self._next.get(key, now):
            self._held_back[key] = self._held_back.get(key, 0) + 1
            return None
        self._next[key] = now + self._seconds
        return self._held_back.pop(key, 0)
