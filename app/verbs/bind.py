"""The bind verb: a transaction that never sends a binding which could leave a hard constraint broken.

One transaction per pod, owned by the service and not by the HTTP request: a caller that hangs up changes nothing.

    1  the pod from the picture, or read; UID and node must be right; already bound there is success
    2  re-check and assume in one step, without an await; if it holds only should some bind in flight succeed (or
       fail), wait until that one is settled and decide anew
    3  reserve, permit (which may make the pod wait), pre-bind
    4  re-check again in the step that hands the POST to the network: the pre-send check, through which every
       Binding leaves
    5  bind; seen bound: certain, answer success, then post-bind
    6  any failure: undo in reverse, forget, and only then answer
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

import structlog
from msgspec import Struct

from app.framework.cycle_state import CycleState
from app.framework.interface import Binder, Clock, Unprepared, Unreadable
from app.framework.node_info import NodeInfo
from app.framework.status import SUCCESS, Code, Status, error
from app.kube.core_v1 import Pod
from app.kube.kinds import NODES, PODS, Kind
from app.kube.meta_v1 import ObjectKey
from app.runtime.framework import Framework
from app.runtime.guard import PluginError
from app.verbs.context import VerbContext
from app.verbs.outcome import Answer, VerbFailure
from app.verbs.readiness import require_picture
from app.verbs.slices import in_slices, prepared
from app.verbs.unserved import printable
from app.wire.extender_v1 import BindingArgs, MalformedRequest, decode_binding, encode_binding
from app.writes.bind_guard import BindGuard

_LOG: Final = structlog.get_logger(__name__)

DRAIN_SECONDS: Final = 10.0
"""How long an orderly end waits for binds under way."""

_LEAD: Final = 0.05
"""Part of the time limit by which a transaction stops waiting before its caller does, so that it can say why."""

UNSETTLED: Final = "homeport: other binds that this one depends on did not settle in time"
NO_PROFILE: Final = 'no profile for schedulerName "{}", and bindOthers is false'
ENTANGLED: Final = "homeport: this bind and others under way wait for one another"


class _Running(Struct, frozen=True):
    node: str
    uid: str
    deadline: float
    task: asyncio.Task[Answer]


class _InHand(Struct):
    """A transaction that assumed its pod. ``checked``: the picture on which it was found possible last.

    ``settlements``: how many binds had settled when it was last found not certain · ``waiting`` for others to settle ·
    ``failure``: why the pre-send check held it back · ``missing``: what is to be counted before it can be said.
    """

    framework: Framework
    node: str
    deadline: float
    checked: int
    settlements: int = 0
    waiting: bool = False
    failure: VerbFailure | None = None
    missing: Unprepared | None = None


class BindVerb:
    """``time_limit``: seconds a caller is kept waiting, and a transaction waits for others to settle.

    ``bind_others``: whether pods of no profile here are bound, unchecked. ``bind_guard`` asks it before each Binding
    leaves: see ``PreSendCheck``.
    """

    def __init__(
        self,
        context: VerbContext,
        binder: Binder,
        bind_guard: BindGuard,
        clock: Clock,
        *,
        time_limit: float,
        bind_others: bool = True,
    ) -> None:
        self._context = context
        self._cluster = context.cluster
        self._binder = binder
        self._clock = clock
        self._time_limit = time_limit
        self._bind_others = bind_others
        self._running: dict[ObjectKey, _Running] = {}
        self._in_hand: dict[str, _InHand] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._settled = asyncio.Event()
        self._settlements = 0
        self._cluster.assumed.on_settled(self._settle)
        bind_guard.keep(self)

    async def __call__(self, body: bytes | memoryview) -> Answer:
        """Answer a bind request. Raises ``VerbFailure``."""
        try:
            args = decode_binding(body)
        except MalformedRequest as malformed:
            raise VerbFailure("bad_request", f"homeport: malformed bind request: {malformed}") from None
        deadline = self._clock() + self._time_limit
        task = await self._transaction(args, deadline)
        done, _ = await asyncio.wait({task}, timeout=deadline - self._clock())
        if not done:
            raise VerbFailure("out_of_time", "homeport: the bind has not settled in time")
        if task.cancelled():
            raise VerbFailure("out_of_time", "homeport: the process ends, and the bind has not settled")
        return task.result()

    async def drain(self, seconds: float = DRAIN_SECONDS) -> bool:
        """Wait for all transactions and what follows them, for an orderly end; then give them up.

        What is given up (then this is ``False``) is a bind of unknown outcome: whoever comes next reads what became of
        it.
        """
        until = self._clock() + seconds
        while (pending := [*(it.task for it in self._running.values()), *self._background]) and self._clock() < until:
            await asyncio.wait(pending, timeout=until - self._clock())
        for (namespace, name), running in self._running.items():
            _LOG.warning("bind not settled at the end", pod=f"{namespace}/{name}", node=running.node)
            running.task.cancel()
        return not pending

    async def _transaction(self, args: BindingArgs, deadline: float) -> asyncio.Task[Answer]:
        """The running transaction for the same pod and node, or a new one once another node's has settled."""
        key = (args.namespace, args.name)
        while (running := self._running.get(key)) is not None:
            if (running.node, running.uid) == (args.node, args.uid):
                return running.task
            done, _ = await asyncio.wait({running.task}, timeout=deadline - self._clock())
            if not done:
                raise VerbFailure("out_of_time", "homeport: an earlier bind of this pod has not settled in time")
        waits_until = deadline - _LEAD * self._time_limit
        task = asyncio.create_task(self._run(args, waits_until))
        self._running[key] = _Running(args.node, args.uid, waits_until, task)
        task.add_done_callback(lambda done: self._end(key, args.uid, done))
        return task

    def _end(self, key: ObjectKey, uid: str, task: asyncio.Task[Answer]) -> None:
        del self._running[key]
        self._context.due.arrived(uid)
        if not task.cancelled():
            task.exception()  # the caller may have hung up: nobody else would look

    async def _run(self, args: BindingArgs, deadline: float) -> Answer:
        require_picture(self._context.problem)
        pod = await self._pod(args)
        if pod.node_name:
            return _answer_bound(pod, args.node)
        framework = self._context.asked_framework("bind", pod)
        if framework is None:
            return await self._bind_foreign(pod, self._node(args.node))
        await self._context.look_up_missing(framework, pod)
        pod, state = await self._check_and_assume(framework, args, deadline)
        try:
            await self._carry_out(framework, state, pod, args.node, deadline)
        except BaseException:
            self._undo(framework, state, pod, args.node)
            raise
        self._cluster.accept(pod.uid)
        self._spawn(framework.post_bind(state, pod, args.node))
        return Answer(encode_binding(), "bound")

    async def _bind_foreign(self, pod: Pod, node: NodeInfo) -> Answer:
        """A pod of no profile here: kube-scheduler leaves its binding to us all the same.

        It sends an extender the pods of all its profiles, and would ask about one that is refused again and again.
        """
        if not self._bind_others:
            raise VerbFailure("bind_failed", f"homeport: {NO_PROFILE.format(printable(pod.spec.scheduler_name))}")
        self._cluster.assume(pod, node.name)
        try:
            _raise_unless_bound(await self._binder.bind(pod, node.name, {}))
        except BaseException:
            self._cluster.forget(pod.uid)
            raise
        self._cluster.accept(pod.uid)
        return Answer(encode_binding(), "bound")

    async def _pod(self, args: BindingArgs) -> Pod:
        """The pod that is meant, read from the API server if the picture does not have it yet."""
        known = self._cluster.pod(args.namespace, args.name)
        if known is None or known.uid != args.uid:
            try:
                await self._context.reader.fetch_pod(args.namespace, args.name)
            except OSError as cause:
                raise VerbFailure("bind_failed", f"homeport: the pod cannot be read: {cause}") from cause
        return self._known_pod(args)

    def _known_pod(self, args: BindingArgs) -> Pod:
        pod = self._cluster.pod(args.namespace, args.name)
        if pod is None:
            raise VerbFailure("bind_failed", f'homeport: pods "{args.name}" not found')
        if pod.uid != args.uid:
            raise VerbFailure("bind_failed", "homeport: the pod was replaced by another of the same name")
        self._require_readable(PODS, pod.key)
        return pod

    def _node(self, name: str) -> NodeInfo:
        node = self._cluster.nodes.get(name)
        if node is None:
            raise VerbFailure("bind_failed", f'homeport: nodes "{name}" not found')
        self._require_readable(NODES, node.node.key)
        return node

    def _require_readable(self, kind: Kind[Any], key: ObjectKey) -> None:
        """What is known may be a form of before. Raises ``VerbFailure`` (``bind_failed``)."""
        if self._cluster.left_out:
            try:
                self._cluster.left_out.require(kind, *key)
            except Unreadable as cause:
                raise VerbFailure("bind_failed", f"homeport: {cause}") from None

    async def _check_and_assume(
        self, framework: Framework, args: BindingArgs, deadline: float
    ) -> tuple[Pod, CycleState]:
        """Everything is read anew after each wait; between the check that passes and the assumption there is none."""
        while True:
            pod, state = await prepared(partial(self._checked, framework, args))
            if state is not None:
                self._cluster.assume(pod, args.node)
                self._context.due.arrived(pod.uid)
                return pod, state
            await self._until_settled(deadline)

    def _checked(self, framework: Framework, args: BindingArgs) -> tuple[Pod, CycleState | None]:
        """The pod as it is, and what ``_holds`` says of it."""
        pod = self._known_pod(args)
        if pod.node_name:
            raise VerbFailure("bind_failed", "homeport: the pod was bound by somebody else")
        return pod, self._holds(framework, pod, args.node)

    def _holds(self, framework: Framework, pod: Pod, node_name: str) -> CycleState | None:
        """The state of a check that holds whatever becomes of the others in flight; ``None`` if that is not certain.

        Raises ``VerbFailure`` if the node is refused, or ``Unprepared``.
        """
        state = CycleState()
        others = [it for it in self._cluster.assumed.in_flight() if it.uid != pod.uid]
        try:
            with self._cluster.without(pod.uid, pod.key):
                found = framework.recheck(state, pod, self._node(node_name), others)
        except PluginError as fault:
            raise VerbFailure("fault", f"homeport: {fault.status.message}") from fault
        if not found.status.is_success:
            raise VerbFailure("bind_conflict", f"homeport: no longer possible: {found.status.message}")
        return state if found.certain else None

    async def _carry_out(
        self, framework: Framework, state: CycleState, pod: Pod, node_name: str, deadline: float
    ) -> None:
        held = self._in_hand[pod.uid] = _InHand(framework, node_name, deadline, self._cluster.generation)
        try:
            _raise_unless_success(framework.reserve(state, pod, node_name))
            limit = deadline - self._clock()
            _raise_unless_success(await framework.permit(state, pod, node_name, limit=limit))
            _raise_unless_success(await framework.pre_bind(state, pod, node_name))
            while not await prepared(partial(self._possible, held, pod)):
                await self._until_others_settled(held, pod.uid)
            status = await framework.bind(state, pod, node_name)
            if held.failure is not None:
                raise held.failure
            _raise_unless_bound(status)
        except PluginError as fault:
            raise VerbFailure("fault", f"homeport: {fault.status.message}") from fault
        finally:
            del self._in_hand[pod.uid]

    def pre_send_check(self, pod: Pod, node_name: str) -> Status | None:
        """Implements ``PreSendCheck``: asked in the step in which the Binding leaves."""
        held = self._in_hand.get(pod.uid)
        if held is None:
            return SUCCESS  # a pod of no profile here: there is nothing to break
        if held.node != node_name:
            return error(f'decided on node "{held.node}", not on "{node_name}"')
        try:
            return SUCCESS if self._possible(held, pod) else None
        except Unprepared as missing:
            held.missing = missing  # given up since the last look: to be counted anew before the next one
            return None
        except VerbFailure as failure:
            held.failure = failure
            return error(failure.message)

    async def until_settled(self, pod: Pod) -> Status:
        """Implements ``PreSendCheck``."""
        held = self._in_hand[pod.uid]
        missing, held.missing = held.missing, None
        try:
            if missing is not None:
                await in_slices(missing.steps)
                await prepared(partial(self._possible, held, pod))
            else:
                await self._until_others_settled(held, pod.uid)
        except VerbFailure as failure:
            held.failure = failure
            return error(failure.message)
        return SUCCESS

    def seconds_left(self, pod: Pod) -> float:
        """Implements ``PreSendCheck``."""
        running = self._running.get(pod.key)
        return self._time_limit if running is None else running.deadline - self._clock()

    def _possible(self, held: _InHand, pod: Pod) -> bool:
        """Whether it still holds whatever becomes of the others; ``False``: not certain. Raises ``VerbFailure``."""
        if self._cluster.generation == held.checked:
            return True
        if self._holds(held.framework, pod, held.node) is None:
            held.settlements = self._settlements
            return False
        held.checked = self._cluster.generation
        return True

    def _undo(self, framework: Framework, state: CycleState, pod: Pod, node_name: str) -> None:
        framework.unreserve(state, pod, node_name)
        self._cluster.forget(pod.uid)

    async def _until_others_settled(self, held: _InHand, uid: str) -> None:
        """Until a bind that this one depends on may have settled. Raises ``VerbFailure`` (``bind_conflict``).

        Who holds a place in the picture does not wait for others that wait themselves: nobody would ever move.
        """
        if self._settlements != held.settlements:
            return  # one has, since it was last looked at
        others = [self._in_hand.get(it.uid) for it in self._cluster.assumed.in_flight() if it.uid != uid]
        if all(it is not None and it.waiting for it in others):
            raise VerbFailure("bind_conflict", ENTANGLED)
        held.waiting = True
        try:
            await self._until_settled(held.deadline)
        finally:
            held.waiting = False

    async def _until_settled(self, deadline: float) -> None:
        """Until any bind in flight has succeeded or failed. Raises ``VerbFailure`` (``bind_conflict``)."""
        try:
            await asyncio.wait_for(self._settled.wait(), deadline - self._clock())
        except TimeoutError:
            raise VerbFailure("bind_conflict", UNSETTLED) from None

    def _settle(self) -> None:
        self._settlements += 1
        for held in self._in_hand.values():
            held.waiting = False  # each looks again, though not at once
        self._settled.set()
        self._settled = asyncio.Event()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _answer_bound(pod: Pod, node_name: str) -> Answer:
    if pod.node_name == node_name:
        return Answer(encode_binding(), "already_bound")
    raise VerbFailure("bind_failed", f'homeport: the pod is already bound to node "{pod.node_name}"')


def _raise_unless_success(status: Status) -> None:
    if not status.is_success:
        raise VerbFailure("bind_conflict", f"homeport: {status.plugin}: {status.message}")


def _raise_unless_bound(status: Status) -> None:
    if not status.is_success:
        conflict = status.code is not Code.ERROR
        raise VerbFailure("bind_conflict" if conflict else "bind_failed", f"homeport: {status.message}")
