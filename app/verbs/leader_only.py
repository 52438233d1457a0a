"""What several replicas add to the verbs: a bind waits for a take-over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from app.verbs.outcome import Answer, VerbFailure
from app.wire.extender_v1 import MalformedRequest, decode_binding

_WAIT: Final = 0.9
"""Part of its time that a bind waits, so that it can say in time what for."""


class Admission(Protocol):
    """Whether this replica may bind yet."""

    def may_bind(self, namespace: str) -> str:
        """Why not; empty if it may."""
        ...

    async def admitted(self, namespace: str, seconds: float) -> str:
        """The same, after a wait of at most so many seconds for it to become possible."""
        ...


class LeaderOnlyBind:
    """The bind verb of a replica that leads. ``time_limit``: seconds a caller is kept waiting, the wait included."""

    def __init__(
        self,
        bind: Callable[[bytes | memoryview], Awaitable[Answer]],
        admission: Admission,
        clock: Callable[[], float],
        *,
        time_limit: float,
    ) -> None:
        self._bind = bind
        self._admission = admission
        self._clock = clock
        self._time_limit = time_limit

    async def __call__(self, body: bytes | memoryview) -> Answer:
        """Answer a bind request. Raises ``VerbFailure``."""
        until = self._clock() + self._time_limit
        try:
            namespace = decode_binding(body).namespace
        except MalformedRequest:
            return await self._bind(body)  # which says what is wrong with it
        if self._admission.may_bind(namespace):
            problem = await self._admission.admitted(namespace, self._time_limit * _WAIT)
            if problem:
                raise VerbFailure("no_leader", f"homeport: {problem}")
        limit = asyncio.timeout(until - self._clock())
        try:
            async with limit:
                return await self._bind(body)
        except TimeoutError:
            if not limit.expired():
                raise
            raise VerbFailure("out_of_time", "homeport: the bind has not settled in time") from None
