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

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from functools import partial
from heapq import nsmallest
from time import monotonic
from typing import Any, Final, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from app.framework.cycle_state import CycleState
from app.framework.interface import Home
from app.framework.node_info import Candidates
from app.framework.status import Status
from app.kube.core_v1 import Pod
from app.kube.meta_v1 import ObjectKey
from app.runtime.asking import question
from app.runtime.filtering import Filtering
from app.runtime.framework import Framework
from app.runtime.guard import PluginError
from app.verbs.candidates import unreadable_nodes
from app.verbs.context import VerbContext
from app.verbs.outcome import VerbFailure, require_picture
from app.verbs.slices import in_slices, prepared, turn

MOST_HOMES: Final = 1000
"""Homes of one node that are told of, and so the pods of them that are judged; the rest is counted."""

MOST_PODS: Final = 512
"""Other pods of one node that are judged, and told of. Kubelets run 110 unless they are told otherwise."""

MOST_NAMES: Final = 100
"""Nodes that are named of those on which a pod could run."""

SECONDS: Final = 8.0
"""After which nobody else is judged: a page has ten."""

_A_STEP: Final = 512
"""Nodes judged at a time."""

_MOST_SCORED: Final = 256
"""Of the nodes that pass, those with the fewest pods are scored, so many of them."""

_COMPLETE: Final = "complete"
_DELEGATED: Final = "delegated"
_OFF: Final = "off"
_GRACE: Final = "grace"
_TARGET: Final = "target"
_VOLUME_ELSEWHERE: Final = "volume_elsewhere"
_OWNER_GONE: Final = "owner_gone"
_STAYING: Final = frozenset({"DaemonSet", "Node"})
"""Controllers whose pods no drain evicts: those of a node itself are its static pods."""

NOT_JUDGED: Final = "not judged: {}"
OUT_OF_TIME: Final = NOT_JUDGED.format("it took too long")
NO_PROFILE: Final = NOT_JUDGED.format("no profile for its schedulerName")

_T = TypeVar("_T")


class Way(Enum):
    """When a pod may start again, once the node takes no pods."""

    FREE = "at once, anywhere"
    HOME = "at once, at its home, which is another node; after its grace anywhere"
    HELD_HOME = "at its home, which is another node, and nowhere else"
    GRACE = "after its grace, anywhere"
    HELD = "at its home, which takes no pods then"


class Lodger(Struct, frozen=True):
    """Somebody who has the home on the node, or whose pod runs there. What is not of a home has ``home`` ``None``.

    ``nodes``: the first of those that would take the pod beside all that were placed before it, ``count`` of them in
    all; ``None`` where nobody asked · ``goes_to``: the one that it was placed on · ``waits_for``: the home that it
    waits for, at first or for good · ``fits_alone``: without the others it would find a node · ``why``: what most other
    nodes say · ``then``: what becomes of it, in words.
    """

    namespace: str
    pod: str
    home: Home | None
    then: str
    nodes: Sequence[str] | None = None
    count: int = 0
    goes_to: str = ""
    waits_for: str = ""
    fits_alone: bool | None = None
    why: str = ""
    is_judged: bool = True


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


class _Rules(Struct, frozen=True):
    """Of one pod: where it could run, and which of these nodes a scheduler would rather take."""

    framework: Framework
    filters: Filtering


class _Goer(Struct, frozen=True):
    """``pod`` as the picture has it. ``fault``: why it cannot be said when it may start; mostly empty."""

    pod: Pod
    way: Way
    home: Home | None = None
    fault: str = ""

    @property
    def place(self) -> tuple[int, str, str, str]:
        """In the order of schedulers' queues."""
        return (-self.pod.spec.priority, self.pod.created, *self.pod.key)

    @property
    def waits_for(self) -> str:
        """The home that it waits for, at least for a while; empty for none."""
        return self.home.node if self.home is not None and self.way is not Way.FREE else ""

    def told(self, then: str, found: _Found | None = None, **more: Any) -> Lodger:
        """What is told of it."""
        given: dict[str, Any] = {"waits_for": self.waits_for, **more}
        if found is not None:
            given |= {"nodes": tuple(found.passed[:MOST_NAMES]), "count": len(found.passed), "why": found.why}
        return Lodger(self.pod.namespace, self.pod.name, self.home, then, **given)


