"""What a drain of a node would mean: who goes, where each finds room beside all the others, and who waits.

Those that go are placed one after the other on a picture in which all of them have left the node, and those placed
before have come where they were placed: room, spread and whatever else the profile's filters read add up. They come in
the order in which schedulers would take them: first those that may start elsewhere at once, then those that wait for
their home as long as their grace is; of each, higher priority first, then the older. Those that wait for their home for
good take no room elsewhere. Plugins that keep homes have no say in where a pod could run, and their policies all in
when it may.

It is a question: nothing is told, written or kept. Each pod is judged on the picture as it is then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from msgspec import Struct

from app.homes.lists import HomeLists
from app.homes.lodging import Lodger, Lodging
from app.homes.placing import Placing, Rulebook
from app.runtime.asking import question
from app.runtime.guard import PluginError
from app.verbs.context import VerbContext, require_picture
from app.verbs.outcome import VerbFailure
from app.verbs.slices import in_slices

SECONDS: Final = 8.0
"""After which nobody else is judged: a page has ten."""


class Plan(Struct, frozen=True):
    """``profile``: by whose rules, empty for each pod's own · ``counted``, ``not_counted``: filter plugins.

    ``homes`` and ``others`` are in the order in which they were judged · ``more``, ``more_others``: of each that
    are not told of · ``lost``: pods that no controller would make anew.
    """

    node: str
    is_known: bool
    profile: str
    preset: str
    counted: Sequence[str]
    not_counted: Sequence[str]
    homes: Sequence[Lodger]
    others: Sequence[Lodger]
    more: int = 0
    more_others: int = 0
    lost: int = 0


class DrainVerb:
    """Looks at one node at a time: pages take turns."""

    def __init__(
        self,
        context: VerbContext,
        homes: HomeLists,
        *,
        every_filter: Sequence[str],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """``every_filter``: the filters of kube-scheduler's default profile."""
        self._context = context
        self._homes = homes
        self._every_filter = every_filter
        self._clock = clock

    async def plan(self, node: str) -> Plan:
        """Raises ``VerbFailure``."""
        require_picture(self._context.problem)
        with question():
            try:
                return await self._planned(node)
            except PluginError as fault:
                raise VerbFailure("fault", fault.status.message) from fault

    async def _planned(self, node: str) -> Plan:
        rules = Rulebook(self._context)
        lodging = Lodging(self._context, self._homes, node)
        ends_at = self._clock() + SECONDS
        await in_slices(lodging.reading())
        placing = Placing(self._context, node, rules, lodging.leaving, lambda: self._clock() > ends_at)
        told = await placing.all(lodging.goers)
        counted = rules.filters()
        return Plan(
            node,
            is_known=self._context.cluster.has_node(node),
            profile=rules.profile,
            preset=rules.preset,
            counted=counted,
            not_counted=[it for it in self._every_filter if it not in counted],
            homes=[*(it for it in told if it.home is not None), *lodging.staying],
            others=[it for it in told if it.home is None],
            more=lodging.more,
            more_others=lodging.more_others,
            lost=lodging.lost,
        )
