"""Where those that leave a node find room, each beside all that were placed before it."""

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
from app.homes.lodging import Found, Goer, Lodger, Way, tried_first
from app.homes.protocol import HomesPlugin
from app.kube.core_v1 import Pod
from app.kube.meta_v1 import ObjectKey
from app.runtime.filters import Filters
from app.runtime.framework import Framework
from app.runtime.guard import PluginError
from app.runtime.search import Search
from app.verbs.candidates import unreadable_nodes
from app.verbs.context import VerbContext
from app.verbs.slices import prepared, turn

_A_STEP: Final = 512
"""Nodes judged at a time."""

_MOST_SCORED: Final = 256
"""Of the nodes that pass, those with the fewest pods are scored, so many of them."""

_COMPLETE: Final = "complete"
_DELEGATED: Final = "delegated"

NOT_JUDGED: Final = "not judged: {}"
OUT_OF_TIME: Final = NOT_JUDGED.format("it took too long")
NO_PROFILE: Final = NOT_JUDGED.format("no profile for its schedulerName")

_T = TypeVar("_T")


class Rules(Struct, frozen=True):
    """Of one pod: where it could run, and which of these nodes a scheduler would rather take."""

    framework: Framework
    search: Search


class _Search(Struct):
    """What was said of nodes so far. ``emptiest``: of those that passed, each after the number of its pods."""

    passed: list[str] = []
    emptiest: list[tuple[int, str]] = []
    rejected: Counter[tuple[str, tuple[str, ...]]] = field(default_factory=Counter)
    pre_filter: Status | None = None

    @property
    def why(self) -> str:
        """What most of those that refuse say."""
        if self.pre_filter is not None:
            return _told(self.pre_filter.plugin, self.pre_filter.reasons)
        total = self.rejected.total() + len(self.passed)
        return next((f"{count} of {total}: {_told(*it)}" for it, count in self.rejected.most_common(1)), "")


def _told(plugin: str, reasons: Iterable[str]) -> str:
    said = ", ".join(reasons)
    return f"{plugin}: {said}" if plugin else said


def _judged_but_last(filters: Filters, pod: Pod, nodes: Candidates) -> tuple[Status, Mapping[str, Status]]:
    """What PreFilter says, and who is rejected, without a word of the filters that go by which nodes pass."""
    state = CycleState()
    prepared = filters.pre_filter(state, pod)
    if not prepared.status.is_success:
        return prepared.status, dict.fromkeys(nodes.names, prepared.status)
    outside = prepared.outside(nodes)
    return prepared.status, {**outside, **filters.filter(state, pod, nodes.without(outside))}


def _counted(rejections: Mapping[str, Status]) -> Counter[tuple[str, tuple[str, ...]]]:
    return Counter((it.plugin, it.reasons) for it in rejections.values())


class Rulebook:
    """By whose rules each pod is judged: its own profile's, or a complete one's where there are others beside it."""

    def __init__(self, context: VerbContext) -> None:
        self._context = context
        complete = sorted(name for name, it in context.profiles.items() if it.preset == _COMPLETE)
        self.preset: Final = _COMPLETE if complete else _DELEGATED
        self.profile: Final = complete[0] if complete and len(complete) < len(context.profiles) else ""
        self._made: dict[str, Rules] = {}

    def of(self, pod: Pod) -> Rules | None:
        """``None`` where the pod is of no profile here."""
        context = self._context
        framework = context.profiles[self.profile] if self.profile else context.framework_for(pod)
        return None if framework is None else self._of(framework)

    def filters(self) -> list[str]:
        """The plugins that every pod was judged by; where none was, that each would be."""
        profiles = self._context.profiles
        asked = [profiles[self.profile]] if self.profile else list(profiles.values())
        frameworks = [it.framework for it in self._made.values()] or asked
        names = [[slot.name for slot in self._of(it).search.filters.slots["filter"]] for it in frameworks]
        return [name for name in names[0] if all(name in each for each in names)]

    def _of(self, framework: Framework) -> Rules:
        name = framework.scheduler_name
        if name not in self._made:
            self._made[name] = Rules(framework, framework.search_without(HomesPlugin))
        return self._made[name]