_Place = tuple[str, str, str, str, str]
"""Namespace, kind, name, slot and apiVersion of the owner."""


def _place_of(home: Home) -> _Place:
    owner = home.owner
    return (owner.namespace, owner.kind, owner.name, owner.slot, owner.api_version)


class _Found(Struct, frozen=True):
    """``best``: of the nodes that pass and were scored, that with the highest score, then with the fewest pods; empty
    for none.
    """

    passed: Sequence[str] = ()
    best: str = ""
    why: str = ""


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


def _judged_but_last(filters: Filtering, pod: Pod, nodes: Candidates) -> tuple[Status, Mapping[str, Status]]:
    """What PreFilter says, and who is rejected, without a word of the filters that go by which nodes pass."""
    state = CycleState()
    prepared = filters.pre_filter(state, pod)
    if not prepared.status.is_success:
        return prepared.status, dict.fromkeys(nodes.names, prepared.status)
    outside = prepared.outside(nodes)
    return prepared.status, {**outside, **filters.filter(state, pod, nodes.without(outside))}


def _counted(rejections: Mapping[str, Status]) -> Counter[tuple[str, tuple[str, ...]]]:
    return Counter((it.plugin, it.reasons) for it in rejections.values())


def way_of(home: Home, node: str) -> Way:
    """When a pod with that home may start again, once ``node`` takes no pods."""
    if not home.node or not home.holds:
        return Way.FREE
    has_grace = home.policy == _GRACE
    if _is_elsewhere(home, node):
        return Way.HOME if has_grace else Way.HELD_HOME
    return Way.GRACE if has_grace else Way.HELD


def _is_elsewhere(home: Home, node: str) -> bool:
    """Whether the home is another node, to which the pod may go."""
    is_usable = not (home.is_away or home.is_orphaned or home.state == _VOLUME_ELSEWHERE)
    return is_usable and home.node not in ("", node)


def _tried_first(home: Home | None, node: str) -> str:
    """The home, where it is another node that the pod would go to before any other; else empty."""
    if home is None or home.policy == _OFF or home.state == _TARGET or not _is_elsewhere(home, node):
        return ""
    return home.node


