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

import asyncio
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import chain
from typing import Any, ClassVar, Final, Generic, NoReturn, Protocol, TypeAlias, TypeVar, runtime_checkable

from msgspec import Struct
from pydantic import BaseModel, ConfigDict

from app.framework.activation import Activate, activate_nobody
from app.framework.cycle_state import CycleState
from app.framework.events import NO_EVENTS, EventRecorder
from app.framework.filter_result import FilterResult
from app.framework.listers import NodeLister
from app.framework.node_info import Candidates, NodeInfo
from app.framework.parts import Part
from app.framework.score_classes import ScoreClasses
from app.framework.status import SUCCESS, Status, unschedulable
from app.kube.core_v1 import Node, Pod
from app.kube.extras import Extra, NotDecoded
from app.kube.kinds import AnnotatedObject, Kind, KubeObject
from app.kube.meta_v1 import ObjectKey
from app.kube.node_affinity import RequiredNodeAffinity
from app.kube.pod_affinity import Newcomer, Peers
from app.kube.selectors import Selector
from app.kube.taints import Tolerance, Toleration

MIN_NODE_SCORE: Final = 0
MAX_NODE_SCORE: Final = 100
"""Scores after normalising lie in 0..100, as in kube-scheduler."""

DEFAULT_RELEASE: Final = "1.36"
"""The Kubernetes release whose in-tree plugins are meant, where nobody says which."""

Object = TypeVar("Object", bound=KubeObject)
_T = TypeVar("_T")


class Inclusion(Struct, frozen=True, gc=False, cache_hash=True):
    """What decides, beside its labels' keys, whether a node counts. A part that a policy ignores is ``None``."""

    affinity: RequiredNodeAffinity | None = None
    tolerations: tuple[Toleration, ...] | None = None

    def admits(self, node: Node) -> bool:
        """Whether one node counts; ``compiled`` is for many."""
        return self.compiled()(node)

    def compiled(self) -> Callable[[Node], bool]:
        """The same in the form that is quickly asked."""
        matcher = None if self.affinity is None else self.affinity.compiled()
        tolerance = None if self.tolerations is None else Tolerance(self.tolerations)

        def admits(node: Node) -> bool:
            if matcher is not None and not matcher.matches(node.name, node.labels):
                return False
            return tolerance is None or not node.taints or tolerance.tolerates_all(node.taints)

        return admits


ALL_NODES: Final = Inclusion()

NOT_CERTAIN: Final = unschedulable("may no longer hold once binds under way have failed")
"""Says the default of ``filter_certain``; nobody is told."""


class Unprepared(Exception):  # no error: what is asked for is to be counted first
    """The answer rests on counts that are not kept yet and take longer to make than the event loop may stand still.

    Raised by ``Counts``; a plugin lets it pass. Whoever decides takes the ``steps``, each of them short, lets others
    have their turn in between, and decides anew.
    """

    def __init__(self, steps: Iterator[None]) -> None:
        super().__init__("not counted yet")
        self.steps = steps


def all_prepared(asks: Iterable[Callable[[], object]]) -> None:
    """Ask all, and raise one ``Unprepared`` for all that are not prepared: once is enough to make them ready."""
    missing: list[Iterator[None]] = []
    for ask in asks:
        try:
            ask()
        except Unprepared as found:
            missing.append(found.steps)
    if missing:
        raise Unprepared(chain.from_iterable(missing))


class DomainCounts(Protocol):
    """Kept counts of the pods a selector matches, by the value a topology key has on their nodes.

    Only nodes that have all required keys and are admitted count. A domain with such a node and no pod exists
    with 0. Live: valid until the next ``await``.
    """

    def count(self, value: str) -> int:
        """Pods in the domain ``value``; 0 if there is no such domain."""
        ...

    def minimum(self, deltas: Mapping[str, int] | None = None) -> int:
        """The smallest count of any domain, each changed by ``deltas``; 0 if there are no domains."""
        ...

    def size(self) -> int:
        """How many domains there are."""
        ...

    def nodes_by_domain(self) -> Mapping[str, int]:
        """How many nodes count in each domain."""
        ...

    def above(self, limit: int) -> Collection[str]:
        """The domains with more than ``limit`` pods, for ``limit`` >= 0."""
        ...

    def domain_of(self, node: str) -> str | None:
        """The domain in which ``node`` counts; ``None`` if it does not count."""
        ...

    def is_empty(self) -> bool:
        """Whether no domain has any pod."""
        ...

    def stamp(self, limit: int) -> int:
        """Moves whenever a domain comes to have more than ``limit`` pods, or no longer has.

        Given out once: an equal stamp means the same limit, the same counts and the same domains above.
        """
        ...


