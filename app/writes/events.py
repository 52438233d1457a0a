"""Writes Events (``events.k8s.io/v1``): few, in the background, and never at the cost of anything else.

    raised     by the leader alone; what was raised before counts up its series  (no request)
    budget     of each object: 10 at once, then one in a minute; what is beyond is dropped
    queue      1,000, of which 20 a second are written; namespaces take turns, and a full queue drops from the namespace
               that has most in it
    series     the second of a kind changes the Event (PATCH), later ones only its count in memory, which is written
               every 30 min and when none has come for 6 min

All that is dropped is counted. A write that is not answered is tried again later, behind what waits by then; one that
is refused is not.

Not here: what is worth an Event. Plugins, ``app.verbs`` and ``app.main`` raise them through ``EventRecorder``.
"""

from __future__ import annotations

import asyncio
import itertools
import traceback
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from heapq import heapify, heappop, heappush
from operator import itemgetter
from time import time_ns
from typing import Any, Final

import structlog
from msgspec import Struct

from app.framework.events import EventType, Reference
from app.kube.api_errors import ApiError, ApiUnavailable, UnknownOutcome
from app.kube.api_requests import Resource
from app.kube.client import KubeClient
from app.kube.memo import Newest
from app.telemetry.background import Background

EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event", namespaced=True)
CONTROLLER: Final = "homeport.dev/homeport"

MOST_QUEUED: Final = 1000
AT_ONCE: Final = 10
"""Events of one object that are written however fast they come."""

REFILL_SECONDS: Final = 60.0
PACE_SECONDS: Final = 0.05
"""Between two writes."""

IDLE_SECONDS: Final = 360.0
WRITE_AGAIN_SECONDS: Final = 1800.0
LOOK_SECONDS: Final = 60.0
"""Between looks at all series."""

FORBIDDEN_SECONDS: Final = 60.0
"""How long nothing is tried after a refusal for want of a right."""

FLUSH_SECONDS: Final = 0.5
"""At the end, for what is queued."""

_REQUEST_SECONDS: Final = 5.0
_TRIES: Final = 12
_LONGEST_PAUSE_SECONDS: Final = 10.0
_MOST_SERIES: Final = 4096
_MOST_OBJECTS: Final = 4096
_LONGEST_NOTE: Final = 1024
_LONGEST_WORD: Final = 128
_LONGEST_FIELD: Final = {"api_version": 253 + 1 + 63, "kind": 63, "namespace": 63, "name": 253, "uid": 128}
"""Of a reference, in characters: beyond that it names nothing that an API server has."""

_LONGEST_NAME: Final = 235
"""Of the object, in the name of its Event: a dot and the time come after it."""

_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_ENDING: Final = "because it is being terminated"
"""Of a namespace that takes nothing new any more: no right is missing."""

_LOG: Final = structlog.get_logger(__name__)

Count = Callable[[str], None]
_Kind = tuple[str, str, str, Reference, Reference | None]
"""Type, action, reason, regarding, related: what makes two Events the same."""


class _Series:
    """One Event. ``written``: the count that the API server has; 0 before it has any.

    ``tries``: how often nobody answered since · ``not_before``: when to try again.
    """

    __slots__ = (
        "body",
        "changed_at",
        "count",
        "kind",
        "name",
        "not_before",
        "observed",
        "queued",
        "tries",
        "written",
        "written_at",
    )

    def __init__(self, kind: _Kind, name: str, body: dict[str, Any], now: float) -> None:
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

    def as_found(self) -> dict[str, Any]:
        """What is to be written on an Event that is there."""
        return {"series": {"count": self.count, "lastObservedTime": self.observed}}


class _Budget(Struct):
    """Of one object: ``left`` as of ``since``."""

    left: float
    since: float

    def take(self, now: float) -> bool:
        self.left = min(float(AT_ONCE), self.left + (now - self.since) / REFILL_SECONDS)
        self.since = now
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True


class _Queue:
    """Series that wait to be written, at most ``MOST_QUEUED``. Namespaces take turns, and share the room.

    One namespace can fill the queue alone. When another one needs room, the namespace that has most gives it.
    """

    def __init__(self) -> None:
        self._ready: OrderedDict[str, deque[_Series]] = OrderedDict()
        self._later: list[tuple[float, int, _Series]] = []
        self._turns = itertools.count()
        self._sizes: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._sizes.total()

    def make_room(self, namespace: str) -> tuple[bool, _Series | None]:
        """Return whether there is room for one more of ``namespace``, and the series that was dropped for it."""
        if len(self) < MOST_QUEUED:
            return True, None
        largest, size = max(self._sizes.items(), key=itemgetter(1))
        if self._sizes[namespace] + 1 >= size:
            return False, None
        return True, self._drop(largest)

    def _drop(self, namespace: str) -> _Series:
        """Take the newest of a namespace out."""
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

    def add(self, series: _Series) -> None:
        self._in(series)
        self._ready.setdefault(series.namespace, deque()).append(series)

    def add_later(self, series: _Series) -> None:
        """Add a series that is not to be written before its time."""
        self._in(series)
        heappush(self._later, (series.not_before, next(self._turns), series))

    def take(self, now: float) -> _Series | None:
        """Take the oldest out of the namespace whose turn it is."""
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
        """Return when the first of those that wait for their time may be written."""
        return self._later[0][0] if self._later else None

    def _in(self, series: _Series) -> None:
        series.queued = True
        self._sizes[series.namespace] += 1

    def _out(self, series: _Series) -> _Series:
        series.queued = False
        self._sizes[series.namespace] -= 1
        if not self._sizes[series.namespace]:
            del self._sizes[series.namespace]
        return series


