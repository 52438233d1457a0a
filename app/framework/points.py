"""The contract between Homeport and a plugin: everything a plugin sees, and all it may answer.

Extension points carry kube-scheduler's names and meaning. A plugin names one or more of the protocols below as its
bases; a class that names one and lacks its method, or has the method and names no base for it, does not start. Which
verb runs which point:

    filter      pre_filter, filter, filter_last
    prioritize  pre_score, score, normalize, then weights
    preempt     pre_filter, remove_pod for each victim, filter
    all         required_objects, whose answers are read from the API server first
    bind        pre_filter and filter once more on the newest picture, those of the profile's bindRecheck too, reserve,
                permit, pre_bind, bind, post_bind; unreserve in reverse order on any failure
    cycle       all that decides, and pre_enqueue, post_filter and less: the extender protocol has no place for these
    none        run: in the background, in the process that decides

What its verdicts rest on a plugin declares once, by ``PluginSpec.reads`` and ``parts``. What follows is the engine's:
whether a verdict is kept, when a refusal is remembered, whether a bind is certain, who waits for whom.

Deciding points are plain ``def``: they run without an ``await``, hence on one consistent picture. Acting points
(``pre_bind``, ``bind``, ``post_bind``) are ``async def``. What a plugin needs of the world it gets from its
``Handle``. An exception that leaves a plugin becomes an Error status with the plugin's name.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from app.framework.cycle_state import CycleState
from app.framework.explanation import Explanation, Figure
from app.framework.filter_result import FilterResult
from app.framework.node_info import Candidates, NodeInfo
from app.framework.score_classes import ScoreClasses
from app.framework.status import SUCCESS, Status, unschedulable
from app.kube.core_v1 import Pod
from app.kube.kinds import Kind

MIN_NODE_SCORE: Final = 0

MAX_NODE_SCORE: Final = 100
"""Scores after normalising lie in 0..100, as in kube-scheduler."""

NOT_CERTAIN: Final = unschedulable("may no longer hold once binds under way have failed")
"""Says the default of ``filter_certain``; nobody is told."""


class Plugin(Protocol):
    """A plugin: built from its arguments and a ``Handle``, it has the methods of its extension points.

    Base of all extension points. What is below, any plugin may have of its own.
    """

    def required_objects(self, pod: Pod) -> Iterable[tuple[Kind[Any], str, str]]:
        """Return (kind, namespace, name) of what a decision needs and the picture lacks; it is read first.

        A pod can arrive before its owner does. Of the kinds that the plugin declares, and ``NODES``, whose namespace is
        empty.
        """
        return ()

    def explain(self, pod: Pod, nodes: Candidates) -> Explanation:
        """Return what the plugin's answer rests on. Asked by people, never on the hot path."""
        return Explanation()

    def object_changed(self, kind: Kind[Any], old: Any, new: Any) -> None:
        """React to an object of a declared kind that was added (``old`` is ``None``) or changed, whoever wrote it.

        Called for all objects there are at the start, not for those that are deleted. Where several profiles have the
        plugin, the plugin of the first is called, once for each change.
        """
        return

    def figures(self) -> Iterator[Figure | None]:
        """Yield the plugin's own gauges when metrics are scraped.

        ``None`` after each step of some tenths of a millisecond: others have their turn there.
        """
        yield from ()


@runtime_checkable
class PreEnqueuePlugin(Plugin, Protocol):
    """May a pod be considered at all? Asked before it enters the queue of a scheduler that asks us."""

    @abstractmethod
    def pre_enqueue(self, pod: Pod) -> Status:
        """Anything but Success keeps the pod out; the others are not asked."""
        ...


@runtime_checkable
class QueueSortPlugin(Plugin, Protocol):
    """Order of waiting pods. Exactly one per profile."""

    @abstractmethod
    def less(self, pod: Pod, queued_at: float, other: Pod, other_queued_at: float) -> bool:
        """Whether ``pod`` is scheduled before ``other``."""
        ...


