"""The contract between Homeport and a plugin: extension points, their inputs and their results.

Extension points have kube-scheduler's names and meanings. A plugin inherits from one or more of the protocols below.
Homeport does not start if a class inherits from a protocol but lacks its method, or has the method but lacks the
protocol. Each verb runs these points:

    filter      pre_filter, filter, filter_last
    prioritize  pre_score, score, normalize, then weights
    preempt     pre_filter, remove_pod for each victim, filter
    all         required_objects; the objects that it names are read from the API server first
    bind        pre_filter and filter again on the newest snapshot, also those of the profile's bindRecheck; reserve,
                permit, pre_bind, bind, post_bind; unreserve in reverse order on any failure
    cycle       the points of filter and prioritize, and pre_enqueue and post_filter; less for several pods
    none        run: in the background, in the replica that is the leader

A plugin declares the inputs of its verdicts once, by ``PluginSpec.reads`` and ``parts``. From them the engine derives
which verdicts it caches, which binds are certain, and which pods must wait for the binds of others.

Deciding points are plain ``def``. They run without an ``await``, so each decision uses one consistent snapshot. Acting
points (``pre_bind``, ``bind``, ``post_bind``) are ``async def``. A plugin reaches the cluster, clocks and other
services only through its ``Handle``. An exception that leaves a plugin becomes an Error status with the plugin's name.
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
"""Maximum score after normalization, like in kube-scheduler."""

NOT_CERTAIN: Final = unschedulable("might no longer hold after binds in flight have failed")
"""Default rejection of ``filter_certain``; internal, never part of an answer."""


class Plugin(Protocol):
    """Base of all extension points. A plugin is created from its arguments and a ``Handle``.

    Every plugin can override the methods below.
    """

    def required_objects(self, pod: Pod) -> Iterable[tuple[Kind[Any], str, str]]:
        """Return (kind, namespace, name) of each object that a decision needs and the snapshot lacks.

        Homeport reads them from the API server before the decision, because a request for a pod can arrive before the
        watch event of its owner. Only the kinds that the plugin declares are allowed, and ``NODES`` with an empty
        namespace.
        """
        return ()

    def explain(self, pod: Pod, nodes: Candidates) -> Explanation:
        """Return the facts behind the plugin's verdict. Called for queries and Events, never on the hot path."""
        return Explanation()

    def object_changed(self, kind: Kind[Any], old: Any, new: Any) -> None:
        """React to an object of a declared kind that was added (``old`` is ``None``) or changed, by whichever client.

        Called also for all objects that exist at start, and for unchanged objects that are listed again, but not for
        deletions. If several profiles have the plugin, only the first profile's instance is called.
        """
        return

    def figures(self) -> Iterator[Figure | None]:
        """Yield the plugin's own gauges. Called when metrics are scraped.

        The generator must also yield ``None`` after a few tenths of a millisecond of work, so that other requests run.
        """
        yield from ()


@runtime_checkable
class PreEnqueuePlugin(Plugin, Protocol):
    """Admits pods to the scheduling queue. Homeport calls it at the start of a cycle, and for queries about a pod."""

    @abstractmethod
    def pre_enqueue(self, pod: Pod) -> Status:
        """Return Success to admit the pod. Any other status keeps it out, and no further plugin is called."""
        ...


@runtime_checkable
class QueueSortPlugin(Plugin, Protocol):
    """Orders the pods in the scheduling queue. Each profile has exactly one such plugin."""

    @abstractmethod
    def less(self, pod: Pod, queued_at: float, other: Pod, other_queued_at: float) -> bool:
        """Return True if ``pod`` is scheduled before ``other``. Queueing times are in seconds on the caller's clock."""
        ...


@runtime_checkable
class PreFilterPlugin(Plugin, Protocol):
    """Called once per evaluation, before any node is filtered."""

    @abstractmethod
    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, frozenset[str] | None]:
        """Prepare ``state``, and return a status and a set of node names.

        After Skip, this plugin's filter does not run. A rejection applies to all nodes. The set restricts the
        evaluation to the nodes in it; ``None`` means all nodes.
        """
        ...

    def add_pod(self, state: CycleState, pod: Pod, added: Pod, node: NodeInfo) -> Status:
        """Update the state of ``pre_filter`` for a pod that a dry run or a nomination adds. Return Success or Error."""
        return SUCCESS

    def remove_pod(self, state: CycleState, pod: Pod, removed: Pod, node: NodeInfo) -> Status:
        """Update the state of ``pre_filter`` for a pod that a dry run removes. Return Success or Error."""
        return SUCCESS


