"""What holds up the event loop is told."""

from __future__ import annotations

import asyncio
import time

from app.telemetry.loop import watch_lag


async def test_a_loop_that_is_held_up_is_told_by_how_much() -> None:
    told: list[float] = []
    first = asyncio.Event()

    def observe(seconds: float) -> None:
        told.append(seconds)
        first.set()

    watching = asyncio.create_task(watch_lag(observe))
    await asyncio.sleep(0.2)
    time.sleep(0.2)  # noqa: ASYNC251  # the loop is to be held up
    await first.wait()
    watching.cancel()

    assert told[0] >= 0.1
