"""Page size and request rate of a reflector. Both adapt to the answers of the API server.

Not here: the requests themselves (``app.feeds.reflector``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Final

MOST_OBJECTS: Final = 1_000_000
"""Maximum number of objects of one kind. A larger list is aborted. Kubernetes supports 150,000 pods."""

MOST_FRUITLESS_PAGES: Final = 10
"""Maximum number of consecutive pages without a new object. After more, the list is aborted: it might never end."""

MOST_PAGE_BYTES: Final = 64 << 20
"""Maximum bytes of a page with a single object, like the maximum of a watch event. The largest objects have 9 MB."""

_FIRST_LIMIT: Final = 50
"""Number of objects on the first page of a list, when their size is unknown."""

_MOST_LIMIT: Final = 2000
"""Maximum number of objects on a page."""

_GROWTH: Final = 8
"""Maximum growth of the limit per page, because the next objects can be larger. ``shrink`` divides by it."""

_A_SECOND: Final = 5
"""Maximum number of throttled requests in a second."""

_FREE: Final = 8
"""Number of consecutive fruitless requests (see ``RequestThrottle``) before the back-off begins.

Homeport's start needs two requests: a list and a watch. More are allowed, because the API server might be restarting.
"""

_FIRST_DELAY: Final = 0.4
_LONGEST_DELAY: Final = 60.0
"""Maximum back-off in seconds. The first back-off has ``_FIRST_DELAY`` seconds, and each further one is doubled."""


class PageSize:
    """Maximum size of the next page of a list: ``limit`` objects and ``most_bytes`` bytes."""

    def __init__(self, wanted_bytes: int) -> None:
        """``wanted_bytes``: target size of a page. See ``most_bytes`` for the maximum."""
        self.limit = _FIRST_LIMIT
        self._wanted = wanted_bytes

    @property
    def most_bytes(self) -> int:
        """Maximum bytes of the next page. A page with more bytes is aborted."""
        return MOST_PAGE_BYTES if self.limit == 1 else 2 * self._wanted

    def adapt(self, objects: int, size: int) -> None:
        """Set the limit for the next page so that it has about the target size.

        The last page had ``objects`` objects in ``size`` bytes.
        """
        if objects:
            fitting = self._wanted * objects // max(size, 1)
            self.limit = max(1, min(fitting, _GROWTH * self.limit, _MOST_LIMIT))

    def shrink(self) -> bool:
        """Reduce the limit, because a page was larger than ``most_bytes``. Return false if the limit already is 1."""
        if self.limit == 1:
            return False
        self.limit = max(1, self.limit // _GROWTH)
        return True


class RequestThrottle:
    """Computes the delay before each throttled request.

    Three kinds of requests are throttled: the first page of a list, the opening of a watch, and each page that follows
    a page without a new object. At most ``_A_SECOND`` such requests are sent per second.

    A request is *fruitless* if it leads neither to a new version of an object nor to a watch that stays open. After
    ``_FREE`` consecutive fruitless requests, a back-off begins and grows to one request a minute. A new version or a
    watch that stays open ends the back-off. Only answered requests are counted, because retries during an outage have
    another back-off.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sent: deque[float] = deque(maxlen=_A_SECOND)
        self._fruitless = 0

    def delay(self) -> float:
        """Return the seconds until the next throttled request can be sent; 0 or less if it can be sent now."""
        if not self._sent:
            return 0.0
        oldest = self._sent[0] if len(self._sent) == _A_SECOND else -inf
        excess = min(self._fruitless - _FREE, 16)
        pause = min(_FIRST_DELAY * 2.0**excess, _LONGEST_DELAY) if excess >= 0 else 0.0
        return max(oldest + 1.0, self._sent[-1] + pause) - self._clock()

    def sent(self, at: float) -> None:
        """Count a throttled request that was sent at the time ``at`` and was answered.

        The request counts as fruitless until ``fruitful`` is called.
        """
        self._sent.append(at)
        self._fruitless += 1

    def fruitful(self) -> None:
        """End the back-off: the API server sent a new version or kept a watch open, or Homeport needs a list now."""
        self._fruitless = 0

    def give_up(self) -> None:
        """Begin the longest back-off at once, because a list was aborted."""
        self.sent(self._clock())
        self._fruitless = max(self._fruitless, _FREE + 16)