class Placing:
    """Places one pod after the other. ``leaving``: who is gone from the node then."""

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

    async def all(self, goers: Iterable[Goer]) -> list[Lodger]:
        """What becomes of each, in the order in which they are placed; who is not judged comes last."""
        told: list[Lodger] = []
        waiting: dict[Way, list[Goer]] = {Way.GRACE: [], Way.HELD: []}
        for goer in sorted(goers, key=lambda it: it.place):
            found = await self._judged(goer, self._at_once) if goer.way not in waiting else None
            if found is not None:
                told.append(found)
            else:
                waiting[Way.GRACE if goer.way in (Way.GRACE, Way.HOME) else Way.HELD].append(goer)
        told += [await self._judged(goer, self._after_grace) for goer in waiting[Way.GRACE]]
        told += [await self._judged(goer, self._held) for goer in waiting[Way.HELD]]
        return sorted(told, key=lambda it: not it.is_judged)

    async def _judged(self, goer: Goer, ask: Callable[[Goer], Awaitable[_T]]) -> _T | Lodger:
        """A fault about one pod, as an object of its own that cannot be read, is no word on the others."""
        try:
            return await ask(goer)
        except PluginError as fault:
            return goer.told(NOT_JUDGED.format(fault.status.message), is_judged=False)

    async def _at_once(self, goer: Goer) -> Lodger | None:
        """``None`` for one that has to wait since its home, which is another node, does not take it."""
        rules, said = self._rules_of(goer)
        if rules is None:
            return goer.told(said, is_judged=False)
        if home := tried_first(goer.home, self._node):
            found = await self._search(rules, goer, (home,))
            if found.best:
                return self._place(goer, found, f"goes home to {home}", waits_for="")
            if goer.way is not Way.FREE:
                return None
        found = await self._search(rules, goer)
        if found.best:
            return self._place(goer, found, f"starts on {found.best}", waits_for="")
        return await self._without_room(rules, goer, found, "waits")

    async def _after_grace(self, goer: Goer) -> Lodger:
        rules, said = self._rules_of(goer)
        if rules is None or goer.home is None:
            return goer.told(said, is_judged=False)
        found = await self._search(rules, goer)
        if found.best:
            then = f"waits for {goer.home.node}; after its grace starts on {found.best}"
            return self._place(goer, found, then, waits_for=goer.home.node)
        return await self._without_room(rules, goer, found, f"waits for {goer.home.node}, and after its grace")

    async def _held(self, goer: Goer) -> Lodger:
        """It takes no room: where it could run is what a release would open to it alone."""
        rules, said = self._rules_of(goer)
        if rules is None or goer.home is None:
            return goer.told(said, is_judged=False)
        home = goer.home.node
        found = await self._search(rules, goer)
        if goer.way is Way.HELD:
            return goer.told(f"waits for {home}", found)
        refused = await self._search(rules, goer, (home,))
        return goer.told(f"waits for {home}, which does not take it: {refused.why}", found)

    async def _without_room(self, rules: Rules, goer: Goer, found: Found, waits: str) -> Lodger:
        alone = await self._search(rules, goer, alone=True) if self._placed else found
        why = "the others take its room" if alone.passed else "no other node takes it"
        return goer.told(f"{waits}: {why}", found, fits_alone=bool(alone.passed))

    def _rules_of(self, goer: Goer) -> tuple[Rules | None, str]:
        """What to judge it by; ``None``, and why, where it is not to be judged."""
        if goer.fault:
            return None, NOT_JUDGED.format(goer.fault)
        if self._is_over():
            return None, OUT_OF_TIME
        found = self._rules.of(goer.pod)
        return found, NO_PROFILE if found is None else ""

    def _place(self, goer: Goer, found: Found, then: str, *, waits_for: str) -> Lodger:
        self._placed[goer.pod.key] = replace(goer.pod, node_name=found.best).nominated("")
        return goer.told(then, found, goes_to=found.best, fits_alone=True, waits_for=waits_for)

    async def _search(
        self, rules: Rules, goer: Goer, names: Sequence[str] | None = None, *, alone: bool = False
    ) -> Found:
        """Where it could run beside those that were placed before; ``alone``: beside none of them."""
        pod = replace(goer.pod, node_name="").nominated("")
        refused = {self._node, *unreadable_nodes(self._cluster)}
        asked = [it for it in (names or tuple(self._cluster.nodes)) if it not in refused]
        said = _Search()
        for start in range(0, len(asked), _A_STEP):
            await turn()
            await prepared(partial(self._judge, rules, pod, asked[start : start + _A_STEP], said, alone))
        if said.passed and rules.search.filters.has_last_filters:
            await turn()
            await prepared(partial(self._judge_last, rules, pod, asked, said, alone))
        if not said.passed:
            return Found(why=said.why)
        await turn()
        best = "" if alone else await prepared(partial(self._best, rules, pod, [it for _, it in said.emptiest]))
        return Found(said.passed, best, said.why)

    def _judge(self, rules: Rules, pod: Pod, names: Sequence[str], said: _Search, alone: bool) -> None:
        """Raises ``PluginError`` or ``Unprepared``, and has noted nothing then."""
        with self._laid(alone=alone):
            nodes = self._known(names)
            if rules.search.filters.has_last_filters:
                pre_filter, rejections = _judged_but_last(rules.search.filters, pod, nodes)
                passed = list(nodes.without(rejections).names)
            else:
                found = rules.search.find_nodes_that_fit(pod, nodes)
                pre_filter, passed, rejections = found.pre_filter, list(found.passed), found.rejected()
            emptiest = [(len(nodes.info(it).pods), it) for it in passed]
        said.passed += passed
        said.emptiest = nsmallest(_MOST_SCORED, said.emptiest + emptiest)
        said.rejected += _counted(rejections)
        if not pre_filter.is_success:
            said.pre_filter = pre_filter

    def _judge_last(self, rules: Rules, pod: Pod, names: Sequence[str], said: _Search, alone: bool) -> None:
        """By those alone that go by all nodes that passed. Raises ``PluginError`` or ``Unprepared``."""
        with self._laid(alone=alone):
            state, nodes = CycleState(), self._known(names)
            passed = nodes.among(list(filter(self._cluster.has_node, said.passed)))
            if not rules.search.filters.pre_filter(state, pod).status.is_success:
                return  # so it was not when the others judged
            rejections = rules.search.filters.filter_last(state, pod, nodes, passed.names)
            left = passed.without(rejections)
            emptiest = [(len(it.pods), it.name) for it in left]
        said.passed = list(left.names)
        said.emptiest = nsmallest(_MOST_SCORED, emptiest)
        said.rejected += _counted(rejections)

    def _best(self, rules: Rules, pod: Pod, names: Sequence[str]) -> str:
        """Raises ``PluginError`` or ``Unprepared``."""
        with self._laid(alone=False):
            nodes = self._known(names)
            if not len(nodes):
                return ""  # gone by now
            best = rules.framework.scoring.score(CycleState(), pod, nodes).best
            return min(best, key=lambda it: (len(nodes.info(it).pods), it))

    def _known(self, names: Sequence[str]) -> Candidates:
        return Candidates(list(filter(self._cluster.has_node, names)), self._cluster.nodes.__getitem__)

    def _laid(self, *, alone: bool) -> AbstractContextManager[None]:
        """The picture as it would be."""
        placed = {} if alone else self._placed
        gone = [it for it in self._leaving if it.key not in placed]
        return self._cluster.overlay(without=gone, with_=placed.values())
