"""Runs all that acts by itself, each for as long as it may: some in every process, some only in the one that leads.

::

    everywhere     begin ──▶ run ──────────────────────────────▶ the process ends
    while leading  begin ──▶ wait to lead ──▶ run ──▶ lead lost ──▶ wait to lead ──▶ …

Whether this process leads is asked here and nowhere else in this room. What ends by a fault is told and begun again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from app.telemetry.background import Background

Run = Callable[[], Awaitable[None]]
"""Acts until it is cancelled, and then puts away what it began. One that returns is done."""


class Leads(Protocol):
    """Whether this process is the one that decides."""

    @property
    def leads(self) -> bool: ...

    async def leading(self) -> None:
        """Wait until it is, and may write."""
        ...

    async def lost(self) -> None:
        """Wait until it is not."""
        ...


class Supervisor:
    """Takes in controllers by name before it starts."""

    def __init__(self, leadership: Leads) -> None:
        self._leadership = leadership
        self._runs: dict[str, Run] = {}
        self._background = Background()

    def everywhere(self, name: str, run: Run) -> None:
        """Of several replicas each runs it."""
        self._runs[name] = run

    def while_leading(self, name: str, run: Run) -> None:
        """Begun when this process leads and may write, cancelled when it no longer leads."""
        self._runs[name] = partial(self._run_while_leading, run)

    def problem(self) -> str:
        """Why what runs while leading must leave a pod alone now; empty if it need not."""
        return "" if self._leadership.leads else "another replica decides"

    def start(self) -> None:
        for name, run in self._runs.items():
            self._background.begin(name, run)

    def stalled(self) -> str:
        """Return which of its tasks cannot be restarted; empty if all run."""
        return self._background.problem()

    async def stop(self) -> None:
        """Returns once all of them have ended."""
        await self._background.stop()

    async def _run_while_leading(self, run: Run) -> None:
        done = False
        while not done:
            await self._leadership.leading()
            done = await self._run_until_lost(run)

    async def _run_until_lost(self, run: Run) -> bool:
        """Whether it has returned by itself. Raises what it raises."""
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