class ApiRecorder:
    """Implements ``EventRecorder``. ``instance``: which process tells; ``count`` is told what became of each.

    ``leads`` says whether this process is the one that tells: replicas see the same.
    """

    def __init__(
        self,
        client: KubeClient,
        instance: str,
        clock: Callable[[], float],
        count: Count,
        *,
        leads: Callable[[], bool] = lambda: True,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.leads = leads
        self._client = client
        self._instance = instance[:_LONGEST_WORD]
        self._clock = clock
        self._count = count
        self._wall = wall
        self._series = Newest[_Kind, _Series](_MOST_SERIES)
        self._budgets = Newest[Reference, _Budget](_MOST_OBJECTS)
        self._queue = _Queue()
        self._filled = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._barred_until = 0.0
        self._told = False
        self._background = Background()

    # told

    def event(
        self, regarding: Reference, related: Reference | None, kind: EventType, reason: str, action: str, note: str
    ) -> None:
        if not self.leads():
            return
        now = self._clock()
        regarding, related = _bounded(regarding), _bounded(related) if related is not None else None
        same = (kind, action[:_LONGEST_WORD], reason[:_LONGEST_WORD], regarding, related)
        series = self._series.get(same)
        if series is not None and now - series.changed_at < IDLE_SECONDS:
            self._again(series, now)
            return
        if series is not None:
            self._end(series)
        if not self._budget(regarding, now).take(now):
            self._count("over_budget")
        elif self._makes_room(_namespace_of(regarding)):
            self._first(same, note, now)

    def _first(self, same: _Kind, note: str, now: float) -> None:
        name = f"{same[3].name[:_LONGEST_NAME]}.{time_ns():x}"
        series = _Series(same, name, self._body(same, name, note), now)
        self._series.put(same, series)
        self._enqueue(series)

    def _again(self, series: _Series, now: float) -> None:
        series.count += 1
        series.observed = _micro(self._wall())
        series.changed_at = now
        self._series.move_to_end(series.kind)
        if series.count == 2:
            self._enqueue(series)

    def _enqueue(self, series: _Series) -> None:
        """Queue a series, unless it is queued already: it is written with what it has counted by then."""
        if series.queued or not self._makes_room(series.namespace):
            return
        self._queue.add(series)
        self._idle.clear()
        self._filled.set()

    def _makes_room(self, namespace: str) -> bool:
        """Return whether an Event of the namespace can be queued; count what is dropped."""
        has_room, dropped = self._queue.make_room(namespace)
        if not has_room or dropped is not None:
            self._count("overflow")
        if dropped is not None and not dropped.written and self._series.get(dropped.kind) is dropped:
            del self._series[dropped.kind]
        return has_room

    def _budget(self, regarding: Reference, now: float) -> _Budget:
        found = self._budgets.get(regarding) or _Budget(float(AT_ONCE), now)
        self._budgets.put(regarding, found)
        return found

    def _body(self, same: _Kind, name: str, note: str) -> dict[str, Any]:
        kind, action, reason, regarding, related = same
        body = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": _namespace_of(regarding)},
            "eventTime": _micro(self._wall()),
            "type": kind,
            "action": action,
            "reason": reason,
            "note": note.encode(errors="replace")[:_LONGEST_NOTE].decode(errors="ignore"),
            "regarding": _object_reference(regarding),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
        }
        return body if related is None else {**body, "related": _object_reference(related)}

    # written

    def start(self) -> None:
        """Begin to write. To be called on the event loop."""
        self._background.begin("events", self._write_forever)
        self._background.begin("series of events", self._look_forever)

    def stalled(self) -> str:
        """Return which of its tasks cannot be restarted; empty if all run."""
        return self._background.problem()

    async def stop(self) -> None:
        """Write what is queued and what was counted up, as far as half a second goes."""
        self._queue_unwritten(self._series.values())
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), FLUSH_SECONDS)
        await self._background.stop()

    async def _write_forever(self) -> None:
        while True:
            series = await self._next()
            try:
                await self._write(series)
            except Exception as fault:  # noqa: BLE001  # an Event that cannot be told must not silence all others
                self._lost("failed", series)
                _LOG.error("event not written", traceback="".join(traceback.format_exception(fault)))
            await asyncio.sleep(PACE_SECONDS)

    async def _next(self) -> _Series:
        """Return the next series whose time has come."""
        while True:
            now = self._clock()
            if (series := self._queue.take(now)) is not None:
                return series
            self._filled.clear()
            next_at = self._queue.next_at()
            if next_at is None:
                self._idle.set()
                await self._filled.wait()
                continue
            with suppress(TimeoutError):
                await asyncio.wait_for(self._filled.wait(), next_at - now)

    async def _look_forever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._look()

    def _look(self) -> None:
        now = self._clock()
        for it in [it for it in self._series.values() if now - it.changed_at >= IDLE_SECONDS]:
            self._end(it)
        self._queue_unwritten(it for it in self._series.values() if now - it.written_at >= WRITE_AGAIN_SECONDS)

    def _end(self, series: _Series) -> None:
        """The next of its kind is a new Event."""
        self._queue_unwritten((series,))
        if self._series.get(series.kind) is series:
            del self._series[series.kind]

    def _queue_unwritten(self, found: Iterable[_Series]) -> None:
        for it in found:
            if it.written and it.count > it.written:
                self._enqueue(it)

    async def _write(self, series: _Series) -> None:
        """Once; where nobody answers it is queued again, within reason."""
        if self._clock() < self._barred_until:
            return self._lost("refused", series)
        try:
            await self._attempt(series)
        except ApiError as refused:
            self._tell_refused(refused)
            self._lost("refused", series)
        except (ApiUnavailable, UnknownOutcome) as cause:
            self._put_off(series, str(cause))

    def _put_off(self, series: _Series, cause: str) -> None:
        """Behind all others: it may be its namespace alone that does not answer."""
        series.tries += 1
        if series.tries >= _TRIES:
            self._lost("failed", series)
            return
        _LOG.debug("event not written, tried again", reason=series.kind[2], cause=cause)
        series.not_before = self._clock() + min(2.0 ** (series.tries - 1), _LONGEST_PAUSE_SECONDS)
        if not series.queued:
            self._queue.add_later(series)

    def _lost(self, what: str, series: _Series) -> None:
        """The next of its kind is tried anew."""
        self._count(what)
        series.tries, series.not_before = 0, 0.0
        if self._series.get(series.kind) is series:
            del self._series[series.kind]

    async def _attempt(self, series: _Series) -> None:
        """Raises ``KubeError``."""
        counted = series.count
        if series.written:
            try:
                path = (EVENTS, series.namespace, series.name)
                await self._client.patch(*path, series.as_found(), timeout=_REQUEST_SECONDS)
            except ApiError as refused:
                if refused.status != _NOT_FOUND:
                    raise
                await self._create(series)  # it has had its hour
        else:
            await self._create(series)
        self._note("repeated" if series.written else "written", series, counted)

    async def _create(self, series: _Series) -> None:
        body = series.body if series.count < 2 else {**series.body, **series.as_found()}
        try:
            await self._client.post(EVENTS.path(series.namespace), body, timeout=_REQUEST_SECONDS)
        except ApiError as refused:
            if refused.status != _CONFLICT:  # else an attempt whose answer was lost has arrived
                raise

    def _note(self, what: str, series: _Series, counted: int) -> None:
        series.written, series.written_at = counted, self._clock()
        series.tries, series.not_before = 0, 0.0
        self._told = False
        self._count(what)

    def _tell_refused(self, refused: ApiError) -> None:
        if refused.status == _FORBIDDEN and _ENDING not in refused.message:
            self._barred_until = self._clock() + FORBIDDEN_SECONDS
            if not self._told:
                self._told = True
                _LOG.warning(
                    "events are not written: creating them is forbidden, see homeport rbac", cause=str(refused)
                )
        else:
            _LOG.debug("event refused", cause=str(refused))


def _namespace_of(regarding: Reference) -> str:
    """Return the namespace of an object's Events: "default" for an object without a namespace."""
    return regarding.namespace or "default"


def _bounded(found: Reference) -> Reference:
    if all(len(getattr(found, field)) <= most for field, most in _LONGEST_FIELD.items()):
        return found
    return Reference(**{field: getattr(found, field)[:most] for field, most in _LONGEST_FIELD.items()})


def _object_reference(found: Reference) -> dict[str, str]:
    named = {"namespace": found.namespace, "name": found.name, "uid": found.uid}
    return {"apiVersion": found.api_version, "kind": found.kind} | {key: it for key, it in named.items() if it}


def _micro(when: datetime) -> str:
    """A MicroTime."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
