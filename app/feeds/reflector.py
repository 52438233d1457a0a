"""Reflector: lists and watches one kind, and keeps its part of the snapshot equal to the API server's objects.

::

    starting ─▶ listing ─▶ watching ─── the watch ends or breaks ───▶ retrying ─▶ watching, from the last version seen
                   ▲                                                      │
                   └─── the API server refuses that version, or has none ──┘
    forbidden (403), not_served (no such kind): logged once, requested again every few seconds

After a broken connection or status 401, 403, 429 or 5xx, the watch resumes from its version. After any other status,
the kind is listed again. Before that list (except after 410), and after 403, the path of the kind is looked up again. A
second ERROR event at the same version, or an error ``_TOO_LARGE``, also leads to a list. So no wrong version is kept.

A list is applied in steps, between which other tasks run. All objects in the list are stored first. Then the objects
that are not in the list are deleted. So a list of up to ``MOST_OBJECTS`` objects removes none that still exists. An
object that cannot be decoded or stored is skipped, counted, and listed in ``unreadable`` until it is deleted or can be
decoded. All other objects are processed.

Not here: stores of the objects (``app.feeds.stores``), the effect of a missing kind (readiness), and how to detect that
a watch without events is disconnected (``app.feeds.freshness``).
"""

from __future__ import annotations

import asyncio
import random
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from math import inf
from typing import Final, Generic, Literal, NoReturn, TypeVar

import structlog
from msgspec import Raw

from app.feeds.collecting import bulk_load
from app.feeds.documents import EVENTS, IDENTIFIED, Event, ListMeta, key_in, read_page
from app.feeds.freshness import QUIET_SECONDS, SHORT_WATCH_SECONDS, Freshness, retry_after
from app.feeds.pacing import MOST_FRUITLESS_PAGES, MOST_OBJECTS, PageSize, RequestThrottle
from app.feeds.stores import Store
from app.framework.background import next_delay
from app.kube.api_errors import AnswerTooLong, ApiError, ApiSilent, ApiUnavailable, KubeError
from app.kube.api_requests import Resource
from app.kube.client import REQUEST_SECONDS, KubeClient
from app.kube.meta_v1 import ObjectKey, version_number

_LOG: Final = structlog.get_logger(__name__)

State = Literal["starting", "listing", "watching", "retrying", "forbidden", "not_served"]

FIRST_PAGE_BYTES: Final = 4 << 20
"""Target bytes of a page of the initial list: about 1,000 usual pods.

Larger pages save no time. Smaller pages cost time: each additional page takes 1.5 ms.
"""

PAGE_BYTES: Final = 1 << 20
"""Target bytes of a page of later lists, or with ``beside`` of all. Such a page blocks the event loop for 1.3 ms."""

STEP_SECONDS: Final = 0.003
"""Seconds of work after which the reflector lets other tasks run."""

LOOK_AGAIN_SECONDS: Final = 10.0
"""Maximum seconds before a forbidden or unserved kind is requested again.

The delay is also limited to ``quiet``, and is shortened at random by up to one half.
"""

_FIRST_WAIT: Final = 0.05
_LONGEST_WAIT: Final = 2.0
"""Maximum back-off in seconds between two attempts to list or watch. The first back-off has ``_FIRST_WAIT`` seconds."""

_STEADY_SECONDS: Final = 10.0
"""Minimum seconds for which a watch must be open to end the back-off without any event; less for a short watch."""

_WATCH_SECONDS: Final = 270.0
_WATCH_SPREAD: Final = 40.0
"""Maximum number of random seconds that are added to ``_WATCH_SECONDS``, the minimum duration of a long watch.

The random seconds spread the requests of many kinds.
"""

_GRACE_SECONDS: Final = 0.25
"""Tolerance in seconds: a watch can end this much later, or earlier, than requested."""

_PROBE_SECONDS: Final = 3.0
"""Timeout of a probe in seconds."""