@runtime_checkable
class PreFilterPlugin(Plugin, Protocol):
    """Called once per evaluation, before any node is looked at."""

    @abstractmethod
    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, frozenset[str] | None]:
        """Prepare ``state``. Skip leaves this plugin's filter out; a rejection ends the cycle.

        The second part narrows the nodes to a set of names; ``None`` means all nodes.
        """
        ...

    def add_pod(self, state: CycleState, pod: Pod, added: Pod, node: NodeInfo) -> Status:
        """Keep the state of ``pre_filter`` right while a dry run adds a pod. Success, or an error."""
        return SUCCESS

    def remove_pod(self, state: CycleState, pod: Pod, removed: Pod, node: NodeInfo) -> Status:
        """Keep the state of ``pre_filter`` right while a dry run takes a pod away. Success, or an error."""
        return SUCCESS


@runtime_checkable
class FilterPlugin(Plugin, Protocol):
    """May a pod run on a node?

    ``takes_any_names``: the ``passed`` of ``filter_nodes`` are nodes of the picture whatever ``nodes.names`` holds,
    which spares a look at each name beforehand.
    """

    takes_any_names: ClassVar[bool] = False

    @abstractmethod
    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        """Success, or a rejection with constant reasons."""
        ...

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: Candidates) -> FilterResult:
        """``filter`` of all nodes at once, for plugins that are quicker so; called in its place, and equal to it.

        Those that pass, in the order of ``nodes.names``; why the others do not is worked out when it is read.
        """
        found = {it.name: self.filter(state, pod, it) for it in nodes}
        passed = [name for name, status in found.items() if status.is_success]
        return FilterResult(passed, {name: it for name, it in found.items() if not it.is_success})

    def filter_last(self, state: CycleState, pod: Pod, nodes: Candidates, passed: Sequence[str]) -> FilterResult:
        """Return those of ``passed`` that still pass, in order; why others do not is worked out when it is read.

        For answers that depend on which other nodes would do: "this one if it does, else any". Such a rule is no part
        of ``filter``, which judges one node and is what checks of one node call: bind, preemption and dry runs never
        call ``filter_last``. ``nodes`` are all that the search asks about, one or many, also those that a PreFilter
        left out. ``passed``, at least one, are those that no filter rejects, nor a last filter before this one. Called
        by searches (filter, cycle, explain, evaluate, the sampling guard), unless PreFilter said Skip. Its rejections
        are never remembered: they rest on both sets. They may rest on a clock.
        """
        return FilterResult(passed, {})


@runtime_checkable
class ClusterFilterPlugin(FilterPlugin, Protocol):
    """A filter that reads the cluster (``Reads.CLUSTER``), and can say which of it matters.

    Of one that cannot, nothing is assumed: every pod matters, its rejections are not remembered, and no verdict is
    certain while others are being bound.
    """

    def depends_on(self, pod: Pod, other: Pod) -> bool:
        """Whether the answer about ``pod`` may depend on where ``other`` runs."""
        return True

    def filter_certain(self, state: CycleState, pod: Pod, node: NodeInfo, in_flight: Sequence[Pod]) -> Status:
        """Like ``filter``, but Success only if it holds for every subset of ``in_flight`` that may yet fail.

        ``in_flight`` are pods that the counts include and whose binding is not certain.
        """
        return NOT_CERTAIN if any(self.depends_on(pod, it) for it in in_flight) else SUCCESS

    def signature(self, pod: Pod) -> Hashable | None:
        """All that the rejections of ``pre_filter`` and ``filter`` rest on, the pod's part included.

        Equal signatures, at any two times and for any two pods, promise equal answers for every node of the picture,
        with no pod nominated. Asked before every use: it must be much cheaper than the answer. ``None``: rejections
        cannot be remembered this time, as while ``required_objects`` names something.
        """
        return None


class Victims(Struct, frozen=True):
    """Pods of one node that would have to go, the most important first; how many against a PodDisruptionBudget."""

    pods: tuple[Pod, ...]
    pdb_violations: int = 0


class PostFilterResult(Struct, frozen=True):
    """What PostFilter wants of ``status.nominatedNodeName``: a node, or ``""`` to clear it.

    ``victims``: who would have to go for it, where somebody has to.
    """

    nominated_node_name: str
    victims: Victims | None = None


PostFilterAnswer: TypeAlias = tuple[PostFilterResult | None, Status]

