"""How far the picture of one kind has come, and when that was last certain.

A quiet watch may have nothing to tell, or be cut off without a word. So the API server is asked; where it has written
since, the watch is opened anew from the version last seen, for a few seconds at first: near its end such a watch says
in a bookmark how far it has come, which a long one does once a minute.

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
"""A watch that was not heard of for this long is asked after; a limit on the age of the picture makes it sooner."""

SHORT_WATCH_SECONDS: Final = 3
"""The API server sends a bookmark two seconds before it ends a watch, so this one gets one within two."""

_ASKS: Final = 4
"""A kind of which nothing was heard for as many times ``quiet`` has to catch up first."""

_LONGEST_RETRY_AFTER: Final = 10.0
"""An API server asks for a second or two; whoever asks for more would keep us away long after the trouble is over."""

_BETWEEN_PROBES: Final = 1.0
_PENDING_PROBES: Final = 64

_Probed = Literal["fresh", "newer", "went back", "failed"]
"""``newer``: something was written that the watch has not come up to; it may be of another kind."""


class Watch(Protocol):
    """What is asked after. ``is_short``: it is about to end, and to tell before it does."""

    is_short: bool

    async def opened(self) -> None:
        """Wait until it is open."""
        ...

    async def newest_version(self) -> int | None:
        """The newest version there is, of whatever kind; ``None`` before a first list. Raises ``KubeError``."""
        ...

    def reopen(self, *, broken_off: bool) -> None:
        """End it and open it anew from the version last seen. ``broken_off``: it may not have been open all along."""
        ...

    def start_over(self) -> None:
        """Versions went back: what was seen may never have been, and a list has to be taken."""
        ...

    def list_anew(self) -> None:
        """End the watch and take a list."""
        ...


class Freshness:
    """``version`` is the one last seen; ``last_contact`` and ``fresh_as_of`` see ``Reflector``.

    ``behind``: after a gap, until all that was written in it has come. ``quiet``: seconds without a word after which
    ``keep`` asks.
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
    def is_asked_for(self) -> bool:
        """Whether a version was asked for that has not been reached."""
        return bool(self._probes)

    def reached(self, version: str) -> None:
        """An event, a bookmark or a list has brought this version."""
        self.version = version
        if not self.behind:
            self.last_contact = self._clock()
        if self._probes:
            self._settle()

    def listed(self, version: str, began: float) -> None:
        """Note that a list is applied as a whole that was requested at ``began``. It settles every earlier probe."""
        self.behind = False
        while self._probes and self._probes[0][1] <= began:
            self._probes.popleft()
        self.reached(version)
        self.fresh_as_of = max(self.fresh_as_of, began)

    def absent(self, asked_at: float) -> None:
        """There is no such kind, as was asked at that time."""
        self.last_contact, self.fresh_as_of = self._clock(), max(self.fresh_as_of, asked_at)

    def open_again(self, *, broken_off: bool) -> None:
        """Note that a watch has been opened. After a gap its first events were missed, and are no news.

        An opaque version cannot show when the watch has caught up, so a list has to. Without ``broken_off`` the
        reflector itself ended a quiet watch to open it again, which is a gap only after several probes.
        """
        gap = self._clock() - self.last_contact
        asks = 1 if broken_off else _ASKS
        self.behind = gap > asks * self.quiet
        if self.behind and version_number(self.version) < 0:
            self._watch.list_anew()

    async def keep(self) -> NoReturn:
        """Ask after a watch that has been quiet, until cancelled: is there nothing new, or do we not hear it?"""
        while True:
            await self._watch.opened()
            remaining = self.last_contact + self.quiet - self._clock()
            if remaining > 0:
                await self._sleep(remaining)
                continue
            next_at = self._clock() + _BETWEEN_PROBES
            found, seconds = await self._probed()
            self._look_closer(found)
            await self._sleep(max(next_at - self._clock(), seconds, 0.0))

    async def probe(self) -> bool:
        """Ask for the newest version there is; ``True`` if the picture was up to date when this was called.

        Versions are counted over all kinds, so a quiet kind lags behind without missing anything. Then ``False`` means
        "not known yet": ``fresh_as_of`` moves on when an event or a bookmark reaches the version asked for.
        """
        found, _ = await self._probed()
        return found == "fresh"

    async def _probed(self) -> tuple[_Probed, float]:
        """Probe once; return the result and the seconds of the API server's ``Retry-After``.

        A probe is a consistent read, so a version below an earlier probe's means that versions went back.
        """
        began = self._clock()
        seen = max((version_number(self.version), *(version for version, _ in self._probes)))
        try:
            newest = await self._watch.newest_version()
        except KubeError as error:
            self._on_failure(error)
            return "failed", asked_for(error)
        if newest is None:
            return "failed", 0.0
        self._on_answer()
        if newest < seen:
            self._probes.clear()
            self._watch.start_over()
            return "went back", 0.0
        self._probes.append((newest, began))
        self._settle()
        return ("fresh" if self.fresh_as_of >= began else "newer"), 0.0

    def _look_closer(self, found: _Probed) -> None:
        """Open the watch anew where it may be cut off. It costs one request.

        A short one is left alone: it is about to tell. Nothing is ended before the API server answers again.
        """
        if found == "failed":
            self._suspect = True
        elif found != "went back" and (self._suspect or (found == "newer" and not self._watch.is_short)):
            broken_off, self._suspect = self._suspect, False
            self._watch.reopen(broken_off=broken_off)

    def _settle(self) -> None:
        seen = version_number(self.version)
        while self._probes and self._probes[0][0] <= seen:
            _, began = self._probes.popleft()
            self.behind = self.behind and self._clock() - began > self.quiet + SHORT_WATCH_SECONDS
            self.fresh_as_of = max(self.fresh_as_of, began)
            self.last_contact = max(self.last_contact, began)


def asked_for(error: KubeError) -> float:
    """Seconds that the API server asks to be left alone for, within reason."""
    found = error.retry_after if isinstance(error, ApiError) else None
    return min(found or 0.0, _LONGEST_RETRY_AFTER)
