"""The engine: runs the plugins of one profile, extension point by extension point, in kube-scheduler's order.

Rejections are returned, faults raised as ``PluginError``. Source of the rules: ``pkg/scheduler/framework/runtime`` of
Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from time import perf_counter
from typing import Any, Final, Protocol, TypeVar, cast

import structlog
from msgspec import Struct

from app.framework.cycle_state import CycleState
from app.framework.interface import (
    MAX_NODE_SCORE,
    BatchFilterPlugin,
    BatchScorePlugin,
    CertainFilterPlugin,
    ExplainPlugin,
    Explanation,
    Figure,
    FiguresPlugin,
    LookUpPlugin,
    NormalizeClassesPlugin,
    NormalizeScorePlugin,
    PassingFilterPlugin,
    PeerFilterPlugin,
    PeerScorePlugin,
    PostFilterResult,
    PreBindPreFlightPlugin,
    RepairPlugin,
    StampPlugin,
)
from app.framework.node_info import Candidates, NodeInfo
from app.framework.score_classes import ScoreClasses
from app.framework.status import SUCCESS, Code, Status, distinct, error, unresolvable
from app.kube.core_v1 import Pod
from app.kube.kinds import Kind
from app.runtime.asking import question
from app.runtime.guard import SAMPLE_EVERY, Guard, PluginError, WrongAnswer, plugin_error
from app.runtime.waiting import MAX_WAIT_SECONDS, WaitingPods

_OUTSIDE: Final = "node(s) didn't satisfy plugin(s) {}"
_INVALID_SCORE: Final = (
    'applying score defaultWeights on Score plugins: plugin "{}" returns an invalid score {}, '
    "it should in the range of [0, {}] after normalizing"
)
_NO_PLUGIN_TOTAL: Final = 1
_PAIR: Final = 2
_TRIPLE: Final = 3
_LARGEST_FIGURE: Final = 1 << 1023
"""Whole numbers beyond have no float, which is what is exposed."""

_LOG: Final = structlog.get_logger(__name__)
_FAULT: Final = error("")
_WAIT: Final = Status(Code.WAIT)
_END: Final = object()

M = TypeVar("M", bound=Callable[..., Any])

_FORMS: Final[dict[tuple[type[Any], type[Any]], bool]] = {}


def has_form(plugin: type[Any], protocol: type[Any]) -> bool:
    """Whether plugins of this class have the methods of ``protocol``: looked up once, for a Protocol takes its time."""
    known = _FORMS.get((plugin, protocol))
    if known is None:
        known = _FORMS[plugin, protocol] = issubclass(plugin, protocol)
    return known


_ASIDE: Final[Mapping[type[Any], str]] = {
    LookUpPlugin: "Missing",
    StampPlugin: "Stamp",
    PeerFilterPlugin: "DependsOn",
    PeerScorePlugin: "PrefersBy",
    NormalizeScorePlugin: "NormalizeScore",
    FiguresPlugin: "Figures",
    RepairPlugin: "Repair",
}
"""What plugins are asked for beside the extension points, by the name under which it is timed."""


class PluginSlot(Struct, frozen=True):
    """A plugin at one extension point. ``weight`` matters at score only, ``reads_pods`` at filter only.

    The flags say which of the optional forms the plugin has.
    """

    name: str
    plugin: Any
    weight: int = 1
    reads_pods: bool = True
    filters_in_batch: bool = False
    passes_names: bool = False
    certain: bool = False
    scores_in_batch: bool = False
    normalizes: bool = False
    normalizes_classes: bool = False

    @classmethod
    def of(cls, name: str, plugin: Any, *, weight: int = 1, reads_pods: bool = True) -> PluginSlot:
        """A slot with its flags read off the plugin."""
        form = type(plugin)
        return cls(
            name,
            plugin,
            weight,
            reads_pods,
            filters_in_batch=has_form(form, BatchFilterPlugin),
            passes_names=has_form(form, PassingFilterPlugin),
            certain=has_form(form, CertainFilterPlugin),
            scores_in_batch=has_form(form, BatchScorePlugin),
            normalizes=has_form(form, NormalizeScorePlugin),
            normalizes_classes=has_form(form, BatchScorePlugin) and has_form(form, NormalizeClassesPlugin),
        )


class Nominations(Protocol):
    """Waiting pods that are nominated to a node, which filters must take into account."""

    def nominated(self, node_name: str) -> Collection[Pod]: ...

    @property
    def nominated_nodes(self) -> Collection[str]: ...

    @property
    def generation(self) -> int:
        """Moves with every change of anything in the picture."""
        ...


class Scores(Struct, frozen=True):
    """Scores of the nodes ``names``. ``of_plugin``: normalised and unweighted · ``total``: the weighted sums.

    ``weight`` is the sum of the weights of the plugins that scored.
    """

    names: Sequence[str]
    of_plugin: Mapping[str, ScoreClasses]
    total: ScoreClasses
    weight: int

    @property
    def by_plugin(self) -> dict[str, dict[str, int]]:
        """Plugin -> node -> 0..100."""
        return {plugin: scores.by_name(self.names) for plugin, scores in self.of_plugin.items()}

    @property
    def totals(self) -> dict[str, int]:
        """Node -> weighted sum."""
        return self.total.by_name(self.names)


class PreFiltered(Struct, frozen=True):
    """The merged answer of all PreFilter plugins; ``names`` is ``None`` where no plugin narrowed the nodes."""

    status: Status
    names: frozenset[str] | None = None
    narrowed_by: tuple[str, ...] = ()

    def outside(self, nodes: Candidates) -> dict[str, Status]:
        """The candidates that a plugin's node set leaves out."""
        names = self.names
        if names is None:
            return {}
        status = unresolvable(_OUTSIDE.format(_bracketed(self.narrowed_by)))
        return {name: status for name in nodes.names if name not in names}


