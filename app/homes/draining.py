"""Plan of a drain: the pods that leave the node, new nodes on which they all fit together, and the pods that wait.

The pods are placed one after the other. For each, the profile's filters see a snapshot in which all these pods have
left the node and earlier ones are on their new nodes. So the filters count all pods placed before. Pods that can start
elsewhere at once are placed first, then pods that wait for their home during their grace period. Within each group the
order is by priority, then by age, like in the scheduling queue. Pods that wait for their home forever take no capacity
elsewhere. Plugins that keep homes do not filter nodes here; their policies only decide when a pod can start elsewhere.

Computing a plan writes nothing, records no Event and changes no cache. Each pod is evaluated on the snapshot of that
moment.
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
from app.verbs.similar import similar
from app.verbs.stepwise import run_stepwise
from app.verbs.unserved import printable

SECONDS: Final = 8.0
"""Time limit in seconds for evaluating pods. The whole request is limited to ten seconds."""


class PlannedDrain(Struct, frozen=True):
    """Plan of a drain. ``profile``: profile that is used for all pods; empty if each pod's own profile is used.

    ``counted``, ``not_counted``: filter plugins that were applied, and those that were not · ``homes``, ``others``:
    outcomes for homes and for other pods, in the order of placement · ``more``, ``more_others``: number of homes and of
    other pods that are not listed · ``lost``: number of pods that no controller would recreate · ``suggestion``: text
    that names similar nodes if the node does not exist.
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
    suggestion: str = ""


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
        counted, nodes = rules.filters(), self._context.cluster.nodes
        return PlannedDrain(
            node,
            is_known=node in nodes,
            profile=rules.profile,
            preset=rules.preset,
            counted=counted,
            not_counted=[it for it in self._every_filter if it not in counted],
            homes=[*(it for it in outcomes if it.home is not None), *evictions.staying],
            others=[it for it in outcomes if it.home is None],
            more=evictions.more,
            more_others=evictions.more_others,
            lost=evictions.lost,
            suggestion="" if node in nodes else similar(printable(node), nodes),
        )
