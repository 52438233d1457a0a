"""Writes Events (``events.k8s.io/v1``): few, in the background, one at a time.

    recorded   on the leader only; a repeated Event increases the count of its series  (no request)
    budget     limits new series per object: a burst of 10, then one a minute; further ones are dropped
    queue      1,000 entries, 20 written a second; namespaces take turns, and a full queue drops from the namespace
               with the most entries
    series     the second Event of a series is written (PATCH); later ones increase the count in memory, which is
               written every 30 min and once the series has been idle for 6 min

Dropped Events are counted. Without an answer, a write is retried after a delay. If the API server refuses a write, it
is not retried.

Not here: which Events are recorded. Plugins, ``app.verbs`` and ``app.main`` record them through ``EventRecorder``.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from time import time_ns
from typing import Any, Final

import structlog

from app.framework.events import EventType, Reference
from app.kube.api_errors import ApiError, ApiUnavailable, UnknownOutcome
from app.kube.api_requests import Resource
from app.kube.client import KubeClient
from app.kube.memo import Newest
from app.kube.meta_v1 import micro_time
from app.telemetry.background import Background
from app.writes.event_queue import AT_ONCE, EventBudget, Kind, Queue, Series

EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event", namespaced=True)
CONTROLLER: Final = "homeport.dev/homeport"

WRITE_INTERVAL_SECONDS: Final = 0.05
"""Seconds between two writes."""

IDLE_SECONDS: Final = 360.0
"""Seconds without a repetition after which a series ends."""

WRITE_AGAIN_SECONDS: Final = 1800.0
"""Seconds between two writes of the count of a series that continues."""

LOOK_SECONDS: Final = 60.0
"""Seconds between two checks for series that have ended or whose count must be written."""

FORBIDDEN_SECONDS: Final = 60.0
"""Seconds during which Events are dropped instead of sent, after a write was refused for a missing permission."""

FLUSH_SECONDS: Final = 0.5
"""Time limit in seconds for writing queued Events at shutdown."""

_REQUEST_SECONDS: Final = 5.0
_TRIES: Final = 12
"""Number of failed attempts in a row, each without an answer, after which an Event is dropped."""

_LONGEST_PAUSE_SECONDS: Final = 10.0
"""Maximum delay in seconds between two attempts to write an Event. The first delay is one second, and it doubles."""

_MOST_SERIES: Final = 4096
_MOST_OBJECTS: Final = 4096
_LONGEST_NOTE: Final = 1024
"""Maximum length of a note in bytes. The API server refuses Events with a longer note."""

_LONGEST_WORD: Final = 128
"""Maximum length of reason, action and instance in characters. The API server refuses Events with longer ones."""

_LONGEST_FIELD: Final = {"api_version": 253 + 1 + 63, "kind": 63, "namespace": 63, "name": 253, "uid": 128}
"""Maximum lengths of the fields of a reference, in characters; valid objects are never longer."""

_LONGEST_NAME: Final = 235
"""Maximum length of the object's name in an Event's name, where a dot and the hexadecimal time follow."""

_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_ENDING: Final = "because it is being terminated"
"""Text in the API server's 403 message if the namespace is terminating; then no permission is missing."""

_LOG: Final = structlog.get_logger(__name__)

Count = Callable[[str], None]


