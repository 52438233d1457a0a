"""One bind, from the check to the answer: it sends no Binding that could leave a hard constraint broken.

    1  re-check and assume in one step, without an await; if it holds only should some bind in flight succeed (or
       fail), wait until that one is settled and decide anew
    2  reserve, permit (which may make the pod wait), re-check, pre-bind, re-check
    3  bind: the check is passed down, and asked again in the step that hands the POST to the network
    4  seen bound: certain
    5  any failure: undo in reverse, forget, and only then raise; a pod whose Binding has left and was not answered is
       not forgotten: it keeps its place until its outcome is known (see ``app.writes.read_back``)

    Transaction ─> Framework.bind ─> the bind plugin ─> Binder ─> BindGuard ─> the step that sends
         └──────────────── passes down its check ───────────────────────────────> asks it
         <──────────────── a Status, or a PluginError ───────────────────────────┘

A pod that waits at Permit may stay there for long, and may never be bound. So others hold whether it is bound or not,
as with a bind in flight; but nobody waits for it: who holds only in one of the cases is held back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from app.cache.cluster import Cluster
from app.framework.counts import Unprepared
from app.framework.cycle_state import CycleState
from app.framework.handle import Clock
from app.framework.node_info import NodeInfo
from app.framework.objects import Unreadable
from app.framework.status import Code, Status, error, unschedulable
from app.kube.core_v1 import Pod
from app.kube.kinds import NODES, PODS, Kind
from app.kube.meta_v1 import ObjectKey
from app.runtime.framework import Framework
from app.verbs.context import VerbContext
from app.verbs.settlements import Settlements
from app.verbs.slices import prepared
from app.wire.extender_v1 import BindingArgs
from app.writes.bind_guard import BindClearance, NotBound, NotYet, passed_down

UNCLEAR: Final = "the outcome of the binding is unknown"
RESERVED: Final = "no longer possible unless other pods that wait at Permit are bound, or are not"


class Target:
    """The pod and the node that a bind is about, as the picture has them. Both raise ``NotBound``."""

    def __init__(self, context: VerbContext, args: BindingArgs) -> None:
        self._cluster = context.cluster
        self._reader = context.reader
        self._args = args

    async def looked_up_pod(self) -> Pod:
        """Return the pod, read from the API server if the cache lacks it or only assumes that it is bound."""
        namespace, name = self._args.namespace, self._args.name
        known = self._cluster.pod(namespace, name)
        if known is None or known.uid != self._args.uid or self._cluster.assumed.get(known.uid) is not None:
            try:
                await self._reader.fetch_pod(namespace, name)
            except OSError as cause:
                raise NotBound(error(f"the pod cannot be read: {cause}")) from cause
        return self.pod()

    def pod(self) -> Pod:
        pod = self._cluster.pod(self._args.namespace, self._args.name)
        if pod is None:
            raise NotBound(error(f'pods "{self._args.name}" not found'))
        if pod.uid != self._args.uid:
            raise NotBound(error("the pod was replaced by another of the same name"))
        if self._cluster.left_out:
            self._require_readable(PODS, pod.key)
        return pod

    def node(self) -> NodeInfo:
        """The API server would take any name."""
        node = self._cluster.nodes.get(self._args.node)
        if node is None:
            raise NotBound(error(f'nodes "{self._args.node}" not found'))
        if self._cluster.left_out:
            self._require_readable(NODES, node.node.key)
        return node

    def _require_readable(self, kind: Kind[Any], key: ObjectKey) -> None:
        """What is known may be a form of before."""
        try:
            self._cluster.left_out.require(kind, *key)
        except Unreadable as cause:
            raise NotBound(error(str(cause))) from None


class Transaction:
    """The bind of a pod of a profile here. ``deadline``: until when it waits for anything, on the clock."""

    def __init__(
        self,
        framework: Framework,
        target: Target,
        node_name: str,
        context: VerbContext,
        settlements: Settlements,
        clock: Clock,
        deadline: float,
    ) -> None:
        self._framework = framework
        self._target = target
        self._node_name = node_name
        self._cluster = context.cluster
        self._due = context.due
        self._settlements = settlements
        self._clock = clock
        self._deadline = deadline
        self._holds_at = -1
        self._settled_at = 0
        self._passed: BindClearance | None = None

    async def run(self) -> tuple[Pod, CycleState]:
        """Bind the pod; returns it as it was decided on, and the state of that check.

        Raises ``NotBound`` and ``PluginError``; then everything is undone.
        """
        pod, state = await self._assumed()
        try:
            await self._carry_out(pod, state)
        except BaseException:
            self._framework.binding.unreserve(state, pod, self._node_name)
            give_up(self._cluster, pod, self._passed)
            raise
        self._cluster.accept(pod.uid)
        return pod, state

    async def _assumed(self) -> tuple[Pod, CycleState]:
        """Everything is read anew after each wait; between the check that passes and the assumption there is none.

        Of pods that wait at Permit it is assumed that they will be bound: this one may have to wait there itself, for
        them or with them. It is checked once more when it has passed.
        """
        while True:
            pod, state = await prepared(self._pending)
            if state is not None:
                self._cluster.assume(pod, self._node_name)
                self._due.arrived(pod.uid)
                if not self._cluster.assumed.reserved():
                    self._holds_at = self._cluster.generation
                return pod, state
            await self._settlements.next(self._seconds_left())

    def _pending(self) -> tuple[Pod, CycleState | None]:
        """The pod as it is, and what ``_held`` says of it."""
        pod = self._target.pod()
        if pod.node_name:
            raise NotBound(error("the pod was bound by somebody else"))
        return pod, self._held(pod, self._cluster.assumed.in_flight())

    def _held(self, pod: Pod, uncertain: Sequence[Pod]) -> CycleState | None:
        """The state of a check that holds whatever becomes of those uncertain ones; ``None`` if that is not certain.

        Raises ``NotBound`` if the node is rejected, ``PluginError`` and ``Unprepared``.
        """
        state = CycleState()
        others = [it for it in uncertain if it.uid != pod.uid]
        with self._cluster.without(pod.uid, (pod.namespace, pod.name)):
            found = self._framework.at_bind.recheck(state, pod, self._target.node(), others)
        if found.status.code is not Code.SUCCESS:
            raise NotBound(unschedulable(f"no longer possible: {found.status.message}"))
        return state if found.certain else None

    async def _carry_out(self, pod: Pod, state: CycleState) -> None:
        framework, node_name = self._framework, self._node_name
        state.deadline = self._deadline
        _require(framework.binding.reserve(state, pod, node_name))
        _require(await framework.binding.permit(state, pod, node_name, limit=self._seconds_left()))
        await self._until_certain(pod)
        _require(await framework.binding.pre_bind(state, pod, node_name))
        await self._until_certain(pod)
        with passed_down(pod, node_name, partial(self._check, pod), self._seconds_left) as self._passed:
            status = await framework.binding.bind(state, pod, node_name)
        require_bound(status, self._passed)

    async def _until_certain(self, pod: Pod) -> None:
        if self._cluster.generation == self._holds_at:
            return
        while not await prepared(partial(self._is_certain, pod)):
            await self._until_others_settled(pod)

    def _check(self, pod: Pod) -> None:
        """What is passed down, see ``passed_down``."""
        try:
            certain = self._is_certain(pod)
        except Unprepared:  # counts were given up since the last look
            raise NotYet(partial(prepared, partial(self._is_certain, pod))) from None
        if not certain:
            raise NotYet(partial(self._until_others_settled, pod))

    def _is_certain(self, pod: Pod) -> bool:
        """Whether it still holds whatever becomes of the others; ``False``: that depends on some in flight.

        Raises ``NotBound``, ``PluginError`` and ``Unprepared``.
        """
        if self._cluster.generation == self._holds_at:
            return True
        reserved = self._cluster.assumed.reserved()
        if self._held(pod, (*self._cluster.assumed.in_flight(), *reserved)) is not None:
            self._holds_at = self._cluster.generation
            return True
        if reserved and self._held(pod, reserved) is None:
            raise NotBound(unschedulable(RESERVED))
        self._settled_at = self._settlements.count
        return False

    async def _until_others_settled(self, pod: Pod) -> None:
        """Until a bind that this one depends on may have settled. Raises ``NotBound``."""
        await self._settlements.next_after(self._settled_at, pod.uid, self._seconds_left())

    def _seconds_left(self) -> float:
        return self._deadline - self._clock()


def require_bound(status: Status, passed: BindClearance) -> None:
    """Raise ``NotBound`` unless the bind plugin returned Success and no Binding is left whose outcome is unknown."""
    if status.code is Code.SUCCESS and passed.unclear:
        raise NotBound(error(UNCLEAR))
    if status.code is not Code.SUCCESS:
        raise NotBound(status)


def give_up(cluster: Cluster, pod: Pod, passed: BindClearance | None) -> None:
    """End the assumption of a pod that is not bound, or mark it unclear if its Binding may still take effect."""
    if passed is not None and passed.unclear:
        cluster.doubt(pod.uid)
    else:
        cluster.forget(pod.uid)


def _require(status: Status) -> None:
    """Raises ``NotBound`` for anything but Success; an Error too is a word against this bind, not against us."""
    if status.code is not Code.SUCCESS:
        said = (status.plugin, status.message) if status.plugin else (status.message,)
        raise NotBound(unschedulable(": ".join(said)))
