"""Freshness: how recent the snapshot of one kind is, and when this was last verified.

A quiet watch can have no news, or be disconnected without an error. So Homeport requests the newest version from the
API server (a probe). If that is newer than the last version seen, the watch is opened again from there, for a few
seconds only: shortly before such a watch ends, a bookmark gives its version. Long watches get a bookmark once a minute.

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
"""Seconds without contact after which a watch is probed; less if the maximum age of the snapshot is short."""

SHORT_WATCH_SECONDS: Final = 3
"""Duration of a short watch. Its bookmark arrives in time: API servers send it two seconds before a watch ends."""

_GAP_INTERVALS: Final = 4
"""Number of ``quiet`` intervals without contact after which a reopened watch has to catch up first."""

_LONGEST_RETRY_AFTER: Final = 10.0
"""Maximum seconds of ``Retry-After`` that are respected. API servers request one or two."""

_BETWEEN_PROBES: Final = 1.0
"""Minimum seconds from one probe to the next."""

_PENDING_PROBES: Final = 64
"""Maximum number of probes whose version the watch has not reached."""

_ProbeResult = Literal["fresh", "newer", "went back", "failed"]
"""``newer``: the API server has a version that the watch has not reached, perhaps of another kind."""


class Watch(Protocol):
    """Watch that ``Freshness`` supervises. ``is_short``: it ends soon, with a bookmark shortly before."""

    is_short: bool

    async def opened(self) -> None:
        """Wait until the watch is open."""
        ...

    async def newest_version(self) -> int | None:
        """Return the newest version of any kind; ``None`` before a first list. Raises ``KubeError``."""
        ...

    def reopen(self, *, broken_off: bool) -> None:
        """End the watch, and open it again from the last version. ``broken_off``: it may have been disconnected."""
        ...

    def start_over(self) -> None:
        """List again because versions went back, so that the snapshot can contain objects that never existed."""
        ...

    def list_anew(self) -> None:
        """End the watch and list again."""
        ...


class Freshness:
    """Probes of one kind. ``version``: last version seen. ``last_contact``, ``fresh_as_of``: see ``Reflector``.

    ``behind``: the watch was interrupted and has not caught up with what was written meanwhile. ``quiet``: seconds
    without contact after which ``keep`` probes.
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
        """Return true if a probe returned a version that the watch has not reached."""
        return bool(self._probes)

    def reached(self, version: str) -> None:
        """Note the version of an event, a bookmark or a list."""
        self.version = version
        if not self.behind:
            self.last_contact = self._clock()
        if self._probes:
            self._resolve()

    def listed(self, version: str, began: float) -> None:
        """Note that a list requested at ``began`` has been applied. It resolves every earlier probe."""
        self.behind = False
        while self._probes and self._probes[0][1] <= began:
            self._probes.popleft()
        self.reached(version)
        self.fresh_as_of = max(self.fresh_as_of, began)

    def absent(self, asked_at: float) -> None:
        """Note that discovery, requested at that time, has not listed the kind."""
        self.last_contact, self.fresh_as_of = self._clock(), max(self.fresh_as_of, asked_at)

    def open_again(self, *, broken_off: bool) -> None:
        """Note that a watch has been opened. After a gap, its first events are old and do not prove freshness.

        With opaque versions, only a list can show that the snapshot has caught up. Without ``broken_off``, Homeport
        itself ended a quiet watch, which counts as a gap only after several intervals.
        """
        gap = self._clock() - self.last_contact
        intervals = 1 if broken_off else _GAP_INTERVALS
        self.behind = gap > intervals * self.quiet
        if self.behind and version_number(self.version) < 0:
            self._watch.list_anew()

    async def keep(self) -> NoReturn:
        """Probe the API server whenever the watch has been quiet, until cancelled."""
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
        """Request the newest version; return true if the snapshot was up to date when this was called.

        Versions are shared by all kinds, so a quiet kind has an older version without missing anything. Then the result
        is false, and ``fresh_as_of`` advances when an event or a bookmark reaches the requested version.
        """
        result, _ = await self._probe_once()
        return result == "fresh"

    async def _probe_once(self) -> tuple[_ProbeResult, float]:
        """Send one probe; return the result and the seconds of the API server's ``Retry-After``.

        A probe is a consistent read. A version below that of an earlier probe means that versions went back.
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
        """Open the watch again if it may be disconnected, which costs one request.

        A short watch ends soon anyway. After failed probes, the watch is ended only when the API server answers again.
        """
        if result == "failed":
            self._suspect = True
        elif result != "went back" and (self._suspect or (result == "newer" and not self._watch.is_short)):
            broken_off, self._suspect = self._suspect, False
            self._watch.reopen(broken_off=broken_off)

    def _resolve(self) -> None:
        """Resolve the probes whose version has been reached."""
        seen = version_number(self.version)
        while self._probes and self._probes[0][0] <= seen:
            _, began = self._probes.popleft()
            self.behind = self.behind and self._clock() - began > self.quiet + SHORT_WATCH_SECONDS
            self.fresh_as_of = max(self.fresh_as_of, began)
            self.last_contact = max(self.last_contact, began)


def retry_after(error: KubeError) -> float:
    """Return the seconds of the API server's ``Retry-After``, up to ``_LONGEST_RETRY_AFTER``; 0 without one."""
    seconds = error.retry_after if isinstance(error, ApiError) else None
    return min(seconds or 0.0, _LONGEST_RETRY_AFTER)
