"""Tells of an API server that is away, as one story for the whole process.

::

    a kind fails ─▶ away for 2 s: said ─▶ said again each minute ─▶ every kind is answered again, for a second: back

Each kind has a watch of its own and notices by itself; what it notices is told here, and what is told depends on how
long it lasts. A connection that breaks and is back at once is nobody's outage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from time import monotonic
from typing import Final

import structlog

from app.kube.api_errors import ApiUnavailable, KubeError

PATIENCE_SECONDS: Final = 2.0
AGAIN_SECONDS: Final = 60.0
STEADY_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 1.0

_LOG: Final = structlog.get_logger(__name__)


class Outage:
    """``address`` says where the API server is, as far as that is known."""

    def __init__(
        self,
        address: Callable[[], str],
        *,
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._address = address
        self._clock = clock
        self._sleep = sleep
        self._failing: dict[str, KubeError] = {}
        self._since = inf
        self._well_since = inf
        self._said_at = -inf
        self._said = False

    def failed(self, kind: str, cause: KubeError) -> None:
        """The watch of a kind has broken, or could not be opened."""
        if self._since == inf:
            self._since = self._clock()
        self._failing[kind] = cause

    def answered(self, kind: str) -> None:
        """The API server has answered about a kind."""
        if self._failing.pop(kind, None) is not None and not self._failing:
            self._well_since = self._clock()

    async def run(self) -> None:
        """Tell, until cancelled."""
        while True:
            await self._sleep(_LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Tell what is to be told now."""
        if self._since == inf:
            return
        now = self._clock()
        if self._failing:
            if now - self._since >= PATIENCE_SECONDS and now - self._said_at >= AGAIN_SECONDS:
                self._said, self._said_at = True, now
                self._say(now - self._since)
        elif now - self._well_since >= STEADY_SECONDS:
            if self._said:
                seconds = round(self._well_since - self._since, 1)
                _LOG.info("API server back", address=self._address(), seconds=seconds)
            self._since, self._said_at, self._said = inf, -inf, False

    def _say(self, seconds: float) -> None:
        """Log an outage. An API server that answers, though uselessly, is not away."""
        cause = next(iter(self._failing.values()))
        _LOG.warning(
            "API server away" if isinstance(cause, ApiUnavailable) else "API server refuses",
            address=self._address(),
            cause=str(cause),
            kinds=sorted(self._failing),
            seconds=round(seconds, 1),
        )
