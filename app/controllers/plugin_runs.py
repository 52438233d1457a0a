"""What a plugin does in the background, as long as this process decides: begun anew when it fails, after a pause."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final

from app.framework.background import next_delay
from app.framework.points import BackgroundPlugin
from app.runtime.framework import Framework
from app.runtime.guard import Guard, PluginError
from app.runtime.slots import declares

_POINT: Final = "Run"

AGAIN_SECONDS: Final = 1.0
"""From a fault until it is begun again. It doubles with each fault that follows."""

MOST_SECONDS: Final = 60.0
"""The longest pause; one that ran for as long begins with the shortest again."""


class PluginRun:
    """One plugin of one profile. ``run`` is for ``Supervisor.while_leading``."""

    def __init__(
        self, name: str, plugin: BackgroundPlugin, guard: Guard, complete: Callable[[], Awaitable[None]]
    ) -> None:
        self._name = name
        self._plugin = plugin
        self._guard = guard
        self._complete = complete
        guard.expect_faults(name, _POINT)

    async def run(self) -> None:
        """Until it is cancelled, also where the plugin has nothing more to do: it may have when it is begun anew."""
        await self._complete()
        time, pause = asyncio.get_running_loop().time, AGAIN_SECONDS
        while True:
            began = time()
            try:
                await self._guard.watched(self._name, _POINT, self._plugin.run)
            except PluginError:  # logged by the guard
                pause = AGAIN_SECONDS if time() - began >= MOST_SECONDS else pause
                await asyncio.sleep(pause)
                pause = next_delay(pause, AGAIN_SECONDS, MOST_SECONDS)
            else:
                await asyncio.Event().wait()


def runs_of(
    frameworks: Iterable[Framework], guard: Guard, complete: Callable[[], Awaitable[None]]
) -> Iterator[tuple[str, PluginRun]]:
    """Each with a name of its own, for a person."""
    for framework in frameworks:
        for name, plugin in framework.plugins.items():
            if declares(type(plugin), BackgroundPlugin):
                yield f"{name} of {framework.scheduler_name}", PluginRun(name, plugin, guard, complete)
