"""Interface through which other packages ask whether this process leads; the composition root passes an implementation.

``Replica`` implements it for one of several replicas, and ``ALONE`` for a single process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from app.replicas.lease_record import LeaseRecord
from app.writes.bind_guard import SingleProcess
from app.writes.writes import MayWrite


class Leadership(MayWrite, Protocol):
    """Role of this process in the leader election. Methods that return a reason return "" if there is none."""

    @property
    def leads(self) -> bool:
        """True if this process is the leader, which takes all decisions."""
        ...

    @property
    def identity(self) -> str:
        """Name of this process as holder of the Lease; empty for a single process."""
        ...

    @property
    def record(self) -> LeaseRecord | None:
        """Last seen version of the Lease; ``None`` before the first read, without a Lease and for a single process."""
        ...

    def problem(self) -> str:
        """Return why verbs cannot be answered; empty if this process can answer them, or another replica leads."""
        ...

    def role(self) -> str:
        """Return text about the role of this process, for the readiness page: it leads, or which leader it follows.

        The text is empty for a single process, and valid only if ``problem`` is empty.
        """
        ...

    async def leading(self) -> None:
        """Wait until this process leads and may write."""
        ...

    async def lost(self) -> None:
        """Wait until this process does not lead."""
        ...

    async def hand_over(self, settle: Callable[[], Awaitable[bool]]) -> None:
        """Let another replica lead before this process ends.

        ``settle`` waits for binds in flight and returns true if all of them have ended with a known outcome.
        """
        ...

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class Alone(SingleProcess):
    """Leadership of a single process, which always leads and hands over to no other process."""

    leads: Final = True
    identity: Final = ""
    record: Final = None

    def problem(self) -> str:
        return ""

    def role(self) -> str:
        return ""

    def may_write(self) -> str:
        return ""

    async def leading(self) -> None:
        return

    async def lost(self) -> None:
        await asyncio.Event().wait()

    async def hand_over(self, _settle: Callable[[], Awaitable[bool]]) -> None:
        return

    async def start(self) -> None:
        return

    async def stop(self) -> None:
        return


ALONE: Final[Leadership] = Alone()
