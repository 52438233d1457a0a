"""What is not given up while one decision has it counted."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Final


class Pins:
    """Keys of kept counts that eviction passes over. ``noting``: what is asked for now is one of them."""

    __slots__ = ("keys", "noting")

    def __init__(self) -> None:
        self.keys: set[Hashable] = set()
        self.noting = False

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Pin what is asked for meanwhile; nothing is awaited in here."""
        self.noting = True
        try:
            yield
        finally:
            self.noting = False

    def release(self) -> None:
        """What was pinned stays until something else needs its room."""
        self.keys.clear()


PINS: Final = Pins()
"""Of the process: one decision at a time has pins."""