@runtime_checkable
class FilterPlugin(Plugin, Protocol):
    """Decides if a pod can run on a node.

    ``takes_any_names``: true if ``filter_nodes`` accepts names of nodes that do not exist and never returns them as
    passed. The engine then does not check each name.
    """

    takes_any_names: ClassVar[bool] = False

    @abstractmethod
    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        """Return Success, or a rejection whose reasons are constant texts without names or numbers."""
        ...

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: Candidates) -> FilterResult:
        """Filter all nodes in one call. Override it if that is faster; the result must equal that of ``filter``.

        Return the passing nodes in the order of ``nodes.names``. Rejections can be computed when they are first read.
        """
        statuses = {it.name: self.filter(state, pod, it) for it in nodes}
        passed = [name for name, status in statuses.items() if status.is_success]
        return FilterResult(passed, {name: it for name, it in statuses.items() if not it.is_success})

    def filter_last(self, state: CycleState, pod: Pod, nodes: Candidates, passed: Sequence[str]) -> FilterResult:
        """Return the nodes of ``passed`` that still pass, in order. Rejections can be computed when first read.

        Use it for a rule like "this node if feasible, else any". ``filter`` cannot express such a rule, because it sees
        one node at a time. Bind, preemption and dry runs check one node, so they never call ``filter_last``. ``nodes``
        are all nodes of the search, including those that a PreFilter left out. ``passed`` are the nodes that passed
        every filter and every earlier ``filter_last``; there is at least one. Called by all searches, for example
        filter, cycle and explain, unless PreFilter returned Skip. Its rejections are never cached, because they depend
        on both sets of nodes. So the rejections can also depend on a clock.
        """
        return FilterResult(passed, {})


@runtime_checkable
class ClusterFilterPlugin(FilterPlugin, Protocol):
    """A filter that reads the cluster (``Reads.CLUSTER``) and can name the pods that affect its verdict.

    By default, every pod is assumed to affect the verdict, rejections are not cached, and no verdict is certain while
    other pods are being bound.
    """

    def depends_on(self, pod: Pod, other: Pod) -> bool:
        """Return True if the verdict on ``pod`` can depend on whether ``other`` runs, or on which node."""
        return True

    def filter_certain(self, state: CycleState, pod: Pod, node: NodeInfo, in_flight: Sequence[Pod]) -> Status:
        """Return Success if the node passes ``filter`` no matter which pods of ``in_flight`` fail to bind.

        Called only after ``filter`` has returned Success. ``in_flight`` are pods that are counted as bound, although
        their Binding is not confirmed yet.
        """
        return NOT_CERTAIN if any(self.depends_on(pod, it) for it in in_flight) else SUCCESS

    def signature(self, pod: Pod) -> Hashable | None:
        """Return a cache key that covers all inputs, also the pod, of the rejections of ``pre_filter`` and ``filter``.

        While no pod is nominated, equal signatures must mean equal verdicts on every node of the snapshot, even at
        different times and for different pods. Called before each cache lookup, so it must be much cheaper than the
        verdict. ``None``: rejections cannot be cached now, for example because ``required_objects`` returns an object.
        """
        return None


class Victims(Struct, frozen=True):
    """Preemption victims on one node, most important first, and the number that violate a PodDisruptionBudget."""

    pods: tuple[Pod, ...]
    pdb_violations: int = 0


class PostFilterResult(Struct, frozen=True):
    """New value of ``status.nominatedNodeName``: a node, or ``""`` to clear it.

    ``victims``: pods on that node that must be evicted, if any.
    """

    nominated_node_name: str
    victims: Victims | None = None


PostFilterAnswer: TypeAlias = tuple[PostFilterResult | None, Status]
"""New nomination (``None`` leaves the present one unchanged), and the status of the plugin."""

PostFilterSteps: TypeAlias = Generator[None, CycleState, PostFilterAnswer]
"""Steps of PostFilter. At each yield the generator receives the state of a new PreFilter."""


