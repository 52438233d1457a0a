"""Tasks that go on until they are stopped: one that ends by a fault of ours is told, and begun again."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import structlog

_LOG: Final = structlog.get_logger(__name__)

AGAIN_SECONDS: Final = 1.0
"""Before a task that ended by a fault begins again."""

Work = Callable[[], Awaitable[None]]


class Background:
    """Each task has a name, by which it is told. One that returns is done."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._restarts: dict[str, asyncio.TimerHandle] = {}

    def begin(self, name: str, work: Work) -> None:
        task = asyncio.ensure_future(work())
        self._tasks[name] = task
        task.add_done_callback(partial(self._ended, name, work))

    def _ended(self, name: str, work: Work, task: asyncio.Task[None]) -> None:
        fault = _fault(task)
        if fault is not None:
            _LOG.error("background task ended", task=name, traceback="".join(traceback.format_exception(fault)))
            self._restarts[name] = asyncio.get_running_loop().call_later(AGAIN_SECONDS, self.begin, name, work)

    async def stop(self) -> None:
        for handle in self._restarts.values():
            handle.cancel()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


def _fault(task: asyncio.Task[None]) -> BaseException | None:
    """Also where it waited for something else that was cancelled, and nobody has asked it to end."""
    try:
        return task.exception()
    except asyncio.CancelledError as cancelled:
        return None if task.cancelling() else cancelled