_PATIENCE: Final = 5.0
_LONGEST_PATIENCE: Final = 60.0
"""A request is aborted after ``_PATIENCE`` seconds without a received byte. This limit is doubled after each request
that was aborted for this reason, up to ``_LONGEST_PATIENCE``.
"""

_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_GONE: Final = 410
_RESUMED: Final = frozenset((401, _FORBIDDEN, 429, *range(500, 600)))
"""Statuses after which a watch resumes from its version."""

_TOO_LARGE: Final = "Too large resource version"
"""Beginning of the API server's error message if it has not reached the requested version."""

T = TypeVar("T")


class KindNotServed(KubeError):
    """Raised if the API server does not serve the kind."""


class ListGivenUp(KubeError):
    """Raised if a list does not end, or has more or larger objects than Homeport accepts."""


class Reflector(Generic[T]):
    """Fills ``store`` with the objects of one kind. Its methods ``run`` and ``keep_fresh`` must run as tasks.

    Other code must not change the attributes:

    ``synced``: true once the initial list has been applied completely, or if the API server does not serve the kind.
    ``last_contact``: time of the last event, bookmark or list, or of the last probe with a version that was reached.
    After a gap, only a probe or a list counts, because the first events are old.
    ``fresh_as_of``: all changes before this time are in the snapshot. Like ``last_contact``, it is a time of ``clock``,
    and ``-inf`` until ``synced`` is true.
    ``cause``: explanation of ``state`` for users; empty if the state is normal.
    ``unreadable``: keys of the objects that exist but cannot be decoded or stored. The empty key stands for all objects
    without a readable name.
    ``events``, ``relists``, ``restarts`` (ended watches), ``undecodable``: counters that only increase.
    """

    def __init__(
        self,
        client: KubeClient,
        resource: Resource | tuple[str, str],
        *,
        decode: Callable[[bytes | Raw], T],
        key_of: Callable[[T], ObjectKey],
        store: Store[T],
        metadata_only: bool = False,
        field_selector: str = "",
        quiet: float = QUIET_SECONDS,
        on_synced: Callable[[], None] = lambda: None,
        on_failure: Callable[[KubeError], None] = lambda _: None,
        on_answer: Callable[[], None] = lambda: None,
        loading: Callable[[], AbstractContextManager[None]] = bulk_load,
        beside: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: Callable[[], float] = random.random,
    ) -> None:
        """``resource``: a resource, or ``(api_version, kind)``, which is looked up until the API server serves it.

        ``decode``: decodes one object; if it raises any exception, this object is skipped. ``key_of``: returns
        ``(namespace, name)``. ``on_synced``: called once, when ``synced`` becomes true. ``on_failure``: called with the
        error of a list, a watch or a probe. ``on_answer``: called when one of these is answered. ``beside``: true if
        decisions are made during the initial list, so that its pages must be small. ``quiet``: see ``Freshness``.
        """
        self.resource = resource if isinstance(resource, Resource) else None
        self._is_resolved = self.resource is not None
        self.state: State = "starting"
        self.cause = ""
        self.synced = False
        self.events = self.relists = self.restarts = self.undecodable = 0
        self._wanted = (resource.api_version, resource.kind) if isinstance(resource, Resource) else resource
        self._client = client
        self._decode = decode
        self._key_of = key_of
        self._store = store
        self._metadata_only = metadata_only
        self._field_selector = field_selector
        self._on_synced = on_synced
        self._on_failure = on_failure
        self._on_answer = on_answer
        self._loading = loading
        self._beside = beside
        self._clock = clock
        self._sleep = sleep
        self._rng = rng
        self._fresh = Freshness(self, quiet=quiet, clock=clock, sleep=sleep, on_failure=on_failure, on_answer=on_answer)
        self._pause = 0.0
        self._throttling = RequestThrottle(clock)
        self._watching: asyncio.Timeout | None = None
        self._opened = asyncio.Event()
        self._anew = self._reopening = False
        self._error_at = ""
        self._requested_at = inf
        self.is_short = self._broken_off = False
        self._patience = _PATIENCE
        self.unreadable: set[ObjectKey] = set()
        self._log = _LOG.bind(kind=f"{self._wanted[0]} {self._wanted[1]}")

    @property
    def follows(self) -> bool:
        """True if a watch is open and is not ``behind``, see ``Freshness``."""
        return self._watching is not None and not self._fresh.behind

    @property
    def last_contact(self) -> float:
        return self._fresh.last_contact

    @property
    def fresh_as_of(self) -> float:
        return self._fresh.fresh_as_of

    async def run(self) -> NoReturn:
        """List and watch until cancelled. After an error of the API server, try again."""
        while True:
            try:
                await self._follow()
                wait = 0.0 if self._reopening else self._back_off()
            except KindNotServed as error:
                wait = await self._clear_unserved(error)
            except KubeError as error:
                self._broken_off = True
                wait = self._handle_error(error)
            if wait:
                await self._sleep(wait)

    async def keep_fresh(self) -> NoReturn:
        """Probe whenever there was no contact for ``quiet`` seconds, until cancelled; see ``Freshness.keep``."""
        await self._fresh.keep()

    async def probe(self) -> bool:
        """Send a probe; return true if the snapshot is known to be up to date. See ``Freshness.probe``."""
        return await self._fresh.probe()

    async def opened(self) -> None:
        """Wait until a watch is open."""
        await self._opened.wait()

    async def newest_version(self) -> int | None:
        """Request the newest resource version; ``None`` if the kind must be listed first. Raises ``KubeError``."""
        if self.resource is None or not self._fresh.version:
            return None
        # A list without a resourceVersion is consistent: it is not older than this request.
        raw = await self._client.list_page(self.resource, limit=1, metadata_only=True, timeout=_PROBE_SECONDS)
        page = await read_page(raw)
        newest = version_number(page.metadata.resource_version or "")
        if newest < 0:
            raise ApiUnavailable("the resource versions cannot be compared")
        return newest

    def start_over(self) -> None:
        """List again, because versions went back, usually because etcd was restored from a backup.

        After a restore, a watch from the last version sends nothing until etcd reaches that version again.
        """
        self._log.error("versions went back, listing anew")
        self._store.newest_wins = False
        self._list_next()

    def reopen(self, *, broken_off: bool) -> None:
        """End the watch, and open it again from the last version. ``broken_off``: see ``Freshness.open_again``."""
        self._broken_off = broken_off
        self._reopening = True
        self._end_watch()

    def list_anew(self) -> None:
        """End the watch and any back-off for fruitless requests, and list at once."""
        self._throttling.fruitful()
        self._list_next()

    def start_anew(self) -> None:
        """Discard the resource path and the version, so that the kind is looked up and listed again."""
        self._is_resolved = False
        self._list_next()

    def _list_next(self) -> None:
        self._anew = True
        self._end_watch()

    def _end_watch(self) -> None:
        if self._watching is not None and not self._watching.expired():
            self._watching.reschedule(asyncio.get_running_loop().time())

    async def _follow(self) -> None:
        """Look up and list the kind if necessary, then watch it until the watch ends. Raises ``KubeError``."""
        if not self._is_resolved:
            self._requested_at = self._clock()
            self.resource = await self._client.resolve(*self._wanted, timeout=min(self._patience, REQUEST_SECONDS))
            self._is_resolved = self.resource is not None
        if self.resource is None:
            raise KindNotServed(f"the API server does not serve {self._wanted[0]} {self._wanted[1]}")
        while self._anew or not self._fresh.version:
            self._anew = False
            await self._list(self.resource)
        await self._watch(self.resource)

    async def _list(self, resource: Resource) -> None:
        await self._throttle()
        self.relists += self.synced
        with nullcontext() if self.synced else self._loading():
            began = self._clock()
            unconfirmed: set[ObjectKey] = set()
            await self._in_steps(self._store.keys(), unconfirmed.add)
            unconfirmed |= self.unreadable
            version = await self._apply_pages(resource, unconfirmed)
            await self._delete(unconfirmed)
        self._store.newest_wins = True
        self._fresh.listed(version, began)
        self._become_synced()

    async def _apply_pages(self, resource: Resource, unconfirmed: set[ObjectKey]) -> str:
        """List and store all objects, and remove their keys from ``unconfirmed``. Return the list's version."""
        size = PageSize(PAGE_BYTES if self.synced or self._beside else FIRST_PAGE_BYTES)
        fruitless, token = 0, ""
        while True:
            known = self._object_count() - len(unconfirmed)
            self._requested_at = self._clock()
            try:
                page = await self._apply_page(resource, size, token, unconfirmed)
            except AnswerTooLong as error:
                if not size.shrink():
                    raise self._list_given_up("a page with a single object is too long") from error
                continue
            is_fruitless = self._object_count() - len(unconfirmed) <= known
            if is_fruitless or not token:
                self._throttling.sent(self._requested_at)
            token = page.continue_ or ""
            if not token:
                return page.resource_version or ""
            if self._object_count() > MOST_OBJECTS:
                await self._delete(unconfirmed)
                unconfirmed.clear()
            if self._object_count() > MOST_OBJECTS:
                raise self._list_given_up(f"more than {MOST_OBJECTS} objects")
            fruitless = fruitless + 1 if is_fruitless else 0
            if fruitless > MOST_FRUITLESS_PAGES:
                raise self._list_given_up(f"more than {MOST_FRUITLESS_PAGES} pages in a row without a new object")
            if is_fruitless:
                await self._throttle()

    async def _apply_page(
        self, resource: Resource, size: PageSize, token: str, unconfirmed: set[ObjectKey]
    ) -> ListMeta:
        """Request one page and store its objects; return its metadata.

        The bytes of the page are freed on return, so only one page is in memory at a time.
        """
        raw = await self._client.list_page(
            resource,
            limit=size.limit,
            continue_=token,
            metadata_only=self._metadata_only,
            field_selector=self._field_selector,
            silence=self._patience,
            most=size.most_bytes,
        )
        page = await read_page(raw)
        size.adapt(len(page.items or ()), len(raw))
        self._on_answer()
        self._patience = _PATIENCE
        self.state = "listing"
        await self._in_steps(page.items or (), lambda item: unconfirmed.discard(self._upsert(item)))
        return page.metadata

    def _object_count(self) -> int:
        """Return the number of stored objects plus that of unreadable objects. An object can be both."""
        return self._store.count() + len(self.unreadable)

    def _list_given_up(self, cause: str) -> ListGivenUp:
        self._throttling.give_up()
        return ListGivenUp(f"list given up: {cause}")

    async def _throttle(self) -> None:
        """Wait until a throttled request can be sent."""
        if (delay := self._throttling.delay()) > 0:
            await self._sleep(delay)

    async def _delete(self, unconfirmed: set[ObjectKey]) -> None:
        """Delete the objects ``unconfirmed``, which were known before the list and are on no page so far."""

        def forget(key: ObjectKey) -> None:
            if self._store.has(key) or key in self.unreadable:
                self._forget(key, "")

        await self._in_steps(unconfirmed, forget)

    async def _in_steps(self, items: Iterable[Item], do: Callable[[Item], None]) -> None:
        """Call ``do`` for each item; let other tasks run after every ``STEP_SECONDS`` of work."""
        until = self._clock() + STEP_SECONDS
        for item in items:
            do(item)
            if self._clock() > until:
                await asyncio.sleep(0)
                until = self._clock() + STEP_SECONDS

    async def _watch(self, resource: Resource) -> None:
        """Apply the events of one watch until it ends or ``_end_watch`` ends it. Raises ``KubeError``."""
        await self._throttle()
        self._reopening, self.is_short = False, self._fresh.has_pending_probes
        seconds = SHORT_WATCH_SECONDS if self.is_short else int(_WATCH_SECONDS + _WATCH_SPREAD * self._rng())
        requested_at = self._requested_at = self._clock()
        watching = self._client.watch(
            resource,
            resource_version=self._fresh.version,
            metadata_only=self._metadata_only,
            field_selector=self._field_selector,
            timeout_seconds=seconds,
            opening=min(self._patience, REQUEST_SECONDS),
        )
        async with watching as lines:
            self._throttling.sent(requested_at)
            self.state, self.cause, self._requested_at = "watching", "", inf
            self._on_answer()
            self._fresh.open_again(broken_off=self._broken_off)
            self._broken_off = False
            try:
                async with asyncio.timeout(seconds + _GRACE_SECONDS if self.is_short else None) as self._watching:
                    self._opened.set()
                    if self._anew:  # a new list was requested while the last list was applied
                        self._end_watch()
                    await self._apply_events(lines, requested_at + min(seconds - _GRACE_SECONDS, _STEADY_SECONDS))
            except TimeoutError:
                self._fresh.version = "" if self._anew else self._fresh.version
                self._anew, self._reopening = False, True
            finally:
                self._watching = None
                self._opened.clear()

    async def _apply_events(self, lines: AsyncIterator[bytes], steady_at: float) -> None:
        """Apply the events of a watch until it ends. If it ends at the time ``steady_at`` or later, end the back-off.

        ``steady_at`` is based on the time of the request, because the API server's timer starts before the answer
        arrives.
        """
        until = self._clock() + STEP_SECONDS
        try:
            async for line in lines:
                if self._clock() > until:  # one read from the connection can return a thousand events
                    await asyncio.sleep(0)
                    until = self._clock() + STEP_SECONDS
                try:
                    event: Event | None = EVENTS.at_once(line)
                except ValueError:
                    event = await self._decode_in_steps(line)
                if event is not None:
                    self._apply_event(event)
        finally:
            self.restarts += 1
            if self._clock() >= steady_at:
                self._throttling.fruitful()
                self._reset_back_off()

    async def _decode_in_steps(self, line: bytes) -> Event | None:
        """Decode a deeply nested event in steps. Skip and count a line that is not an event, and return ``None``."""
        try:
            return await EVENTS.decode_in_steps(line)
        except ValueError as error:
            self._skip(("", ""), error)
            return None

    def _apply_event(self, event: Event) -> None:
        """Apply one event. Raises ``ApiError`` for an ERROR event, which ends the watch.

        A second ERROR event at the same version also discards the version, so that the kind is listed again.
        """
        if event.type == "ERROR":
            if self._error_at == self._fresh.version:
                self._fresh.version = ""
            self._error_at = self._fresh.version
            raise ApiError.parse(event.object)
        try:
            meta = IDENTIFIED.decode(event.object).metadata
        except ValueError as error:
            self._skip(key_in(event.object), error)
            return
        if event.type == "DELETED":
            self._forget((meta.namespace or "", meta.name or ""), meta.uid or "")
        elif event.type != "BOOKMARK":
            self._upsert(event.object)
        if event.type != "BOOKMARK":
            self.events += 1
            if meta.resource_version != self._fresh.version:
                self._throttling.fruitful()
        self._fresh.reached(meta.resource_version or self._fresh.version)
        self._reset_back_off()

    def _upsert(self, raw: Raw) -> ObjectKey:
        """Store an object, and return its key.

        An object that cannot be decoded or stored is skipped. Because it still exists, its last known version stays,
        and its key is returned too.
        """
        try:
            obj = self._decode(raw)
            self._store.upsert(obj)
        except Exception as error:  # noqa: BLE001  # a fault with one object must not end the watch of all
            return self._skip(key_in(raw), error)
        key = self._key_of(obj)
        if self.unreadable:
            self._mark_readable(key)
        return key

    def _forget(self, key: ObjectKey, uid: str) -> None:
        self._mark_readable(key)
        try:
            self._store.delete(key, uid)
        except Exception as error:  # noqa: BLE001  # a fault with one object must not end the watch of all
            self._skip(key, error)

    def _skip(self, key: ObjectKey, error: Exception) -> ObjectKey:
        """Count an object that cannot be processed, and mark it as unreadable; return its key.

        The object is logged once. It is logged again only if it was processed or deleted since then.
        """
        self.undecodable += 1
        if key not in self.unreadable:
            self.unreadable.add(key)
            self._log.error("object left out", object="/".join(filter(None, key)), cause=_cause_of(error))
            if key[1]:
                self._store.mark_unreadable(key, str(error))
        return key

    def _mark_readable(self, key: ObjectKey) -> None:
        if key in self.unreadable:
            self.unreadable.discard(key)
            self._store.mark_readable(key)
            self._log.info("object no longer left out", object="/".join(filter(None, key)))

    def _reset_back_off(self) -> None:
        self._pause = 0.0
        self._patience = _PATIENCE

    def _become_synced(self) -> None:
        if not self.synced:
            self.synced = True
            self._on_synced()

    async def _clear_unserved(self, error: KindNotServed) -> float:
        """Delete all objects of a kind that is not served. Return the seconds to wait before it is looked up again."""
        self._fresh.version = ""
        await self._in_steps(chain(tuple(self.unreadable), self._store.keys()), lambda key: self._forget(key, ""))
        self._fresh.absent(self._requested_at)
        wait = self._wait_for_kind("not_served", error)
        self._become_synced()
        return wait

    def _handle_error(self, error: KubeError) -> float:
        """Prepare the next attempt after an error, and return the seconds to wait before it."""
        status = None
        if isinstance(error, ApiError):
            status = error.status
            if error.message.startswith(_TOO_LARGE):
                self.start_over()
            elif status not in _RESUMED:
                self._fresh.version = ""
            if status == _FORBIDDEN or status not in (_GONE, *_RESUMED):
                self._is_resolved = False
            if status not in _RESUMED:
                self._throttling.sent(self._clock())
        if status == _FORBIDDEN:
            return self._wait_for_kind("forbidden", error)
        self._log.debug("watch interrupted", cause=str(error))
        if status not in (_GONE, _NOT_FOUND):
            self._on_failure(error)
        self.state, self.cause = "retrying", str(error)
        if isinstance(error, ApiSilent):
            self._patience = next_delay(self._patience, _PATIENCE, _LONGEST_PATIENCE)
        waited = max(0.0, self._clock() - self._requested_at)
        return max(self._back_off() - waited, retry_after(error), 0.0)

    def _wait_for_kind(self, state: State, error: KubeError) -> float:
        self._on_answer()
        if self.state != state and (
            self.synced or state != "not_served"
        ):  # at the start, the feed itself logs all unserved kinds together
            self._log.warning("kind cannot be watched", state=state, cause=str(error))
        self.state, self.cause = state, str(error)
        return min(LOOK_AGAIN_SECONDS, self._fresh.quiet) * self._jitter()

    def _back_off(self) -> float:
        self._pause = next_delay(self._pause, _FIRST_WAIT, _LONGEST_WAIT)
        return self._pause * self._jitter()

    def _jitter(self) -> float:
        return 0.5 + 0.5 * self._rng()


Item = TypeVar("Item")


def _cause_of(error: Exception) -> str:
    """Return the message of a ``ValueError``, which decoders raise for an invalid object.

    Return the traceback of any other exception, because such an exception is a defect of Homeport.
    """
    if isinstance(error, ValueError):
        return str(error)
    return "".join(traceback.format_exception(error))