class Counts(Protocol):
    """Counts the picture keeps so that no plugin walks pods on the hot path.

    Counted are bound and assumed pods that are neither finished nor terminating. What is asked for the first time may
    raise ``Unprepared``; a plugin that asks for much at once does so through ``all_prepared`` then.
    """

    def pods_by_node(self, namespace: str, selector: Selector) -> Mapping[str, int]:
        """Pods that ``selector`` matches, by node; nodes without any are absent."""
        ...

    def domains(
        self,
        namespace: str,
        selector: Selector,
        topology_key: str,
        required_keys: frozenset[str],
        inclusion: Inclusion = ALL_NODES,
    ) -> DomainCounts:
        """The same by domain. A node without ``topology_key`` (where not required) is in the domain ``""``."""
        ...

    def values(self, topology_key: str) -> Mapping[str, str]:
        """Node name to label value, for all nodes that have the label."""
        ...

    def on_every_node(self, topology_key: str) -> bool:
        """Whether all nodes of the picture have the label."""
        ...

    def outside(self, topology_key: str, blocked: Collection[str], names: Sequence[str]) -> list[str]:
        """Those of ``names``, in order, that are nodes with the label and whose value is none of ``blocked``."""
        ...

    def stamp(self, topology_key: str) -> int:
        """Moves whenever ``values(topology_key)`` does; an equal stamp means the same key and the same values."""
        ...


class PodTerms(Protocol):
    """Counts the picture keeps for terms between pods, so that no plugin walks pods, nor what these ask of others.

    Counted are bound and assumed pods that are not finished, terminating ones included, on nodes that have the label
    ``topology_key``. What is asked for the first time may raise ``Unprepared``. To ask where no plugin declares
    ``Part.POD_AFFINITY`` raises ``NotDecoded``.
    """

    def peers(self, peers: Peers, topology_key: str) -> DomainCounts:
        """Pods that a term of the pod in hand means, by domain."""
        ...

    def refusing(self, newcomer: Newcomer) -> Mapping[str, DomainCounts]:
        """Pods with a required anti-affinity term that means the newcomer, by the term's topology key and by domain.

        Keys of which there are none may be absent.
        """
        ...

    def weights(self, newcomer: Newcomer, hard_weight: int) -> Mapping[str, Mapping[str, int]]:
        """What the preferred terms that mean the newcomer weigh together, by topology key and domain.

        A required affinity term weighs ``hard_weight``; with 0 there are none. A key is there if any pod has a term of
        it, whatever the sum; a domain of sum 0 may be absent. Live: valid until the next ``await``.
        """
        ...


class NoPodTerms:
    """Implements ``PodTerms`` where no plugin declares ``Part.POD_AFFINITY``."""

    def peers(self, peers: Peers, topology_key: str) -> NoReturn:
        raise NotDecoded(Extra.POD_AFFINITY)

    def refusing(self, newcomer: Newcomer) -> NoReturn:
        raise NotDecoded(Extra.POD_AFFINITY)

    def weights(self, newcomer: Newcomer, hard_weight: int) -> NoReturn:
        raise NotDecoded(Extra.POD_AFFINITY)


NO_POD_TERMS: Final = NoPodTerms()


