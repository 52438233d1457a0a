"""Places the pods that leave a drained node, so that each fits together with all pods placed before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from heapq import nsmallest
from typing import Final, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from app.framework.cycle_state import CycleState
from app.framework.node_info import Candidates
from app.framework.status import Status
from app.homes.evictions import DrainOutcome, EvictedPod, NodeSearch, Restart, tried_first
from app.homes.protocol import HomesPlugin
from app.kube.core_v1 import Pod
from app.kube.meta_v1 import ObjectKey
from app.runtime.filters import Filters
from app.runtime.framework import Framework
from app.runtime.guard import PluginError
from app.runtime.search import Search
from app.verbs.candidates import unreadable_nodes
from app.verbs.context import VerbContext
from app.verbs.stepwise import decide_prepared, yield_to_loop

_A_STEP: Final = 512
"""Maximum number of nodes evaluated in one step."""

_MOST_SCORED: Final = 256
"""Maximum number of passing nodes that are scored. If more pass, those with the fewest pods are scored."""

_COMPLETE: Final = "complete"
_DELEGATED: Final = "delegated"

NOT_JUDGED: Final = "not judged: {}"
OUT_OF_TIME: Final = NOT_JUDGED.format("it took too long")
NO_PROFILE: Final = NOT_JUDGED.format("no profile for its schedulerName")

_T = TypeVar("_T")


class Rules(Struct, frozen=True):
    """Filters and scores for one pod."""

    framework: Framework
    search: Search


class _Search(Struct):
    """Intermediate result of a search. ``emptiest``: passing nodes, each with its number of pods."""

    passed: list[str] = []
    emptiest: list[tuple[int, str]] = []
    rejected: Counter[tuple[str, tuple[str, ...]]] = field(default_factory=Counter)
    pre_filter: Status | None = None

    @property
    def why(self) -> str:
        """Most frequent rejection, with its count."""
        if self.pre_filter is not None:
            return _rejection_text(self.pre_filter.plugin, self.pre_filter.reasons)
        total = self.rejected.total() + len(self.passed)
        return next((f"{count} of {total}: {_rejection_text(*it)}" for it, count in self.rejected.most_common(1)), "")


def _rejection_text(plugin: str, reasons: Iterable[str]) -> str:
    text = ", ".join(reasons)
    return f"{plugin}: {text}" if plugin else text


def _judged_but_last(filters: Filters, pod: Pod, nodes: Candidates) -> tuple[Status, Mapping[str, Status]]:
    """Run PreFilter and all filters except ``filter_last``, which depends on the passing nodes; return status and
    rejections.
    """
    state = CycleState()
    prepared = filters.pre_filter(state, pod)
    if not prepared.status.is_success:
        return prepared.status, dict.fromkeys(nodes.names, prepared.status)
    outside = prepared.outside(nodes)
    return prepared.status, {**outside, **filters.filter(state, pod, nodes.without(outside))}


def _counted(rejections: Mapping[str, Status]) -> Counter[tuple[str, tuple[str, ...]]]:
    return Counter((it.plugin, it.reasons) for it in rejections.values())


class Rulebook:
    """Selects the profile that is used for each pod: the first profile with the preset ``complete``, if there are also
    profiles without it; otherwise the pod's own profile.
    """

    def __init__(self, context: VerbContext) -> None:
        self._context = context
        complete = sorted(name for name, it in context.profiles.items() if it.preset == _COMPLETE)
        self.preset: Final = _COMPLETE if complete else _DELEGATED
        self.profile: Final = complete[0] if complete and len(complete) < len(context.profiles) else ""
        self._made: dict[str, Rules] = {}

    def of(self, pod: Pod) -> Rules | None:
        """Return the rules for a pod; ``None`` if it has no profile here."""
        context = self._context
        framework = context.profiles[self.profile] if self.profile else context.framework_for(pod)
        return None if framework is None else self._of(framework)

    def filters(self) -> list[str]:
        """Return the filters that were applied to all evaluated pods. If no pod was evaluated, return those that would
        apply.
        """
        profiles = self._context.profiles
        frameworks_without_pods = [profiles[self.profile]] if self.profile else list(profiles.values())
        frameworks = [it.framework for it in self._made.values()] or frameworks_without_pods
        names = [[slot.name for slot in self._of(it).search.filters.slots["filter"]] for it in frameworks]
        return [name for name in names[0] if all(name in each for each in names)]

    def _of(self, framework: Framework) -> Rules:
        name = framework.scheduler_name
        if name not in self._made:
            self._made[name] = Rules(framework, framework.search_without(HomesPlugin))
        return self._made[name]


class DrainPlacement:
    """Places pods one after the other. ``leaving``: pods that are no longer on the node."""

    def __init__(
        self,
        context: VerbContext,
        node: str,
        rules: Rulebook,
        leaving: Sequence[Pod],
        is_over: Callable[[], bool],
    ) -> None:
        self._cluster = context.cluster
        self._node = node
        self._rules = rules
        self._leaving = leaving
        self._is_over = is_over
        self._placed: dict[ObjectKey, Pod] = {}

    async def all(self, evicted: Iterable[EvictedPod]) -> list[DrainOutcome]:
        """Return the outcome for each pod in the order of placement; pods that are not evaluated come last."""
        outcomes: list[DrainOutcome] = []
        waiting: dict[Restart, list[EvictedPod]] = {Restart.GRACE: [], Restart.HELD: []}
        for evicted_pod in sorted(evicted, key=lambda it: it.place):
            outcome = await self._guarded(evicted_pod, self._at_once) if evicted_pod.condition not in waiting else None
            if outcome is not None:
                outcomes.append(outcome)
            else:
                waiting[
                    Restart.GRACE if evicted_pod.condition in (Restart.GRACE, Restart.HOME) else Restart.HELD
                ].append(evicted_pod)
        outcomes += [await self._guarded(evicted_pod, self._after_grace) for evicted_pod in waiting[Restart.GRACE]]
        outcomes += [await self._guarded(evicted_pod, self._held) for evicted_pod in waiting[Restart.HELD]]
        return sorted(outcomes, key=lambda it: not it.is_judged)

    async def _guarded(self, evicted_pod: EvictedPod, ask: Callable[[EvictedPod], Awaitable[_T]]) -> _T | DrainOutcome:
        """Evaluate one pod. A fault that concerns this pod, such as an unreadable object, does not affect the
        others.
        """
        try:
            return await ask(evicted_pod)
        except PluginError as fault:
            return evicted_pod.outcome(NOT_JUDGED.format(fault.status.message), is_judged=False)

    async def _at_once(self, evicted_pod: EvictedPod) -> DrainOutcome | None:
        """Place a pod that can start now. Return ``None`` if the pod must wait, because its home is another node that
        rejects the pod.
        """
        rules, reason = self._rules_of(evicted_pod)
        if rules is None:
            return evicted_pod.outcome(reason, is_judged=False)
        if home := tried_first(evicted_pod.home, self._node):
            result = await self._search(rules, evicted_pod, (home,))
            if result.best:
                return self._place(evicted_pod, result, f"goes home to {home}", waits_for="")
            if evicted_pod.condition is not Restart.FREE:
                return None
        result = await self._search(rules, evicted_pod)
        if result.best:
            return self._place(evicted_pod, result, f"starts on {result.best}", waits_for="")
        return await self._without_room(rules, evicted_pod, result, "waits")

    async def _after_grace(self, evicted_pod: EvictedPod) -> DrainOutcome:
        rules, reason = self._rules_of(evicted_pod)
        if rules is None or evicted_pod.home is None:
            return evicted_pod.outcome(reason, is_judged=False)
        result = await self._search(rules, evicted_pod)
        if result.best:
            then = f"waits for {evicted_pod.home.node}; after its grace starts on {result.best}"
            return self._place(evicted_pod, result, then, waits_for=evicted_pod.home.node)
        return await self._without_room(
            rules, evicted_pod, result, f"waits for {evicted_pod.home.node}, and after its grace"
        )

    async def _held(self, evicted_pod: EvictedPod) -> DrainOutcome:
        """Evaluate a pod that waits for its home forever.

        The pod is not placed. The listed nodes are those where it could run if its home were released.
        """
        rules, reason = self._rules_of(evicted_pod)
        if rules is None or evicted_pod.home is None:
            return evicted_pod.outcome(reason, is_judged=False)
        home = evicted_pod.home.node
        result = await self._search(rules, evicted_pod)
        if evicted_pod.condition is Restart.HELD:
            return evicted_pod.outcome(f"waits for {home}", result)
        refused = await self._search(rules, evicted_pod, (home,))
        return evicted_pod.outcome(f"waits for {home}, which does not take it: {refused.why}", result)

    async def _without_room(
        self, rules: Rules, evicted_pod: EvictedPod, result: NodeSearch, waits: str
    ) -> DrainOutcome:
        alone = await self._search(rules, evicted_pod, alone=True) if self._placed else result
        why = "the others take its room" if alone.passed else "no other node takes it"
        return evicted_pod.outcome(f"{waits}: {why}", result, fits_alone=bool(alone.passed))

    def _rules_of(self, evicted_pod: EvictedPod) -> tuple[Rules | None, str]:
        """Return the rules for a pod, or ``None`` and the reason why the pod is not evaluated."""
        if evicted_pod.fault:
            return None, NOT_JUDGED.format(evicted_pod.fault)
        if self._is_over():
            return None, OUT_OF_TIME
        rules = self._rules.of(evicted_pod.pod)
        return rules, NO_PROFILE if rules is None else ""

    def _place(self, evicted_pod: EvictedPod, result: NodeSearch, then: str, *, waits_for: str) -> DrainOutcome:
        self._placed[evicted_pod.pod.key] = replace(evicted_pod.pod, node_name=result.best).nominated("")
        return evicted_pod.outcome(then, result, goes_to=result.best, fits_alone=True, waits_for=waits_for)

    async def _search(
        self, rules: Rules, evicted_pod: EvictedPod, names: Sequence[str] | None = None, *, alone: bool = False
    ) -> NodeSearch:
        """Search nodes for a pod together with all pods placed before; ``alone``: without them."""
        pod = replace(evicted_pod.pod, node_name="").nominated("")
        refused = {self._node, *unreadable_nodes(self._cluster)}
        candidates = [it for it in (names or tuple(self._cluster.nodes)) if it not in refused]
        progress = _Search()
        for start in range(0, len(candidates), _A_STEP):
            await yield_to_loop()
            await decide_prepared(
                partial(self._judge, rules, pod, candidates[start : start + _A_STEP], progress, alone)
            )
        if progress.passed and rules.search.filters.has_last_filters:
            await yield_to_loop()
            await decide_prepared(partial(self._judge_last, rules, pod, candidates, progress, alone))
        if not progress.passed:
            return NodeSearch(why=progress.why)
        await yield_to_loop()
        best = (
            "" if alone else await decide_prepared(partial(self._best, rules, pod, [it for _, it in progress.emptiest]))
        )
        return NodeSearch(progress.passed, best, progress.why)

    def _judge(self, rules: Rules, pod: Pod, names: Sequence[str], progress: _Search, alone: bool) -> None:
        """Evaluate one batch of nodes. Raises ``PluginError`` or ``Unprepared`` before any result is stored."""
        with self._overlaid(alone=alone):
            nodes = self._known(names)
            if rules.search.filters.has_last_filters:
                pre_filter, rejections = _judged_but_last(rules.search.filters, pod, nodes)
                passed = list(nodes.without(rejections).names)
            else:
                result = rules.search.find_nodes_that_fit(pod, nodes)
                pre_filter, passed, rejections = result.pre_filter, list(result.passed), result.rejected()
            emptiest = [(len(nodes.info(it).pods), it) for it in passed]
        progress.passed += passed
        progress.emptiest = nsmallest(_MOST_SCORED, progress.emptiest + emptiest)
        progress.rejected += _counted(rejections)
        if not pre_filter.is_success:
            progress.pre_filter = pre_filter

    def _judge_last(self, rules: Rules, pod: Pod, names: Sequence[str], progress: _Search, alone: bool) -> None:
        """Apply ``filter_last`` of all plugins, which depends on all passing nodes. Raises ``PluginError`` or
        ``Unprepared``.
        """
        with self._overlaid(alone=alone):
            state, nodes = CycleState(), self._known(names)
            passed = nodes.among(list(filter(self._cluster.has_node, progress.passed)))
            if not rules.search.filters.pre_filter(state, pod).status.is_success:
                return  # the status has changed since the other filters ran
            rejections = rules.search.filters.filter_last(state, pod, nodes, passed.names)
            left = passed.without(rejections)
            emptiest = [(len(it.pods), it.name) for it in left]
        progress.passed = list(left.names)
        progress.emptiest = nsmallest(_MOST_SCORED, emptiest)
        progress.rejected += _counted(rejections)

    def _best(self, rules: Rules, pod: Pod, names: Sequence[str]) -> str:
        """Return the best node. Raises ``PluginError`` or ``Unprepared``."""
        with self._overlaid(alone=False):
            nodes = self._known(names)
            if not len(nodes):
                return ""  # all deleted meanwhile
            best = rules.framework.scoring.score(CycleState(), pod, nodes).best
            return min(best, key=lambda it: (len(nodes.info(it).pods), it))

    def _known(self, names: Sequence[str]) -> Candidates:
        return Candidates(list(filter(self._cluster.has_node, names)), self._cluster.nodes.__getitem__)

    def _overlaid(self, *, alone: bool) -> AbstractContextManager[None]:
        """Show the snapshot without the leaving pods, but (unless ``alone``) with placed pods on their new nodes."""
        placed = {} if alone else self._placed
        gone = [it for it in self._leaving if it.key not in placed]
        return self._cluster.overlay(without=gone, with_=placed.values())
