"""Explains a pod: judges it on all nodes, groups nodes by reasons, and tries changes that might let nodes accept it.

An explanation is read-only. It works in short steps, and each step reads the snapshot as it is then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from time import thread_time
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from app.analysis.bound import NOT_JUDGED, BoundNode, bound_node, lasting_taints, verdicts_on
from app.analysis.explain_snapshot import ExplainSnapshot
from app.analysis.impossible import Impossibilities
from app.analysis.judging import RUN_SECONDS, Judge, Judgement
from app.analysis.needs import ResourceNeed, add_needs
from app.analysis.remedies import Remedies, Remedy, best
from app.analysis.scheduler_message import SchedulerMessage, compared
from app.analysis.spread_preemption import add_preemption, can_preempt
from app.framework.cycle_state import CycleState
from app.framework.explanation import Explanation, HomeFacts
from app.framework.node_info import Candidates
from app.framework.status import Status, unresolvable
from app.kube.core_v1 import Pod
from app.kube.meta_v1 import whole_seconds
from app.runtime.framework import Framework
from app.runtime.guard import PluginError
from app.runtime.read_only import read_only
from app.runtime.scoring import Scores
from app.verbs.context import VerbContext, require_snapshot
from app.verbs.cycle import find_pod
from app.verbs.outcome import VerbFailure
from app.verbs.similar import Shortlist
from app.verbs.stepwise import decide_prepared, run_stepwise, yield_to_loop
from app.verbs.unserved import printable

MOST_SECONDS: Final = 1.0
"""Default processor time, in seconds, after which no more changes are tried. Judging gets at least this time."""

_FINISHED: Final = " (finished pods are not in the snapshot)"
_FIT: Final = "NodeResourcesFit"
_GATED: Final = unresolvable("waiting for scheduling gates").by("SchedulingGates")
"""Rejection of a gated pod whose profile does not run SchedulingGates, so that kube-scheduler checks the gates."""


class RejectedNodes(Struct, frozen=True):
    """Nodes that the same plugins reject for the same reasons. ``reasons``: one status for each rejection."""

    nodes: Sequence[str]
    reasons: tuple[Status, ...]


class NodeAnswer(Struct, frozen=True):
    """Verdicts and scores of plugins on one node. ``scores``: empty if the node does not fit.

    ``total``: weighted sum of the profile's scores; ``None`` if the node does not fit.
    """

    name: str
    verdicts: Mapping[str, Status]
    scores: Mapping[str, int]
    total: int | None


class Explained(Struct, frozen=True):
    """Explanation of a pod.

    ``judged_at``: RFC 3339; time of the snapshot. ``by``: program that runs each filter, by plugin: Homeport,
    kube-scheduler or both. ``gate``: rejection of PreEnqueue, which keeps the pod out of the queue; Success if there is
    none. ``groups``: all nodes that do not fit, the largest group first. ``needs``: requested resources.
    ``impossible``: sentences on demands that the cluster cannot meet, and on evictions, if no node fits.
    ``not_judged``: why a filter gave no verdict, by plugin. ``incomplete``: true if nodes or changes were left out to
    save time, or if there were too many changes and none of the first ones helps. ``seconds``: processor time of the
    verdict and the search. ``scheduler``: message of kube-scheduler in the pod's status; ``None`` if there is
    none. ``bound``: node of a bound pod. ``home``: the pod's home, if the pod has or gets one. ``home_taints``:
    taints that keep the pod off its home even after an uncordon.
    """

    profile: str
    preset: str
    judged_at: str
    by: Mapping[str, str]
    gate: Status
    feasible: Sequence[str]
    groups: Sequence[RejectedNodes]
    plugins: Mapping[str, Explanation]
    needs: Sequence[ResourceNeed]
    remedies: Sequence[Remedy]
    impossible: Sequence[str]
    not_judged: Mapping[str, str]
    incomplete: bool
    seconds: float
    scheduler: SchedulerMessage | None = None
    node: NodeAnswer | None = None
    bound: BoundNode | None = None
    home: HomeFacts | None = None
    home_taints: Sequence[str] = ()

    @property
    def total(self) -> int:
        """Number of nodes that were judged."""
        return len(self.feasible) + sum(len(group.nodes) for group in self.groups)


class Explainer:
    """Explains pods with the snapshot of explain. ``context``: the verbs' context, which looks up missing objects."""

    def __init__(self, context: VerbContext, snapshot: ExplainSnapshot, stays: Callable[[Pod], str]) -> None:
        """``stays``: returns why a pod must not be evicted for another one, or an empty string."""
        self._stays = stays
        self._context = context
        self._snapshot = snapshot
        self._cluster = snapshot.cluster

    def known_pod(self, namespace: str, name: str) -> Pod:
        """Return a pod of the snapshot of explain, with all parts that the filters read. Raises ``VerbFailure``."""
        require_snapshot(self._context.problem)
        require_snapshot(self._snapshot.problem)
        try:
            return find_pod(self._cluster, namespace, name)
        except VerbFailure as missing:
            raise VerbFailure(missing.outcome, missing.message + _FINISHED) from None

    def decode_pod(self, raw: bytes) -> Pod:
        """Decode a pod from JSON, with all parts that the filters read. Raises ``msgspec.DecodeError``."""
        return self._cluster.core.decode_pod(raw)

    async def explain(self, pod: Pod, node: str = "", *, seconds: float = MOST_SECONDS) -> Explained:
        """Explain a pod as if it had no node. For a bound pod, add each plugin's present verdict on its node.

        ``node``: name of a node on which each plugin's verdict is added; empty for none. ``seconds``: processor time
        after which no more changes are tried. A filter that fails is named in ``not_judged``. Raises ``VerbFailure``.
        """
        require_snapshot(self._context.problem)
        require_snapshot(self._snapshot.problem)
        deciding = self._context.require_framework(pod)
        if node and not self._cluster.has_node(node):
            raise VerbFailure("nothing_to_do", await self._no_node(node))
        with read_only():
            with suppress(VerbFailure):  # a plugin that cannot judge without the object is named in ``not_judged``
                await self._context.look_up_missing(deciding, pod)
            try:
                return await self._explained(_Inquiry(self._snapshot, deciding, pod), node, seconds)
            except PluginError as fault:
                raise VerbFailure("fault", fault.status.message) from fault

    async def _no_node(self, name: str) -> str:
        """Return the error text for a node that cannot be decoded, or that is unknown, then with similar names."""
        shown = printable(name)
        if not self._cluster.misses_node(name):
            return f'node "{shown}" cannot be decoded'
        shortlist = Shortlist(shown)
        await run_stepwise(shortlist.steps(tuple(self._cluster.nodes)))
        return f'nodes "{shown}" not found{shortlist.suggestion()}'

    async def _explained(self, inquiry: _Inquiry, node: str, seconds: float) -> Explained:
        judged_at = whole_seconds(self._snapshot.taken_at())
        gate = await inquiry.gate()
        judging = Limited(inquiry.judge().steps(inquiry.pod, inquiry.judgement), max(seconds, MOST_SECONDS))
        await run_stepwise(judging, RUN_SECONDS)
        plugins = await self._explain_plugins(inquiry)
        changes = _Changes()
        if not inquiry.known.node_name and not inquiry.known.terminating:
            await self._try_changes(inquiry, seconds - judging.seconds, changes)
        needs = await self._needs(inquiry)
        answer = await self._on_node(inquiry, node) if node else None
        known, judgement, profile = inquiry.known, inquiry.judgement, inquiry.framework.scheduler_name
        await yield_to_loop()
        groups, home = grouped(judgement), next((it.home for it in plugins.values() if it.home is not None), None)
        await yield_to_loop()
        return Explained(
            profile=profile,
            preset=inquiry.deciding.preset,
            judged_at=judged_at,
            by=self._snapshot.by(profile),
            gate=gate,
            feasible=judgement.feasible,
            groups=groups,
            plugins=plugins,
            needs=needs,
            remedies=best(changes.remedies),
            impossible=changes.impossible,
            not_judged=inquiry.not_judged,
            incomplete=judging.ended_early or not changes.are_complete,
            seconds=judging.seconds + changes.seconds,
            scheduler=compared(inquiry.pod, judgement, len(inquiry.not_judged)),
            node=answer,
            bound=bound_node(known, judgement, self._cluster) if known.node_name else None,
            home=home,
            home_taints=() if home is None else lasting_taints(known, home.node, self._cluster),
        )

    async def _explain_plugins(self, inquiry: _Inquiry) -> Mapping[str, Explanation]:
        """Return the explanations of the profile's plugins, and of the other plugins that were judged.

        For plugins of the profile, the instances that decide are called, with the snapshot of the decisions. Only they
        remember failed writes, for example. If a plugin without a verdict fails here too, it is left out.
        """
        await yield_to_loop()
        explained = await decide_prepared(partial(self._explain_deciding, inquiry))
        explained |= await decide_prepared(partial(self._explain_others, inquiry))
        return await inquiry.deciding.explain_later(explained, inquiry.judgement.feasible)

    def _explain_deciding(self, inquiry: _Inquiry) -> dict[str, Explanation]:
        """Return the explanation of each plugin of the profile, from the instance that decides, by plugin."""
        cluster, pod = self._context.cluster, inquiry.known
        with cluster.without(pod.uid, pod.key):
            return inquiry.deciding.explain(pod, Candidates.of(cluster.nodes), inquiry.not_judged)

    def _explain_others(self, inquiry: _Inquiry) -> dict[str, Explanation]:
        """Return the explanations of plugins that the profile does not run, except plugins in ``not_judged``."""
        without = {*inquiry.deciding.plugins, *inquiry.not_judged}
        with inquiry.judge().seen(inquiry.known):
            return inquiry.framework.explain(inquiry.known, Candidates.of(self._cluster.nodes), without=without)

    async def _try_changes(self, inquiry: _Inquiry, seconds: float, changes: _Changes) -> None:
        """Find the remedies. If no node fits, also find demands that the cluster cannot meet, and useful evictions."""
        pod, judgement, remedies = inquiry.pod, inquiry.judgement, changes.remedies
        search = Remedies(self._cluster, inquiry.judge)
        proving = Limited(search.steps(pod, judgement, remedies), seconds)
        await run_stepwise(proving, RUN_SECONDS)
        changes.are_complete = not (proving.ended_early or (search.untried and not remedies))
        changes.seconds = proving.seconds
        if not judgement.feasible:
            impossibilities = Impossibilities(self._cluster, inquiry.judge)
            searching = impossibilities.steps(pod, judgement, bool(remedies), changes.impossible)
            doubting = Limited(chain(searching, self._preemption(inquiry, changes)), seconds - proving.seconds)
            await run_stepwise(doubting, RUN_SECONDS)
            changes.seconds += doubting.seconds

    def _preemption(self, inquiry: _Inquiry, changes: _Changes) -> Iterator[None]:
        """Add a sentence on useful evictions that kube-scheduler does not make with the preset ``delegated``."""
        framework, pod = inquiry.framework, inquiry.pod
        unusable = self._snapshot.not_usable(framework.scheduler_name, pod)
        if inquiry.deciding.preset == "delegated" and not inquiry.not_judged and can_preempt(framework, unusable):
            with suppress(PluginError):  # the guard has logged the fault, and the explanation is correct without it
                yield from add_preemption(
                    framework, inquiry.judge(), pod, inquiry.judgement, self._stays, changes.impossible
                )

    async def _needs(self, inquiry: _Inquiry) -> Sequence[ResourceNeed]:
        """Return the resources that the pod requests; none if NodeResourcesFit gave no verdict."""
        needs: list[ResourceNeed] = []
        if _FIT in inquiry.judgement.plugins:
            await run_stepwise(add_needs(inquiry.judge(), inquiry.pod, tuple(self._cluster.nodes), needs))
        return needs

    async def _on_node(self, inquiry: _Inquiry, name: str) -> NodeAnswer:
        """Return the verdicts on one node, and its scores if it fits. Raises ``VerbFailure`` if it was not judged."""
        judgement = inquiry.judgement
        if name not in judgement.rejected and name not in judgement.feasible:
            problem = NOT_JUDGED if name in self._cluster.nodes else f'nodes "{printable(name)}" not found'
            raise VerbFailure("nothing_to_do", problem)
        verdicts = verdicts_on(name, judgement)
        if name not in judgement.feasible:
            return NodeAnswer(name, verdicts, {}, None)
        scores = await decide_prepared(partial(self._scores, inquiry))
        by_plugin = {plugin: of[name] for plugin, of in scores.by_plugin.items() if name in of}
        weights = {slot.name: slot.weight for slot in inquiry.deciding.slots["score"]}
        total = sum(weights[plugin] * score for plugin, score in by_plugin.items() if plugin in weights)
        return NodeAnswer(name, verdicts, by_plugin, total)

    def _scores(self, inquiry: _Inquiry) -> Scores:
        """Return the scores of the nodes that fit, without those of plugins in ``not_judged``."""
        scoring = inquiry.framework.scoring_without(inquiry.not_judged)
        with inquiry.judge().seen(inquiry.pod):
            nodes = self._cluster.nodes
            names = [name for name in inquiry.judgement.feasible if name in nodes]
            return scoring.score(CycleState(), inquiry.pod, Candidates(names, nodes.__getitem__))