class Objects(Protocol):
    """Objects of the kinds that the plugin declared with ``Needs.kinds`` or ``writes``.

    To ask for another raises ``LookupError``, and so do pods and nodes: nobody feeds them here, so that none would be
    there. A plugin lets that pass, too.

    What exists and cannot be read raises ``Unreadable`` where it is asked for. A plugin lets that pass: the verdict is
    then an Error that names the object.
    """

    def get(self, kind: Kind[Object], namespace: str, name: str) -> Object | None: ...
    def in_namespace(self, kind: Kind[Object], namespace: str) -> Collection[Object]: ...

    def every(self, kind: Kind[Object]) -> Iterator[Object]:
        """All objects of a kind that can be read, which may come and go while it is read. Never on the hot path."""
        ...

    def version(self, kind: Kind[Any], namespace: str | None = None) -> int:
        """Moves whenever an object of the kind changes in the namespace: a stamp for what is derived from them.

        Without a namespace (``""`` is that of kinds which have none): whenever any object of the kind does.
        """
        ...

    def changed(self, kind: Kind[Object], seen: int) -> Collection[tuple[ObjectKey, Object | None]] | None:
        """The objects of a kind that came, changed or went since ``version(kind)`` was ``seen``, as ``every`` has them.

        ``None`` for one that went. ``None`` in place of all where it is not known, as when it is first asked for: any
        of them may have changed.
        """
        ...

    def annotated_pods(self) -> Collection[Pod]:
        """Bound pods that carry annotations of our domain, terminating ones included. For repairs."""
        ...

    def by_controller(self, kind: Kind[Any]) -> Mapping[str, Mapping[str, Pod]]:
        """Pods by the UID of their controller, if it is of this kind, and by their own: waiting, assumed, bound and
        terminating ones, of any namespace. Live; to be asked for once, when the plugin is built.
        """
        ...

    def by_claim(self) -> Mapping[str, Mapping[str, Pod]]:
        """The same pods by the claims that their volumes name, ephemeral ones apart, as ``namespace/name``.

        Live; to be asked for once, when the plugin is built. Raises ``LookupError`` unless a plugin of some profile
        names ``Part.VOLUMES``.
        """
        ...

    def has_node(self, name: str) -> bool: ...

    def misses_node(self, name: str) -> bool:
        """Whether it is certain that there is no such node: one that cannot be read is there."""
        ...


class WriteConflict(Exception):
    """The object changed since it was read; the picture now holds its newest form."""


class ObjectGone(Exception):
    """The object to write to no longer exists."""


class Unreadable(Exception):
    """An object that exists and cannot be read: what rests on it cannot be said. ``key`` is ``namespace/name``."""

    def __init__(self, kind: str, key: str, cause: str) -> None:
        super().__init__(f"{kind} {key} cannot be read: {cause}")


class NotServed(OSError):
    """The API server does not know the kind: its definition is not installed."""


class Writer(Protocol):
    """The one narrow way in which a plugin writes to the cluster: annotations, and whole objects of kinds of ours.

    Everything is written under optimistic concurrency, and is in the picture when the call returns. Each raises
    ``WriteConflict``, ``ObjectGone`` or ``OSError``, of which ``NotServed`` is one.
    """

    async def annotate(
        self, kind: Kind[AnnotatedObject], found: AnnotatedObject, annotations: Mapping[str, str | None]
    ) -> None:
        """Set (or with ``None`` remove) annotations of ``found`` if it is unchanged since it was read."""
        ...

    async def create(self, kind: Kind[AnnotatedObject], namespace: str, name: str, spec: Mapping[str, Any]) -> None:
        """Make an object. ``WriteConflict``: there is one of that name; ``ObjectGone``: the namespace is going."""
        ...

    async def change(self, kind: Kind[AnnotatedObject], found: AnnotatedObject, spec: Mapping[str, Any]) -> None:
        """Give it another spec, with ``None`` for each field that goes, if it is unchanged since it was read."""
        ...

    async def delete(self, kind: Kind[AnnotatedObject], found: AnnotatedObject) -> None:
        """Delete it if it is unchanged since it was read."""
        ...


class Binder(Protocol):
    """Binds pods. Owns UID and version preconditions and the reading back of unknown outcomes.

    For bind plugins: within ``BindPlugin.bind``, or a task begun there, it binds the pod and the node that this was
    called with. The decision is checked once more in the step that sends the Binding.
    """

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> Status:
        """Success means: seen bound to that node. A rejection: the pod or the picture is not what was decided on.

        A fault that a filter plugin has in that last check comes out of here as it is; let it pass.
        """
        ...


class WaitingPod(Protocol):
    """A pod that Permit made wait."""

    @property
    def pod(self) -> Pod: ...
    @property
    def node_name(self) -> str: ...

    def pending_plugins(self) -> Collection[str]:
        """The plugins that have not allowed it yet."""
        ...

    def allow(self, plugin: str) -> None:
        """This plugin no longer makes it wait; when none is left, it goes on to be bound."""
        ...

    def reject(self, plugin: str, message: str) -> bool:
        """It will not be bound. ``False`` if that was settled before."""
        ...


