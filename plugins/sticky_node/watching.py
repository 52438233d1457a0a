"""What goes on beside the decisions, in the process that decides.

    homes      since when each is not usable is written on its owner, and people are told what changes
    pods       those that wait are woken where filter may answer otherwise by now: kube-scheduler wakes nobody because
               time has passed, or because a home was moved
    refused    of those that wait for a home which takes pods, people are told why it does not take these

Where nothing has moved that these rest on, nothing is looked at. Where something has, it is done in short steps, and
once a second at most.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Any, Final

from app.framework.background import together
from app.framework.interface import Handle
from app.kube.core_v1 import Pod
from app.kube.kinds import Kind
from plugins.sticky_node.clocks import Clocks
from plugins.sticky_node.deciding import Decision
from plugins.sticky_node.owners import Owner, Owners
from plugins.sticky_node.policies import Policies
from plugins.sticky_node.standing import Standings
from plugins.sticky_node.steps import Steps
from plugins.sticky_node.watched_homes import WatchedHomes
from plugins.sticky_node.watched_pods import WatchedPods

TICK_SECONDS: Final = 0.25
"""Between two looks at whether anything has moved, and of writing in one go."""


class Watch:
    """``verdict``: what filter goes by for a pod · ``ends_at``: when time alone changes that, in seconds since 1970.

    ``decided``: what the table says for a pod of an owner, now. These raise ``Unreadable``. ``kinds``: those that all
    this rests on.
    """

    def __init__(
        self,
        owners: Owners,
        standings: Standings,
        policies: Policies,
        clocks: Clocks,
        handle: Handle,
        *,
        verdict: Callable[[Pod], Hashable],
        ends_at: Callable[[Pod], float | None],
        decided: Callable[[Owner, Pod], Decision],
        kinds: Collection[Kind[Any]],
    ) -> None:
        self._sleep = handle.sleep
        self._homes = WatchedHomes(owners, standings, policies, clocks, handle, kinds)
        self._pods = WatchedPods(owners, handle, verdict, ends_at, decided, kinds, clocks)

    def answered(self, pod: Pod, verdict: Hashable) -> None:
        """Filter went by this for a pod. Only the first word for a pod counts: on the hot path, and cheap."""
        self._pods.answered(pod, verdict)

    async def run(self) -> None:
        """Until it is cancelled. A write that waits for its answer keeps no pod waiting."""
        self._homes.begin()
        await self._pods.begin(Steps(self._sleep))
        await together(self._watch_pods, self._watch_homes, self._pods.refused.run)

    async def _watch_pods(self) -> None:
        steps = Steps(self._sleep)
        while True:
            await self._pods.look(steps)
            await self._sleep(TICK_SECONDS)

    async def _watch_homes(self) -> None:
        steps = Steps(self._sleep)
        while True:
            await self._homes.look(steps)
            await self._homes.write(TICK_SECONDS, steps)
            await self._sleep(TICK_SECONDS)
