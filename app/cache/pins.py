"""Pins: keys of cache entries that must not be evicted until the current decision has been made."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Final


class Pins:
    """Keys of cached counts that must not be evicted. While ``noting`` is true, each look-up pins its key."""

    __slots__ = ("keys", "noting")

    def __init__(self) -> None:
        self.keys: set[Hashable] = set()
        self.noting = False

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Pin the key of each look-up inside the block. The block must not await."""
        self.noting = True
        try:
            yield
        finally:
            self.noting = False

    def release(self) -> None:
        """Unpin all keys. Their entries stay cached until the cache needs the bytes for others."""
        self.keys.clear()


PINS: Final = Pins()
"""Pins of this process. At most one decision at a time has pinned keys."""
