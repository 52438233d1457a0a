"""Keeps what is written of homes right where no bind does: in the background, in whoever decides."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from app.framework.interface import Handle
from app.kube.core_v1 import Pod
from plugins.sticky_node.active import ActivePods
from plugins.sticky_node.args import StickyNodeArgs
from plugins.sticky_node.attempts import Attempts, Enough
from plugins.sticky_node.following import Following
from plugins.sticky_node.making import Making
from plugins.sticky_node.memory import HOMES
from plugins.sticky_node.owners import Owner, Owners
from plugins.sticky_node.recording import Recorder
from plugins.sticky_node.remembering import Remembering
from plugins.sticky_node.sealing import Sealing

_PERIOD_SECONDS: Final = 1.0
_LATER_SECONDS: Final = 10.0


class Upkeep:
    """``is_off`` tells whether the policy of an owner with that pod is ``off``: nothing of that machine is recorded."""

    def __init__(
        self,
        args: StickyNodeArgs,
        owners: Owners,
        active: ActivePods,
        making: Making,
        recorder: Recorder,
        handle: Handle,
        *,
        is_off: Callable[[Owner, Pod], bool],
    ) -> None:
        self._objects = handle.objects
        self._clock = handle.clock
        self._sleep = handle.sleep
        self._attempts = Attempts(handle.clock)
        self._sealing = Sealing(owners, active, recorder, self._attempts, handle)
        self._remembering = Remembering(owners, self._attempts, handle)
        self._following = Following(args, owners, active, making, recorder, self._attempts, handle, is_off)
        self._parts = (
            self._sealing.all,
            self._remembering.all,
            self._following.all,
            self._remembering.note,
            self._remembering.forget,
        )
        memory = (HOMES,) if owners.remembers() else ()
        self._kinds = tuple(dict.fromkeys((*owners.keepers(), *owners.controllers(), *memory)))
        self._seen: tuple[int, ...] = ()
        self._is_at_it = False
        self._again = 0.0

    async def run(self) -> None:
        """A round each second in which an owner or a machine has changed, and later on for what the last one left."""
        while True:
            versions = tuple(map(self._objects.version, self._kinds))
            if versions != self._seen or self._clock() >= self._again:
                self._seen = versions
                is_done = await self.round()
                wait = _PERIOD_SECONDS if self._attempts.writes else _LATER_SECONDS
                self._again = inf if is_done else self._clock() + wait
            await self._sleep(_PERIOD_SECONDS)

    async def round(self) -> bool:
        """Look at all owners and machines once; whether nothing is left to do. One at a time: another is left out."""
        if self._is_at_it:
            return False
        self._is_at_it = True
        try:
            return await self._round()
        finally:
            self._is_at_it = False

    async def _round(self) -> bool:
        self._attempts.begin()
        is_done = is_whole = True
        for part in self._parts:
            self._attempts.begin_part()
            try:
                is_done &= await part()
            except Enough:
                is_done = is_whole = False
        if is_whole:
            self._attempts.end()
        return is_done
