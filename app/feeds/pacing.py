"""How much a reflector requests at a time, and how often: both follow from what the API server sends.

Not here: what is requested (``app.feeds.reflector``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Final

MOST_OBJECTS: Final = 1_000_000
"""Maximum number of objects of one kind. A list that exceeds it is given up: Kubernetes supports 150,000 pods."""

MOST_FRUITLESS_PAGES: Final = 10
"""Maximum number of pages in a row without a new object. A list that exceeds it is given up."""

MOST_PAGE_BYTES: Final = 64 << 20
"""Maximum size of a page of one object, as of a line of a watch. The largest object is some 9 MB of JSON."""

_FIRST_LIMIT: Final = 50
"""Objects on the first page of a list, before their size is known."""

_MOST_LIMIT: Final = 2000
_GROWTH: Final = 8
"""Maximum factor from one page's limit to the next, because the next objects can be larger."""

_A_SECOND: Final = 5
"""Maximum number of paced requests in a second."""

_FREE: Final = 8
"""Fruitless requests that only the rate limits. A start takes two, a list and a watch; an API server can restart."""

_FIRST_DELAY: Final = 0.4
_LONGEST_DELAY: Final = 60.0


class PageSize:
    """Size of the next page of a list, in objects (``limit``) and in bytes (``most_bytes``)."""

    def __init__(self, wanted_bytes: int) -> None:
        """``wanted_bytes``: size that a page should have. A page of twice that size is broken off and shrunk."""
        self.limit = _FIRST_LIMIT
        self._wanted = wanted_bytes

    @property
    def most_bytes(self) -> int:
        return MOST_PAGE_BYTES if self.limit == 1 else 2 * self._wanted

    def adapt(self, objects: int, size: int) -> None:
        """Follow a page of ``objects`` objects in ``size`` bytes."""
        if objects:
            fitting = self._wanted * objects // max(size, 1)
            self.limit = max(1, min(fitting, _GROWTH * self.limit, _MOST_LIMIT))

    def shrink(self) -> bool:
        """Follow a page that was broken off. Return ``False`` if it cannot become smaller."""
        if self.limit == 1:
            return False
        self.limit = max(1, self.limit // _GROWTH)
        return True


class RequestThrottle:
    """Delay before each paced request: a list that begins, a watch that is opened, a page without a new object.

    At most ``_A_SECOND`` leave in a second. Fruitless ones are delayed further, up to one a minute; a new version of
    an object, or a watch that lasted, ends that. Only answered requests count, so an outage is not delayed.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sent: deque[float] = deque(maxlen=_A_SECOND)
        self._fruitless = 0

    def delay(self) -> float:
        """Return the seconds until the next paced request may leave."""
        if not self._sent:
            return 0.0
        oldest = self._sent[0] if len(self._sent) == _A_SECOND else -inf
        excess = min(self._fruitless - _FREE, 16)
        pause = min(_FIRST_DELAY * 2.0**excess, _LONGEST_DELAY) if excess >= 0 else 0.0
        return max(oldest + 1.0, self._sent[-1] + pause) - self._clock()

    def sent(self, at: float) -> None:
        """Count a paced request that left at ``at`` and was answered. It is fruitless until ``fruitful``."""
        self._sent.append(at)
        self._fruitless += 1

    def fruitful(self) -> None:
        """End the back-off: the API server sent something new, or kept a watch open."""
        self._fruitless = 0

    def give_up(self) -> None:
        """Begin the longest delay."""
        self.sent(self._clock())
        self._fruitless = max(self._fruitless, _FREE + 16)