class _Inquiry:
    """Pod that is being explained, and its verdicts so far. ``known``: the pod. ``pod``: its copy without a node.

    ``deciding``: framework of the decisions. ``framework``: runs all filters that explain judges.
    """

    def __init__(self, snapshot: ExplainSnapshot, deciding: Framework, known: Pod) -> None:
        self.deciding = deciding
        self.framework = snapshot.frameworks[deciding.scheduler_name]
        self.known = known
        self.pod = replace(known, node_name="")
        self.judgement = Judgement()
        self._snapshot = snapshot
        self._unknown = snapshot.not_judged(deciding.scheduler_name, self.pod)

    @property
    def not_judged(self) -> Mapping[str, str]:
        """Reason for each filter without a verdict, by plugin."""
        return {**self._unknown, **self.judgement.faults}

    def judge(self, ignored: Collection[str] = ()) -> Judge:
        """Create a judge that leaves out the plugins ``ignored`` and those in ``not_judged``."""
        without = {*ignored, *self.not_judged}
        return Judge(self.framework, self._snapshot.cluster, without, self._snapshot.in_flight())

    async def gate(self) -> Status:
        """Return the rejection of PreEnqueue, or of a gated pod; Success if there is none."""
        status = await decide_prepared(partial(self.deciding.pre_enqueue, self.pod))
        return _GATED if status.is_success and self.pod.spec.gated else status


