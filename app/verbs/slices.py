"""Long work in short steps: the loop is never held up for longer than a few milliseconds.

A decision itself is one step. What it would have to count first (``Unprepared``) is counted before it, in slices; then
it is taken anew, on the picture as it is by then. In the usual case nothing is to be counted, and none of this runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Final, TypeVar

from app.framework.interface import Unprepared

SLICE_SECONDS: Final = 0.004
"""Work done before others get their turn."""

T = TypeVar("T")


async def prepared(decide: Callable[[], T]) -> T:
    """What ``decide`` says once all that it rests on is counted. Nothing is awaited between its answer and the caller.

    What was counted stays: a call that runs out of time before its turn to decide is gone on with by the next one.
    """
    while True:
        try:
            return decide()
        except Unprepared as missing:
            steps = missing.steps
        await in_slices(steps)


async def in_slices(steps: Iterable[object]) -> None:
    """Take all steps, each of them short."""
    until = monotonic() + SLICE_SECONDS
    for _ in steps:
        if monotonic() > until:
            await asyncio.sleep(0)
            until = monotonic() + SLICE_SECONDS
