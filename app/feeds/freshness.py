"""Freshness: how recent the snapshot of one kind is, and when this was last verified.

If a watch sends nothing, either nothing has changed, or the connection has broken without an error. So Homeport
requests the newest version from the API server (a *probe*). If that version is newer than the last version from the
watch, Homeport opens a short watch from the last version. The API server sends a bookmark with the current version
shortly before a watch ends. So within seconds, a short watch sends all missing changes, or shows that no change is
missing. A long watch gets a bookmark only every minute or two.

Not here: lists and watches (``app.feeds.reflector``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from math import inf
from typing import Final, Literal, NoReturn, Protocol

from app.kube.api_errors import ApiError, KubeError
from app.kube.meta_v1 import version_number

QUIET_SECONDS: Final = 30.0
"""Seconds without contact after which Homeport probes; shorter if the snapshot's maximum age is short."""

SHORT_WATCH_SECONDS: Final = 3
"""Duration of a short watch. API servers send a bookmark two seconds before a watch ends."""

_GAP_INTERVALS: Final = 4
"""Number of ``quiet`` intervals without contact that are allowed if a watch is opened again after a normal end.

After more intervals, the watch is ``behind``.
"""

_LONGEST_RETRY_AFTER: Final = 10.0
"""Maximum wait after a ``Retry-After`` header, in seconds. API servers usually request one or two."""

_BETWEEN_PROBES: Final = 1.0
"""Minimum seconds between the starts of two probes by ``keep``."""

_PENDING_PROBES: Final = 64
"""Maximum number of pending probes, whose versions the watch has not reached yet. Beyond it, the oldest are dropped."""

_ProbeResult = Literal["fresh", "newer", "went back", "failed"]
"""Result of a probe.

``fresh``: the snapshot was up to date when the probe began. ``newer``: the API server has a version that the watch has
not reached, perhaps a version of another kind. ``went back``: the version is older than one of an earlier probe, event
or list. ``failed``: the probe returned no version, because of an error or because the kind must be listed first.
"""


class Watch(Protocol):
    """Watch that ``Freshness`` supervises. ``is_short``: true for a watch of ``SHORT_WATCH_SECONDS``."""

    is_short: bool

    async def opened(self) -> None:
        """Wait until the watch is open."""
        ...

    async def newest_version(self) -> int | None:
        """Request the API server's newest resource version, over all kinds.

        Return ``None`` if the kind must be listed first. Raises ``KubeError``.
        """
        ...

    def reopen(self, *, broken_off: bool) -> None:
        """End the watch, and open it again from the last version. ``broken_off``: see ``Freshness.open_again``."""
        ...

    def start_over(self) -> None:
        """List again after versions went back: the snapshot can have objects that no longer exist in the API server."""
        ...

    def list_anew(self) -> None:
        """End the watch and list again."""
        ...