class _Changes(Struct):
    """Changes that open nodes. ``impossible``: sentences on demands that the cluster cannot meet, and on evictions.

    ``are_complete``: false if changes were left out because the time was used up, or because there were too many and
    none of the first ones helps. ``seconds``: processor time of the search.
    """

    remedies: list[Remedy] = []
    impossible: list[str] = []
    are_complete: bool = True
    seconds: float = 0.0


class Limited(Iterator[None]):
    """Steps that end once they have taken ``most`` seconds of processor time; ``ended_early`` is then true.

    ``seconds``: time that the steps have taken. Other work of the thread between two steps is left out.
    """

    def __init__(self, steps: Iterator[None], most: float) -> None:
        self._steps = steps
        self._most = most
        self.seconds = 0.0
        self.ended_early = False

    def __next__(self) -> None:
        if self.seconds > self._most:
            self.ended_early = True
            raise StopIteration
        began = thread_time()
        try:
            return next(self._steps)
        finally:
            self.seconds += thread_time() - began


def grouped(judgement: Judgement) -> list[RejectedNodes]:
    """Return the nodes that do not fit, grouped by their rejections, the largest group first."""
    groups = sorted(judgement.by_reasons().items(), key=lambda it: (-len(it[1]), min(it[1])))
    return [RejectedNodes(sorted(names), statuses) for statuses, names in groups]
