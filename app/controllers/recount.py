"""Compares cached counts with a recount of all cached objects, hourly and on request, to detect faults of the cache."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import structlog

from app.cache.checking import check_in_steps
from app.cache.cluster import Cluster
from app.runtime.framework import Framework

BETWEEN_SECONDS: Final = 3600.0
"""Seconds between two periodic recounts."""

_MOST_NAMED: Final = 10
"""Maximum number of differences in one log line."""

_LOG: Final = structlog.get_logger(__name__)


class RecountController:
    """Verifies the cluster cache, and the verdicts and scores that profiles cache, by a recount.

    ``complete`` waits until the snapshot is complete. ``counted`` is called after each recount, with true if the
    recount found a difference.
    """

    def __init__(
        self,
        cluster: Cluster,
        frameworks: Iterable[Framework],
        complete: Callable[[], Awaitable[None]],
        counted: Callable[[bool], None],
    ) -> None:
        self._cluster = cluster
        self._frameworks = tuple(frameworks)
        self._complete = complete
        self._counted = counted

    async def run(self) -> None:
        await self._complete()
        while True:
            await asyncio.sleep(BETWEEN_SECONDS)
            differences = await self.once()
            if differences:
                _LOG.error("snapshot differs from a recount", differences=differences[:_MOST_NAMED])

    async def once(self) -> list[str]:
        """Recount once; return a description of each difference from the cached counts, verdicts and scores.

        The recount runs in short steps. Requests can be answered between two steps.
        """
        differences = await check_in_steps(self._cluster, *(it.checking() for it in self._frameworks))
        self._counted(bool(differences))
        return differences
