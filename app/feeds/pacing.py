"""Page size and request rate of a reflector, adapted to what the API server sends.

Not here: what is requested (``app.feeds.reflector``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Final

MOST_OBJECTS: Final = 1_000_000
"""Maximum number of objects of one kind. A longer list is aborted. Kubernetes supports 150,000 pods."""

MOST_FRUITLESS_PAGES: Final = 10
"""Maximum number of consecutive pages without a new object. A list with more is aborted."""

MOST_PAGE_BYTES: Final = 64 << 20
"""Maximum size of a page with one object, equal to that of a watch event. The largest objects have 9 MB of JSON."""

_FIRST_LIMIT: Final = 50
"""Number of objects on the first page of a list, when their size is unknown."""

_MOST_LIMIT: Final = 2000
"""Maximum number of objects on a page."""

_GROWTH: Final = 8
"""Maximum factor from one page's limit to the next, because the next objects can be larger."""

_A_SECOND: Final = 5
"""Maximum number of throttled requests in a second."""

_FREE: Final = 8
"""Number of fruitless requests without back-off. A start needs two, a list and a watch; an API server can restart."""

_FIRST_DELAY: Final = 0.4
_LONGEST_DELAY: Final = 60.0
"""Seconds of the first and of the longest back-off; each is twice the one before."""


class PageSize:
    """Size of the next page of a list, in objects (``limit``) and in bytes (``most_bytes``)."""

    def __init__(self, wanted_bytes: int) -> None:
        """``wanted_bytes``: target size of a page. A larger page is accepted up to twice that size, else shrunk."""
        self.limit = _FIRST_LIMIT
        self._wanted = wanted_bytes

    @property
    def most_bytes(self) -> int:
        return MOST_PAGE_BYTES if self.limit == 1 else 2 * self._wanted

    def adapt(self, objects: int, size: int) -> None:
        """Adapt the limit to a page that had ``objects`` objects in ``size`` bytes."""
        if objects:
            fitting = self._wanted * objects // max(size, 1)
            self.limit = max(1, min(fitting, _GROWTH * self.limit, _MOST_LIMIT))

    def shrink(self) -> bool:
        """Reduce the limit after a page that was too large. Return false if the limit is 1 already."""
        if self.limit == 1:
            return False
        self.limit = max(1, self.limit // _GROWTH)
        return True


class RequestThrottle:
    """Delay before each throttled request: the start of a list, a watch, or the page after one without a new object.

    At most ``_A_SECOND`` requests leave in a second. Fruitless requests back off further, up to one a minute. A new
    version of an object, or a watch that lasted, ends the back-off. Only answered requests count, because retries
    during an outage have a back-off of their own.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sent: deque[float] = deque(maxlen=_A_SECOND)
        self._fruitless = 0

    def delay(self) -> float:
        """Return the seconds until the next throttled request can leave; negative if it is late."""
        if not self._sent:
            return 0.0
        oldest = self._sent[0] if len(self._sent) == _A_SECOND else -inf
        excess = min(self._fruitless - _FREE, 16)
        pause = min(_FIRST_DELAY * 2.0**excess, _LONGEST_DELAY) if excess >= 0 else 0.0
        return max(oldest + 1.0, self._sent[-1] + pause) - self._clock()

    def sent(self, at: float) -> None:
        """Count a throttled request that left at ``at`` and was answered. It is fruitless until ``fruitful``."""
        self._sent.append(at)
        self._fruitless += 1

    def fruitful(self) -> None:
        """End the back-off, because the API server sent a new version or kept a watch open."""
        self._fruitless = 0

    def give_up(self) -> None:
        """Begin the longest back-off, because a list was aborted."""
        self.sent(self._clock())
        self._fruitless = max(self._fruitless, _FREE + 16)
