"""Keeps a pod whose owner has a home from every other node; the first bind of the owner makes the home."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Self, final

from app.framework.cycle_state import CycleState, StateKey
from app.framework.filter_result import FilterResult
from app.framework.interface import (
    BatchFilterPlugin,
    ClusterFilterPlugin,
    ExplainPlugin,
    Explanation,
    Figure,
    FiguresPlugin,
    Handle,
    Home,
    HomesPlugin,
    Keeper,
    LookUpPlugin,
    PluginSpec,
    PostBindPlugin,
    PreBindPlugin,
    PreFilterPlugin,
    RepairPlugin,
    ReservePlugin,
    Writes,
)
from app.framework.node_info import Candidates, NodeInfo
from app.framework.status import SKIP, SUCCESS, Status, unresolvable
from app.kube.core_v1 import Pod
from app.kube.kinds import Kind
from plugins.sticky_node import events
from plugins.sticky_node.active import ActivePods
from plugins.sticky_node.args import StickyNodeArgs
from plugins.sticky_node.census import Census
from plugins.sticky_node.chronicle import tell
from plugins.sticky_node.explaining import explain_home, explain_missing
from plugins.sticky_node.home import Claim, home_pod, no_word, on_pod, recorded_home
from plugins.sticky_node.listing import ByNode, Listing
from plugins.sticky_node.making import Making
from plugins.sticky_node.owners import Missing, Owner, Owners, keepers_of, kinds_of
from plugins.sticky_node.recording import Recorder
from plugins.sticky_node.walk import Walk

NAME: Final = "StickyNode"
REASON_NOT_HOME: Final = "node(s) were not the pod's home"
REASON_OWNER_UNKNOWN: Final = "node(s) can't be judged before the pod's owner is known"
NOT_HOME: Final = unresolvable(REASON_NOT_HOME).by(NAME)
OWNER_UNKNOWN: Final = unresolvable(REASON_OWNER_UNKNOWN).by(NAME)


class _Home:
    """The one node a pod may use in this evaluation."""

    __slots__ = ("node",)

    def __init__(self, node: str) -> None:
        self.node = node

    def clone(self) -> Self:
        return self


_HOME: Final[StateKey[_Home]] = StateKey("PreFilterStickyNode")


@final
class StickyNode(
    LookUpPlugin,
    PreFilterPlugin,
    BatchFilterPlugin,
    ClusterFilterPlugin,
    ReservePlugin,
    PreBindPlugin,
    PostBindPlugin,
    RepairPlugin,
    ExplainPlugin,
    FiguresPlugin,
    HomesPlugin,
):
    """A home is on its owner, or in the making: readable from Reserve on, undone if the bind fails."""

    def __init__(self, args: StickyNodeArgs, handle: Handle) -> None:
        self._owners = Owners(args.owners, handle.objects)
        self._objects = handle.objects
        self._events = handle.event_recorder
        self._active = ActivePods(handle.objects)
        self._making = Making()
        self._recorder = Recorder(self._owners, self._active, self._making, handle)
        walk = Walk(self._owners, handle.objects)
        self._census = Census(walk, handle.objects, self._making)
        self._listing = Listing(walk, ByNode(args, handle), handle)
        self._keepers = tuple(Keeper(it.api_version, it.kind, it.per_ordinal) for it in args.owners)

    def required_objects(self, pod: Pod) -> Iterable[tuple[Kind[Any], str, str]]:
        found = self._owners.of(pod)
        return ((found.kind, found.namespace, found.name),) if isinstance(found, Missing) else ()

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, None]:
        owner = self._owners.of(pod)
        if isinstance(owner, Missing):
            return OWNER_UNKNOWN, None
        home = self._home(owner, pod) if owner is not None else ""
        if not home:
            return SKIP, None
        state.write(_HOME, _Home(home))
        return SUCCESS, None

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return SUCCESS if node.name == state.read(_HOME).node else NOT_HOME

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: Candidates) -> FilterResult:
        home = state.read(_HOME).node
        if home in nodes.names:
            return FilterResult((home,), lambda: dict.fromkeys((it for it in nodes.names if it != home), NOT_HOME))
        self._look_for(home, pod)
        return FilterResult((), lambda: dict.fromkeys(nodes.names, NOT_HOME))

    def filter_certain(self, state: CycleState, pod: Pod, node: NodeInfo, in_flight: Sequence[Pod]) -> Status:
        """A home in the making holds even if the bind that makes it fails: this one makes it then."""
        return self.filter(state, pod, node)

    def _look_for(self, home: str, pod: Pod) -> None:
        """It is not among the nodes that are asked about; where it is none at all, somebody has to do something."""
        if self._objects.misses_node(home) and isinstance(owner := self._owners.of(pod), Owner):
            events.lost(self._events, owner, home)

    def signature(self, pod: Pod) -> str | None:
        """The home is all; ``None`` while the owner is missing: it is to be looked for each time."""
        owner = self._owners.of(pod)
        if isinstance(owner, Missing):
            return None
        return "" if owner is None else self._home(owner, pod)

    def depends_on(self, pod: Pod, other: Pod) -> bool:
        """A machine's first bind makes the home of its other pods.

        The owner of the other is looked up last, if at all: that of another tenant may be unreadable.
        """
        if pod.namespace != other.namespace or not self._owners.may_be_shared(pod, other):
            return False
        mine, theirs = self._owners.of(pod), self._owners.of(other)
        return isinstance(mine, Owner) and isinstance(theirs, Owner) and mine.key == theirs.key

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        owner = self._owners.of(pod)
        if isinstance(owner, Missing):
            return OWNER_UNKNOWN
        if owner is not None and not recorded_home(owner):
            decides = self._active.decides(pod, node_name, owner)
            self._making.begin(Claim(pod, node_name, owner, home_pod(owner), decides))
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self._making.drop(pod)

    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Also a pod that joins a home still in the making carries it: the bind that makes it may fail."""
        claim = self._making.of(pod)
        if claim is not None and not self._stands(claim):
            self._making.drop(pod)
            claim = None
        state.annotations.update(no_word(pod.annotations) if claim is None else on_pod(claim, pod.annotations))
        return SUCCESS

    async def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        claim = self._making.of(pod)
        if claim is not None:
            self._making.arrived(claim)
            await self._recorder.record(claim)

    def explain(self, pod: Pod, nodes: Candidates) -> Explanation:
        owner = self._owners.of(pod)
        if owner is None:
            return Explanation()
        if isinstance(owner, Missing):
            return explain_missing(owner)
        claim = None if recorded_home(owner) else self._making.holds(owner, pod) or self._making.of(pod)
        made = claim is not None and self._making.is_made(claim.pod)
        return explain_home(
            owner, self._home(owner, pod), nodes, claim=claim, made=made, cause=self._recorder.cause(owner)
        )

    def figures(self) -> Iterator[Figure | None]:
        return self._census.figures()

    def homes(self) -> Iterator[Home | None]:
        return self._listing.homes()

    def keepers(self) -> Iterable[Keeper]:
        return self._keepers

    async def repair(self) -> None:
        """Copy homes that were made and never reached their owner: those on bound pods, and those in memory."""
        await self._recorder.record_open()

    def _home(self, owner: Owner, pod: Pod) -> str:
        """The recorded home, or one in the making."""
        recorded = recorded_home(owner)
        if recorded:
            return recorded
        claim = self._making.holds(owner, pod)
        return "" if claim is None else claim.node

    def _stands(self, claim: Claim) -> bool:
        """Whether its owner, if it is still there, has got neither a home nor another pod's word since."""
        owner = self._owners.newest(claim.owner)
        return owner is None or (claim.is_open(owner) and not recorded_home(owner))


def _kinds(args: StickyNodeArgs) -> tuple[Kind[Any], ...]:
    return kinds_of(args.owners)


def _writes(args: StickyNodeArgs) -> tuple[Writes, ...]:
    return tuple(Writes(kind, "the home of their pods") for kind in keepers_of(args.owners))


SPEC: Final = PluginSpec(NAME, StickyNodeArgs, StickyNode, kinds=_kinds, writes=_writes, changed=tell)
