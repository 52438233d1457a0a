"""The engine: runs the plugins of one profile, extension point by extension point, in kube-scheduler's order.

Rejections are returned, faults raised as ``PluginError``. Most extension points are run by one of its parts; here are
the parts together, PreEnqueue, QueueSort, and the questions that all plugins answer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from app.config.profile import Preset
from app.framework.explanation import Explanation, Figure
from app.framework.node_info import Candidates
from app.framework.points import ClusterFilterPlugin, Plugin, ScorePlugin
from app.framework.status import SUCCESS, Status
from app.kube.core_v1 import Pod
from app.kube.kinds import Kind
from app.runtime.binding import BindingCycle
from app.runtime.filters import Filters
from app.runtime.guard import Guard, PluginError, WrongAnswer, required_objects
from app.runtime.post_filters import PostFilters
from app.runtime.read_only import read_only_steps
from app.runtime.scoring import Scoring
from app.runtime.search import Search
from app.runtime.slots import PluginSlot, declares, overrides
from app.runtime.snapshot import Nominations, Snapshot
from app.runtime.waiting import PodsAtPermit

INQUIRY_SECONDS: Final = 6.0
_NO_MORE: Final = Explanation()
_A_FIGURE: Final = "a Figure with a name and labels as metrics have"
_LARGEST_FIGURE: Final = 1 << 1023
"""Whole numbers beyond have no float, which is what is exposed."""

_ASIDE: Final = (
    (Plugin, "required_objects", "RequiredObjects"),
    (ClusterFilterPlugin, "signature", "Signature"),
    (ClusterFilterPlugin, "depends_on", "DependsOn"),
    (ScorePlugin, "score_depends_on", "ScoreDependsOn"),
    (ScorePlugin, "normalize", "NormalizeScore"),
    (Plugin, "figures", "Figures"),
)
"""What plugins are asked for beside the extension points, by the name under which it is timed."""


class Framework:
    """The compiled form of a profile.

    ``filters`` and ``search`` run its filters, ``scoring``, ``post_filters`` and ``binding`` the extension points after
    these. ``at_bind`` are the filters for the re-check before a bind: with the plugins ``added_at_bind``, which take
    part nowhere else, and otherwise identical to ``filters``.

    ``slots`` holds the plugins of every extension point in order. ``served`` are the scheduler names whose nominated
    pods count: those of the other profiles too. ``snapshot``: what is kept is brought up to date by it. ``at_most`` and
    ``pick``: how many nodes a lean answer names, and whether it is the best alone. ``not_judged``: filters of
    kube-scheduler's default profile that this profile does not run.
    """

    def __init__(
        self,
        scheduler_name: str,
        slots: Mapping[str, Sequence[PluginSlot]],
        *,
        added_at_bind: Mapping[str, Sequence[PluginSlot]] = {},
        preset: Preset = "delegated",
        at_most: int = 0,
        pick: bool = False,
        not_judged: Sequence[str] = (),
        served: Container[str],
        nominations: Nominations,
        snapshot: Snapshot,
        waiting: PodsAtPermit,
        guard: Guard,
    ) -> None:
        self.scheduler_name = scheduler_name
        self.slots = slots
        self.preset = preset
        self.at_most = at_most
        self.picks = pick
        self.not_judged = tuple(not_judged)
        self.added_at_bind = tuple(dict.fromkeys(slot.name for added in added_at_bind.values() for slot in added))
        self._snapshot = snapshot
        self._guard = guard
        self._filters_of = partial(Filters, scheduler_name, served=served, nominations=nominations, guard=guard)
        self.filters = self._filters_of(slots)
        self.search = Search(self.filters, snapshot)
        at_bind = {**slots, **{point: (*slots[point], *added) for point, added in added_at_bind.items()}}
        self.at_bind = self._filters_of(at_bind) if self.added_at_bind else self.filters
        self.scoring = Scoring(scheduler_name, slots, guard=guard, snapshot=snapshot)
        self.post_filters = PostFilters(slots, guard)
        self.binding = BindingCycle(scheduler_name, slots, guard=guard, waiting=waiting)
        every = {slot.name: slot for of_point in at_bind.values() for slot in of_point}
        for point, of_point in at_bind.items():
            for slot in of_point:
                guard.expect(slot.name, point[:1].upper() + point[1:], scheduler_name)
        for name, slot in every.items():
            for base, method, timed_as in _ASIDE:
                if overrides(type(slot.plugin), base, method):
                    guard.expect(name, timed_as)
        self._lookups_at_bind = [
            slot for slot in every.values() if overrides(type(slot.plugin), Plugin, "required_objects")
        ]
        plugins = self.plugins
        self._lookups = [slot for slot in self._lookups_at_bind if slot.name in plugins]

    @property
    def plugins(self) -> dict[str, Any]:
        """Every plugin of the profile by name, without those that are asked at bind alone."""
        return {slot.name: slot.plugin for slots in self.slots.values() for slot in slots}

    def search_without(self, base: type[Any]) -> Search:
        """Return a search with the filters of plugins that do not name ``base``, with those added at bind."""
        slots = {
            point: tuple(slot for slot in of_point if not declares(type(slot.plugin), base))
            for point, of_point in self.at_bind.slots.items()
        }
        return Search(self._filters_of(slots), self._snapshot)

    def required_objects(self, pod: Pod, *, at_bind: bool = False) -> list[tuple[Kind[Any], str, str]]:
        """Objects that a decision about the pod needs and the snapshot does not have. Raises ``PluginError``."""
        found: list[tuple[Kind[Any], str, str]] = []
        for slot in self._lookups_at_bind if at_bind else self._lookups:
            found += self._guard.call(slot.name, "RequiredObjects", required_objects, slot.plugin, pod)
        return found

    def checking(self) -> Iterator[str]:
        """What is kept and differs from what plugins say now, in words; empty for each step in which nothing does."""
        yield from self.search.checking_verdicts()
        yield from self.scoring.checking_scores()

    def pre_enqueue(self, pod: Pod) -> Status:
        """May the pod be considered? The first plugin that says no keeps it out; the others are not asked."""
        for slot in self.slots["preEnqueue"]:
            status = self._guard.status(slot.name, "PreEnqueue", slot.plugin.pre_enqueue, pod)
            if not status.is_success:
                return status.by(slot.name)
        return SUCCESS

    def less(self, pod: Pod, queued_at: float, other: Pod, other_queued_at: float) -> bool:
        """Whether ``pod`` comes before ``other``; times are on the caller's clock."""
        (slot,) = self.slots["queueSort"]
        before: bool = self._guard.call(
            slot.name, "QueueSort", slot.plugin.less, pod, queued_at, other, other_queued_at
        )
        return before

    def explain(self, pod: Pod, nodes: Candidates) -> dict[str, Explanation]:
        """What the answers of the plugins rest on, by plugin, where a plugin can say."""
        return {
            name: self._guard.call(name, "Explain", _explained, plugin, pod, nodes)
            for name, plugin in self.plugins.items()
            if overrides(type(plugin), Plugin, "explain")
        }

    async def explain_later(
        self, explained: Mapping[str, Explanation], feasible: Collection[str]
    ) -> dict[str, Explanation]:
        """Return the explanations with what plugins add to them, which they find out all at once.

        What takes longer than ``INQUIRY_SECONDS``, or fails, is left out. ``feasible``: nodes that pass all filters.
        """
        found: dict[str, Explanation] = {}

        async def ask(name: str, later: Callable[[Collection[str]], Awaitable[object]]) -> None:
            with suppress(PluginError, TimeoutError):  # a fault is logged by the guard
                async with asyncio.timeout(INQUIRY_SECONDS):
                    found[name] = await self._guard.acall(name, "Explain", _later, later, feasible)

        await asyncio.gather(*(ask(name, it.later) for name, it in explained.items() if it.later is not None))
        return {name: _with(it, found.get(name, _NO_MORE)) for name, it in explained.items()}

    def figures(self) -> Iterator[Figure | None]:
        """The figures of all plugins, step by step. One that fails, or gives something else, is left out."""
        for name, plugin in self.plugins.items():
            if overrides(type(plugin), Plugin, "figures"):
                with suppress(PluginError):  # logged by the guard
                    yield from self._figures_of(name, plugin)

    def _figures_of(self, name: str, plugin: Plugin) -> Iterator[Figure | None]:
        for found in read_only_steps(self._guard, name, "Figures", plugin.figures):
            if found is not None and not (isinstance(found, Figure) and is_exposable(found)):
                raise self._guard.wrong_answer(
                    name, "Figures", found, "a Figure with a name and labels as metrics have"
                )
            yield found


