"""Event series, the budget of new series for each object, and the queue of series that wait to be written."""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict, deque
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import Any, Final

from msgspec import Struct

from app.framework.events import Reference

MOST_QUEUED: Final = 1000
"""Maximum number of series in the queue, for all namespaces together."""

AT_ONCE: Final = 10
"""Number of Event series that one object can begin in a burst."""

REFILL_SECONDS: Final = 60.0
"""Seconds after which an object can begin another Event series after a burst."""

Kind = tuple[str, str, str, Reference, Reference | None]
"""Identity of a series: type, action, reason, regarding and related of its Events."""


class Series:
    """One Event series: the Event's body and the number of its occurrences (``count``).

    ``written`` is the count that the API server has, 0 before the first write. ``observed`` is the time of the last
    occurrence. ``tries`` is the number of unanswered writes since the last answered one. The series must not be
    written before the time ``not_before``.
    """

    def __init__(self, kind: Kind, name: str, body: dict[str, Any], now: float) -> None:
        self.kind = kind
        self.name = name
        self.body = body
        self.count = 1
        self.written = 0
        self.observed = str(body["eventTime"])
        self.changed_at = now
        self.written_at = now
        self.queued = False
        self.tries = 0
        self.not_before = 0.0

    @property
    def namespace(self) -> str:
        return str(self.body["metadata"]["namespace"])

    def patch_body(self) -> dict[str, Any]:
        """Return the merge patch that stores count and time of the last occurrence in the Event."""
        return {"series": {"count": self.count, "lastObservedTime": self.observed}}


class EventBudget(Struct):
    """Token bucket that limits the new Event series of one object. It had ``left`` tokens at the time ``since``."""

    left: float
    since: float

    def take(self, now: float) -> bool:
        """Refill the bucket, then remove one token. Return false if it has none."""
        self.left = min(float(AT_ONCE), self.left + (now - self.since) / REFILL_SECONDS)
        self.since = now
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True


class Queue:
    """Queue of at most ``MOST_QUEUED`` series that wait to be written. Namespaces take turns.

    One namespace can fill the queue alone. If the queue is full, the newest series of the namespace with the most
    entries is dropped for a series of a namespace that has at least two entries fewer.
    """

    def __init__(self) -> None:
        self._ready: OrderedDict[str, deque[Series]] = OrderedDict()
        self._later: list[tuple[float, int, Series]] = []
        self._numbers = itertools.count()
        self._sizes: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._sizes.total()

    def make_room(self, namespace: str) -> tuple[bool, Series | None]:
        """Make room for one more series of ``namespace``.

        Return (true, dropped series) if there is room; the second item is ``None`` if no series was dropped. Return
        (false, ``None``) if with one more series no namespace would have more entries than this one.
        """
        if len(self) < MOST_QUEUED:
            return True, None
        largest, size = max(self._sizes.items(), key=itemgetter(1))
        if self._sizes[namespace] + 1 >= size:
            return False, None
        return True, self._drop(largest)

    def _drop(self, namespace: str) -> Series:
        """Remove and return the newest ready series of a namespace; if none is ready, the last to become so."""
        ready = self._ready.get(namespace)
        if ready:
            series = ready.pop()
            if not ready:
                del self._ready[namespace]
        else:
            entry = max(it for it in self._later if it[-1].namespace == namespace)
            series = entry[-1]
            self._later.remove(entry)
            heapify(self._later)
        return self._out(series)

    def add(self, series: Series) -> None:
        """Add a series that may be written at once."""
        self._in(series)
        self._ready.setdefault(series.namespace, deque()).append(series)

    def add_later(self, series: Series) -> None:
        """Add a series that must not be written before the time in its field ``not_before``."""
        self._in(series)
        heappush(self._later, (series.not_before, next(self._numbers), series))

    def take(self, now: float) -> Series | None:
        """Remove and return the oldest series of the next namespace; ``None`` if no series may be written yet."""
        while self._later and self._later[0][0] <= now:
            series = heappop(self._later)[-1]
            self._ready.setdefault(series.namespace, deque()).append(series)
        while self._ready:
            namespace, ready = self._ready.popitem(last=False)
            series = ready.popleft()
            if ready:
                self._ready[namespace] = ready
            if series.not_before <= now:
                return self._out(series)
            heappush(self._later, (series.not_before, next(self._numbers), series))
        return None

    def next_at(self) -> float | None:
        """Return the earliest time at which a delayed series may be written; ``None`` if no series is delayed."""
        return self._later[0][0] if self._later else None

    def _in(self, series: Series) -> None:
        series.queued = True
        self._sizes[series.namespace] += 1

    def _out(self, series: Series) -> Series:
        series.queued = False
        self._sizes[series.namespace] -= 1
        if not self._sizes[series.namespace]:
            del self._sizes[series.namespace]
        return series
