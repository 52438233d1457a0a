"""The engine of one profile, which runs its plugins at each extension point in kube-scheduler's order.

Rejections are returned, and faults are raised as ``PluginError``. Most extension points run in other modules:
``filters``, ``search``, ``scoring``, ``post_filters`` and ``binding``. This module runs PreEnqueue, QueueSort and the
methods that every plugin can have.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from app.config.profile import Preemption, Preset
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
"""Time limit of each plugin's slow addition to an explanation (``Explanation.later``)."""

_NO_MORE: Final = Explanation()
"""Empty explanation, in place of an addition that a plugin does not have, or that failed or took too long."""

_LARGEST_FIGURE: Final = 1 << 1023
"""Largest integer that a gauge can have. Metrics are floats, and integers from 1 << 1024 on cannot be converted."""

_OPTIONAL_METHODS: Final = (
    (Plugin, "required_objects", "RequiredObjects"),
    (ClusterFilterPlugin, "signature", "Signature"),
    (ClusterFilterPlugin, "depends_on", "DependsOn"),
    (ScorePlugin, "score_depends_on", "ScoreDependsOn"),
    (ScorePlugin, "normalize", "NormalizeScore"),
    (Plugin, "figures", "Figures"),
)
"""Optional methods whose metric series exist from the start. Each entry: base class, method, and value of the metric
label ``extension_point``.
"""


