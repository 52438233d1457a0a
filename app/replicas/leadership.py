"""Interface to leadership for all other packages; the composition root passes it in.

Implemented by ``Replica`` for one of several processes, and by ``ALONE`` for a single process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from app.replicas.lease_record import LeaseRecord
from app.writes.bind_guard import SingleProcess
from app.writes.writes import MayWrite


class Leadership(MayWrite, Protocol):
    """State of this process in the election. Methods that return a reason return an empty string if there is none."""

    @property
    def leads(self) -> bool:
        """True if this process takes the decisions."""
        ...

    @property
    def identity(self) -> str:
        """The holder name in the election; empty for a single process."""
        ...

    @property
    def record(self) -> LeaseRecord | None:
        """The Lease as last seen; ``None`` without one."""
        ...

    def problem(self) -> str:
        """Return why no verb can be answered, here or by another replica."""
        ...

    def role(self) -> str:
        """Describe the role to a reader, if ``problem`` is empty; empty for a single process."""
        ...

    async def leading(self) -> None:
        """Wait until this process leads and may write."""
        ...

    async def lost(self) -> None:
        """Wait until this process does not lead."""
        ...

    async def hand_over(self, settle: Callable[[], Awaitable[bool]]) -> None:
        """Let another replica lead before this process ends. ``settle``: see ``Replica.hand_over``."""
        ...

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class Alone(SingleProcess):
    """A single process: always leads, and has no successor."""

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