class Verdict(Struct, frozen=True):
    """What PreFilter and Filter say. ``rejected`` holds every candidate that may not be used, with the reason."""

    pre_filter: Status
    rejected: Mapping[str, Status]


class Recheck(Struct, frozen=True):
    """``status`` on the optimistic view; ``certain``: a Success that holds whatever becomes of the binds in flight."""

    status: Status
    certain: bool = True


def _sampled(point: str, every: int = SAMPLE_EVERY) -> Callable[[M], M]:
    """The time that all plugins of a point take together: of one call in ``every``."""

    def decorate(method: M) -> M:
        @wraps(method)
        def sampled(self: Framework, *args: Any) -> Any:
            self.calls += 1
            if self.calls % every:
                return method(self, *args)
            started = perf_counter()
            try:
                answer = method(self, *args)
            except PluginError as fault:
                self.timed(point, fault.status, started)
                raise
            self.timed(point, answer, started)
            return answer

        return cast("M", sampled)

    return decorate


def _timed(point: str) -> Callable[[M], M]:
    """The time that all plugins of an acting point take together, each time."""

    def decorate(method: M) -> M:
        @wraps(method)
        async def timed(self: Framework, *args: Any) -> Any:
            started = perf_counter()
            answer: object = _FAULT
            try:
                answer = await method(self, *args)
            finally:
                self.timed(point, answer, started)
            return answer

        return cast("M", timed)

    return decorate


