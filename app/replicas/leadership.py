"""Whether this process decides, as all others ask it: the composition root gives it once, and nobody looks for more.

``Replica`` answers for one of several processes, ``ALONE`` for one that has nobody beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from app.replicas.lease import LeaseRecord


class Leadership(Protocol):
    """What a process knows of its own part. What tells why not does so in a sentence, empty if it may."""

    @property
    def leads(self) -> bool:
        """Whether decisions are taken here."""
        ...

    @property
    def identity(self) -> str:
        """The name in the election; empty for a process alone."""
        ...

    @property
    def record(self) -> LeaseRecord | None:
        """The Lease as last seen; ``None`` without one."""
        ...

    def problem(self) -> str:
        """Why no verb can be answered, here or elsewhere."""
        ...

    def role(self) -> str:
        """For a person, where ``problem`` is empty; empty for a process alone."""
        ...

    def may_write(self) -> str:
        """Why nothing may be written now."""
        ...

    def may_bind(self, namespace: str) -> str:
        """Why no pod of the namespace may be bound now."""
        ...

    async def admitted(self, namespace: str, seconds: float) -> str:
        """The same, after a wait of at most so many seconds for it to become possible."""
        ...

    def is_remembered(self, scheduler_name: str) -> bool:
        """Whether a Binding for a pod of that scheduler may leave: who takes over from here knows of it."""
        ...

    async def remember(self, scheduler_name: str, seconds: float) -> str:
        """Wait at most so many seconds until it is remembered; returns why it is not."""
        ...

    async def leading(self) -> None:
        """Wait until this process leads and may write."""
        ...

    async def lost(self) -> None:
        """Wait until it does not lead."""
        ...

    async def hand_over(self, settle: Callable[[], Awaitable[bool]]) -> None:
        """Before its end: let another process lead, if there are several. ``settle``: see ``Replica.hand_over``."""
        ...

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class Alone:
    """It always leads, and has nobody to hand over to."""

    leads: Final = True
    identity: Final = ""
    record: Final = None

    def problem(self) -> str:
        return ""

    def role(self) -> str:
        return ""

    def may_write(self) -> str:
        return ""

    def may_bind(self, _namespace: str) -> str:
        return ""

    async def admitted(self, _namespace: str, _seconds: float) -> str:
        return ""

    def is_remembered(self, _scheduler_name: str) -> bool:
        return True

    async def remember(self, _scheduler_name: str, _seconds: float) -> str:
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
