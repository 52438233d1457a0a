"""Supervises background tasks: a task that ends with an exception is restarted, and the exception is logged."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import structlog

from app.telemetry.throttle import Throttle

_LOG: Final = structlog.get_logger(__name__)

AGAIN_SECONDS: Final = 2.0
"""Delay before a failed task is restarted."""

RECOVERED_SECONDS: Final = 10.0
"""Seconds after which a restarted task that still runs counts as recovered from its last exception."""

GIVEN_UP_SECONDS: Final = 60.0
"""Seconds for which a task must fail after every restart before ``/livez`` fails. Then the kubelet restarts the
container.
"""

Work = Callable[[], Awaitable[None]]
OnFault = Callable[[BaseException], None]


class Background:
    """Runs named tasks, and restarts those that raise an exception. A task that returns is not restarted.

    Exceptions are logged, at most once a minute per task. While ``problem`` returns a text, ``/livez`` fails with it.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._restarts: dict[str, asyncio.TimerHandle] = {}
        self._begun: dict[str, float] = {}
        self._failing: dict[str, float] = {}
        self._throttle = Throttle()
        self._is_over = False

    def begin(self, name: str, work: Work, on_fault: OnFault = lambda _: None) -> None:
        """Start a task that awaits ``work()``. ``on_fault`` is called with each exception that ends the task."""
        task = asyncio.ensure_future(_run(work))
        self._tasks[name] = task
        self._begun[name] = asyncio.get_running_loop().time()
        task.add_done_callback(partial(self._ended, name, work, on_fault))

    def _ended(self, name: str, work: Work, on_fault: OnFault, task: asyncio.Task[None]) -> None:
        """Schedule the restart of a failed task, then log its exception.

        In this order, an error in logging cannot prevent the restart.
        """
        fault = _fault(task)
        if fault is None:
            self._failing.pop(name, None)
            return
        loop = asyncio.get_running_loop()
        if not self._is_over:
            self._restarts[name] = loop.call_later(AGAIN_SECONDS, self.begin, name, work, on_fault)
        if name not in self._failing or loop.time() - self._begun[name] >= RECOVERED_SECONDS:
            self._failing[name] = loop.time()
        if (held_back := self._throttle.admit(name)) is not None:
            trace = "".join(traceback.format_exception(fault))
            _LOG.error("background task ended", task=name, traceback=trace, since_the_last_line=held_back)
        on_fault(fault)

    def problem(self) -> str:
        """Return a message about a task that has failed after every restart for ``GIVEN_UP_SECONDS``; else ""."""
        for name, since in self._failing.items():
            now = asyncio.get_running_loop().time()
            runs = not self._tasks[name].done() and now - self._begun[name] >= RECOVERED_SECONDS
            if not runs and now - since >= GIVEN_UP_SECONDS:
                return f"task {name} fails after every restart"
        return ""

    def cancel(self) -> None:
        """Cancel all tasks and restarts without waiting. Afterwards no task is restarted."""
        self._is_over = True
        for handle in self._restarts.values():
            handle.cancel()
        for task in self._tasks.values():
            task.cancel()

    async def stop(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        self.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


async def _run(work: Work) -> None:
    """Call ``work`` inside the task, so that the task is restarted even if the call itself raises an exception."""
    await work()


def _fault(task: asyncio.Task[None]) -> BaseException | None:
    """Return the exception that ended the task; ``None`` if it returned or was cancelled.

    If ``cancel`` was not called on the task, a ``CancelledError`` comes from an awaited object, and is a fault.
    """
    try:
        return task.exception()
    except asyncio.CancelledError as cancelled:
        return None if task.cancelling() else cancelled