class Framework:
    """The compiled form of a profile.

    ``slots`` holds the plugins of every extension point in order. ``served`` are the scheduler names whose nominated
    pods count: those of the other profiles too.
    """

    def __init__(
        self,
        scheduler_name: str,
        slots: Mapping[str, Sequence[PluginSlot]],
        *,
        served: Container[str],
        nominations: Nominations,
        waiting: WaitingPods,
        guard: Guard,
    ) -> None:
        self.scheduler_name = scheduler_name
        self.slots = slots
        self._waiting = waiting
        self._served = served
        self._nominations = nominations
        self._guard = guard
        self.calls = 0
        every = {slot.name: slot for of_point in slots.values() for slot in of_point}
        filtering = {slot.name: slot for point in ("preFilter", "filter") for slot in slots.get(point, ())}.values()
        stamped = all(has_form(type(slot.plugin), StampPlugin) for slot in filtering)
        self._stamping = list(filtering) if stamped else None
        for point, of_point in slots.items():
            for slot in of_point:
                guard.expect(slot.name, point[:1].upper() + point[1:], scheduler_name)
        for name, slot in every.items():
            for form, method in _ASIDE.items():
                if has_form(type(slot.plugin), form):
                    guard.expect_also(name, method)
        self._lookups = [slot for slot in every.values() if has_form(type(slot.plugin), LookUpPlugin)]

    def timed(self, point: str, answer: object, started: float) -> None:
        """An extension point was run, beginning at ``started`` by ``perf_counter``; ``answer`` came of it."""
        status = answer.status if isinstance(answer, PreFiltered) else answer
        self._guard.observe_point(point, status, self.scheduler_name, started)

    @property
    def plugins(self) -> dict[str, Any]:
        """Every plugin of the profile by name."""
        return {slot.name: slot.plugin for slots in self.slots.values() for slot in slots}

    def missing(self, pod: Pod) -> list[tuple[Kind[Any], str, str]]:
        """Objects that a decision about the pod needs and the picture does not have. Raises ``PluginError``."""
        found: list[tuple[Kind[Any], str, str]] = []
        for slot in self._lookups:
            found += self._guard.call(slot.name, "Missing", _missing, slot.plugin, pod)
        return found

    def stamp(self, pod: Pod) -> Hashable | None:
        """All that ``feasible`` rests on beside the nodes of the picture: equal stamps, equal answers.

        ``None`` if a plugin cannot say what its answer rests on, or says that it cannot be remembered. Raises
        ``PluginError``.
        """
        if self._stamping is None:
            return None
        found: list[Hashable] = [self.scheduler_name]
        for slot in self._stamping:
            stamp = self._guard.call(slot.name, "Stamp", slot.plugin.stamp, pod)
            if stamp is None:
                return None
            found.append(stamp)
        nominated = [
            (name, other.uid) for name in self._nominations.nominated_nodes for other in self._nominated_to(name, pod)
        ]
        if nominated:
            # Judged by the counts themselves, not by what is above a limit: holds until anything changes.
            found += (*nominated, self._nominations.generation)
        return tuple(found)

    def depends(self, pod: Pod, other: Pod) -> bool:
        """Whether where ``other`` runs may matter to the filters of ``pod``."""
        return any(
            self._guard.call(slot.name, "DependsOn", slot.plugin.depends_on, pod, other)
            if has_form(type(slot.plugin), PeerFilterPlugin)
            else slot.reads_pods
            for slot in self.slots["filter"]
        )

    def score_depends_on(self, pod: Pod, other: Pod) -> bool:
        """Whether where ``other`` runs may matter to the scores for ``pod``."""
        return any(
            has_form(type(slot.plugin), PeerScorePlugin)
            and self._guard.call(slot.name, "PrefersBy", slot.plugin.score_depends_on, pod, other)
            for slot in self.slots["score"]
        )

    def pre_enqueue(self, pod: Pod) -> Status:
        """May the pod be considered? The first plugin that says no is its gate; the others are not asked."""
        for slot in self.slots["preEnqueue"]:
            status = self._status(slot, "PreEnqueue", slot.plugin.pre_enqueue, pod)
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

    @_sampled("PreFilter")
    def pre_filter(self, state: CycleState, pod: Pod) -> PreFiltered:
        """Run and merge PreFilter. U is remembered while the others still prepare their state; UAU ends at once."""
        merged = PreFiltered(SUCCESS)
        rejection: Status | None = None
        for slot in self.slots["preFilter"]:
            status, names = self._pair(slot, "PreFilter", "(Status, node names)", slot.plugin.pre_filter, state, pod)
            self._guard.checked(slot.name, "PreFilter", status)
            if names is not None and not isinstance(names, frozenset | set):
                raise self._guard.wrong(slot.name, "PreFilter", names, "a set of node names")
            if status.is_skip:
                state.skip_filter.add(slot.name)
            elif status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return PreFiltered(status.by(slot.name))
            elif status.code is Code.UNSCHEDULABLE:
                rejection = status.by(slot.name)
            elif not status.is_success:
                raise plugin_error(slot.name, "PreFilter", status.message)
            elif names is not None:
                merged = _narrow(merged, slot.name, frozenset(names))
                if not merged.names:
                    return merged
        return merged if rejection is None else PreFiltered(rejection)

    def feasible(self, state: CycleState, pod: Pod, nodes: Candidates) -> Verdict:
        """PreFilter and Filter over all candidates."""
        prepared = self.pre_filter(state, pod)
        if not prepared.status.is_success:
            return Verdict(prepared.status, dict.fromkeys(nodes.names, prepared.status))
        outside = prepared.outside(nodes)
        rejected = self.filter(state, pod, nodes.without(outside))
        return Verdict(SUCCESS, {**outside, **rejected} if outside else rejected)

    def passing(self, pod: Pod, names: Sequence[str], nodes: Collection[str]) -> Sequence[str] | None:
        """Those of ``names`` that are among ``nodes``, those of the picture, and pass PreFilter and Filter, in order.

        ``None``: a plugin cannot say, or pods are nominated to them; ``feasible`` tells.
        """
        nominated = self._nominations.nominated_nodes
        if nominated and not set(nominated).isdisjoint(names):
            return None
        state = CycleState()
        prepared = self.pre_filter(state, pod)
        if not prepared.status.is_success:
            return ()
        if prepared.names is not None:
            return None
        filters = [slot for slot in self.slots["filter"] if slot.name not in state.skip_filter]
        if not filters:
            return list(filter(nodes.__contains__, names))
        return self._passing_all(filters, state, pod, names)

    @_sampled("Filter")
    def _passing_all(
        self, filters: Sequence[PluginSlot], state: CycleState, pod: Pod, names: Sequence[str]
    ) -> Sequence[str] | None:
        left: Sequence[str] | None = names
        for slot in filters:
            if left is None or not slot.passes_names:
                return None
            left = self._guard.call(slot.name, "Filter", _passing, slot.plugin, state, pod, left)
        return left

    def post_filter(
        self, state: CycleState, pod: Pod, rejected: Mapping[str, Status]
    ) -> tuple[PostFilterResult | None, Status]:
        """Ask in order whether anything can be done for a pod without a feasible node.

        Success and UnschedulableAndUnresolvable end it; otherwise reasons are gathered, the last result stands and
        the first plugin counts as the one that rejected.
        """
        result: PostFilterResult | None = None
        reasons: list[str] = []
        rejector = ""
        for slot in self.slots["postFilter"]:
            found, status = self._pair(
                slot, "PostFilter", "(result, Status)", slot.plugin.post_filter, state, pod, rejected
            )
            self._guard.checked(slot.name, "PostFilter", status)
            if found is not None and not isinstance(found, PostFilterResult):
                raise self._guard.wrong(slot.name, "PostFilter", found, "a PostFilterResult")
            if status.is_success or status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return found, status.by(slot.name)
            if not status.is_rejected:
                raise PluginError(error(status.message, slot.name))
            result = found or result
            reasons.extend(status.reasons)
            rejector = rejector or slot.name
        return result, Status(Code.UNSCHEDULABLE, tuple(reasons), rejector)

    @_sampled("Filter")
    def filter(self, state: CycleState, pod: Pod, nodes: Candidates) -> dict[str, Status]:
        """The rejected candidates. Nodes with nominated pods are judged one by one, with and without these."""
        nominated = {name: pods for name in self._nominated_among(nodes) if (pods := self._nominated_to(name, pod))}
        rejected = self._filter_batch(state, pod, nodes.without(nominated))
        for name, pods in nominated.items():
            status = self._filter_with_nominated(state, pod, nodes.info(name), pods)
            if not status.is_success:
                rejected[name] = status
        return rejected

    def filter_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        """Filter for one node, in two passes where pods are nominated to it."""
        pods = self._nominated_to(node.name, pod)
        return self._filter_with_nominated(state, pod, node, pods) if pods else self._filter_one(state, pod, node)

    def recheck(self, state: CycleState, pod: Pod, node: NodeInfo, in_flight: Sequence[Pod]) -> Recheck:
        """PreFilter and Filter for the one node a pod is to be bound to."""
        prepared = self.pre_filter(state, pod)
        if not prepared.status.is_success:
            return Recheck(prepared.status)
        if prepared.names is not None and node.name not in prepared.names:
            return Recheck(unresolvable(_OUTSIDE.format(_bracketed(prepared.narrowed_by))))
        status = self.filter_node(state, pod, node)
        if not status.is_success or not in_flight:
            return Recheck(status)
        return Recheck(status, all(self._certain(slot, state, pod, node, in_flight) for slot in self._filters(state)))

    def _certain(self, slot: PluginSlot, state: CycleState, pod: Pod, node: NodeInfo, in_flight: Sequence[Pod]) -> bool:
        if not slot.reads_pods:
            return True
        if not slot.certain:
            return False
        return self._status(slot, "Filter", slot.plugin.filter_certain, state, pod, node, in_flight).is_success

    def statuses(self, state: CycleState, pod: Pod, node: NodeInfo) -> dict[str, Status]:
        """What each filter plugin says about one node, also those after the first that rejects. For people."""
        return {slot.name: self._call_filter(slot, state, pod, node).by(slot.name) for slot in self._filters(state)}

    def explain(self, pod: Pod, nodes: Candidates) -> dict[str, Explanation]:
        """What the answers of the plugins rest on, by plugin, where a plugin can say."""
        return {
            name: self._guard.call(name, "Explain", _explained, plugin, pod, nodes)
            for name, plugin in self.plugins.items()
            if has_form(type(plugin), ExplainPlugin)
        }

    def figures(self) -> Iterator[Figure | None]:
        """The figures of all plugins, step by step. One that fails, or gives something else, is left out."""
        for name, plugin in self.plugins.items():
            if has_form(type(plugin), FiguresPlugin):
                with suppress(PluginError):  # logged by the guard
                    yield from self._figures_of(name, plugin)

    def _figures_of(self, name: str, plugin: FiguresPlugin) -> Iterator[Figure | None]:
        with question():
            steps = self._guard.call(name, "Figures", lambda: iter(plugin.figures()))
        while True:
            with question():
                found = self._guard.call(name, "Figures", next, steps, _END)
            if found is _END:
                return
            if found is not None and not (isinstance(found, Figure) and is_exposable(found)):
                raise self._guard.wrong(name, "Figures", found, "a Figure with a name and labels as metrics have")
            yield found

    def add_pods(self, state: CycleState, pod: Pod, added: Iterable[Pod], node: NodeInfo) -> None:
        """Keep the plugins' state right as if ``added`` ran on ``node``. Raises ``PluginError``."""
        for other in added:
            self._extend("add_pod", "PreFilterExtensionAddPod", state, pod, other, node)

    def remove_pods(self, state: CycleState, pod: Pod, removed: Iterable[Pod], node: NodeInfo) -> None:
        """Keep the plugins' state right as if ``removed`` were gone from ``node``. Raises ``PluginError``."""
        for other in removed:
            self._extend("remove_pod", "PreFilterExtensionRemovePod", state, pod, other, node)

    def _extend(self, method: str, point: str, state: CycleState, pod: Pod, other: Pod, node: NodeInfo) -> None:
        for slot in self.slots["preFilter"]:
            if slot.name in state.skip_filter or not hasattr(slot.plugin, method):
                continue
            status = self._status(slot, point, getattr(slot.plugin, method), state, pod, other, node)
            if not status.is_success:
                raise plugin_error(slot.name, point, status.message)

    def score(self, state: CycleState, pod: Pod, nodes: Candidates) -> Scores:
        """PreScore, Score, NormalizeScore and weights. Without any score plugin every node totals 1."""
        self._pre_score(state, pod, nodes)
        slots = [slot for slot in self.slots["score"] if slot.name not in state.skip_score]
        of_plugin = self._score_all(slots, state, pod, nodes)
        weights = {slot.name: slot.weight for slot in slots}
        nothing = 0 if self.slots["score"] else _NO_PLUGIN_TOTAL
        return Scores(nodes.names, of_plugin, _total(of_plugin, weights, len(nodes), nothing), sum(weights.values()))

    @_sampled("Score")
    def _score_all(
        self, slots: Iterable[PluginSlot], state: CycleState, pod: Pod, nodes: Candidates
    ) -> dict[str, ScoreClasses]:
        return {slot.name: self._score_by(slot, state, pod, nodes) for slot in slots}

    @_sampled("PreScore")
    def _pre_score(self, state: CycleState, pod: Pod, nodes: Candidates) -> None:
        for slot in self.slots["preScore"]:
            status = self._status(slot, "PreScore", slot.plugin.pre_score, state, pod, nodes)
            if status.is_skip:
                state.skip_score.add(slot.name)
            elif not status.is_success:
                raise plugin_error(slot.name, "PreScore", status.message)

    def _score_by(self, slot: PluginSlot, state: CycleState, pod: Pod, nodes: Candidates) -> ScoreClasses:
        plugin = slot.plugin
        if slot.scores_in_batch:
            found: ScoreClasses = self._guard.call(slot.name, "Score", plugin.score_nodes, state, pod, nodes)
            if not isinstance(found, ScoreClasses):
                raise self._guard.wrong(slot.name, "Score", found, "ScoreClasses")
        else:
            scores = {it.name: self._guard.call(slot.name, "Score", plugin.score, state, pod, it) for it in nodes}
            found = ScoreClasses(nodes.names, scores)
        try:
            return _checked_scores(slot.name, self._normalized(slot, state, pod, nodes, found), nodes)
        except (TypeError, AttributeError) as fault:
            raise self._guard.wrong(slot.name, "Score", found, f"a score for each class of nodes: {fault}") from fault

    def _normalized(
        self, slot: PluginSlot, state: CycleState, pod: Pod, nodes: Candidates, found: ScoreClasses
    ) -> ScoreClasses:
        if slot.normalizes_classes:
            normalize = slot.plugin.normalize_classes
        elif slot.normalizes:
            by_name = self._guard.call(slot.name, "Score", found.by_name, nodes.names)
            normalize, found = slot.plugin.normalize_score, ScoreClasses(nodes.names, by_name)
        else:
            return found
        scores = self._guard.call(slot.name, "NormalizeScore", normalize, state, pod, found.scores)
        if not isinstance(scores, Mapping):
            raise self._guard.wrong(slot.name, "NormalizeScore", scores, "a mapping of scores")
        return ScoreClasses(found.of, scores)

    @_sampled("Reserve", every=1)
    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Reserve in order; the first failure stops. The caller undoes with ``unreserve`` whatever the outcome."""
        for slot in self.slots["reserve"]:
            status = self._status(slot, "Reserve", slot.plugin.reserve, state, pod, node_name)
            if not status.is_success:
                return status.by(slot.name)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Undo all reserve plugins in reverse, also those that never reserved. A fault does not stop the others."""
        for slot in reversed(self.slots["reserve"]):
            try:
                self._guard.call(slot.name, "Unreserve", slot.plugin.unreserve, state, pod, node_name)
            except PluginError:
                continue

    async def permit(self, state: CycleState, pod: Pod, node_name: str, *, limit: float) -> Status:
        """Run Permit, and wait where a plugin says so, for ``limit`` seconds at most. Others are not held up."""
        status, waits = self._permit(state, pod, node_name, limit)
        if status.code is not Code.WAIT:
            return status
        started = perf_counter()
        settled = await self._waiting.wait(pod, node_name, waits)
        self._guard.observe_wait(settled, perf_counter() - started)
        return settled

    @_sampled("Permit", every=1)
    def _permit(self, state: CycleState, pod: Pod, node_name: str, limit: float) -> tuple[Status, dict[str, float]]:
        """Success, a rejection, or Wait with the seconds that each plugin makes the pod wait."""
        waits: dict[str, float] = {}
        status: Status
        for slot in self.slots["permit"]:
            status, seconds = self._pair(slot, "Permit", "(Status, seconds)", slot.plugin.permit, state, pod, node_name)
            self._guard.checked(slot.name, "Permit", status)
            if status.is_rejected:
                return status.by(slot.name), {}
            if status.code is Code.WAIT:
                if not isinstance(seconds, int | float) or not seconds >= 0:
                    raise self._guard.wrong(slot.name, "Permit", seconds, "seconds to wait")
                waits[slot.name] = self._clipped(slot.name, min(seconds, MAX_WAIT_SECONDS), limit)
            elif not status.is_success:
                raise plugin_error(slot.name, "Permit", status.message)
        return (_WAIT if waits else SUCCESS), waits

    def _clipped(self, plugin: str, seconds: float, limit: float) -> float:
        """A caller that waits for its bind hangs up at its time limit: a pod that waits longer was never bound."""
        if seconds > limit:
            _LOG.warning("permit wait clipped to the caller's time limit", plugin=plugin, asked=seconds, limit=limit)
        return min(seconds, limit)

    @_timed("PreBind")
    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """PreBind in order, less the plugins whose pre-flight says that they have nothing to do."""
        for slot in [it for it in self.slots["preBind"] if self._has_work(it, state, pod, node_name)]:
            answer = await self._guard.acall(slot.name, "PreBind", slot.plugin.pre_bind, state, pod, node_name)
            status = self._guard.checked(slot.name, "PreBind", answer)
            if not status.is_success:
                return status.by(slot.name)
        return SUCCESS

    def _has_work(self, slot: PluginSlot, state: CycleState, pod: Pod, node_name: str) -> bool:
        if not has_form(type(slot.plugin), PreBindPreFlightPlugin):
            return True
        status = self._status(slot, "PreBindPreFlight", slot.plugin.pre_bind_pre_flight, state, pod, node_name)
        if not status.is_success and not status.is_skip:
            raise plugin_error(slot.name, "PreBindPreFlight", status.message)
        return status.is_success

    @_timed("Bind")
    async def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """The first bind plugin that does not answer Skip decides; if all skip, nobody has bound the pod."""
        for slot in self.slots["bind"]:
            answer = await self._guard.acall(slot.name, "Bind", slot.plugin.bind, state, pod, node_name)
            status = self._guard.checked(slot.name, "Bind", answer)
            if not status.is_skip:
                return status.by(slot.name)
        return error("every bind plugin skipped the pod")

    @_timed("PostBind")
    async def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Tell every PostBind plugin. The pod is bound: a fault is logged by the guard and changes nothing."""
        for slot in self.slots["postBind"]:
            try:
                await self._guard.acall(slot.name, "PostBind", slot.plugin.post_bind, state, pod, node_name)
            except PluginError:
                continue

    def _filters(self, state: CycleState) -> Iterator[PluginSlot]:
        return (slot for slot in self.slots["filter"] if slot.name not in state.skip_filter)

    def _filter_batch(self, state: CycleState, pod: Pod, nodes: Candidates) -> dict[str, Status]:
        rejected: dict[str, Status] = {}
        for slot in self._filters(state):
            nodes = nodes.without(rejected)
            if slot.filters_in_batch:
                found = self._guard.call(slot.name, "Filter", slot.plugin.filter_nodes, state, pod, nodes)
            else:
                statuses = {it.name: self._call_filter(slot, state, pod, it) for it in nodes}
                found = {name: status for name, status in statuses.items() if not status.is_success}
            rejected.update(self._rejections(slot.name, found))
        return rejected

    def _filter_one(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        for slot in self._filters(state):
            status = self._call_filter(slot, state, pod, node)
            if not status.is_success:
                return self._rejections(slot.name, {node.name: status})[node.name]
        return SUCCESS

    def _call_filter(self, slot: PluginSlot, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        status = self._guard.call(slot.name, "Filter", slot.plugin.filter, state, pod, node)
        return status if isinstance(status, Status) else self._guard.checked(slot.name, "Filter", status)

    def _rejections(self, plugin: str, found: Any) -> Mapping[str, Status]:
        """With their plugin's name. Anything that is no rejection ends the cycle."""
        if not isinstance(found, Mapping):
            raise self._guard.wrong(plugin, "Filter", found, "a mapping of rejected nodes")
        statuses = distinct(found.values())
        for status in statuses.values():
            if not self._guard.checked(plugin, "Filter", status).is_rejected:
                raise plugin_error(plugin, "Filter", status.message)
        if all(status.plugin == plugin for status in statuses.values()):
            same: Mapping[str, Status] = found
            return same
        named = {key: status.by(plugin) for key, status in statuses.items()}
        return {name: named[id(status)] for name, status in found.items()}

    def _status(self, slot: PluginSlot, point: str, function: Callable[..., Any], *args: Any) -> Status:
        """A plugin's answer where a status is asked for. Raises ``PluginError``."""
        return self._guard.checked(slot.name, point, self._guard.call(slot.name, point, function, *args))

    def _pair(self, slot: PluginSlot, point: str, wanted: str, function: Callable[..., Any], *args: Any) -> Any:
        """A plugin's answer where two things are asked for. Raises ``PluginError``."""
        found = self._guard.call(slot.name, point, function, *args)
        if isinstance(found, tuple) and len(found) == _PAIR:
            return found
        raise self._guard.wrong(slot.name, point, found, wanted)

    def _filter_with_nominated(self, state: CycleState, pod: Pod, node: NodeInfo, nominated: Collection[Pod]) -> Status:
        """A node must do both with the nominated pods on it and without: they may come or not."""
        dry_run = state.clone()
        self.add_pods(dry_run, pod, nominated, node)
        status = self._filter_one(dry_run, pod, node.with_pods(nominated))
        return self._filter_one(state, pod, node) if status.is_success else status

    def _nominated_among(self, nodes: Candidates) -> Collection[str]:
        nominated = self._nominations.nominated_nodes
        return [name for name in nodes.names if name in nominated] if nominated else ()

    def _nominated_to(self, node_name: str, pod: Pod) -> list[Pod]:
        priority = pod.spec.priority
        return [
            other
            for other in self._nominations.nominated(node_name)
            if other.uid != pod.uid and other.spec.priority >= priority and other.spec.scheduler_name in self._served
        ]


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


