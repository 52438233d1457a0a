"""Keeps a pod whose owner has a home from every other node; the first bind of the owner makes the home."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Self, final

from app.framework.cycle_state import CycleState, StateKey
from app.framework.interface import (
    BatchFilterPlugin,
    ExplainPlugin,
    Explanation,
    FilterPlugin,
    Handle,
    LookUpPlugin,
    ObjectGone,
    PluginSpec,
    PostBindPlugin,
    PreBindPlugin,
    PreFilterPlugin,
    RepairPlugin,
    ReservePlugin,
    Table,
    WriteConflict,
)
from app.framework.node_info import Candidates, NodeInfo
from app.framework.status import SKIP, SUCCESS, Status, unresolvable
from app.kube.core_v1 import Pod
from app.kube.kinds import Kind
from plugins.sticky_node.args import StickyNodeArgs
from plugins.sticky_node.home import HOME, annotations_for, is_copied, recorded_home
from plugins.sticky_node.owners import Missing, Owner, Owners, kinds_of

NAME: Final = "StickyNode"
REASON_NOT_HOME: Final = "node(s) were not the pod's home"
REASON_OWNER_UNKNOWN: Final = "node(s) can't be judged before the pod's owner is known"
NOT_HOME: Final = unresolvable(REASON_NOT_HOME).by(NAME)
OWNER_UNKNOWN: Final = unresolvable(REASON_OWNER_UNKNOWN).by(NAME)
_COPY_ATTEMPTS: Final = 5


class _Home:
    """The one node a pod may use in this evaluation."""

    __slots__ = ("node",)

    def __init__(self, node: str) -> None:
        self.node = node

    def clone(self) -> Self:
        return self


_HOME: Final[StateKey[_Home]] = StateKey("PreFilterStickyNode")

Slot = tuple[str, str]
"""(UID of the owner, slot): what a home belongs to."""


@final
class StickyNode(
    LookUpPlugin,
    PreFilterPlugin,
    FilterPlugin,
    BatchFilterPlugin,
    ReservePlugin,
    PreBindPlugin,
    PostBindPlugin,
    RepairPlugin,
    ExplainPlugin,
):
    """``_new`` holds homes made by binds that are under way or not yet copied: readable at once, undone on failure."""

    def __init__(self, args: StickyNodeArgs, handle: Handle) -> None:
        self._owners = Owners(args.owners, handle.objects)
        self._objects = handle.objects
        self._writer = handle.writer
        self._new: dict[Slot, tuple[str, str]] = {}

    def missing(self, pod: Pod) -> Iterable[tuple[Kind[Any], str, str]]:
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

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: Candidates) -> Mapping[str, Status]:
        rejected = dict.fromkeys(nodes.names, NOT_HOME)
        rejected.pop(state.read(_HOME).node, None)
        return rejected

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        owner = self._owners.of(pod)
        if isinstance(owner, Missing):
            return OWNER_UNKNOWN
        if owner is not None and not self._home(owner, pod):
            self._new[_slot(owner)] = (pod.uid, node_name)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        # By the pod, not its owner: a machine that is stopped during the bind takes the way to it along.
        for slot in [slot for slot, (uid, _) in self._new.items() if uid == pod.uid]:
            del self._new[slot]

    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        owner = self._owners.of(pod)
        if isinstance(owner, Owner) and self._new.get(_slot(owner)) == (pod.uid, node_name):
            state.annotations[HOME] = node_name
        return SUCCESS

    async def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        if HOME in state.annotations:
            await self._copy(pod, node_name)

    def explain(self, pod: Pod, nodes: Candidates) -> Explanation:
        owner = self._owners.of(pod)
        if owner is None:
            return Explanation()
        if isinstance(owner, Missing):
            named = f"{owner.kind.kind} {owner.namespace}/{owner.name}"
            return Explanation(unblock=(f"the pod's owner {named} is not in the picture: it must exist first",))
        home = self._home(owner, pod)
        keeper = f"{owner.kind.kind} {owner.found.namespace}/{owner.found.name}"
        row = (keeper, home or "none yet: the first bind makes it", bool(recorded_home(owner)))
        return Explanation((Table("home", ("kept by", "node", "recorded"), (row,)),), _unblock(keeper, home, nodes))

    async def repair(self) -> None:
        """Copy homes that are on a bound pod and never reached its owner."""
        unwritten = 0
        for pod in self._objects.bound_pods():
            if pod.annotations.get(HOME) and not pod.terminating:
                unwritten += not await self._repair_one(pod)
        if unwritten:
            raise OSError(f"{unwritten} homes could not be copied to their owners")

    async def _repair_one(self, pod: Pod) -> bool:
        try:
            await self._copy(pod, pod.annotations[HOME])
        except OSError:
            return False  # one owner that cannot be written must not keep the others from theirs
        return True

    async def _copy(self, pod: Pod, node_name: str) -> None:
        """Write the home to the owner unless one is there. What cannot be written now is left to the repair."""
        for _ in range(_COPY_ATTEMPTS):
            owner = self._owners.of(pod)
            if not isinstance(owner, Owner):
                return
            if recorded_home(owner) or is_copied(owner, pod):
                self._drop(_slot(owner), pod)
                return
            try:
                await self._writer.annotate(owner.kind, owner.found, annotations_for(owner, pod, node_name))
            except WriteConflict:
                continue
            except ObjectGone:
                self._drop(_slot(owner), pod)
                return

    def _home(self, owner: Owner, pod: Pod) -> str:
        """The recorded home, or one that a bind under way is making."""
        recorded = recorded_home(owner)
        if recorded:
            return recorded
        uid, node_name = self._new.get(_slot(owner), ("", ""))
        return "" if uid == pod.uid else node_name

    def _drop(self, slot: Slot, pod: Pod) -> None:
        if self._new.get(slot, ("", ""))[0] == pod.uid:
            del self._new[slot]


def _unblock(keeper: str, home: str, nodes: Candidates) -> tuple[str, ...]:
    if not home or home in nodes.names:
        return ()
    return (f"node {home} is not there: bring it back, or set or remove {HOME} on {keeper}",)


def _slot(owner: Owner) -> Slot:
    return (owner.found.uid, owner.slot)


def _kinds(args: StickyNodeArgs) -> tuple[Kind[Any], ...]:
    return kinds_of(args.owners)


SPEC: Final = PluginSpec(NAME, StickyNodeArgs, StickyNode, kinds=_kinds, reads_pods=False)