class DrainVerb:
    """Looks at one node at a time: pages take turns."""

    def __init__(
        self,
        context: VerbContext,
        homes: Callable[[], Iterator[Home | None]],
        *,
        every_filter: Sequence[str],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """``homes``: all of them in short steps, of all profiles; raises ``PluginError``.

        ``every_filter``: the filters of kube-scheduler's default profile.
        """
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
        rules = _Rulebook(self._context)
        lodging = _Lodging(self._context, node)
        ends_at = self._clock() + SECONDS
        await in_slices(lodging.reading(self._homes()))
        placing = _Placing(self._context, node, rules, lodging.leaving, lambda: self._clock() > ends_at)
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


class _Rulebook:
    """By whose rules each pod is judged: its own profile's, or a complete one's where there are others beside it."""

    def __init__(self, context: VerbContext) -> None:
        self._context = context
        complete = sorted(name for name, it in context.profiles.items() if it.preset == _COMPLETE)
        self.preset: Final = _COMPLETE if complete else _DELEGATED
        self.profile: Final = complete[0] if complete and len(complete) < len(context.profiles) else ""
        self._made: dict[str, _Rules] = {}

    def of(self, pod: Pod) -> _Rules | None:
        """``None`` where the pod is of no profile here."""
        context = self._context
        framework = context.profiles[self.profile] if self.profile else context.framework_for(pod)
        return None if framework is None else self._of(framework)

    def filters(self) -> list[str]:
        """The plugins that every pod was judged by; where none was, that each would be."""
        profiles = self._context.profiles
        asked = [profiles[self.profile]] if self.profile else list(profiles.values())
        frameworks = [it.framework for it in self._made.values()] or asked
        names = [[slot.name for slot in self._of(it).filters.slots["filter"]] for it in frameworks]
        return [name for name in names[0] if all(name in each for each in names)]

    def _of(self, framework: Framework) -> _Rules:
        name = framework.scheduler_name
        if name not in self._made:
            self._made[name] = _Rules(framework, framework.without_homes())
        return self._made[name]


class _Lodging:
    """Who is at the node: those that are to be judged, and all pods that would leave it."""

    def __init__(self, context: VerbContext, node: str) -> None:
        self._context = context
        self._cluster = context.cluster
        self._node = node
        self._seen: dict[_Place, Home] = {}
        self._beyond: dict[_Place, ObjectKey] = {}
        self.goers: list[_Goer] = []
        self.leaving: list[Pod] = []
        self.staying: list[Lodger] = []
        self.more_others = 0
        self.lost = 0

    @property
    def more(self) -> int:
        """Homes that are not told of, nor their pods."""
        return len(self._beyond)

    def reading(self, homes: Iterator[Home | None]) -> Iterator[None]:
        """In short steps. Of a home that several profiles list, the one counts that judges its pod."""
        for home in homes:
            if home is None:
                yield
            elif self._node in (home.node, home.pod_node):
                self._note(home)
        yield
        for home in self._seen.values():
            self._take(home)
        yield
        yield from self._take_others()

    def _note(self, home: Home) -> None:
        place = _place_of(home)
        known = self._seen.get(place)
        if known is None and len(self._seen) == MOST_HOMES:
            self._beyond[place] = (home.owner.namespace, home.pod)
        elif known is None or (home.is_judged and not known.is_judged):
            self._seen[place] = home

    def _take(self, home: Home) -> None:
        namespace = home.owner.namespace
        pod = self._cluster.pod(namespace, home.pod) if home.pod else None
        if pod is not None and pod.node_name in ("", self._node):
            self.goers.append(_Goer(pod, way_of(home, self._node), home))
            self.leaving.append(pod)
        else:
            self.staying.append(Lodger(namespace, home.pod, home, _stays(home, pod, self._node)))

    def _take_others(self) -> Iterator[None]:
        """The other pods that a drain evicts, in short steps: those without a home, and those that share one."""
        info = self._cluster.nodes.get(self._node)
        known = {it.uid for it in self.leaving}
        untold = {*self._beyond.values()}
        others = 0
        for pod in () if info is None else tuple(info.pods.values()):
            if pod.uid in known or pod.terminating or (pod.owner is not None and pod.owner.kind in _STAYING):
                continue
            self.leaving.append(pod)
            if pod.owner is None:
                self.lost += 1
                continue
            if pod.key in untold:
                continue
            if others < MOST_PODS:
                yield
                goer = self._other(pod)
                if goer.home is not None and _place_of(goer.home) in self._beyond:
                    continue
                self.goers.append(goer)
            others += 1
        self.more_others = max(0, others - MOST_PODS)

    def _other(self, pod: Pod) -> _Goer:
        """A home has one pod in the list: of its others the profile that judges them is asked."""
        framework = self._context.framework_for(pod)
        try:
            home = None if framework is None else framework.home_of(pod)
        except PluginError as fault:
            return _Goer(pod, Way.FREE, fault=fault.status.message)
        return _Goer(pod, Way.FREE if home is None else way_of(home, self._node), home)


def _stays(home: Home, pod: Pod | None, node: str) -> str:
    """What becomes of a home whose pod is not on the node, if there is any."""
    if home.state == _OWNER_GONE:
        return "its owner is gone"
    if pod is not None:
        return f"stays on {pod.node_name}"
    match way_of(home, node):
        case Way.HOME | Way.HELD_HOME:
            return f"goes home to {home.node}"
        case Way.GRACE:
            return f"waits for {home.node}; elsewhere after its grace"
        case Way.HELD:
            return f"waits for {home.node}"
    return "starts elsewhere"


class _Placing:
    """Places one pod after the other. ``leaving``: who is gone from the node then."""

    def __init__(
        self,
        context: VerbContext,
        node: str,
        rules: _Rulebook,
        leaving: Sequence[Pod],
        is_over: Callable[[], bool],
    ) -> None:
        self._cluster = context.cluster
        self._node = node
        self._rules = rules
        self._leaving = leaving
        self._is_over = is_over
        self._placed: dict[ObjectKey, Pod] = {}

    async def all(self, goers: Iterable[_Goer]) -> list[Lodger]:
        """What becomes of each, in the order in which they are placed; who is not judged comes last."""
        told: list[Lodger] = []
        waiting: dict[Way, list[_Goer]] = {Way.GRACE: [], Way.HELD: []}
        for goer in sorted(goers, key=lambda it: it.place):
            found = await self._judged(goer, self._at_once) if goer.way not in waiting else None
            if found is not None:
                told.append(found)
            else:
                waiting[Way.GRACE if goer.way in (Way.GRACE, Way.HOME) else Way.HELD].append(goer)
        told += [await self._judged(goer, self._after_grace) for goer in waiting[Way.GRACE]]
        told += [await self._judged(goer, self._held) for goer in waiting[Way.HELD]]
        return sorted(told, key=lambda it: not it.is_judged)

    async def _judged(self, goer: _Goer, ask: Callable[[_Goer], Awaitable[_T]]) -> _T | Lodger:
        """A fault about one pod, as an object of its own that cannot be read, is no word on the others."""
        try:
            return await ask(goer)
        except PluginError as fault:
            return goer.told(NOT_JUDGED.format(fault.status.message), is_judged=False)

    async def _at_once(self, goer: _Goer) -> Lodger | None:
        """``None`` for one that has to wait since its home, which is another node, does not take it."""
        rules, said = self._rules_of(goer)
        if rules is None:
            return goer.told(said, is_judged=False)
        if home := _tried_first(goer.home, self._node):
            found = await self._search(rules, goer, (home,))
            if found.best:
                return self._place(goer, found, f"goes home to {home}", waits_for="")
            if goer.way is not Way.FREE:
                return None
        found = await self._search(rules, goer)
        if found.best:
            return self._place(goer, found, f"starts on {found.best}", waits_for="")
        return await self._without_room(rules, goer, found, "waits")

    async def _after_grace(self, goer: _Goer) -> Lodger:
        rules, said = self._rules_of(goer)
        if rules is None or goer.home is None:
            return goer.told(said, is_judged=False)
        found = await self._search(rules, goer)
        if found.best:
            then = f"waits for {goer.home.node}; after its grace starts on {found.best}"
            return self._place(goer, found, then, waits_for=goer.home.node)
        return await self._without_room(rules, goer, found, f"waits for {goer.home.node}, and after its grace")

    async def _held(self, goer: _Goer) -> Lodger:
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

    async def _without_room(self, rules: _Rules, goer: _Goer, found: _Found, waits: str) -> Lodger:
        alone = await self._search(rules, goer, alone=True) if self._placed else found
        why = "the others take its room" if alone.passed else "no other node takes it"
        return goer.told(f"{waits}: {why}", found, fits_alone=bool(alone.passed))

    def _rules_of(self, goer: _Goer) -> tuple[_Rules | None, str]:
        """What to judge it by; ``None``, and why, where it is not to be judged."""
        if goer.fault:
            return None, NOT_JUDGED.format(goer.fault)
        if self._is_over():
            return None, OUT_OF_TIME
        found = self._rules.of(goer.pod)
        return found, NO_PROFILE if found is None else ""

    def _place(self, goer: _Goer, found: _Found, then: str, *, waits_for: str) -> Lodger:
        self._placed[goer.pod.key] = replace(goer.pod, node_name=found.best).nominated("")
        return goer.told(then, found, goes_to=found.best, fits_alone=True, waits_for=waits_for)

    async def _search(
        self, rules: _Rules, goer: _Goer, names: Sequence[str] | None = None, *, alone: bool = False
    ) -> _Found:
        """Where it could run beside those that were placed before; ``alone``: beside none of them."""
        pod = replace(goer.pod, node_name="").nominated("")
        refused = {self._node, *unreadable_nodes(self._cluster)}
        asked = [it for it in (names or tuple(self._cluster.nodes)) if it not in refused]
        said = _Search()
        for start in range(0, len(asked), _A_STEP):
            await turn()
            await prepared(partial(self._judge, rules, pod, asked[start : start + _A_STEP], said, alone))
        if said.passed and rules.filters.has_last_filters:
            await turn()
            await prepared(partial(self._judge_last, rules, pod, asked, said, alone))
        if not said.passed:
            return _Found(why=said.why)
        await turn()
        best = "" if alone else await prepared(partial(self._best, rules, pod, [it for _, it in said.emptiest]))
        return _Found(said.passed, best, said.why)

    def _judge(self, rules: _Rules, pod: Pod, names: Sequence[str], said: _Search, alone: bool) -> None:
        """Raises ``PluginError`` or ``Unprepared``, and has noted nothing then."""
        with self._laid(alone=alone):
            nodes = self._known(names)
            if rules.filters.has_last_filters:
                pre_filter, rejections = _judged_but_last(rules.filters, pod, nodes)
                passed = list(nodes.without(rejections).names)
            else:
                pre_filter, found = rules.filters.search(CycleState(), pod, nodes)
                passed, rejections = list(found.passed), found.rejected()
            emptiest = [(len(nodes.info(it).pods), it) for it in passed]
        said.passed += passed
        said.emptiest = nsmallest(_MOST_SCORED, said.emptiest + emptiest)
        said.rejected += _counted(rejections)
        if not pre_filter.is_success:
            said.pre_filter = pre_filter

    def _judge_last(self, rules: _Rules, pod: Pod, names: Sequence[str], said: _Search, alone: bool) -> None:
        """By those alone that go by all nodes that passed. Raises ``PluginError`` or ``Unprepared``."""
        with self._laid(alone=alone):
            state, nodes = CycleState(), self._known(names)
            passed = nodes.among(list(filter(self._cluster.has_node, said.passed)))
            if not rules.filters.pre_filter(state, pod).status.is_success:
                return  # so it was not when the others judged
            rejections = rules.filters.filter_last(state, pod, nodes, passed.names)
            left = passed.without(rejections)
            emptiest = [(len(it.pods), it.name) for it in left]
        said.passed = list(left.names)
        said.emptiest = nsmallest(_MOST_SCORED, emptiest)
        said.rejected += _counted(rejections)

    def _best(self, rules: _Rules, pod: Pod, names: Sequence[str]) -> str:
        """Raises ``PluginError`` or ``Unprepared``."""
        with self._laid(alone=False):
            nodes = self._known(names)
            if not len(nodes):
                return ""  # gone by now
            best = rules.framework.score(CycleState(), pod, nodes).best
            return min(best, key=lambda it: (len(nodes.info(it).pods), it))

    def _known(self, names: Sequence[str]) -> Candidates:
        return Candidates(list(filter(self._cluster.has_node, names)), self._cluster.nodes.__getitem__)

    def _laid(self, *, alone: bool) -> AbstractContextManager[None]:
        """The picture as it would be."""
        placed = {} if alone else self._placed
        gone = [it for it in self._leaving if it.key not in placed]
        return self._cluster.overlay(without=gone, with_=placed.values())
