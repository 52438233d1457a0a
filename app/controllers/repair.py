"""Puts right what a crash left half done: as soon as the picture is complete, then again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from app.framework.interface import RepairPlugin
from app.runtime.framework import Framework
from app.runtime.guard import Guard, PluginError


class Repair:
    """Asks every plugin that repairs, in each profile. ``interval``: seconds between two rounds."""

    def __init__(
        self, frameworks: Iterable[Framework], guard: Guard, complete: Callable[[], Awaitable[None]], interval: float
    ) -> None:
        self._frameworks = tuple(frameworks)
        self._guard = guard
        self._complete = complete
        self._interval = interval

    async def run(self) -> None:
        await self._complete()
        while True:
            for framework in self._frameworks:
                await self._round(framework)
            await asyncio.sleep(self._interval)

    async def _round(self, framework: Framework) -> None:
        for name, plugin in framework.plugins.items():
            if isinstance(plugin, RepairPlugin):
                try:
                    await self._guard.acall(name, "Repair", plugin.repair)
                except PluginError:
                    continue  # logged by the guard; tried again next time