@runtime_checkable
class PostFilterPlugin(Plugin, Protocol):
    """Tries to make the pod schedulable when no node is feasible, for example by preemption."""

    @abstractmethod
    def post_filter(self, state: CycleState, pod: Pod, rejected: Mapping[str, Status]) -> PostFilterSteps:
        """Return a generator that returns a result and a status; it must yield every few milliseconds of work.

        Other requests run at each yield. The generator then receives the state of a new PreFilter. Data that it read
        from the cluster before the yield is invalid, because the cluster might have changed.

        Success means that the pod can be retried. After Unschedulable, the next plugin is called. After
        UnschedulableAndUnresolvable, no other plugin is called, because none can help. A result of ``None`` leaves the
        nomination unchanged.
        """
        ...


@runtime_checkable
class PreScorePlugin(Plugin, Protocol):
    """Called once before scoring, with the feasible nodes."""

    @abstractmethod
    def pre_score(self, state: CycleState, pod: Pod, nodes: Candidates) -> Status:
        """Prepare ``state`` for scoring. Return Success, or Skip to omit this plugin's score. After any other
        status, the evaluation fails.
        """
        ...


@runtime_checkable
class ScorePlugin(Plugin, Protocol):
    """Rates feasible nodes. A plugin implements ``score`` or ``score_nodes``."""

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        """Return the raw score of a node: any integer if the plugin normalizes, else 0..100.

        The score must not depend on which other nodes are scored, unless the plugin reads the cluster.
        """
        return self.score_nodes(state, pod, Candidates((node.name,), {node.name: node}.__getitem__)).each()[0]

    def score_nodes(self, state: CycleState, pod: Pod, nodes: Candidates) -> ScoreClasses:
        """Return a class for each node, and a raw score for each class. A class is any hashable value."""
        return ScoreClasses.by_value([self.score(state, pod, it) for it in nodes])

    def normalize(self, state: CycleState, pod: Pod, scores: Mapping[Any, int]) -> Mapping[Any, int]:
        """Scale the raw scores, by class, to 0..100. Only ``score_nodes`` can add classes without a candidate.

        If a result is outside 0..100, the nodes of its class get 0.
        """
        return scores

    def score_depends_on(self, pod: Pod, other: Pod) -> bool:
        """Return True if a node's score for ``pod`` can depend on whether ``other`` runs, or on which node."""
        return False


@runtime_checkable
class ReservePlugin(Plugin, Protocol):
    """Records a decision in the plugin's own state before the pod is bound."""

    @abstractmethod
    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Record the decision. Any status but Success ends the bind, and ``unreserve`` of every plugin is called."""
        ...

    @abstractmethod
    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Undo ``reserve``. Must be idempotent. Also called if ``reserve`` did not run; then it must have no effect."""
        ...


@runtime_checkable
class PermitPlugin(Plugin, Protocol):
    """Approves, rejects or delays a pod after Reserve, before anything is written."""

    @abstractmethod
    def permit(self, state: CycleState, pod: Pod, node_name: str) -> tuple[Status, float]:
        """Return a status and, for Wait, the timeout in seconds. The engine limits the timeout to 15 minutes, or less
        if the client of the bind request stops waiting sooner.

        A waiting pod proceeds once every plugin that returned Wait has allowed it, see ``Handle.waiting``.
        """
        ...


@runtime_checkable
class PreBindPlugin(Plugin, Protocol):
    """Prepares the bind of a pod, for example by writing to other objects."""

    @abstractmethod
    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Prepare the bind. Any status but Success ends the bind.

        The Binding writes ``state.annotations`` to the pod, so add annotations to it here.
        """
        ...


@runtime_checkable
class BindPlugin(Plugin, Protocol):
    """Binds the pod. Bind plugins run in order until one returns a status other than Skip."""

    @abstractmethod
    async def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Bind the pod with ``Handle.binder``. Return Skip to leave the pod to the next plugin."""
        ...


@runtime_checkable
class PostBindPlugin(Plugin, Protocol):
    """Reacts to the bind of a pod; called after a successful bind."""

    @abstractmethod
    async def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None: ...


@runtime_checkable
class BackgroundPlugin(Plugin, Protocol):
    """Runs a background task, for example to allow pods that wait at Permit, or to activate pending pods."""

    @abstractmethod
    async def run(self) -> None:
        """Run until cancelled. Started once this process is the leader and its snapshot is complete.

        Cancelled when the process loses leadership. A task that returns is started again at the next leadership term. A
        task that fails is started again after a delay. Between two awaits it must take less than a millisecond, because
        it blocks the event loop.
        """
        ...
