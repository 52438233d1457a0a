"""Running tasks side by side, steps without a pause, and pauses that grow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

_T = TypeVar("_T")


async def together(*runs: Callable[[], Awaitable[None]]) -> None:
    """All at once, until the last has ended. Where one fails the others are cancelled, and it raises what that did."""

    async def one(run: Callable[[], Awaitable[None]]) -> None:
        await run()

    tasks = [asyncio.ensure_future(one(run)) for run in runs]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def at_once(steps: Generator[Any, Any, _T]) -> _T:
    """Run all ``steps`` without a pause, and return what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result


def longer(pause: float, shortest: float, longest: float) -> float:
    """Return the next pause of an exponential back-off, in seconds; 0 is the pause before the first one."""
    return min(max(2 * pause, shortest), longest)
