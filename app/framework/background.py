"""Helpers to run tasks concurrently, run a generator to its end, and compute back-off delays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

_T = TypeVar("_T")


async def run_together(*runs: Callable[[], Awaitable[None]]) -> None:
    """Call all ``runs``, and run the returned awaitables concurrently until the last one ends.

    If one fails, cancel the others and raise its exception. If this call is cancelled, cancel all.
    """

    async def one(run: Callable[[], Awaitable[None]]) -> None:
        await run()

    tasks = [asyncio.ensure_future(one(run)) for run in runs]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def run_to_end(steps: Generator[Any, Any, _T]) -> _T:
    """Run a generator to its end without a pause, and return its return value."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result


def next_delay(pause: float, shortest: float, longest: float) -> float:
    """Return the next delay of an exponential back-off: twice the previous one.

    It is at least ``shortest`` and at most ``longest``. ``pause``: the previous delay, 0 for the first. All are in
    seconds.
    """
    return min(max(2 * pause, shortest), longest)
