"""Plan of a drain: which pods leave the node, where each finds room together with all the others, and which pods wait.

The pods are placed one after the other on a snapshot in which all of them have left the node, and in which earlier ones
are on their new nodes: resources, spread and all else that the profile's filters read add up. Their order is that of
schedulers: first pods that can start elsewhere at once, then pods that wait for their home during their grace; within
each group by priority, then by age. Pods that wait for their home forever take no room elsewhere. Plugins that keep
homes do not filter nodes here; their policies only decide when a pod can start elsewhere.

The plan is read-only: no Event, write or cache change. Each pod is judged on the snapshot at that time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from msgspec import Struct

from app.homes.evictions import DrainOutcome, EvictedPods
from app.homes.lists import HomeLists
from app.homes.placing import DrainPlacement, Rulebook
from app.runtime.guard import PluginError
from app.runtime.read_only import read_only
from app.verbs.context import VerbContext, require_snapshot
from app.verbs.outcome import VerbFailure
from app.verbs.stepwise import run_stepwise

SECONDS: Final = 8.0
"""Time limit for evaluating pods. The request has ten seconds."""


class PlannedDrain(Struct, frozen=True):
    """Plan of a drain. ``profile``: profile whose filters apply; empty if each pod's own profile does.

    ``counted``, ``not_counted``: filter plugins that were applied or not · ``homes``, ``others``: in the order of
    placement · ``more``, ``more_others``: number of each that is not listed · ``lost``: number of pods that no
    controller would recreate.
    """

    node: str
    is_known: bool
    profile: str
    preset: str
    counted: Sequence[str]
    not_counted: Sequence[str]
    homes: Sequence[DrainOutcome]
    others: Sequence[DrainOutcome]
    more: int = 0
    more_others: int = 0
    lost: int = 0


class DrainVerb:
    """Plans the drain of one node at a time."""

    def __init__(
        self,
        context: VerbContext,
        homes: HomeLists,
        *,
        every_filter: Sequence[str],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """``every_filter``: filters of kube-scheduler's default profile."""
        self._context = context
        self._homes = homes
        self._every_filter = every_filter
        self._clock = clock

    async def plan(self, node: str) -> PlannedDrain:
        """Plan the drain of a node. Raises ``VerbFailure``."""
        require_snapshot(self._context.problem)
        with read_only():
            try:
                return await self._planned(node)
            except PluginError as fault:
                raise VerbFailure("fault", fault.status.message) from fault

    async def _planned(self, node: str) -> PlannedDrain:
        rules = Rulebook(self._context)
        evictions = EvictedPods(self._context, self._homes, node)
        ends_at = self._clock() + SECONDS
        await run_stepwise(evictions.reading())
        placing = DrainPlacement(self._context, node, rules, evictions.leaving, lambda: self._clock() > ends_at)
        outcomes = await placing.all(evictions.evicted)
        counted = rules.filters()
        return PlannedDrain(
            node,
            is_known=self._context.cluster.has_node(node),
            profile=rules.profile,
            preset=rules.preset,
            counted=counted,
            not_counted=[it for it in self._every_filter if it not in counted],
            homes=[*(it for it in outcomes if it.home is not None), *evictions.staying],
            others=[it for it in outcomes if it.home is None],
            more=evictions.more,
            more_others=evictions.more_others,
            lost=evictions.lost,
        )
