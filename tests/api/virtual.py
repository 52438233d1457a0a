"""Virtual time: an event loop that jumps to the next timer instead of sleeping until it."""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, Final, ParamSpec

P = ParamSpec("P")
_LEAST_JUMP: Final = 1e-9
"""Seconds, as much as asyncio rounds up: who waits for what rounding left of a time would wait a million times."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its clock stands still while there is work and jumps while there is none. Raises where nothing can happen."""

    def __init__(self) -> None:
        self._now = 1000.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self._now

    def jump(self, seconds: float) -> None:
        self._now += seconds


class _Jumping(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found and timeout is None:
            raise AssertionError("everybody waits and nothing is left to happen")
        if not found and timeout:
            self._loop.jump(max(timeout, _LEAST_JUMP))
        return found


def virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Runs an ``async def`` test in virtual time."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


def now() -> float:
    """The clock of the running loop."""
    return asyncio.get_running_loop().time()


async def settle() -> None:
    """Let everything run that can run without time passing."""
    for _ in range(20):
        await asyncio.sleep(0)