class Framework:
    """Plugins of a profile, created and ready to run.

    ``filters`` and ``search`` run its filters; ``scoring``, ``post_filters`` and ``binding`` run the later extension
    points. ``at_bind`` runs the filters of the check before a bind: those of ``filters``, and the plugins in
    ``added_at_bind``, which run only in that check.

    ``slots``: plugins of every extension point in order. ``served``: scheduler names whose nominated pods are
    considered, including names of other profiles. ``snapshot``: source of the changes that invalidate cached verdicts.
    ``at_most``: maximum number of nodes in a lean answer (an answer of a path below ``/lean``), 0 for all. ``pick``:
    True if a lean answer names only the best node. ``preempts``: True if Homeport evicts pods for this profile's pods.
    """

    def __init__(
        self,
        scheduler_name: str,
        slots: Mapping[str, Sequence[PluginSlot]],
        *,
        added_at_bind: Mapping[str, Sequence[PluginSlot]] = {},
        preset: Preset = "delegated",
        preemption: Preemption = "Never",
        at_most: int = 0,
        pick: bool = False,
        served: Container[str],
        nominations: Nominations,
        snapshot: Snapshot,
        waiting: PodsAtPermit,
        guard: Guard,
    ) -> None:
        self.scheduler_name = scheduler_name
        self.slots = slots
        self.preset = preset
        self.preempts = preemption == "Own"
        self.at_most = at_most
        self.picks = pick
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
            for base, method, timed_as in _OPTIONAL_METHODS:
                if overrides(type(slot.plugin), base, method):
                    guard.expect(name, timed_as)
        self._lookups_at_bind = [
            slot for slot in every.values() if overrides(type(slot.plugin), Plugin, "required_objects")
        ]
        plugins = self.plugins
        self._lookups = [slot for slot in self._lookups_at_bind if slot.name in plugins]

    @property
    def plugins(self) -> dict[str, Any]:
        """All plugins of the profile by name, without those that run only in the check before a bind."""
        return {slot.name: slot.plugin for slots in self.slots.values() for slot in slots}

    def search_without(self, base: type[Any]) -> Search:
        """Create a search with the filters of ``at_bind``, except plugins that inherit from ``base``."""
        slots = {
            point: tuple(slot for slot in of_point if not declares(type(slot.plugin), base))
            for point, of_point in self.at_bind.slots.items()
        }
        return Search(self._filters_of(slots), self._snapshot)

    def required_objects(self, pod: Pod, *, at_bind: bool = False) -> list[tuple[Kind[Any], str, str]]:
        """Return (kind, namespace, name) of objects that a decision about the pod needs and the snapshot lacks.

        ``at_bind``: also for plugins that run only in the check before a bind. Raises ``PluginError``.
        """
        required: list[tuple[Kind[Any], str, str]] = []
        for slot in self._lookups_at_bind if at_bind else self._lookups:
            required += self._guard.call(slot.name, "RequiredObjects", required_objects, slot.plugin, pod)
        return required

    def checking(self) -> Iterator[str]:
        """Compare cached verdicts and scores with new ones, in steps. Yields for each step a sentence that names the
        plugin whose results differ, or an empty string.
        """
        yield from self.search.checking_verdicts()
        yield from self.scoring.checking_scores()

    def pre_enqueue(self, pod: Pod) -> Status:
        """Run the PreEnqueue plugins up to the first status that is not Success, and return that status.

        Raises ``PluginError``.
        """
        for slot in self.slots["preEnqueue"]:
            status = self._guard.status(slot.name, "PreEnqueue", slot.plugin.pre_enqueue, pod)
            if not status.is_success:
                return status.by(slot.name)
        return SUCCESS

    def less(self, pod: Pod, queued_at: float, other: Pod, other_queued_at: float) -> bool:
        """Return True if ``pod`` is scheduled before ``other``. Times are in seconds on the caller's clock.

        Raises ``PluginError``.
        """
        (slot,) = self.slots["queueSort"]
        before: bool = self._guard.call(
            slot.name, "QueueSort", slot.plugin.less, pod, queued_at, other, other_queued_at
        )
        return before

    def scoring_without(self, names: Collection[str]) -> Scoring:
        """Return the scoring without the plugins in ``names``."""
        if not any(slot.name in names for point in ("preScore", "score") for slot in self.slots[point]):
            return self.scoring
        slots = {point: tuple(it for it in of_point if it.name not in names) for point, of_point in self.slots.items()}
        return Scoring(self.scheduler_name, slots, guard=self._guard, snapshot=self._snapshot)

    def explain(
        self, pod: Pod, nodes: Candidates, failing: Container[str] = (), without: Container[str] = ()
    ) -> dict[str, Explanation]:
        """Return the explanations of the plugins that have one, by plugin name; those in ``without`` do not run.

        ``failing``: plugins that are left out if they fail. Raises ``PluginError`` if another plugin fails.
        """
        explained = {}
        for name, plugin in self.plugins.items():
            if name not in without and overrides(type(plugin), Plugin, "explain"):
                with suppress(*((PluginError,) if name in failing else ())):
                    explained[name] = self.explain_with(name, pod, nodes)
        return explained

    def explain_with(self, name: str, pod: Pod, nodes: Candidates) -> Explanation:
        """Return the explanation of one plugin. Raises ``PluginError``."""
        explanation: Explanation = self._guard.call(name, "Explain", _explained, self.plugins[name], pod, nodes)
        return explanation

    async def explain_later(
        self, explained: Mapping[str, Explanation], feasible: Collection[str]
    ) -> dict[str, Explanation]:
        """Compute the slow additions (``Explanation.later``) concurrently, and return the explanations with them.

        An addition that takes longer than ``INQUIRY_SECONDS``, or fails, is left out. ``feasible``: nodes that pass all
        filters.
        """
        additions: dict[str, Explanation] = {}

        async def ask(name: str, later: Callable[[Collection[str]], Awaitable[object]]) -> None:
            with suppress(PluginError, TimeoutError):  # the guard has logged the fault
                async with asyncio.timeout(INQUIRY_SECONDS):
                    additions[name] = await self._guard.acall(name, "Explain", _later, later, feasible)

        await asyncio.gather(
            *(ask(name, explanation.later) for name, explanation in explained.items() if explanation.later is not None)
        )
        return {name: _with(explanation, additions.get(name, _NO_MORE)) for name, explanation in explained.items()}

    def figures(self) -> Iterator[Figure | None]:
        """Yield the gauges of all plugins, step by step, with ``None`` for steps without a gauge.

        If a plugin fails or yields an invalid gauge, its remaining gauges are skipped.
        """
        for name, plugin in self.plugins.items():
            if overrides(type(plugin), Plugin, "figures"):
                with suppress(PluginError):  # the guard has logged the fault
                    yield from self._figures_of(name, plugin)

    def _figures_of(self, name: str, plugin: Plugin) -> Iterator[Figure | None]:
        for figure in read_only_steps(self._guard, name, "Figures", plugin.figures):
            if figure is not None and not (isinstance(figure, Figure) and is_exposable(figure)):
                raise self._guard.wrong_answer(name, "Figures", figure, "a Figure that Prometheus can store")
            yield figure


def is_exposable(figure: Figure) -> bool:
    """Return True if the figure can be exposed: its names are in lower case, and Prometheus can store its texts and its
    value. A label ``profile`` is not allowed, because Homeport sets that label.
    """
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
    """Return True if the value is a string that can be encoded in UTF-8, which fails for lone surrogates."""
    try:
        str.encode(text)
    except (TypeError, UnicodeEncodeError):
        return False
    return True


async def _later(later: Callable[[Collection[str]], Awaitable[object]], feasible: Collection[str]) -> Explanation:
    return _an_explanation(await later(feasible))


def _with(first: Explanation, more: Explanation) -> Explanation:
    tables, hints = (*first.tables, *more.tables), (*first.unblock, *more.unblock)
    return Explanation(tables, hints, limits=(*first.limits, *more.limits), home=first.home)


def _explained(plugin: Plugin, pod: Pod, nodes: Candidates) -> Explanation:
    return _an_explanation(plugin.explain(pod, nodes))


def _an_explanation(answer: Any) -> Explanation:
    if not isinstance(answer, Explanation):
        raise WrongAnswer(f"returned a {type(answer).__name__}, not an Explanation")
    return answer