def is_exposable(figure: Figure) -> bool:
    """Whether Prometheus could take it. The label ``profile`` is ours: two with it could become equal samples."""
    names: list[Any] = [figure.name, *figure.labels]
    return (
        all(isinstance(it, str) and re.fullmatch("[a-z][a-z0-9_]*", it) for it in names)
        and "profile" not in figure.labels
        and all(_is_unicode(it) for it in (figure.text, *figure.labels.values()))
        and _is_number(figure.value)
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and abs(value) <= _LARGEST_FIGURE)


def _is_unicode(text: Any) -> bool:
    """Whether it is text: half of a surrogate pair cannot be sent to anybody."""
    try:
        str.encode(text)
    except (TypeError, UnicodeEncodeError):
        return False
    return True


async def _later(later: Callable[[Collection[str]], Awaitable[object]], feasible: Collection[str]) -> Explanation:
    return _an_explanation(await later(feasible))


def _with(first: Explanation, more: Explanation) -> Explanation:
    return Explanation((*first.tables, *more.tables), (*first.unblock, *more.unblock))


def _explained(plugin: Plugin, pod: Pod, nodes: Candidates) -> Explanation:
    return _an_explanation(plugin.explain(pod, nodes))


def _an_explanation(found: Any) -> Explanation:
    if not isinstance(found, Explanation):
        raise WrongAnswer(f"returned a {type(found).__name__}, not an Explanation")
    return found
