"""Stand-ins for the world around the core, and small plugins that answer what a test tells them to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from app.framework.cycle_state import CycleState, StateKey
from app.framework.events import EventType, Reference
from app.framework.filter_result import FilterResult
from app.framework.handle import Handle
from app.framework.node_info import Candidates, NodeInfo
from app.framework.parts import Part
from app.framework.points import (
    BindPlugin,
    ClusterFilterPlugin,
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PostFilterResult,
    PostFilterSteps,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)
from app.framework.score_classes import ScoreClasses
from app.framework.spec import Needs, PluginArgs, PluginSpec, Reads
from app.framework.status import SUCCESS, Status, unresolvable, unschedulable
from app.kube.core_v1 import Pod
from app.kube.kinds import AnnotatedObject, Kind
from app.runtime.slots import BASES

NO = unschedulable("no")
NOT_WANTED = unresolvable("another one will do")
NOT_ASKED = unresolvable("ask about the other one")
WANTS = "wants"
"""The label of a pod that names the node it wants."""


class FixedNominations:
    """Nominated pods by node, as given."""

    def __init__(self, pods: Mapping[str, Sequence[Pod]] | None = None) -> None:
        self._pods = pods or {}

    def nominated(self, node_name: str) -> Collection[Pod]:
        return self._pods.get(node_name, ())

    @property
    def nominated_nodes(self) -> Collection[str]:
        return self._pods.keys()

    @property
    def generation(self) -> int:
        return 0


class RecordingBinder:
    """Answers ``status`` to every binding and remembers it."""

    def __init__(self, status: Status = SUCCESS) -> None:
        self.status = status
        self.bound: list[tuple[str, str, dict[str, str]]] = []

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> Status:
        self.bound.append((str(pod), node_name, dict(annotations)))
        return self.status


class NoWriter:
    """For plugins that must not write."""

    async def annotate(
        self, kind: Kind[AnnotatedObject], found: AnnotatedObject, annotations: Mapping[str, str | None]
    ) -> None:
        raise AssertionError(f"wrote {annotations} to {found}")

    async def create(self, kind: Kind[AnnotatedObject], namespace: str, name: str, spec: Mapping[str, Any]) -> None:
        raise AssertionError(f"made {namespace}/{name}")

    async def change(self, kind: Kind[AnnotatedObject], found: AnnotatedObject, spec: Mapping[str, Any]) -> None:
        raise AssertionError(f"changed {found}")

    async def delete(self, kind: Kind[AnnotatedObject], found: AnnotatedObject) -> None:
        raise AssertionError(f"deleted {found}")


class Told(Struct, frozen=True):
    """An Event. ``related`` is ``Kind namespace/name``, or empty."""

    regarding: str
    related: str
    kind: str
    reason: str
    action: str
    note: str


class RecordingRecorder:
    """Keeps what it is told, in order."""

    def __init__(self) -> None:
        self.told: list[Told] = []

    def event(
        self, regarding: Reference, related: Reference | None, kind: EventType, reason: str, action: str, note: str
    ) -> None:
        self.told.append(Told(_named(regarding), _named(related) if related else "", kind, reason, action, note))

    @property
    def reasons(self) -> list[str]:
        return [it.reason for it in self.told]


def _named(found: Reference) -> str:
    return f"{found.kind} {found.namespace}/{found.name}" if found.namespace else f"{found.kind} {found.name}"


class ManualClock:
    """A clock that moves when told."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def bases_of(methods: Iterable[str]) -> tuple[type[Any], ...]:
    """The bases that a plugin with these methods has to name."""
    asked = set(methods)
    bases = [it for it in BASES if vars(it).keys() & asked]
    return tuple(it for it in bases if not any(it is not other and it in other.__mro__ for other in bases))


class FakePlugin(Plugin):
    """Has a name and remembers in ``calls``, shared by the plugins of a test, what it was asked."""

    def __init__(self, name: str, calls: list[str] | None = None) -> None:
        self.name = name
        self.calls = [] if calls is None else calls

    def note(self, what: str) -> None:
        self.calls.append(f"{self.name}: {what}")


class Sorts(FakePlugin, QueueSortPlugin):
    def less(self, pod: Pod, queued_at: float, other: Pod, other_queued_at: float) -> bool:
        return queued_at < other_queued_at


class Prepares(FakePlugin, PreFilterPlugin):
    """PreFilter with a fixed answer, and a filter that would reject every node."""

    def __init__(
        self,
        name: str,
        status: Status = SUCCESS,
        names: Collection[str] | None = None,
        calls: list[str] | None = None,
    ) -> None:
        super().__init__(name, calls)
        self.answer = (status, None if names is None else frozenset(names))

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, frozenset[str] | None]:
        self.note("pre_filter")
        return self.answer


class PreparesAndRejects(Prepares, FilterPlugin):
    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        self.note(f"filter {node.name}")
        return NO


