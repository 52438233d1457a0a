"""Runs the background tasks of plugins while this process leads, and restarts them after a fault with a back-off."""

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
"""Seconds between the first fault of a task and its restart. The delay doubles with each consecutive fault."""

MOST_SECONDS: Final = 60.0
"""Maximum delay in seconds before a restart.

If a task ran for at least this long before its fault, the delay begins with ``AGAIN_SECONDS`` again.
"""


class PluginRun:
    """Background task of one plugin of one profile, to be registered with ``Supervisor.while_leading``.

    ``complete`` waits until the snapshot of the cluster is complete.
    """

    def __init__(
        self, name: str, plugin: BackgroundPlugin, guard: Guard, complete: Callable[[], Awaitable[None]]
    ) -> None:
        self._name = name
        self._plugin = plugin
        self._guard = guard
        self._complete = complete
        guard.expect_faults(name, _POINT)

    async def run(self) -> None:
        """Run the plugin's task until cancelled, with restarts after faults.

        A task that returns is not restarted until this process becomes leader again.
        """
        await self._complete()
        time, pause = asyncio.get_running_loop().time, AGAIN_SECONDS
        while True:
            began = time()
            try:
                await self._guard.watched(self._name, _POINT, self._plugin.run)
            except PluginError:  # the guard has logged the fault
                pause = AGAIN_SECONDS if time() - began >= MOST_SECONDS else pause
                await asyncio.sleep(pause)
                pause = next_delay(pause, AGAIN_SECONDS, MOST_SECONDS)
            else:
                await asyncio.Event().wait()


def runs_of(
    frameworks: Iterable[Framework], guard: Guard, complete: Callable[[], Awaitable[None]]
) -> Iterator[tuple[str, PluginRun]]:
    """Yield a name for logs and a ``PluginRun`` for each plugin with a background task, for each of its profiles."""
    for framework in frameworks:
        for name, plugin in framework.plugins.items():
            if declares(type(plugin), BackgroundPlugin):
                yield f"{name} of {framework.scheduler_name}", PluginRun(name, plugin, guard, complete)
