"""List, then watch: keeps one kind of the picture equal to what the API server holds.

::

    starting ─▶ listing ─▶ watching ──── the watch ends or breaks ───▶ retrying ─▶ watching, from the version last seen
                   ▲                                                      │
                   └─── the API server refuses that version, or has none ──┘
    forbidden (403), not_served (no such kind): logged once, looked up again every few seconds

A watch resumes from its version after 401, 403, 429 and 5xx. Any other refusal is followed by discovery and a list, and
a second ERROR event at one version by a list: no wrong path or version can last.

A list is applied as a difference: upserts in slices that let others run, deletions last, so that the picture never
lacks what the cluster has. One object that cannot be read, or not be taken in, is left out, counted and named, until it
is gone or can be read; the rest goes on.

Not here: what an object means, what to do about a kind that stays away, and whether a quiet watch is a dead one. Sinks,
readiness and ``app.feeds.freshness`` know.
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
from app.feeds.freshness import QUIET_SECONDS, SHORT_WATCH_SECONDS, Freshness, asked_for
from app.feeds.pacing import MOST_FRUITLESS_PAGES, MOST_OBJECTS, Pace, PageSize
from app.feeds.sinks import Sink
from app.framework.background import next_delay
from app.kube.api_errors import AnswerTooLong, ApiError, ApiSilent, ApiUnavailable, KubeError
from app.kube.api_requests import Resource
from app.kube.client import REQUEST_SECONDS, KubeClient
from app.kube.meta_v1 import ObjectKey, version_number

_LOG: Final = structlog.get_logger(__name__)

State = Literal["starting", "listing", "watching", "retrying", "forbidden", "not_served"]

FIRST_PAGE_BYTES: Final = 4 << 20
"""Bytes of a page of a first list, 1,000 usual pods: larger pages save no time, smaller ones cost 1.5 ms each."""

PAGE_BYTES: Final = 1 << 20
"""Bytes of a page later on: to join and split such a page holds up the event loop for 1.3 ms."""

SLICE_SECONDS: Final = 0.003
LOOK_AGAIN_SECONDS: Final = 10.0
"""Between looks for a kind that is forbidden or not served, less some jitter; no more than ``quiet``."""

_FIRST_WAIT: Final = 0.05
_LONGEST_WAIT: Final = 2.0
_STEADY_SECONDS: Final = 10.0
"""A watch that lasted this long was a good one, whether or not there was anything to tell."""

_WATCH_SECONDS: Final = 270.0
_WATCH_SPREAD: Final = 40.0
_GRACE_SECONDS: Final = 0.25
"""What a short watch may be early or late to end."""

_PROBE_SECONDS: Final = 3.0
_PATIENCE: Final = 5.0
_LONGEST_PATIENCE: Final = 60.0
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_GONE: Final = 410
_RESUMED: Final = frozenset((401, _FORBIDDEN, 429, *range(500, 600)))
"""Statuses that say nothing against the version of a watch."""

_TOO_LARGE: Final = "Too large resource version"
"""First words of the API server's answer to a watch from a version that it has not reached yet."""

T = TypeVar("T")


class NotServed(KubeError):
    """The API server knows no such kind."""


class ListGivenUp(KubeError):
    """A list that does not end, or exceeds what Homeport takes in."""


