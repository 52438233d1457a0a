"""Work on many things, in steps between which everything else has its turn."""

from __future__ import annotations

from time import monotonic
from typing import Final

from app.framework.interface import Sleep

STEP_SECONDS: Final = 0.001
"""Of one step, before it ends with the thing in hand."""


class Steps:
    """To be awaited after each thing that was looked at."""

    def __init__(self, sleep: Sleep) -> None:
        self._sleep = sleep
        self._until = 0.0

    async def __call__(self) -> None:
        if monotonic() > self._until:
            await self._sleep(0)
            self._until = monotonic() + STEP_SECONDS