class Rejects(FakePlugin, FilterPlugin):
    """Filter that answers ``statuses`` by node, else Success."""

    def __init__(self, name: str, statuses: Mapping[str, Status] | None = None, calls: list[str] | None = None) -> None:
        super().__init__(name, calls)
        self.statuses = statuses or {}

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        self.note(f"filter {node.name}")
        return self.statuses.get(node.name, SUCCESS)


class RejectsInBatch(Rejects):
    """The same for all nodes at once."""

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: Candidates) -> FilterResult:
        self.note(f"filter_nodes {' '.join(nodes.names)}")
        rejected = {name: self.statuses[name] for name in nodes.names if name in self.statuses}
        return FilterResult([name for name in nodes.names if name not in rejected], rejected)


def wanted_else_any(wanted: str, nodes: Candidates, passed: Sequence[str]) -> FilterResult:
    """The node that is wanted if it passes, any if it does not, and none if nobody asked about it."""
    if wanted in passed:
        return FilterResult([wanted], lambda: dict.fromkeys((it for it in passed if it != wanted), NOT_WANTED))
    if wanted and wanted not in nodes.name_set:
        return FilterResult((), lambda: dict.fromkeys(passed, NOT_ASKED))
    return FilterResult(passed, {})


class Wants(FakePlugin, FilterPlugin):
    """Filters nothing; at the end a node is wanted, else any."""

    def __init__(self, name: str, wanted: str, calls: list[str] | None = None) -> None:
        super().__init__(name, calls)
        self.wanted = wanted

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return SUCCESS

    def filter_last(self, state: CycleState, pod: Pod, nodes: Candidates, passed: Sequence[str]) -> FilterResult:
        self.note(f"{' '.join(passed)} of {' '.join(it.name for it in nodes)}")
        return wanted_else_any(self.wanted, nodes, passed)


class RejectsUncertain(Rejects, ClusterFilterPlugin):
    """Filter whose answer holds for sure only on nodes without pods in flight."""

    def depends_on(self, pod: Pod, other: Pod) -> bool:
        return True

    def filter_certain(self, state: CycleState, pod: Pod, node: NodeInfo, in_flight: Sequence[Pod]) -> Status:
        return NO if any(other.node_name == node.name for other in in_flight) else SUCCESS


class Counted:
    """State data that clones by value."""

    def __init__(self, count: int = 0) -> None:
        self.count = count

    def clone(self) -> Counted:
        return Counted(self.count)


class CountsPods(FakePlugin, PreFilterPlugin, FilterPlugin):
    """Allows ``most`` pods on a node and takes part in dry runs through its state."""

    def __init__(self, name: str, most: int, calls: list[str] | None = None) -> None:
        super().__init__(name, calls)
        self.most = most
        self.key: StateKey[Counted] = StateKey(name)
        self.shift_status = SUCCESS

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, None]:
        state.write(self.key, Counted())
        return SUCCESS, None

    def add_pod(self, state: CycleState, pod: Pod, added: Pod, node: NodeInfo) -> Status:
        self.note(f"add {added.name} to {node.name}")
        state.read(self.key).count += 1
        return self.shift_status

    def remove_pod(self, state: CycleState, pod: Pod, removed: Pod, node: NodeInfo) -> Status:
        self.note(f"remove {removed.name} from {node.name}")
        state.read(self.key).count -= 1
        return self.shift_status

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        shift = state.read(self.key).count
        self.note(f"filter {node.name} with {shift:+d}, sees {' '.join(it.name for it in node.pods.values())}".rstrip())
        return SUCCESS if shift < self.most else NO


class NeedsPods(FakePlugin, FilterPlugin):
    """Accepts a node only if pods run on it."""

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return SUCCESS if node.pods else NO


class ScoresNodes(FakePlugin, ScorePlugin):
    """Scores nodes as given."""

    def __init__(self, name: str, scores: Mapping[str, int], calls: list[str] | None = None) -> None:
        super().__init__(name, calls)
        self.scores = scores

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        self.note(f"score {node.name}")
        return self.scores[node.name]


class ScoresAfter(ScoresNodes, PreScorePlugin):
    """Scores nodes as given unless its PreScore status is not Success."""

    def __init__(self, name: str, scores: Mapping[str, int], status: Status = SUCCESS) -> None:
        super().__init__(name, scores)
        self.status = status

    def pre_score(self, state: CycleState, pod: Pod, nodes: Candidates) -> Status:
        self.note(f"pre_score {' '.join(nodes.names)}")
        return self.status


class ScoresInBatch(ScoresNodes):
    def score_nodes(self, state: CycleState, pod: Pod, nodes: Candidates) -> ScoreClasses:
        self.note(f"score_nodes {' '.join(nodes.names)}")
        return ScoreClasses.by_value([self.scores[name] for name in nodes.names])


