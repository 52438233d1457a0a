"""Binds that wait for others in flight to settle, and how they keep from waiting for one another."""

from __future__ import annotations

import asyncio
from typing import Final

from app.cache.assumed import AssumedPods
from app.framework.status import unschedulable
from app.writes.batches import BindBatches
from app.writes.bind_guard import NotBound

UNSETTLED: Final = "other binds that this one depends on did not settle in time"
ENTANGLED: Final = "this bind and others under way wait for one another"


class Settlements:
    """``count``: how many binds in flight have settled so far. ``batches``: what may hold one of them."""

    def __init__(self, assumed: AssumedPods, batches: BindBatches) -> None:
        self.count = 0
        self._batches = batches
        self._assumed = assumed
        self._blocked: set[str] = set()
        self._settled = asyncio.Event()
        assumed.on_settled(self._settle)

    async def next(self, seconds: float) -> None:
        """Until any bind in flight has settled. Raises ``NotBound`` if none does in so many seconds."""
        with self._batches.awaited():
            try:
                await asyncio.wait_for(self._settled.wait(), seconds)
            except TimeoutError:
                raise NotBound(unschedulable(UNSETTLED)) from None

    async def next_after(self, count: int, uid: str, seconds: float) -> None:
        """The same for a pod that is in flight itself, unless one has settled since there were ``count``.

        Who holds a place in the picture does not wait for others that wait themselves: nobody would ever move.
        """
        if self.count != count:
            return
        if all(it.uid in self._blocked for it in self._assumed.in_flight() if it.uid != uid):
            raise NotBound(unschedulable(ENTANGLED))
        self._blocked.add(uid)
        try:
            await self.next(seconds)
        finally:
            self._blocked.discard(uid)

    def _settle(self) -> None:
        self.count += 1
        self._blocked.clear()  # each looks again, though not at once
        self._settled.set()
        self._settled = asyncio.Event()
