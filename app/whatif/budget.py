"""Processor time that one what-if can use."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Final

SECONDS: Final = 8.0
"""Processor time of a what-if in the service, in seconds. When it is used up, the rest of the answer is left out."""


class Budget:
    """Processor time that a what-if can use from the creation of this object. ``seconds``: ``None`` for no limit."""

    def __init__(self, seconds: float | None, clock: Callable[[], float] = process_time) -> None:
        self._seconds = seconds
        self._clock = clock
        self._began = clock()
        self.was_over = False

    @property
    def is_over(self) -> bool:
        """True if no processor time is left, or if ``was_over`` is set. A true value sets ``was_over``.

        ``was_over`` marks the answer incomplete. A caller can set it, too.
        """
        self.was_over |= self._seconds is not None and self._clock() - self._began > self._seconds
        return self.was_over

    def part(self, number: int) -> Budget:
        """Return a new budget with the remaining time divided by ``number``. It does not set this ``was_over``."""
        left = None if self._seconds is None else max(0.0, self._seconds - (self._clock() - self._began)) / number
        return Budget(left, self._clock)
