"""Runs the controllers and other background tasks, some in every process and some only in the leader.

::

    everywhere     begin ──▶ run ──────────────────────────────▶ the process ends
    while leading  begin ──▶ wait to lead ──▶ run ──▶ leadership lost ──▶ wait to lead ──▶ …

No other module of this package checks whether this process leads. If a task ends by a fault, the fault is logged and
the task is restarted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from app.telemetry.background import Background

Run = Callable[[], Awaitable[None]]
"""Body of a task: runs until cancelled, and then cleans up. If it returns, it is not started again."""


class Leads(Protocol):
    """Part of the leadership interface that the supervisor uses. ``leads`` is true while this process is the leader."""

    @property
    def leads(self) -> bool: ...

    async def leading(self) -> None:
        """Wait until this process leads and may write."""
        ...

    async def lost(self) -> None:
        """Wait until this process does not lead."""
        ...


class Supervisor:
    """Starts and stops the registered tasks. All must be registered before ``start``; their names appear in logs."""

    def __init__(self, leadership: Leads) -> None:
        self._leadership = leadership
        self._runs: dict[str, Run] = {}
        self._background = Background()

    def everywhere(self, name: str, run: Run) -> None:
        """Register a task that every replica runs."""
        self._runs[name] = run

    def while_leading(self, name: str, run: Run) -> None:
        """Register a task that starts when this process leads and may write, and is cancelled when it stops leading."""
        self._runs[name] = partial(self._run_while_leading, run)

    def problem(self) -> str:
        """Return why tasks for the leader must not act now; empty if this process leads."""
        return "" if self._leadership.leads else "another replica decides"

    def start(self) -> None:
        for name, run in self._runs.items():
            self._background.begin(name, run)

    def stalled(self) -> str:
        """Return a message about a task that has failed after every restart for a minute; empty if none has."""
        return self._background.problem()

    async def stop(self) -> None:
        """Cancel all tasks, and return once they have ended."""
        await self._background.stop()

    async def _run_while_leading(self, run: Run) -> None:
        done = False
        while not done:
            await self._leadership.leading()
            done = await self._run_until_lost(run)

    async def _run_until_lost(self, run: Run) -> bool:
        """Run the task until it returns or leadership is lost; return true if it returned.

        Raises the exceptions of the task.
        """
        running = asyncio.ensure_future(run())
        lost = asyncio.ensure_future(self._leadership.lost())
        try:
            await asyncio.wait((running, lost), return_when=asyncio.FIRST_COMPLETED)
            for task in (running, lost):
                if task.done():
                    await task
            return running.done()
        finally:
            for task in (running, lost):
                task.cancel()
            await asyncio.gather(running, lost, return_exceptions=True)