PostFilterSteps: TypeAlias = Generator[None, CycleState, PostFilterAnswer]


@runtime_checkable
class PostFilterPlugin(Plugin, Protocol):
    """Called when no node is feasible: can anything be done about it?"""

    @abstractmethod
    def post_filter(self, state: CycleState, pod: Pod, rejected: Mapping[str, Status]) -> PostFilterSteps:
        """A generator that returns a result and a status. It yields after some milliseconds of work, if it takes more.

        Other requests run where it yields. It receives the state of a new PreFilter then, and the cluster may have
        changed: nothing that was read from it outlives a step.

        Success: something was done, and the pod can come again. Unschedulable: the next plugin is called.
        UnschedulableAndUnresolvable: nothing can help, no other plugin is called. ``None`` in place of a result leaves
        the nomination as it is.
        """
        ...


@runtime_checkable
class PreScorePlugin(Plugin, Protocol):
    """Called once before scoring, with the feasible nodes."""

    @abstractmethod
    def pre_score(self, state: CycleState, pod: Pod, nodes: Candidates) -> Status:
        """Skip leaves this plugin's score out; any other non-success is an Error."""
        ...


@runtime_checkable
class ScorePlugin(Plugin, Protocol):
    """How good is a node? One of ``score`` and ``score_nodes`` is enough."""

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        """Any integer if the plugin normalises, else 0..100.

        It does not depend on which other nodes are scored, unless the plugin reads the cluster.
        """
        return self.score_nodes(state, pod, Candidates((node.name,), {node.name: node}.__getitem__)).each()[0]

    def score_nodes(self, state: CycleState, pod: Pod, nodes: Candidates) -> ScoreClasses:
        """``score`` of each: the class of each node, and the score of each class. In doubt the name is the class."""
        return ScoreClasses.by_value([self.score(state, pod, it) for it in nodes])

    def normalize(self, state: CycleState, pod: Pod, scores: Mapping[Any, int]) -> Mapping[Any, int]:
        """Bring the raw scores, by class, into 0..100; every class is one of a candidate.

        A score below 0 or above 100 becomes 0, for the nodes of that class alone.
        """
        return scores

    def score_depends_on(self, pod: Pod, other: Pod) -> bool:
        """Whether the score of a node for ``pod`` may depend on where ``other`` runs."""
        return False


@runtime_checkable
class ReservePlugin(Plugin, Protocol):
    """Keeps book of a decision before it is carried out."""

    @abstractmethod
    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """The first failure stops the cycle and undoes all."""
        ...

    @abstractmethod
    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Undo, idempotently; also called where ``reserve`` never ran."""
        ...


@runtime_checkable
class PermitPlugin(Plugin, Protocol):
    """Asked once the pod has its place, before anything is written: approve, deny, or let it wait for something."""

    @abstractmethod
    def permit(self, state: CycleState, pod: Pod, node_name: str) -> tuple[Status, float]:
        """Wait comes with the longest time to wait, in seconds, of which 15 minutes count at most.

        A waiting pod goes on once every plugin that made it wait has allowed it, see ``Handle.waiting``.
        """
        ...


@runtime_checkable
class PreBindPlugin(Plugin, Protocol):
    """Work that must be done before the pod is bound."""

    @abstractmethod
    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """May add to ``state.annotations``, which the Binding writes onto the pod."""
        ...


@runtime_checkable
class BindPlugin(Plugin, Protocol):
    """Binds the pod. The first that does not answer Skip decides."""

    @abstractmethod
    async def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status: ...


@runtime_checkable
class PostBindPlugin(Plugin, Protocol):
    """Told of a pod that is bound."""

    @abstractmethod
    async def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None: ...


@runtime_checkable
class BackgroundPlugin(Plugin, Protocol):
    """Has work of its own that goes on beside the decisions: watches, waits, wakes."""

    @abstractmethod
    async def run(self) -> None:
        """Begun when this process decides and the picture is complete, cancelled when it no longer decides.

        One that returns is begun again when this process comes to decide anew; one that fails, after a pause. Its work
        takes less than a millisecond between two awaits: all else stands still meanwhile.
        """
        ...