class Reflector(Generic[T]):
    """Fills ``sink`` with one kind. Run as a task of its own; the attributes are for others to read.

    ``synced``: a first list is fully applied, or the kind is not served, which is as good as an empty one.
    ``last_contact``: when the API server was last heard of: an event, a bookmark, a list, a probe it came up to. After
    a gap the first events are no news but what was missed, and it waits for such a probe.
    ``fresh_as_of``: all that was written before then is in the picture. Both on ``clock``, ``-inf`` before the first.
    ``cause``: why ``state`` is what it is, for a person; empty while all is well.
    ``quiet``: seconds without a word after which ``keep_fresh`` asks.
    ``left_out``: the objects that exist and cannot be read, by key; an empty key stands for those without a name.
    ``events``, ``relists``, ``restarts`` (watches that ended), ``undecodable`` only ever grow.
    """

    def __init__(
        self,
        client: KubeClient,
        resource: Resource | tuple[str, str],
        *,
        decode: Callable[[bytes | Raw], T],
        key_of: Callable[[T], ObjectKey],
        sink: Sink[T],
        metadata_only: bool = False,
        field_selector: str = "",
        quiet: float = QUIET_SECONDS,
        on_synced: Callable[[], None] = lambda: None,
        on_failure: Callable[[KubeError], None] = lambda _: None,
        on_answer: Callable[[], None] = lambda: None,
        loading: Callable[[], AbstractContextManager[None]] = bulk_load,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: Callable[[], float] = random.random,
    ) -> None:
        """A ``(api_version, kind)`` is looked up first, and again for as long as the API server does not serve it.

        Whatever ``decode`` raises concerns one object; ``key_of`` is ``(namespace, name)``. ``on_failure`` and
        ``on_answer`` are told what becomes of lists, watches and probes.
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
        self._sink = sink
        self._metadata_only = metadata_only
        self._field_selector = field_selector
        self._on_synced = on_synced
        self._on_failure = on_failure
        self._on_answer = on_answer
        self._loading = loading
        self._clock = clock
        self._sleep = sleep
        self._rng = rng
        self._fresh = Freshness(self, quiet=quiet, clock=clock, sleep=sleep, on_failure=on_failure, on_answer=on_answer)
        self._pause = 0.0
        self._pace = Pace(clock)
        self._watching: asyncio.Timeout | None = None
        self._opened = asyncio.Event()
        self._anew = self._reopening = False
        self._error_at = ""
        self._asked_at = inf
        self.is_short = self._broken_off = False
        self._patience = _PATIENCE
        self.left_out: set[ObjectKey] = set()
        self._log = _LOG.bind(kind=f"{self._wanted[0]} {self._wanted[1]}")

    @property
    def follows(self) -> bool:
        """Whether a watch is open that has, after a gap, caught up."""
        return self._watching is not None and not self._fresh.behind

    @property
    def last_contact(self) -> float:
        return self._fresh.last_contact

    @property
    def fresh_as_of(self) -> float:
        return self._fresh.fresh_as_of

    async def run(self) -> NoReturn:
        """List and watch until cancelled, whatever the API server does."""
        while True:
            try:
                await self._follow()
                wait = 0.0 if self._reopening else self._back_off()
            except NotServed as error:
                wait = await self._do_without(error)
            except KubeError as error:
                self._broken_off = True
                wait = self._after(error)
            if wait:
                await self._sleep(wait)

    async def keep_fresh(self) -> NoReturn:
        """Ask after a watch that has been quiet, see ``Freshness.keep``."""
        await self._fresh.keep()

    async def probe(self) -> bool:
        """Ask whether the picture is up to date, see ``Freshness.probe``."""
        return await self._fresh.probe()

    async def opened(self) -> None:
        """Wait until a watch is open."""
        await self._opened.wait()

    async def newest_version(self) -> int | None:
        """The newest version there is, of whatever kind; ``None`` before a first list. Raises ``KubeError``."""
        if self.resource is None or not self._fresh.version:
            return None
        # Without a resourceVersion a list is consistent: it is no older than this request.
        raw = await self._client.list_page(self.resource, limit=1, metadata_only=True, timeout=_PROBE_SECONDS)
        page = await read_page(raw)
        newest = version_number(page.metadata.resource_version or "")
        if newest < 0:
            raise ApiUnavailable("versions that do not compare")
        return newest

    def start_over(self) -> None:
        """etcd was restored from a backup: a watch from a version yet to come stays silent, without any error."""
        self._log.error("versions went back, listing anew")
        self._sink.newest_wins = False
        self._list_next()

    def reopen(self, *, broken_off: bool) -> None:
        """End the watch and open it anew from the version last seen."""
        self._broken_off = broken_off
        self._reopening = True
        self._end_watch()

    def list_anew(self) -> None:
        """Take a list now, without waiting for the watch to bring what is new. Not delayed: the caller has a reason."""
        self._pace.fruitful()
        self._list_next()

    def start_anew(self) -> None:
        """Drop whatever the API server sent about versions and paths: look the kind up, then list it."""
        self._is_resolved = False
        self._list_next()

    def _list_next(self) -> None:
        self._anew = True
        self._end_watch()

    def _end_watch(self) -> None:
        if self._watching is not None and not self._watching.expired():
            self._watching.reschedule(asyncio.get_running_loop().time())

    async def _follow(self) -> None:
        """One round; ends when a watch ends in good order."""
        if not self._is_resolved:
            self._asked_at = self._clock()
            self.resource = await self._client.resolve(*self._wanted, timeout=min(self._patience, REQUEST_SECONDS))
            self._is_resolved = self.resource is not None
        if self.resource is None:
            raise NotServed(f"the API server does not serve {self._wanted[0]} {self._wanted[1]}")
        while self._anew or not self._fresh.version:
            self._anew = False
            await self._list(self.resource)
        await self._watch(self.resource)

    async def _list(self, resource: Resource) -> None:
        await self._in_pace()
        self.relists += self.synced
        with nullcontext() if self.synced else self._loading():
            began = self._clock()
            unconfirmed: set[ObjectKey] = set()
            await self._in_slices(self._sink.keys(), unconfirmed.add)
            unconfirmed |= self.left_out
            version = await self._apply_pages(resource, unconfirmed)
            await self._delete(unconfirmed)
        self._sink.newest_wins = True
        self._fresh.listed(version, began)
        self._become_synced()

    async def _apply_pages(self, resource: Resource, unconfirmed: set[ObjectKey]) -> str:
        """Apply every page, and take its objects out of ``unconfirmed``. Return the version of the list."""
        size = PageSize(PAGE_BYTES if self.synced else FIRST_PAGE_BYTES)
        fruitless, token = 0, ""
        while True:
            known = self._taken_in() - len(unconfirmed)
            self._asked_at = self._clock()
            try:
                page = await self._apply_page(resource, size, token, unconfirmed)
            except AnswerTooLong as error:
                if not size.shrink():
                    raise self._given_up("a page of one object is too long") from error
                continue
            is_fruitless = self._taken_in() - len(unconfirmed) <= known
            if is_fruitless or not token:
                self._pace.sent(self._asked_at)
            token = page.continue_ or ""
            if not token:
                return page.resource_version or ""
            if self._taken_in() > MOST_OBJECTS:
                await self._delete(unconfirmed)
                unconfirmed.clear()
            if self._taken_in() > MOST_OBJECTS:
                raise self._given_up(f"more than {MOST_OBJECTS} objects")
            fruitless = fruitless + 1 if is_fruitless else 0
            if fruitless > MOST_FRUITLESS_PAGES:
                raise self._given_up(f"more than {MOST_FRUITLESS_PAGES} pages in a row without a new object")
            if is_fruitless:
                await self._in_pace()

    async def _apply_page(
        self, resource: Resource, size: PageSize, token: str, unconfirmed: set[ObjectKey]
    ) -> ListMeta:
        """Apply one page. Its bytes are freed on return, so that there is never more than one."""
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
        await self._in_slices(page.items or (), lambda item: unconfirmed.discard(self._upsert(item)))
        return page.metadata

    def _taken_in(self) -> int:
        """Number of objects, with those that are left out."""
        return self._sink.count() + len(self.left_out)

    def _given_up(self, cause: str) -> ListGivenUp:
        self._pace.give_up()
        return ListGivenUp(f"list given up: {cause}")

    async def _in_pace(self) -> None:
        """Wait until a request may leave that is not known to bring anything new."""
        if (delay := self._pace.delay()) > 0:
            await self._sleep(delay)

    async def _delete(self, unconfirmed: set[ObjectKey]) -> None:
        """Delete what was there before the list and not in it. The sink is asked again: it may have moved on."""

        def forget(key: ObjectKey) -> None:
            if self._sink.has(key) or key in self.left_out:
                self._forget(key, "")

        await self._in_slices(unconfirmed, forget)

    async def _in_slices(self, items: Iterable[Item], do: Callable[[Item], None]) -> None:
        until = self._clock() + SLICE_SECONDS
        for item in items:
            do(item)
            if self._clock() > until:
                await asyncio.sleep(0)
                until = self._clock() + SLICE_SECONDS

    async def _watch(self, resource: Resource) -> None:
        await self._in_pace()
        self._reopening, self.is_short = False, self._fresh.is_asked_for
        seconds = SHORT_WATCH_SECONDS if self.is_short else int(_WATCH_SECONDS + _WATCH_SPREAD * self._rng())
        asked_at = self._asked_at = self._clock()
        watching = self._client.watch(
            resource,
            resource_version=self._fresh.version,
            metadata_only=self._metadata_only,
            field_selector=self._field_selector,
            timeout_seconds=seconds,
            opening=min(self._patience, REQUEST_SECONDS),
        )
        async with watching as lines:
            self._pace.sent(asked_at)
            self.state, self.cause, self._asked_at = "watching", "", inf
            self._on_answer()
            self._fresh.open_again(broken_off=self._broken_off)
            self._broken_off = False
            try:
                async with asyncio.timeout(seconds + _GRACE_SECONDS if self.is_short else None) as self._watching:
                    self._opened.set()
                    if self._anew:  # asked for between the list and now
                        self._end_watch()
                    await self._take_all(lines, asked_at + min(seconds - _GRACE_SECONDS, _STEADY_SECONDS))
            except TimeoutError:
                self._fresh.version = "" if self._anew else self._fresh.version
                self._anew, self._reopening = False, True
            finally:
                self._watching = None
                self._opened.clear()

    async def _take_all(self, lines: AsyncIterator[bytes], steady_at: float) -> None:
        """Take the events of a watch. It was a good one if it ends at ``steady_at`` or later.

        That counts from the request: the API server's own timer begins before its answer has come.
        """
        until = self._clock() + SLICE_SECONDS
        try:
            async for line in lines:
                if self._clock() > until:  # a thousand may lie in one packet
                    await asyncio.sleep(0)
                    until = self._clock() + SLICE_SECONDS
                try:
                    event: Event | None = EVENTS.at_once(line)
                except ValueError:
                    event = await self._read_again(line)
                if event is not None:
                    self._take(event)
        finally:
            self.restarts += 1
            if self._clock() >= steady_at:
                self._pace.fruitful()
                self._well()

    async def _read_again(self, line: bytes) -> Event | None:
        """An event that is nested deeply; ``None`` for what is none, which is passed over."""
        try:
            return await EVENTS.in_turns(line)
        except ValueError as error:
            self._skip(("", ""), error)
            return None

    def _take(self, event: Event) -> None:
        """Apply one event. Raise ``ApiError`` for an ERROR event, which ends the watch."""
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
                self._pace.fruitful()
        self._fresh.reached(meta.resource_version or self._fresh.version)
        self._well()

    def _upsert(self, raw: Raw) -> ObjectKey:
        """Returns the key, also of an object that cannot be read: it exists, and what is known of it stays."""
        try:
            found = self._decode(raw)
            self._sink.upsert(found)
        except Exception as error:  # noqa: BLE001  # whatever one object does: it must not end the watch of all
            return self._skip(key_in(raw), error)
        key = self._key_of(found)
        if self.left_out:
            self._take_back(key)
        return key

    def _forget(self, key: ObjectKey, uid: str) -> None:
        self._take_back(key)
        try:
            self._sink.delete(key, uid)
        except Exception as error:  # noqa: BLE001  # as above
            self._skip(key, error)

    def _skip(self, key: ObjectKey, error: Exception) -> ObjectKey:
        self.undecodable += 1
        if key not in self.left_out:
            self.left_out.add(key)
            self._log.error("object left out", object="/".join(filter(None, key)), cause=_told(error))
            if key[1]:
                self._sink.leave_out(key, str(error))
        return key

    def _take_back(self, key: ObjectKey) -> None:
        if key in self.left_out:
            self.left_out.discard(key)
            self._sink.take_back(key)
            self._log.info("object no longer left out", object="/".join(filter(None, key)))

    def _well(self) -> None:
        self._pause = 0.0
        self._patience = _PATIENCE

    def _become_synced(self) -> None:
        if not self.synced:
            self.synced = True
            self._on_synced()

    async def _do_without(self, error: NotServed) -> float:
        """As good as an empty list: what was there went with its definition."""
        self._fresh.version = ""
        await self._in_slices(chain(tuple(self.left_out), self._sink.keys()), lambda key: self._forget(key, ""))
        self._fresh.absent(self._asked_at)
        wait = self._stay_away("not_served", error)
        self._become_synced()
        return wait

    def _after(self, error: KubeError) -> float:
        """Prepare the next attempt after an error; return how long to wait before it."""
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
                self._pace.sent(self._clock())
        if status == _FORBIDDEN:
            return self._stay_away("forbidden", error)
        self._log.debug("watch interrupted", cause=str(error))
        if status not in (_GONE, _NOT_FOUND):
            self._on_failure(error)
        self.state, self.cause = "retrying", str(error)
        if isinstance(error, ApiSilent):
            self._patience = next_delay(self._patience, _PATIENCE, _LONGEST_PATIENCE)
        waited = max(0.0, self._clock() - self._asked_at)
        return max(self._back_off() - waited, asked_for(error), 0.0)

    def _stay_away(self, state: State, error: KubeError) -> float:
        self._on_answer()
        if self.state != state and (self.synced or state != "not_served"):  # at the start it is told with all others
            self._log.warning("kind cannot be watched", state=state, cause=str(error))
        self.state, self.cause = state, str(error)
        return min(LOOK_AGAIN_SECONDS, self._fresh.quiet) * self._jitter()

    def _back_off(self) -> float:
        self._pause = next_delay(self._pause, _FIRST_WAIT, _LONGEST_WAIT)
        return self._pause * self._jitter()

    def _jitter(self) -> float:
        return 0.5 + 0.5 * self._rng()


Item = TypeVar("Item")


def _told(error: Exception) -> str:
    """What is wrong with an object; or, for a fault of ours, where that is."""
    if isinstance(error, ValueError):
        return str(error)
    return "".join(traceback.format_exception(error))
