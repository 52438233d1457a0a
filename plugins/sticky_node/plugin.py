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
    PeerFilterPlugin,
    PluginSpec,
    PostBindPlugin,
    PreBindPlugin,
    PreFilterPlugin,
    RepairPlugin,
    ReservePlugin,
    StampPlugin,
    Table,
    Unreadable,
    WriteConflict,
)
from app.framework.node_info import Candidates, NodeInfo
from app.framework.status import SKIP, SUCCESS, Status, unresolvable
from app.kube.core_v1 import Pod
from app.kube.kinds import Kind
from plugins.sticky_node.args import StickyNodeArgs
from plugins.sticky_node.home import HOME, annotations_for, had_home, is_copied, recorded_home
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


class _NewHome:
    """A home that ``pod`` makes for ``owner`` by going to ``node``. ``bound``: the pod is there.

    ``joined``, by UID: other pods on their way to it. Should ``pod`` not arrive, the first of them makes it.
    """

    __slots__ = ("bound", "joined", "node", "owner", "pod")

    def __init__(self, pod: Pod, node: str, owner: Owner, joined: dict[str, Pod] | None = None) -> None:
        self.pod = pod
        self.node = node
        self.owner = owner
        self.joined = joined or {}
        self.bound = False

    def without_maker(self) -> _NewHome | None:
        """What is left of it when ``pod`` does not arrive."""
        heir = next(iter(self.joined.values()), None)
        if heir is None:
            return None
        others = {uid: pod for uid, pod in self.joined.items() if uid != heir.uid}
        return _NewHome(heir, self.node, self.owner, others)


_HOME: Final[StateKey[_Home]] = StateKey("PreFilterStickyNode")

Slot = tuple[str, str]
"""(UID of the owner, slot): what a home belongs to."""


@final
class StickyNode(
    LookUpPlugin,
    PreFilterPlugin,
    FilterPlugin,
    BatchFilterPlugin,
    PeerFilterPlugin,
    StampPlugin,
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
        self._serves = handle.serves
        self._new: dict[Slot, _NewHome] = {}

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

    def stamp(self, pod: Pod) -> str | None:
        """The home is all; ``None`` while the owner is missing: it is to be looked for each time."""
        owner = self._owners.of(pod)
        if isinstance(owner, Missing):
            return None
        return "" if owner is None else self._home(owner, pod)

    def depends_on(self, pod: Pod, other: Pod) -> bool:
        """A machine's first bind makes the home of its other pods."""
        mine, theirs = self._owners.of(pod), self._owners.of(other)
        return isinstance(mine, Owner) and isinstance(theirs, Owner) and _slot(mine) == _slot(theirs)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        owner = self._owners.of(pod)
        if isinstance(owner, Missing):
            return OWNER_UNKNOWN
        if owner is not None and not recorded_home(owner):
            made = self._new.get(_slot(owner))
            if made is None or made.pod.uid == pod.uid:
                self._new[_slot(owner)] = _NewHome(pod, node_name, owner)
            else:
                made.joined[pod.uid] = pod
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        # By the pod, not its owner: a machine that is stopped during the bind takes the way to it along.
        for slot, made in list(self._new.items()):
            made.joined.pop(pod.uid, None)
            left = made.without_maker() if made.pod.uid == pod.uid else made
            if left is None:
                del self._new[slot]
            else:
                self._new[slot] = left

    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Also a pod that joins a home still in the making carries it: the bind that makes it may fail."""
        owner = self._owners.of(pod)
        if isinstance(owner, Owner) and not recorded_home(owner):
            state.annotations[HOME] = node_name
        return SUCCESS

    async def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        if HOME not in state.annotations:
            return
        made = self._made_by(pod)
        if made is not None:
            made.bound = True
        owner = made.owner if made is not None else self._owners.of(pod)
        if isinstance(owner, Owner):
            await self._copy(pod, node_name, owner)

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
        """Copy homes that were made and never reached their owner: those on bound pods, and those in memory."""
        unwritten = 0
        for made in [it for it in self._new.values() if it.bound]:
            unwritten += not await self._repair_one(made.pod, made.node, made.owner)
        for pod in self._objects.annotated_pods():
            try:
                owner = self._owners.of(pod) if self._is_ours(pod) else None
            except Unreadable:
                continue  # one owner that cannot be read must not keep the others from their homes either
            if isinstance(owner, Owner) and not (pod.terminating and had_home(owner)):
                unwritten += not await self._repair_one(pod, pod.annotations[HOME], owner)
        if unwritten:
            raise OSError(f"{unwritten} homes could not be copied to their owners")

    def _is_ours(self, pod: Pod) -> bool:
        return bool(pod.annotations.get(HOME)) and self._serves(pod.spec.scheduler_name)

    async def _repair_one(self, pod: Pod, node_name: str, owner: Owner) -> bool:
        try:
            await self._copy(pod, node_name, owner)
        except (OSError, Unreadable):
            return False  # one owner that cannot be written must not keep the others from theirs
        return True

    async def _copy(self, pod: Pod, node_name: str, owner: Owner) -> None:
        """Write the home to the owner unless one is there. What cannot be written now is left to the repair."""
        for _ in range(_COPY_ATTEMPTS):
            found = self._objects.get(owner.kind, owner.found.namespace, owner.found.name)
            if found is None or found.uid != owner.found.uid:
                break
            newest = Owner(owner.kind, found, owner.slot)
            if recorded_home(newest) or is_copied(newest, pod):
                break
            try:
                await self._writer.annotate(owner.kind, found, annotations_for(newest, pod, node_name))
            except WriteConflict:
                continue
            except ObjectGone:
                break
        else:
            return
        self._forget(pod)

    def _home(self, owner: Owner, pod: Pod) -> str:
        """The recorded home, or one that a bind under way is making."""
        recorded = recorded_home(owner)
        if recorded:
            return recorded
        made = self._new.get(_slot(owner))
        return "" if made is None or made.pod.uid == pod.uid else made.node

    def _made_by(self, pod: Pod) -> _NewHome | None:
        return next((made for made in self._new.values() if made.pod.uid == pod.uid), None)

    def _forget(self, pod: Pod) -> None:
        """Its home is on the owner."""
        self._new = {slot: made for slot, made in self._new.items() if made.pod.uid != pod.uid}


def _unblock(keeper: str, home: str, nodes: Candidates) -> tuple[str, ...]:
    if not home or home in nodes.names:
        return ()
    return (f"node {home} is not there: bring it back, or set or remove {HOME} on {keeper}",)


def _slot(owner: Owner) -> Slot:
    return (owner.found.uid, owner.slot)


def _kinds(args: StickyNodeArgs) -> tuple[Kind[Any], ...]:
    return kinds_of(args.owners)


SPEC: Final = PluginSpec(NAME, StickyNodeArgs, StickyNode, kinds=_kinds, reads_pods=False)
