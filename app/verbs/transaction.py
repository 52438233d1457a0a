"""Transaction of one bind, from the first check to the answer.

A Binding that could violate a hard constraint is never sent.

    1  check the node and assume the pod on it, without an await in between; if the result of the check depends
       on another bind in flight, wait and repeat; while all binds in flight are sent, the pod is assumed early
    2  reserve, permit (the pod can wait there), check again, pre-bind, check again
    3  bind: the check is passed down, and repeated immediately before the POST is sent
    4  after success: the pod stays assumed until the watch, or a read after a while, shows whether it is bound
    5  after a failure: unreserve, end the assumption, then raise; if a Binding was sent and not answered, the pod
       stays assumed until the outcome is known (see ``app.writes.read_back``)

    Transaction ─> Framework.bind ─> the bind plugin ─> Binder ─> BindGuard ─> the step that sends
         └──────────────── passes down its check ───────────────────────────────> calls it
         <──────────────── a Status, or a PluginError ───────────────────────────┘

A pod can wait at Permit for minutes, and might never be bound. So another pod is bound only if it fits no matter
whether the waiting pod is bound later. Otherwise the other pod's bind is rejected at once. A bind waits only for binds
in flight, not for pods at Permit.
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
from app.verbs.stepwise import decide_prepared
from app.wire.extender_v1 import BindingArgs
from app.writes.bind_guard import BindClearance, NotBound, NotYet, passed_down

UNCLEAR: Final = "the outcome of the binding is unknown"
RESERVED: Final = "the result depends on pods still waiting at Permit"


class Target:
    """Pod and node of a bind request. ``pod`` and ``node`` look in the current snapshot, and can raise ``NotBound``."""

    def __init__(self, context: VerbContext, args: BindingArgs) -> None:
        self._cluster = context.cluster
        self._reader = context.reader
        self._args = args

    async def looked_up_pod(self) -> Pod:
        """Return the pod as ``pod`` does. Raises ``NotBound``.

        It is first read from the API server, unless the snapshot has it with the requested UID, and not as assumed.
        """
        namespace, name = self._args.namespace, self._args.name
        known = self._cluster.pod(namespace, name)
        if known is None or known.uid != self._args.uid or self._cluster.assumed.get(known.uid) is not None:
            try:
                await self._reader.fetch_pod(namespace, name)
            except OSError as cause:
                raise NotBound(error(f"the pod cannot be read: {cause}")) from cause
        return self.pod()

    def pod(self) -> Pod:
        """Return the pod as the snapshot has it.

        Raises ``NotBound`` if the snapshot lacks it, if the pod of this name has another UID, or if its newest version
        could not be decoded.
        """
        pod = self._cluster.pod(self._args.namespace, self._args.name)
        if pod is None:
            raise NotBound(error(f'pods "{self._args.name}" not found'))
        if pod.uid != self._args.uid:
            raise NotBound(error("the pod was replaced by another of the same name"))
        if self._cluster.unreadable:
            self._require_readable(PODS, pod.key)
        return pod

    def node(self) -> NodeInfo:
        """Return the node. Raises ``NotBound`` if the snapshot lacks it, or if its newest version could not be decoded.

        The API server does not check the name of the node in a Binding.
        """
        node = self._cluster.nodes.get(self._args.node)
        if node is None:
            raise NotBound(error(f'nodes "{self._args.node}" not found'))
        if self._cluster.unreadable:
            self._require_readable(NODES, node.node.key)
        return node

    def _require_readable(self, kind: Kind[Any], key: ObjectKey) -> None:
        """Raise ``NotBound`` if the newest version of an object could not be decoded, because a check needs it."""
        try:
            self._cluster.unreadable.require(kind, *key)
        except Unreadable as cause:
            raise NotBound(error(str(cause))) from None


class Transaction:
    """Transaction that binds a pod that has a profile here.

    ``deadline``: time of ``clock`` at which waits for other binds, and the wait at Permit, end.
    """

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
        self._valid_generation = -1
        self._settled_count = 0
        self._clearance: BindClearance | None = None

    async def run(self) -> tuple[Pod, CycleState]:
        """Bind the pod. Return it as it was assumed, and the state of the check just before that (``_assumed``).

        After a failure the steps are undone (step 5 above), and ``NotBound`` or ``PluginError`` is raised.
        """
        pod, state = await self._assumed()
        try:
            await self._carry_out(pod, state)
        except BaseException:
            self._framework.binding.unreserve(state, pod, self._node_name)
            self._settlements.ended(pod.uid)
            give_up(self._cluster, pod, self._clearance)
            raise
        self._cluster.accept(pod.uid)
        return pod, state

    async def _assumed(self) -> tuple[Pod, CycleState]:
        """Check the node and assume the pod on it, without an ``await`` in between.

        If the result of the check depends on binds in flight, wait and check again. While all of these binds are sent,
        the pod is assumed *early* during the wait, so that filter counts it for the next pod. Return the pod, and the
        state of the filters in the last check.

        After each wait, the pod is looked up again and the node is checked again. The check counts pods at Permit like
        bound pods, because this pod might have to wait there together with them. After Permit, the check is repeated.
        """
        while True:
            pod, state, certain = await decide_prepared(self._recheck_pending)
            if certain:
                self._assume(pod)
                if not self._cluster.assumed.reserved():
                    self._valid_generation = self._cluster.generation
                return pod, state
            if self._settlements.all_sent():
                self._assume(pod)
                try:
                    await self._settlements.wait_early(pod.uid, self._seconds_left())
                finally:
                    self._cluster.forget(pod.uid)
            else:
                await self._settlements.wait_next(self._seconds_left())

    def _assume(self, pod: Pod) -> None:
        self._cluster.assume(pod, self._node_name)
        self._due.arrived(pod.uid)

    def _recheck_pending(self) -> tuple[Pod, CycleState, bool]:
        """Return the pod, and the result of ``_recheck`` with the pods of all binds in flight as ``uncertain``.

        Raises ``NotBound`` if the pod is already bound, and the exceptions of ``Target.pod`` and ``_recheck``.
        """
        pod = self._target.pod()
        if pod.node_name:
            raise NotBound(error("the pod was bound by another client"))
        return pod, *self._recheck(pod, self._cluster.assumed.in_flight())

    def _recheck(self, pod: Pod, uncertain: Sequence[Pod]) -> tuple[CycleState, bool]:
        """Run the filters for the pod on its node, with all ``uncertain`` pods bound. Return the state of the filters.

        Also return false if the filters might reject the node without some of these pods. Raises ``NotBound`` if the
        filters reject the node. Can raise ``PluginError`` and ``Unprepared``.
        """
        state = CycleState()
        others = [it for it in uncertain if it.uid != pod.uid]
        with self._cluster.without(pod.uid, (pod.namespace, pod.name)):
            recheck = self._framework.at_bind.recheck(state, pod, self._target.node(), others)
        if recheck.status.code is not Code.SUCCESS:
            raise NotBound(unschedulable(f"no longer possible: {recheck.status.message}"))
        return state, recheck.certain

    async def _carry_out(self, pod: Pod, state: CycleState) -> None:
        """Run steps 2 and 3 of the module docstring. Raises ``NotBound`` or ``PluginError``."""
        framework, node_name = self._framework, self._node_name
        state.deadline = self._deadline
        _require(framework.binding.reserve(state, pod, node_name))
        _require(await framework.binding.permit(state, pod, node_name, limit=self._seconds_left()))
        await self._until_certain(pod)
        _require(await framework.binding.pre_bind(state, pod, node_name))
        await self._until_certain(pod)
        with passed_down(pod, node_name, partial(self._check, pod), self._seconds_left) as self._clearance:
            status = await framework.binding.bind(state, pod, node_name)
        require_bound(status, self._clearance)

    async def _until_certain(self, pod: Pod) -> None:
        """Wait until the check passes no matter which other binds in flight succeed.

        Raises ``NotBound`` and ``PluginError``.
        """
        if self._cluster.generation == self._valid_generation:
            return
        while not await decide_prepared(partial(self._is_certain, pod)):
            await self._until_others_settled(pod)

    def _check(self, pod: Pod) -> None:
        """Check once more, immediately before the Binding is sent (see ``passed_down``).

        Raises ``NotBound``, ``PluginError``, and ``NotYet`` if something must be awaited before the Binding can be
        sent.
        """
        try:
            certain = self._is_certain(pod)
        except Unprepared:  # counts were evicted since the last check
            self._settlements.ended(pod.uid)
            raise NotYet(partial(decide_prepared, partial(self._is_certain, pod))) from None
        if not certain:
            self._settlements.ended(pod.uid)  # it was sent if the API server has refused an earlier Binding
            raise NotYet(partial(self._until_others_settled, pod))
        self._settlements.sent(pod.uid)

    def _is_certain(self, pod: Pod) -> bool:
        """Return true if the check passes no matter which other binds succeed; false if it depends on binds in flight.

        Raises ``NotBound`` if the check fails or depends on pods at Permit. Can also raise ``PluginError`` or
        ``Unprepared``.
        """
        if self._cluster.generation == self._valid_generation:
            return True
        reserved = self._cluster.assumed.reserved()
        if self._passes_beside_early(pod) or self._recheck(pod, (*self._cluster.assumed.in_flight(), *reserved))[1]:
            self._valid_generation = self._cluster.generation
            return True
        if reserved and not self._recheck(pod, reserved)[1]:
            raise NotBound(unschedulable(RESERVED))
        self._settled_count = self._settlements.count
        return False

    def _passes_beside_early(self, pod: Pod) -> bool:
        """Return true if a pod is assumed early, and the check passes no matter which other binds succeed.

        Otherwise end the early assumption, because the early pod waits for this bind, and not this bind for the early
        pod.
        """
        if not self._settlements.early:
            return False
        assumed = self._cluster.assumed
        try:
            if self._recheck(pod, (*assumed.in_flight(), *assumed.reserved()))[1]:
                return True
        except NotBound:
            pass  # without the early pod, the check can pass
        self._cluster.forget(self._settlements.withdraw_early())
        return False

    async def _until_others_settled(self, pod: Pod) -> None:
        """Wait until another bind has settled since the last check. Raises ``NotBound``."""
        await self._settlements.wait_next_after(self._settled_count, pod.uid, self._seconds_left())

    def _seconds_left(self) -> float:
        return self._deadline - self._clock()


def require_bound(status: Status, clearance: BindClearance) -> None:
    """Raise ``NotBound`` unless ``status`` is Success and the outcome of each Binding that was sent is known."""
    if status.code is Code.SUCCESS and clearance.unclear:
        raise NotBound(error(UNCLEAR))
    if status.code is not Code.SUCCESS:
        raise NotBound(status)


def give_up(cluster: Cluster, pod: Pod, clearance: BindClearance | None) -> None:
    """Make an assumed pod pending again. If a Binding for it can still take effect, mark the pod as unclear instead.

    An unclear pod stays assumed until the outcome is known.
    """
    if clearance is not None and clearance.unclear:
        cluster.doubt(pod.uid)
    else:
        cluster.forget(pod.uid)


def _require(status: Status) -> None:
    """Raise ``NotBound`` unless the status is Success.

    Any other code, even Error, becomes Unschedulable, so that the outcome is ``bind_conflict``.
    """
    if status.code is not Code.SUCCESS:
        parts = (status.plugin, status.message) if status.plugin else (status.message,)
        raise NotBound(unschedulable(": ".join(parts)))