def _missing(plugin: LookUpPlugin, pod: Pod) -> tuple[tuple[Kind[Any], str, str], ...]:
    found: tuple[Any, ...] = tuple(plugin.missing(pod))
    if not all(isinstance(it, tuple) and len(it) == _TRIPLE for it in found):
        raise WrongAnswer("returned something else than triples of a kind, a namespace and a name")
    return found


def _explained(plugin: ExplainPlugin, pod: Pod, nodes: Candidates) -> Explanation:
    found: Any = plugin.explain(pod, nodes)
    if not isinstance(found, Explanation):
        raise WrongAnswer(f"returned a {type(found).__name__}, not an Explanation")
    return found


def _passing(plugin: PassingFilterPlugin, state: CycleState, pod: Pod, names: Sequence[str]) -> Sequence[str] | None:
    found = plugin.passing_nodes(state, pod, names)
    if found is None or isinstance(found, list):
        return found
    if isinstance(found, str):
        raise WrongAnswer("returned one text, not a sequence of names")
    return list(found)


def _narrow(merged: PreFiltered, plugin: str, names: frozenset[str]) -> PreFiltered:
    by = (*merged.narrowed_by, plugin)
    both = names if merged.names is None else merged.names & names
    if both:
        return PreFiltered(SUCCESS, both, by)
    if len(by) == 1:
        return PreFiltered(unresolvable(f"node(s) didn't satisfy plugin {plugin}"), both, by)
    return PreFiltered(unresolvable(f"node(s) didn't satisfy plugin(s) {_bracketed(by)} simultaneously"), both, by)


