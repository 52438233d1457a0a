"""Events that wait to be written: a series for each, a budget for each object, and a queue that namespaces share."""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict, deque
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import Any, Final

from msgspec import Struct

from app.framework.events import Reference

MOST_QUEUED: Final = 1000
"""Maximum number of queued series, over all namespaces."""

AT_ONCE: Final = 10
"""Burst of Events of one object that are written at any rate."""

REFILL_SECONDS: Final = 60.0
"""Seconds after which an object may cause one more Event."""

Kind = tuple[str, str, str, Reference, Reference | None]
"""Type, action, reason, regarding, related: identity of a series."""


class Series:
    """One Event series: the Event and the number of its repetitions.

    ``written``: the count stored in the API server; 0 before the first write · ``observed``: time of the last
    repetition · ``tries``: failed attempts since the last success · ``not_before``: time of the next attempt.
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
        """Return the fields to patch into an existing Event."""
        return {"series": {"count": self.count, "lastObservedTime": self.observed}}


class EventBudget(Struct):
    """Token bucket of one object: ``left`` tokens at time ``since``."""

    left: float
    since: float

    def take(self, now: float) -> bool:
        """Use one token; return false without one."""
        self.left = min(float(AT_ONCE), self.left + (now - self.since) / REFILL_SECONDS)
        self.since = now
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True


class Queue:
    """Queue of series to be written, at most ``MOST_QUEUED``. Namespaces take turns and share the capacity.

    One namespace can fill the queue alone. If another one needs room, the namespace with the most entries loses one.
    """

    def __init__(self) -> None:
        self._ready: OrderedDict[str, deque[Series]] = OrderedDict()
        self._later: list[tuple[float, int, Series]] = []
        self._turns = itertools.count()
        self._sizes: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._sizes.total()

    def make_room(self, namespace: str) -> tuple[bool, Series | None]:
        """Return true if one more series of ``namespace`` fits, and the series dropped for it, if any."""
        if len(self) < MOST_QUEUED:
            return True, None
        largest, size = max(self._sizes.items(), key=itemgetter(1))
        if self._sizes[namespace] + 1 >= size:
            return False, None
        return True, self._drop(largest)

    def _drop(self, namespace: str) -> Series:
        """Remove the newest series of a namespace."""
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
        self._in(series)
        self._ready.setdefault(series.namespace, deque()).append(series)

    def add_later(self, series: Series) -> None:
        """Add a series that must not be written before its ``not_before``."""
        self._in(series)
        heappush(self._later, (series.not_before, next(self._turns), series))

    def take(self, now: float) -> Series | None:
        """Remove and return the oldest series of the namespace whose turn it is; ``None`` if none is ready."""
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
            heappush(self._later, (series.not_before, next(self._turns), series))
        return None

    def next_at(self) -> float | None:
        """Return the earliest time at which a delayed series may be written; ``None`` without one."""
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
