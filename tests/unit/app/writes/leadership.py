"""A replica's word about binds and writes, as a test sets it."""

from __future__ import annotations

import asyncio

from tests.api.virtual import now


class Leadership:
    """Names are remembered when asked for, unless there is a ``problem`` with that; ``bars`` says who may not bind.

    ``problem`` is also why it may not write. ``opens``: seconds from now on after which it may bind.
    """

    def __init__(self, bars: str = "", problem: str = "", opens: float = 0.0) -> None:
        self.bars = bars
        self.problem = problem
        self.names: list[str] = []
        self.asked: list[tuple[str, float]] = []
        self.admissions: list[tuple[str, float]] = []
        self._opens = now() + opens if opens else 0.0

    def may_bind(self, namespace: str) -> str:
        if self._opens and now() < self._opens:
            return "taking over"
        return self.bars and f"{self.bars} in {namespace}"

    async def admitted(self, namespace: str, seconds: float) -> str:
        self.admissions.append((namespace, seconds))
        if self._opens:
            await asyncio.sleep(min(seconds, self._opens - now()))
        return self.may_bind(namespace)

    def is_remembered(self, scheduler_name: str) -> bool:
        return scheduler_name in self.names

    async def remember(self, scheduler_name: str, seconds: float) -> str:
        self.asked.append((scheduler_name, seconds))
        if not self.problem:
            self.names.append(scheduler_name)
        return self.problem

    def may_write(self) -> str:
        return self.problem
