"""Waits until binds in flight are sent or settle, without deadlocks between binds that wait for each other.

A bind is sent when the check before its Binding has passed. It settles when it has succeeded or failed, or when its pod
begins to wait at Permit.
"""

from __future__ import annotations

import asyncio
from typing import Final

from app.cache.assumed import AssumedPods
from app.framework.status import unschedulable
from app.writes.batches import BindBatches
from app.writes.bind_guard import NotBound

UNSETTLED: Final = "other binds that this one depends on did not settle in time"
ENTANGLED: Final = "this bind and other binds in flight wait for each other"


class Settlements:
    """Waits for binds to be sent or to settle. ``count``: number of times that a bind has settled so far.

    ``early``: UID of the pod that is assumed although its bind is not certain; else empty.

    ``batches``: delays Bindings, except while a bind waits here.
    """

    def __init__(self, assumed: AssumedPods, batches: BindBatches) -> None:
        self.count = 0
        self.early = ""
        self._batches = batches
        self._assumed = assumed
        self._blocked: set[str] = set()
        self._sent: set[str] = set()
        self._settled = asyncio.Event()
        self._moved = asyncio.Event()
        assumed.on_settled(self._settle)

    def sent(self, uid: str) -> None:
        """Note that the Binding of a pod is sent now, so its bind usually settles without waiting for another bind."""
        self._sent.add(uid)
        self._moved.set()
        self._moved = asyncio.Event()

    def ended(self, uid: str) -> None:
        """Note that no Binding of the pod is being sent any more, although its bind has not settled."""
        self._sent.discard(uid)

    def all_sent(self) -> bool:
        """Return true if each bind in flight is being sent. Return false if the outcome of one is unclear, because it
        can stay unclear for seconds.
        """
        return all(it.uid in self._sent for it in self._assumed.in_flight())

    async def wait_early(self, uid: str, seconds: float) -> None:
        """Wait like ``wait_next``, but only until a bind settles. Meanwhile the pod ``uid`` is assumed early.

        At most one pod is assumed early at a time, because its own bind is not sent.
        """
        self.early = uid
        self._blocked.add(uid)
        try:
            await self._wait(self._settled, seconds)
        finally:
            if self.early == uid:
                self.early = ""
            self._blocked.discard(uid)

    def withdraw_early(self) -> str:
        """Return the UID of the pod that is assumed early. The caller ends its assumption, which wakes its bind."""
        uid, self.early = self.early, ""
        return uid

    async def wait_next(self, seconds: float) -> None:
        """Wait until any bind in flight is sent or has settled. Raises ``NotBound`` after ``seconds``."""
        await self._wait(self._moved, seconds)

    async def wait_next_after(self, count: int, uid: str, seconds: float) -> None:
        """Wait until a bind settles, for a pod whose own bind (``uid``) is in flight.

        Return at once if the number of settled binds is no longer ``count``. Raises ``NotBound`` after ``seconds``, or
        at once if all other binds in flight wait here too, because the binds would then wait for each other.
        """
        if self.count != count:
            return
        if all(it.uid in self._blocked for it in self._assumed.in_flight() if it.uid != uid):
            raise NotBound(unschedulable(ENTANGLED))
        self._blocked.add(uid)
        try:
            await self._wait(self._settled, seconds)
        finally:
            self._blocked.discard(uid)

    async def _wait(self, event: asyncio.Event, seconds: float) -> None:
        with self._batches.awaited():
            try:
                await asyncio.wait_for(event.wait(), seconds)
            except TimeoutError:
                raise NotBound(unschedulable(UNSETTLED)) from None

    def _settle(self, uid: str) -> None:
        self.count += 1
        self._sent.discard(uid)
        self._blocked.clear()  # all waiting binds continue, and check again
        for event in (self._settled, self._moved):
            event.set()
        self._settled, self._moved = asyncio.Event(), asyncio.Event()