class Freshness:
    """Freshness of one kind, verified by probes. ``version``: last version of a list, an event or a bookmark.

    ``last_contact``, ``fresh_as_of``: see ``Reflector``. ``behind``: true if the watch was interrupted for too long
    and might not have sent all later changes yet. ``quiet``: seconds without contact after which ``keep`` probes.
    """

    def __init__(
        self,
        watch: Watch,
        *,
        quiet: float,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        on_failure: Callable[[KubeError], None],
        on_answer: Callable[[], None],
    ) -> None:
        self.quiet = quiet
        self.version = ""
        self.last_contact = -inf
        self.fresh_as_of = -inf
        self.behind = False
        self._watch = watch
        self._clock = clock
        self._sleep = sleep
        self._on_failure = on_failure
        self._on_answer = on_answer
        self._suspect = False
        self._probes: deque[tuple[int, float]] = deque(maxlen=_PENDING_PROBES)

    @property
    def has_pending_probes(self) -> bool:
        """True if a probe returned a version that the watch has not reached yet."""
        return bool(self._probes)

    def reached(self, version: str) -> None:
        """Record the version of an event, a bookmark or a list, and call ``_resolve`` if probes are pending."""
        self.version = version
        if not self.behind:
            self.last_contact = self._clock()
        if self._probes:
            self._resolve()

    def listed(self, version: str, began: float) -> None:
        """Record that a list, requested at the time ``began``, was applied. Earlier probes are no longer pending."""
        self.behind = False
        while self._probes and self._probes[0][1] <= began:
            self._probes.popleft()
        self.reached(version)
        self.fresh_as_of = max(self.fresh_as_of, began)

    def absent(self, requested_at: float) -> None:
        """Record that the API server does not serve the kind, so that there are no objects.

        ``requested_at``: time at which discovery was requested.
        """
        self.last_contact, self.fresh_as_of = self._clock(), max(self.fresh_as_of, requested_at)

    def open_again(self, *, broken_off: bool) -> None:
        """Record that a watch was opened again, and set ``behind`` if too much time has passed since the last contact.

        While ``behind`` is set, events do not count as contact, because the first events after a gap are old. If
        versions are opaque, list the kind instead, because opaque versions cannot show that the watch has caught up.
        ``broken_off``: true if the last watch might have been disconnected; then more than one ``quiet`` interval is
        too long. Otherwise the watch ended normally, and more than ``_GAP_INTERVALS`` intervals are too long.
        """
        gap = self._clock() - self.last_contact
        intervals = 1 if broken_off else _GAP_INTERVALS
        self.behind = gap > intervals * self.quiet
        if self.behind and version_number(self.version) < 0:
            self._watch.list_anew()

    async def keep(self) -> NoReturn:
        """Probe whenever there was no contact for ``quiet`` seconds while a watch is open, until cancelled."""
        while True:
            await self._watch.opened()
            remaining = self.last_contact + self.quiet - self._clock()
            if remaining > 0:
                await self._sleep(remaining)
                continue
            next_at = self._clock() + _BETWEEN_PROBES
            result, seconds = await self._probe_once()
            self._reopen_if_stale(result)
            await self._sleep(max(next_at - self._clock(), seconds, 0.0))

    async def probe(self) -> bool:
        """Send a probe; return true if it shows that the snapshot was up to date at the time of this call.

        All kinds share the resource versions. So the watch of a kind that rarely changes can be at an older version
        although no event is missing. The result is then false, and ``fresh_as_of`` advances once an event or a bookmark
        reaches the version.
        """
        result, _ = await self._probe_once()
        return result == "fresh"

    async def _probe_once(self) -> tuple[_ProbeResult, float]:
        """Send one probe; return the result and the seconds of the API server's ``Retry-After``, 0 without one.

        A probe is a consistent read. If its version is older than an earlier version, etcd was restored from a backup,
        and the kind is listed again.
        """
        began = self._clock()
        seen = max((version_number(self.version), *(version for version, _ in self._probes)))
        try:
            newest = await self._watch.newest_version()
        except KubeError as error:
            self._on_failure(error)
            return "failed", retry_after(error)
        if newest is None:
            return "failed", 0.0
        self._on_answer()
        if newest < seen:
            self._probes.clear()
            self._watch.start_over()
            return "went back", 0.0
        self._probes.append((newest, began))
        self._resolve()
        return ("fresh" if self.fresh_as_of >= began else "newer"), 0.0

    def _reopen_if_stale(self, result: _ProbeResult) -> None:
        """Open the watch again if it might be disconnected. Opening it costs one request.

        Reopen it if the API server has a newer version, except if the watch is short, because it ends soon anyway. Also
        reopen it after failed probes, but only once a later probe succeeds.
        """
        if result == "failed":
            self._suspect = True
        elif result != "went back" and (self._suspect or (result == "newer" and not self._watch.is_short)):
            broken_off, self._suspect = self._suspect, False
            self._watch.reopen(broken_off=broken_off)

    def _resolve(self) -> None:
        """Remove the probes with versions that the watch has reached. Advance ``fresh_as_of`` and ``last_contact``.

        A probe that began recently also ends ``behind``.
        """
        seen = version_number(self.version)
        while self._probes and self._probes[0][0] <= seen:
            _, began = self._probes.popleft()
            self.behind = self.behind and self._clock() - began > self.quiet + SHORT_WATCH_SECONDS
            self.fresh_as_of = max(self.fresh_as_of, began)
            self.last_contact = max(self.last_contact, began)


def retry_after(error: KubeError) -> float:
    """Return the seconds that the API server asks to wait, at most ``_LONGEST_RETRY_AFTER``; 0 if it names none."""
    seconds = error.retry_after if isinstance(error, ApiError) else None
    return min(seconds or 0.0, _LONGEST_RETRY_AFTER)