class WaitingPods(Protocol):
    """All pods that wait at Permit, of every profile."""

    def get(self, uid: str) -> WaitingPod | None: ...
    def all(self) -> Collection[WaitingPod]: ...


class Clock(Protocol):
    """Seconds on a clock that never goes back, where nothing else is said of it."""

    def __call__(self) -> float: ...


class DryRun(Protocol):
    """What if: one node, and a copy of the evaluation's state, from which pods are taken and to which they come back.

    Nothing else sees it. It holds for the evaluation in which it was begun: until the next ``await``, or step.
    """

    @property
    def node(self) -> NodeInfo:
        """The node as it would be."""
        ...

    def remove_pod(self, pod: Pod) -> None:
        """One that is on the node would be gone. A fault of a plugin comes out of here as it is; let it pass."""
        ...

    def add_pod(self, pod: Pod) -> None:
        """One would run there. The same holds for a fault."""
        ...

    def filter(self) -> Status:
        """What the profile's filters say by then, with pods that are nominated to the node and without.

        kube-scheduler's ``RunFilterPluginsWithNominatedPods``. A fault is an Error status with its plugin.
        """
        ...


Sleep = Callable[[float], Awaitable[None]]
"""Seconds on the handle's clock."""


class NodeVerdict(Struct, frozen=True):
    """What in-tree filters say of one node for one pod, for a person.

    ``reasons``: the constant texts of those that refuse the pod. ``unasked``: the names of those whose word is not
    known. Without reasons the node is not known to take the pod, unless nobody is unasked either.
    """

    reasons: tuple[str, ...] = ()
    unasked: tuple[str, ...] = ()


Why = Callable[[Pod, str], Awaitable[NodeVerdict]]
"""Why would in-tree filters refuse the pod on the node of this name? It may take seconds, and never raises."""


NOT_KNOWN: Final = NodeVerdict((), ("any in-tree filter",))


async def _nobody_knows(_pod: Pod, _node_name: str) -> NodeVerdict:
    return NOT_KNOWN


def _any_scheduler(_scheduler_name: str) -> bool:
    return True


def _never() -> bool:
    return False


def _always_a_sample(_names: int) -> bool:
    return True


def _no_filters(_state: CycleState, _pod: Pod, _node: NodeInfo) -> NoReturn:
    raise LookupError("there is no profile whose filters could be run")


class Timing(Struct, frozen=True):
    """Clocks and pauses.

    ``clock``: seconds, never set back. ``wall_clock``: seconds since 1970, for times that outlive a process; it may be
    set back, and replicas differ in it. ``sleep`` pauses for some seconds, in ``async def`` alone.
    ``repair_interval``: seconds between two looks for writes that a crash left half done (``repairInterval``).
    """

    clock: Clock = time.monotonic
    wall_clock: Clock = time.time
    sleep: Sleep = asyncio.sleep
    repair_interval: float = 60.0


class ProfileContext(Struct, frozen=True):
    """What a plugin may ask of the profile that it belongs to.

    ``serves`` tells whether the profile judges the pods of a schedulerName. ``release``: the Kubernetes release, as
    ``1.36``, whose in-tree plugins it stands for. ``dry_run`` begins one for a pod whose state PreFilter has prepared.
    ``why`` asks in-tree filters of one node, whether or not the profile runs them: to tell people, never to decide
    by. ``is_sample`` tells from the number of names in a filter request if kube-scheduler may have left out nodes that
    its own filters pass.
    """

    serves: Callable[[str], bool] = _any_scheduler
    release: str = DEFAULT_RELEASE
    dry_run: Callable[[CycleState, Pod, NodeInfo], DryRun] = _no_filters
    why: Why = _nobody_knows
    is_sample: Callable[[int], bool] = _always_a_sample


class Handle(Struct, frozen=True):
    """What a plugin may use of the world.

    ``event_recorder`` tells people what happened to an object, as kube-scheduler's ``Handle.EventRecorder`` does.
    ``activate`` has waiting pods tried again, as its ``Handle.Activate`` does. ``is_asked``: whether the plugin answers
    a question, as ``explain``: nothing that it keeps may change by that.
    """

    counts: Counts
    objects: Objects
    writer: Writer
    binder: Binder
    waiting: WaitingPods
    nodes: NodeLister
    terms: PodTerms = NO_POD_TERMS
    timing: Timing = Timing()
    profile: ProfileContext = ProfileContext()
    event_recorder: EventRecorder = NO_EVENTS
    activate: Activate = activate_nobody
    is_asked: Callable[[], bool] = _never


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


