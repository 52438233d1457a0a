"""Long walks in steps of the event loop that are short."""

from __future__ import annotations

from collections.abc import Generator
from time import monotonic
from typing import Final

_STEP_SECONDS: Final = 0.002


class _Breath:
    """Whatever else waits runs first."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class Steps:
    """One walk: by time, since one look may take as long as hundreds of others do."""

    def __init__(self) -> None:
        self._until = monotonic() + _STEP_SECONDS

    async def next(self) -> None:
        """Before each look: lets others have their turn once a step has lasted its 2 ms."""
        if monotonic() > self._until:
            await _Breath()
            self._until = monotonic() + _STEP_SECONDS