class ApiRecorder:
    """Implementation of ``EventRecorder``. ``instance`` is the name of this process.

    ``count`` is called with the outcome of each written or dropped Event, for example ``written`` or ``over_budget``.
    ``leads`` returns true if this process is the leader. Followers record no Events, because the leader records them.
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
        self._series = Newest[Kind, Series](_MOST_SERIES)
        self._budgets = Newest[Reference, EventBudget](_MOST_OBJECTS)
        self._queue = Queue()
        self._filled = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._barred_until = 0.0
        self._forbidden_logged = False
        self._background = Background()

    # recording

    def event(
        self, regarding: Reference, related: Reference | None, kind: EventType, reason: str, action: str, note: str
    ) -> None:
        if not self.leads():
            return
        now = self._clock()
        regarding, related = _bounded(regarding), _bounded(related) if related is not None else None
        identity = (kind, action[:_LONGEST_WORD], reason[:_LONGEST_WORD], regarding, related)
        series = self._series.get(identity)
        if series is not None and now - series.changed_at < IDLE_SECONDS:
            self._again(series, now)
            return
        if series is not None:
            self._end(series)
        if not self._budget(regarding, now).take(now):
            self._count("over_budget")
        elif self._makes_room(_namespace_of(regarding)):
            self._first(identity, note, now)

    def _first(self, identity: Kind, note: str, now: float) -> None:
        name = f"{identity[3].name[:_LONGEST_NAME]}.{time_ns():x}"
        series = Series(identity, name, self._body(identity, name, note), now)
        self._series.put(identity, series)
        self._enqueue(series)

    def _again(self, series: Series, now: float) -> None:
        series.count += 1
        series.observed = micro_time(self._wall())
        series.changed_at = now
        self._series.move_to_end(series.kind)
        if series.count == 2:
            self._enqueue(series)

    def _enqueue(self, series: Series) -> None:
        """Queue a series, unless it is queued already or there is no room for it.

        The count that is written is the count at the time of the write.
        """
        if series.queued or not self._makes_room(series.namespace):
            return
        self._queue.add(series)
        self._idle.clear()
        self._filled.set()

    def _makes_room(self, namespace: str) -> bool:
        """Make room in the queue for one series; false if there is none. Count a series left out or dropped."""
        has_room, dropped = self._queue.make_room(namespace)
        if not has_room or dropped is not None:
            self._count("overflow")
        if dropped is not None and not dropped.written and self._series.get(dropped.kind) is dropped:
            del self._series[dropped.kind]  # the Event does not exist, so the next occurrence begins a new series
        return has_room

    def _budget(self, regarding: Reference, now: float) -> EventBudget:
        budget = self._budgets.get(regarding) or EventBudget(float(AT_ONCE), now)
        self._budgets.put(regarding, budget)
        return budget

    def _body(self, identity: Kind, name: str, note: str) -> dict[str, Any]:
        kind, action, reason, regarding, related = identity
        body = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": _namespace_of(regarding)},
            "eventTime": micro_time(self._wall()),
            "type": kind,
            "action": action,
            "reason": reason,
            "note": note.encode(errors="replace")[:_LONGEST_NOTE].decode(errors="ignore"),
            "regarding": _object_reference(regarding),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
        }
        return body if related is None else {**body, "related": _object_reference(related)}

    def start(self) -> None:
        """Start the background tasks that write Events. Must be called on the event loop."""
        self._background.begin("events", self._write_forever)
        self._background.begin("series of events", self._look_forever)

    def stalled(self) -> str:
        """Return a message about a background task that keeps failing (``Background.problem``); empty if none does."""
        return self._background.problem()

    async def stop(self) -> None:
        """Write queued Events and changed counts for at most ``FLUSH_SECONDS``, then stop the background tasks."""
        self._queue_unwritten(self._series.values())
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), FLUSH_SECONDS)
        await self._background.stop()

    async def _write_forever(self) -> None:
        while True:
            series = await self._next()
            try:
                await self._write(series)
            except Exception as fault:  # noqa: BLE001  # a fault with one Event must not stop the task
                self._lost("failed", series)
                _LOG.error("event not written", traceback="".join(traceback.format_exception(fault)))
            await asyncio.sleep(WRITE_INTERVAL_SECONDS)

    async def _next(self) -> Series:
        """Wait until a series may be written; remove it from the queue and return it."""
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
        for series in [it for it in self._series.values() if now - it.changed_at >= IDLE_SECONDS]:
            self._end(series)
        self._queue_unwritten(it for it in self._series.values() if now - it.written_at >= WRITE_AGAIN_SECONDS)

    def _end(self, series: Series) -> None:
        """End the series, so that the next such Event begins a new one. If its last count is not written, queue it."""
        self._queue_unwritten((series,))
        if self._series.get(series.kind) is series:
            del self._series[series.kind]

    def _queue_unwritten(self, all_series: Iterable[Series]) -> None:
        for series in all_series:
            if series.written and series.count > series.written:
                self._enqueue(series)

    async def _write(self, series: Series) -> None:
        """Try to write a series. Without an answer, queue it again; if it is refused or writes are barred, drop it."""
        if self._clock() < self._barred_until:
            return self._lost("refused", series)
        try:
            await self._attempt(series)
        except ApiError as refused:
            self._log_refused(refused)
            self._lost("refused", series)
        except (ApiUnavailable, UnknownOutcome) as cause:
            self._put_off(series, str(cause))

    def _put_off(self, series: Series, cause: str) -> None:
        """Queue a series again with a delay after a write without an answer; drop it after the last attempt.

        Other series are written meanwhile, because the failure might affect only this namespace.
        """
        series.tries += 1
        if series.tries >= _TRIES:
            self._lost("failed", series)
            return
        _LOG.debug("event not written, tried again", reason=series.kind[2], cause=cause)
        series.not_before = self._clock() + min(2.0 ** (series.tries - 1), _LONGEST_PAUSE_SECONDS)
        if not series.queued:
            self._queue.add_later(series)

    def _lost(self, what: str, series: Series) -> None:
        """Count a dropped series and forget it, so that the next such Event begins a new series."""
        self._count(what)
        series.tries, series.not_before = 0, 0.0
        if self._series.get(series.kind) is series:
            del self._series[series.kind]

    async def _attempt(self, series: Series) -> None:
        """Send the request that creates or patches the Event. Raises ``KubeError`` if it fails."""
        counted = series.count
        if series.written:
            try:
                path = (EVENTS, series.namespace, series.name)
                await self._client.patch(*path, series.patch_body(), timeout=_REQUEST_SECONDS)
            except ApiError as refused:
                if refused.status != _NOT_FOUND:
                    raise
                await self._create(series)  # the Event is gone: by default, the API server deletes it after an hour
        else:
            await self._create(series)
        self._note("repeated" if series.written else "written", series, counted)

    async def _create(self, series: Series) -> None:
        body = series.body if series.count < 2 else {**series.body, **series.patch_body()}
        try:
            await self._client.post(EVENTS.path(series.namespace), body, timeout=_REQUEST_SECONDS)
        except ApiError as refused:
            if refused.status != _CONFLICT:  # a conflict means that an earlier attempt without an answer succeeded
                raise

    def _note(self, what: str, series: Series, counted: int) -> None:
        series.written, series.written_at = counted, self._clock()
        series.tries, series.not_before = 0, 0.0
        self._forbidden_logged = False
        self._count(what)

    def _log_refused(self, refused: ApiError) -> None:
        if refused.status == _FORBIDDEN and _ENDING not in refused.message:
            self._barred_until = self._clock() + FORBIDDEN_SECONDS
            if not self._forbidden_logged:
                self._forbidden_logged = True
                _LOG.warning(
                    "events are not written: creating them is forbidden, see homeport rbac", cause=str(refused)
                )
        else:
            _LOG.debug("event refused", cause=str(refused))


def _namespace_of(regarding: Reference) -> str:
    """Return the namespace for an object's Events: its own, or "default" if it has none."""
    return regarding.namespace or "default"


def _bounded(reference: Reference) -> Reference:
    if all(len(getattr(reference, field)) <= most for field, most in _LONGEST_FIELD.items()):
        return reference
    return Reference(**{field: getattr(reference, field)[:most] for field, most in _LONGEST_FIELD.items()})


def _object_reference(reference: Reference) -> dict[str, str]:
    named = {"namespace": reference.namespace, "name": reference.name, "uid": reference.uid}
    return {"apiVersion": reference.api_version, "kind": reference.kind} | {key: it for key, it in named.items() if it}