class Reads(Enum):
    """What the verdicts and raw scores of a plugin rest on, beside its arguments and objects of its declared kinds.

    Of the pod it reads the parts that its ``PluginSpec`` names, else namespace, labels, spec, annotations and owner.
    """

    NODE = "node"
    """The pod and the Node object."""

    PODS_ON_NODE = "pods on node"
    """The pods on that node too; more of them never turn a rejection into a Success."""

    CLUSTER = "cluster"
    """Anything, the pod's name and UID included."""


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


def at_once(steps: Generator[Any, Any, _T]) -> _T:
    """Run all ``steps`` without a pause, and return what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result


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


class Table(Struct, frozen=True):
    """Facts for a person: cells are texts, whole numbers or truth values."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | bool, ...], ...]


class Explanation(Struct, frozen=True):
    """What a plugin's answer rests on, with the names and numbers that a reason must not contain.

    ``unblock``: sentences, each one change that would let the pod in somewhere. ``later``: finds out what
    is to be added and takes time, such as what ``handle.profile.why`` tells. It is called with the nodes that pass the
    profile's filters, and left out if it fails or takes longer than some seconds.
    """

    tables: tuple[Table, ...] = ()
    unblock: tuple[str, ...] = ()
    later: Callable[[Collection[str]], Awaitable[Explanation]] | None = None


class Figure(Struct, frozen=True):
    """One sample of a gauge: exposed as ``homeport_<name>`` with ``labels`` and, as ``profile``, the schedulerName.

    ``text`` says what it is, the same for all samples of a name. Labels take few values, none of them a tenant's.
    """

    name: str
    text: str
    value: float
    labels: Mapping[str, str] = {}


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


class PluginArgs(BaseModel):
    """Base of every ``<PluginName>Args``: camelCase as in KubeSchedulerConfiguration, unknown fields refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    apiVersion: str | None = None  # noqa: N815  # a KubeSchedulerConfiguration carries both on every args object
    kind: str | None = None


Args = TypeVar("Args", bound=PluginArgs)


class Writes(Struct, frozen=True):
    """Objects of ``kind`` are written through ``Handle.writer``; ``what`` is written there, for a person.

    ``whole``: they are also made and deleted; without it only annotated, or changed.
    """

    kind: Kind[Any]
    what: str
    whole: bool = False


class Needs(Struct, frozen=True):
    """What a plugin needs with some arguments.

    ``kinds``: those that it reads beside pods and nodes. ``writes``: those that it writes, which it may read too; what
    Homeport must be allowed follows from both. ``parts``: what it reads beside ``PluginSpec.parts``; for plugins that
    read the cluster. ``node_annotations``: keys of the annotations of nodes that it reads, others are not decoded.
    """

    kinds: tuple[Kind[Any], ...] = ()
    writes: tuple[Writes, ...] = ()
    parts: Collection[Part] = ()
    node_annotations: Collection[str] = ()


def _nothing(_args: Any) -> Needs:
    return Needs()


class PluginSpec(Generic[Args]):
    """How a plugin is found, configured and built: ``plugin(args, handle)``.

    ``reads`` and ``parts`` say what its verdicts and scores rest on: it sees no other parts of the pod, unless it reads
    the cluster. Some parts are decoded only if a plugin names them. ``needs`` gives the rest, from its arguments.
    """

    def __init__(
        self,
        name: str,
        args: type[Args],
        plugin: Callable[[Args, Handle], Plugin],
        *,
        reads: Reads = Reads.CLUSTER,
        parts: Collection[Part] | None = None,
        needs: Callable[[Args], Needs] = _nothing,
    ) -> None:
        self.name = name
        self.args = args
        self.plugin: Any = plugin
        self.reads = reads
        self.parts = None if parts is None else frozenset(parts)
        self.needs = needs

    def build(self, args: PluginArgs, handle: Handle) -> Plugin:
        """One plugin of one profile."""
        built: Plugin = self.plugin(args, handle)
        return built

    def __repr__(self) -> str:
        return f"PluginSpec({self.name!r})"
