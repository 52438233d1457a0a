"""What goes on side by side in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


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
