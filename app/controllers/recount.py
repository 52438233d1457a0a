"""What is kept must be what a recount says: if ever it is not, somebody should know before it matters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import structlog

from app.cache.checking import check_in_turns
from app.cache.cluster import Cluster
from app.runtime.framework import Framework

BETWEEN_SECONDS: Final = 3600.0
"""Between two recounts that nobody asked for."""

_MOST_NAMED: Final = 10
_LOG: Final = structlog.get_logger(__name__)


class RecountController:
    """Of the picture, and of what profiles keep. ``counted`` is told of each whether it differed."""

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
            found = await self.once()
            if found:
                _LOG.error("picture differs from a recount", differences=found[:_MOST_NAMED])

    async def once(self) -> list[str]:
        """What differs now, in words; others decide meanwhile."""
        found = await check_in_turns(self._cluster, *(it.checking() for it in self._frameworks))
        self._counted(bool(found))
        return found
