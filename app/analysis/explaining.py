"""Explains a pod: judges it on all nodes, groups nodes by their reasons, and tries changes that would open nodes.

An explanation is read-only. It works in short steps, and each step reads the snapshot as it is then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import thread_time
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from app.analysis.bound import BoundNode, bound_node, verdicts_on
from app.analysis.explain_snapshot import ExplainSnapshot
from app.analysis.impossible import Impossibilities
from app.analysis.judging import Judge, Judgement
from app.analysis.remedies import Remedies, Remedy, best
from app.analysis.scheduler_message import SchedulerMessage, compared
from app.framework.cycle_state import CycleState
from app.framework.explanation import Explanation, HomeFacts
from app.framework.node_info import Candidates
from app.framework.status import Status, unresolvable
from app.kube.core_v1 import Pod
from app.kube.extras import NotDecoded
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
"""Maximum processor time of one explanation, in seconds. After that, no further remedies are tried."""

_FIT: Final = "NodeResourcesFit"
_GATED: Final = unresolvable("waiting for scheduling gates").by("SchedulingGates")
"""Rejection of a gated pod whose profile leaves its gates to kube-scheduler."""


class RejectedNodes(Struct, frozen=True):
    """Nodes that the same plugins reject for the same reasons. ``reasons``: one status for each rejection."""

    nodes: Sequence[str]
    reasons: tuple[Status, ...]


class ResourceNeed(Struct, frozen=True):
    """A requested resource: amount ``requested``, sum that is ``free`` on all nodes, and the most free on one ``node``.

    Amounts are in the units of ``ResourceList``.
    """

    name: str
    requested: int
    free: int
    most_free: int
    node: str


class NodeAnswer(Struct, frozen=True):
    """Verdict of each plugin on one node, and the scores. ``scores``: empty if the node does not fit."""

    name: str
    verdicts: Mapping[str, Status]
    scores: Mapping[str, int]
    total: int | None


class Explained(Struct, frozen=True):
    """Explanation of a pod.

    ``by``: program that runs each filter, by plugin: Homeport, kube-scheduler or both. ``gate``: rejection of
    PreEnqueue, which keeps the pod out of the queue; Success if there is none. ``groups``: all nodes that do not fit,
    the largest group first. ``impossible``: sentences on what cannot work, if no node fits. ``not_judged``: reason for
    each filter of kube-scheduler's default profile without a verdict, by plugin. ``incomplete``: true if changes were
    left out because the time was over, or because there were too many and none of the first ones helps. ``seconds``:
    processor time of the verdict and the search. ``scheduler``: what kube-scheduler wrote on the pod; ``None`` if it
    wrote nothing. ``bound``: node of a bound pod. ``home``: the pod's home, if the pod has or gets one.
    """

    profile: str
    preset: str
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

    @property
    def total(self) -> int:
        """Number of nodes that were judged."""
        return len(self.feasible) + sum(len(group.nodes) for group in self.groups)


class Explainer:
    """Explains pods with the snapshot of explain. ``context``: context of the verbs, which look up missing objects."""

    def __init__(self, context: VerbContext, snapshot: ExplainSnapshot) -> None:
        self._context = context
        self._snapshot = snapshot
        self._cluster = snapshot.cluster

    def known_pod(self, namespace: str, name: str) -> Pod:
        """Return a pod of the snapshot of explain, with all parts that its filters read. Raises ``VerbFailure``."""
        require_snapshot(self._context.problem)
        require_snapshot(self._snapshot.problem)
        return find_pod(self._cluster, namespace, name)

    def decode_pod(self, raw: bytes) -> Pod:
        """Decode a pod from JSON, with all parts that the filters read. Raises ``msgspec.DecodeError``."""
        return self._cluster.core.decode_pod(raw)

    async def explain(self, pod: Pod, node: str = "", *, seconds: float = MOST_SECONDS) -> Explained:
        """Explain a pod as if it had no node; if it has one, also what each plugin says of that node now.

        If ``node`` is the name of a node, also give each plugin's verdict there. ``seconds``: maximum processor time,
        after which no more remedies are tried. A plugin that fails is named in ``not_judged``. Raises ``VerbFailure``.
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
                return await self._explained(deciding, pod, node, seconds)
            except PluginError as fault:
                raise VerbFailure("fault", fault.status.message) from fault

    async def _no_node(self, name: str) -> str:
        """Return the error text for an unknown node, with similar names."""
        shown = printable(name)
        if not self._cluster.misses_node(name):
            return f'node "{shown}" cannot be decoded'
        shortlist = Shortlist(shown)
        await run_stepwise(shortlist.steps(tuple(self._cluster.nodes)))
        return f'nodes "{shown}" not found{shortlist.suggestion()}'

    async def _explained(self, deciding: Framework, known: Pod, node: str, seconds: float) -> Explained:
        pod = replace(known, node_name="")
        name = deciding.scheduler_name
        framework = self._snapshot.frameworks[name]
        unknown = self._snapshot.not_judged(name, pod)
        gate = await decide_prepared(partial(deciding.pre_enqueue, pod))
        if gate.is_success and pod.spec.gated:
            gate = _GATED
        judgement = Judgement()
        judging = Limited(self._judge(framework, unknown)(()).steps(pod, judgement), max(seconds, MOST_SECONDS))
        await run_stepwise(judging)
        failing = {*unknown, *judgement.faults}
        await yield_to_loop()
        plugins = await decide_prepared(partial(self._explain_plugins, deciding, known, failing))
        plugins = await deciding.explain_later(plugins, judgement.feasible)
        remedies: list[Remedy] = []
        judge = self._judge(framework, {**unknown, **judgement.faults})
        search = Remedies(self._cluster, judge)
        proving = Limited(search.steps(pod, judgement, remedies), seconds - judging.seconds)
        impossible: list[str] = []
        spent = judging.seconds
        if not known.node_name:
            await run_stepwise(proving)
            spent += proving.seconds
            if not judgement.feasible:
                impossibilities = Impossibilities(self._cluster, judge)
                doubting = Limited(impossibilities.steps(pod, judgement, bool(remedies), impossible), seconds - spent)
                await run_stepwise(doubting)
                spent += doubting.seconds
        not_judged = {**unknown, **judgement.faults}
        needs: list[ResourceNeed] = []
        await run_stepwise(self._needs(pod, framework, needs))
        await yield_to_loop()
        groups = grouped(judgement)
        await yield_to_loop()
        scheduler = compared(pod, judgement, len(not_judged))
        return Explained(
            name,
            deciding.preset,
            self._snapshot.by(name),
            gate,
            judgement.feasible,
            groups,
            plugins,
            needs,
            best(remedies),
            impossible,
            not_judged,
            judging.ended_early or proving.ended_early or (search.untried and not remedies),
            spent,
            scheduler,
            await self._on_node(framework, pod, node, judgement) if node else None,
            bound_node(known, judgement, self._cluster) if known.node_name else None,
            next((it.home for it in plugins.values() if it.home is not None), None),
        )

    def _judge(self, framework: Framework, unknown: Collection[str]) -> Callable[[Collection[str]], Judge]:
        """Return a function that creates a judge without the plugins that it is given, and those in ``unknown``."""
        in_flight = self._snapshot.in_flight()
        return lambda ignored: Judge(framework, self._cluster, {*ignored, *unknown}, in_flight)

    def _explain_plugins(self, deciding: Framework, pod: Pod, failing: Container[str]) -> Mapping[str, Explanation]:
        """Return the explanations of the profile's plugins: the deciding instances, on the snapshot of decisions.

        ``failing``: plugins that gave no verdict. If one of them also fails here, it is left out.
        """
        cluster = self._context.cluster
        with cluster.without(pod.uid, pod.key):
            return deciding.explain(pod, Candidates.of(cluster.nodes), failing)

    def _needs(self, pod: Pod, framework: Framework, needs: list[ResourceNeed]) -> Iterator[None]:
        """Add up the free amount of each resource that the pod requests, if the profile judges resources."""
        if _FIT not in framework.plugins:
            return
        try:
            requests = pod.spec.resources.requests
        except NotDecoded:
            return
        free, most = dict.fromkeys(requests, 0), dict.fromkeys(requests, (0, ""))
        for number, node in enumerate(tuple(self._cluster.nodes)):
            info = self._cluster.nodes.get(node)
            for name, left in info.free(requests).items() if info is not None else ():
                free[name] += left
                if left > most[name][0]:
                    most[name] = (left, node)
            if number % 128 == 127:
                yield
        needs += (ResourceNeed(name, amount, free[name], *most[name]) for name, amount in requests.items())

    async def _on_node(self, framework: Framework, pod: Pod, name: str, judgement: Judgement) -> NodeAnswer:
        if name not in judgement.rejected and name not in judgement.feasible:
            raise VerbFailure("nothing_to_do", f'nodes "{printable(name)}" not found')
        verdicts = verdicts_on(name, judgement)
        if name not in judgement.feasible:
            return NodeAnswer(name, verdicts, {}, None)
        scores = await decide_prepared(partial(self._scores, framework, pod, judgement.feasible))
        by_plugin = {plugin: of[name] for plugin, of in scores.by_plugin.items() if name in of}
        return NodeAnswer(name, verdicts, by_plugin, scores.totals.get(name))

    def _scores(self, framework: Framework, pod: Pod, feasible: Sequence[str]) -> Scores:
        with self._cluster.without(pod.uid, pod.key):
            nodes = self._cluster.nodes
            names = [name for name in feasible if name in nodes]
            return framework.scoring.score(CycleState(), pod, Candidates(names, nodes.__getitem__))


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
    groups = sorted(judgement.by_reasons().items(), key=_size)
    return [RejectedNodes(sorted(names), statuses) for statuses, names in groups]


def _size(group: tuple[tuple[Status, ...], list[str]]) -> tuple[int, str]:
    _, names = group
    return -len(names), min(names)
