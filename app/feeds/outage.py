"""Logs an outage of the API server: once for all kinds together, and again each minute until the outage ends.

::

    a kind fails ─▶ away for 2 s: logged ─▶ logged again each minute ─▶ every kind is answered for 1 s: back, logged

Each kind has a watch of its own and reports its failures and answers here. A connection that breaks and is restored
within ``PATIENCE_SECONDS`` is not logged.
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
"""Minimum duration in seconds of an outage that is logged."""

AGAIN_SECONDS: Final = 60.0
"""Seconds after which an outage that continues is logged again."""

STEADY_SECONDS: Final = 1.0
"""Seconds that must pass without a failing kind before an outage is over."""

_LOOK_SECONDS: Final = 1.0
"""Interval in seconds at which ``run`` calls ``look``."""

_LOG: Final = structlog.get_logger(__name__)


class Outage:
    """Detects and logs outages. ``address``: returns the API server's address for the log; empty if unknown."""

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
        self._logged_at = -inf
        self._is_logged = False

    def failed(self, kind: str, cause: KubeError) -> None:
        """Record that a list, watch or probe of a kind failed."""
        if self._since == inf:
            self._since = self._clock()
        self._failing[kind] = cause

    def answered(self, kind: str) -> None:
        """Record that the API server answered a list, watch or probe of a kind."""
        if self._failing.pop(kind, None) is not None and not self._failing:
            self._well_since = self._clock()

    async def run(self) -> None:
        """Call ``look`` every ``_LOOK_SECONDS``, until cancelled."""
        while True:
            await self._sleep(_LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Log that an outage has begun, continues or is over, once the time for the message has come."""
        if self._since == inf:
            return
        now = self._clock()
        if self._failing:
            if now - self._since >= PATIENCE_SECONDS and now - self._logged_at >= AGAIN_SECONDS:
                self._is_logged, self._logged_at = True, now
                self._log_outage(now - self._since)
        elif now - self._well_since >= STEADY_SECONDS:
            if self._is_logged:
                seconds = round(self._well_since - self._since, 1)
                _LOG.info("API server back", address=self._address(), seconds=seconds)
            self._since, self._logged_at, self._is_logged = inf, -inf, False

    def _log_outage(self, seconds: float) -> None:
        """Log the error of the kind that fails longest: "away" if the API server did not answer, else "refuses"."""
        cause = next(iter(self._failing.values()))
        _LOG.warning(
            "API server away" if isinstance(cause, ApiUnavailable) else "API server refuses",
            address=self._address(),
            cause=str(cause),
            kinds=sorted(self._failing),
            seconds=round(seconds, 1),
        )