def _bracketed(names: Iterable[str]) -> str:
    return f"[{' '.join(sorted(names))}]"


def _total(of_plugin: Mapping[str, ScoreClasses], weights: Mapping[str, int], size: int, nothing: int) -> ScoreClasses:
    """The weighted sums; ``nothing`` for each of ``size`` nodes where no plugin scored."""
    weighted = [
        ScoreClasses(found.of, {key: value * weights[plugin] for key, value in found.scores.items()})
        for plugin, found in of_plugin.items()
    ]
    if not weighted:
        return ScoreClasses([nothing] * size, {nothing: nothing})
    if len(weighted) == 1:
        return weighted[0]
    return ScoreClasses.by_value(list(map(sum, zip(*(it.each() for it in weighted), strict=True))))


def _checked_scores(plugin: str, found: ScoreClasses, nodes: Candidates) -> ScoreClasses:
    """Whole numbers of 0..100 for every node. Raises ``PluginError``."""
    used = found.classes()
    if len(found.of) != len(nodes) or not found.scores.keys() >= used:
        raise PluginError(error(f'plugin "{plugin}" did not score every node', plugin))
    scores = [found.scores[key] for key in used]
    if set(map(type, scores)) - {int}:
        raise PluginError(error(f'plugin "{plugin}" returns a score that is no whole number', plugin))
    for value in (min(scores, default=0), max(scores, default=0)):
        if not 0 <= value <= MAX_NODE_SCORE:
            raise PluginError(error(_INVALID_SCORE.format(plugin, value, MAX_NODE_SCORE), plugin))
    return found