class HalvesInBatch(ScoresInBatch):
    """Normalises what it scores in batch."""

    def normalize(self, state: CycleState, pod: Pod, scores: Mapping[Any, int]) -> dict[Any, int]:
        return {key: score // 2 for key, score in scores.items()}


class ScoresHalved(ScoresNodes):
    def normalize(self, state: CycleState, pod: Pod, scores: Mapping[Any, int]) -> dict[Any, int]:
        return {key: score // 2 for key, score in scores.items()}


class Reserves(FakePlugin, ReservePlugin):
    def __init__(self, name: str, status: Status = SUCCESS, calls: list[str] | None = None) -> None:
        super().__init__(name, calls)
        self.status = status

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self.note(f"reserve {node_name}")
        return self.status

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.note(f"unreserve {node_name}")


class ReservesBadly(Reserves):
    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        super().unreserve(state, pod, node_name)
        raise RuntimeError("cannot undo")


class Acts(FakePlugin, PreBindPlugin, BindPlugin, PostBindPlugin):
    """PreBind, Bind and PostBind with one answer."""

    def __init__(self, name: str, status: Status = SUCCESS, calls: list[str] | None = None) -> None:
        super().__init__(name, calls)
        self.status = status

    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self.note(f"pre_bind {node_name}")
        return self.status

    async def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self.note(f"bind {node_name}")
        return self.status

    async def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.note(f"post_bind {node_name}")
        if not self.status.is_success:
            raise RuntimeError(self.status.message)


class Gates(FakePlugin, PreEnqueuePlugin):
    """PreEnqueue with one answer."""

    def __init__(self, name: str, status: Status = SUCCESS, calls: list[str] | None = None) -> None:
        super().__init__(name, calls)
        self.status = status

    def pre_enqueue(self, pod: Pod) -> Status:
        self.note("pre_enqueue")
        return self.status


class Helps(FakePlugin, PostFilterPlugin):
    """PostFilter with one answer."""

    def __init__(
        self, name: str, status: Status = SUCCESS, nominates: str | None = None, calls: list[str] | None = None
    ) -> None:
        super().__init__(name, calls)
        self.answer = (None if nominates is None else PostFilterResult(nominates), status)

    def post_filter(self, state: CycleState, pod: Pod, rejected: Mapping[str, Status]) -> PostFilterSteps:
        yield from ()
        self.note("post_filter")
        return self.answer


class Permits(FakePlugin, PermitPlugin):
    """Permit with one answer."""

    def __init__(
        self, name: str, status: Status = SUCCESS, seconds: float = 0.0, calls: list[str] | None = None
    ) -> None:
        super().__init__(name, calls)
        self.answer = (status, seconds)

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> tuple[Status, float]:
        self.note(f"permit {node_name}")
        return self.answer


class Misses(FakePlugin, PreFilterPlugin):
    """Needs an object of each of the names."""

    def __init__(self, name: str, kind: Kind[Any], names: Sequence[str]) -> None:
        super().__init__(name)
        self.kind = kind
        self.names = names

    def required_objects(self, pod: Pod) -> Iterator[tuple[Kind[Any], str, str]]:
        for name in self.names:
            if not name:
                raise LookupError("no name")
            yield self.kind, pod.namespace, name

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, None]:
        return SUCCESS, None


class NoArgs(PluginArgs):
    """Takes no arguments."""


class SizeArgs(PluginArgs):
    """Takes a size."""

    size: int = 1


class FromSpec(FakePlugin):
    """Base of plugins that are built from a profile."""

    def __init__(self, args: PluginArgs, handle: Handle) -> None:
        super().__init__(type(self).__name__)
        self.args = args
        self.handle = handle


class Soft(FromSpec, FilterPlugin):
    """A pod's label says which node it wants; ``asked``: what passed where it was asked."""

    def __init__(self, args: PluginArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self.asked: list[list[str]] = []

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return SUCCESS

    def filter_last(self, state: CycleState, pod: Pod, nodes: Candidates, passed: Sequence[str]) -> FilterResult:
        self.asked.append([*passed])
        return wanted_else_any(pod.labels.get(WANTS, ""), nodes, passed)


class Queue(FromSpec, Sorts):
    """A queue sort plugin."""


class OtherQueue(FromSpec, Sorts):
    """One too many."""


class BindsFirst(FromSpec, BindPlugin):
    async def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return SUCCESS


class _FiltersAndScores(FromSpec, FilterPlugin, ScorePlugin):
    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return SUCCESS

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        return 1


class Alpha(_FiltersAndScores):
    """Filters and scores."""


class Beta(_FiltersAndScores):
    """Filters and scores."""


class Gamma(_FiltersAndScores):
    """Filters and scores."""


class Delta(_FiltersAndScores):
    """Filters and scores, and is enabled nowhere by default."""


class FiltersOnly(FromSpec, FilterPlugin):
    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return SUCCESS


def spec_of(
    plugin: type[FromSpec],
    args: type[PluginArgs] = NoArgs,
    kinds: Callable[[Any], tuple[Kind[Any], ...]] = lambda _: (),
    *,
    reads: Reads = Reads.CLUSTER,
    parts: Collection[Part] | None = None,
) -> PluginSpec[Any]:
    """A spec under the class's own name."""
    return PluginSpec(
        plugin.__name__, args, plugin, reads=reads, parts=parts, needs=lambda given: Needs(kinds=kinds(given))
    )
