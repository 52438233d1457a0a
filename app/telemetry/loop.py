"""Measures the lag of the event loop, because code that blocks the loop delays every decision."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

_PERIOD_SECONDS: Final = 0.25


async def watch_lag(observe: Callable[[float], None]) -> None:
    """Call ``observe`` four times a second with the delay of a timer of the event loop, in seconds, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        expected = loop.time() + _PERIOD_SECONDS
        await asyncio.sleep(_PERIOD_SECONDS)
        observe(max(0.0, loop.time() - expected))
