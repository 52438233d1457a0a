"""The bind verb: runs one transaction per pod, and returns its result to all requests for that pod and node.

A transaction is independent of the HTTP connection: if the caller disconnects, the transaction continues, and a
repeated request waits for the same transaction. The module ``transaction`` describes the steps.

Before the transaction, the pod is looked up in the snapshot, or read from the API server. If the pod is already
bound to the requested node, the bind succeeds. If it has another UID, or is bound to another node, the bind fails. The
plugins' ``post_bind`` can run after the response.

A caller waits at most ``time_limit``. A transaction stops waiting a little earlier, so that the caller gets the reason.
A pod that still waits at Permit at that time is rejected, and its resources become free. The pod must not be bound
later, because the scheduler no longer reserves its resources.
"""

from __future__ import annotations

import asyncio
from functools import partial
from math import inf
from typing import Final

import structlog
from msgspec import Struct

from app.framework.handle import Clock
from app.framework.objects import Binder
from app.framework.status import Code, Status, error
from app.kube.core_v1 import Pod
from app.kube.meta_v1 import ObjectKey
from app.runtime.framework import Framework
from app.runtime.guard import PluginError
from app.runtime.waiting import PodsAtPermit
from app.verbs.context import VerbContext, require_snapshot
from app.verbs.outcome import Answer, VerbFailure
from app.verbs.settlements import Settlements
from app.verbs.transaction import Target, Transaction, give_up, require_bound
from app.verbs.unserved import printable
from app.wire.extender_answers import encode_binding
from app.wire.extender_v1 import BindingArgs, MalformedRequest, decode_binding
from app.writes.bind_guard import BindClearance, BindGuard, NotBound, passed_down

_LOG: Final = structlog.get_logger(__name__)

DRAIN_SECONDS: Final = 10.0
"""Maximum seconds that a shutdown waits for binds in flight."""

_ANSWER_MARGIN: Final = 0.05
"""Fraction of the caller's remaining time by which a transaction stops waiting earlier than its caller."""
_MAX_ANSWER_MARGIN_SECONDS: Final = 0.5
"""Maximum seconds by which a transaction stops waiting earlier than its caller."""

_REJECT_AGAIN_SECONDS: Final = 1.0
"""Seconds between two attempts to reject, at Permit, a bind that a later request replaces.

The first attempt has no effect if the bind has not reached Permit yet.
"""

_TAKE_OVER_FRACTION: Final = 0.9
"""Maximum fraction of the caller's remaining time that a bind waits until this replica has taken over as leader.

The rest of the time is needed to return an error if this replica has not taken over by then.
"""

NO_PROFILE: Final = 'no profile for schedulerName "{}", and bindOthers is false'
UNCONFIRMED: Final = 'an earlier bind of this pod to node "{}" is not confirmed yet'
ELSEWHERE: Final = "a later request binds the pod to another node"
LOST: Final = "the pod was deleted, or bound by another client"
SHUTTING_DOWN: Final = "the process is shutting down while the pod waits at Permit"


class _RunningBind(Struct, frozen=True):
    """Transaction in flight: name of its ``node``, UID of its pod, and its task."""

    node: str
    uid: str
    task: asyncio.Task[Answer]


class BindVerb:
    """The bind verb. ``time_limit``: maximum seconds that a caller waits.

    ``bind_others``: true to also bind pods that have no profile here; their constraints are not checked. ``waiting``:
    pods at Permit.
    """

    def __init__(
        self,
        context: VerbContext,
        binder: Binder,
        bind_guard: BindGuard,
        waiting: PodsAtPermit,
        clock: Clock,
        *,
        time_limit: float,
        bind_others: bool = True,
    ) -> None:
        self._context = context
        self._cluster = context.cluster
        self._binder = binder
        self._bind_guard = bind_guard
        self._waiting = waiting
        self._clock = clock
        self._time_limit = time_limit
        self._bind_others = bind_others
        self._running: dict[ObjectKey, _RunningBind] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._settlements = Settlements(self._cluster.assumed, bind_guard.batches)
        self._cluster.assumed.on_lost(lambda uid: waiting.reject(uid, LOST))

    async def __call__(self, body: bytes | memoryview, seconds: float = inf) -> Answer:
        """Answer a bind request. ``seconds``: time until the caller's deadline. Raises ``VerbFailure``."""
        deadline = self._clock() + min(self._time_limit, seconds)
        try:
            args = decode_binding(body)
        except MalformedRequest as malformed:
            raise VerbFailure("bad_request", f"homeport: malformed bind request: {malformed}") from None
        problem = await self._bind_guard.admitted(args.namespace, (deadline - self._clock()) * _TAKE_OVER_FRACTION)
        if problem:
            raise VerbFailure("no_leader", f"homeport: {problem}")
        task = await self._transaction(args, deadline)
        done, _ = await asyncio.wait({task}, timeout=deadline - self._clock())
        if not done:
            raise VerbFailure("out_of_time", "homeport: the bind did not finish in time")
        if task.cancelled():
            raise VerbFailure("out_of_time", "homeport: the process shut down before the bind finished")
        return task.result()

    async def drain(self, seconds: float = DRAIN_SECONDS) -> bool:
        """At shutdown, wait up to ``seconds`` for all transactions and ``post_bind`` calls, then cancel unfinished
        transactions.

        Pods waiting at Permit are rejected at once, because no Binding was sent for them. Return true if everything has
        ended and each outcome is known. Else return false: a Binding might then still arrive at the API server, so the
        next leader must fence off its pod.
        """
        self._waiting.close(SHUTTING_DOWN)
        until = self._clock() + seconds
        with self._bind_guard.batches.awaited():
            while (left := [*(it.task for it in self._running.values()), *self._background]) and self._clock() < until:
                await asyncio.wait(left, timeout=until - self._clock())
        for (namespace, name), running in self._running.items():
            _LOG.warning("bind unfinished at shutdown", pod=f"{namespace}/{name}", node=running.node)
            running.task.cancel()
        return not left and not self._cluster.assumed.in_flight()

    async def _transaction(self, args: BindingArgs, deadline: float) -> asyncio.Task[Answer]:
        """Return the running transaction for this pod and node, or start one.

        If a transaction for another node, or for an earlier pod of this name, is running, wait until it has ended. If
        its pod waits at Permit, reject it there, because the scheduler has made a new decision. Raises ``VerbFailure``
        (``out_of_time``).
        """
        key = (args.namespace, args.name)
        while (running := self._running.get(key)) is not None:
            if (running.node, running.uid) == (args.node, args.uid):
                return running.task
            self._waiting.reject(running.uid, ELSEWHERE)
            left = deadline - self._clock()
            with self._bind_guard.batches.awaited():
                done, _ = await asyncio.wait({running.task}, timeout=min(left, _REJECT_AGAIN_SECONDS))
            if not done and left <= _REJECT_AGAIN_SECONDS:
                raise VerbFailure("out_of_time", "homeport: an earlier bind of this pod did not finish in time")
        waits_until = deadline - min(_ANSWER_MARGIN * (deadline - self._clock()), _MAX_ANSWER_MARGIN_SECONDS)
        task = asyncio.create_task(self._answer(args, waits_until))
        self._running[key] = _RunningBind(args.node, args.uid, task)
        task.add_done_callback(lambda done: self._finished(key, args.uid, done))
        return task

    def _finished(self, key: ObjectKey, uid: str, task: asyncio.Task[Answer]) -> None:
        """Remove a transaction that has ended, and stop expecting its bind."""
        del self._running[key]
        self._context.due.arrived(uid)
        if not task.cancelled():
            task.exception()  # marks the exception as retrieved, because the caller might have disconnected

    async def _answer(self, args: BindingArgs, deadline: float) -> Answer:
        """Run the bind. Raises ``VerbFailure``, also in place of ``NotBound`` and ``PluginError``."""
        require_snapshot(self._context.problem)
        try:
            return await self._bind(args, deadline)
        except NotBound as failure:
            conflict = failure.status.code is not Code.ERROR
            raise VerbFailure(
                "bind_conflict" if conflict else "bind_failed", f"homeport: {failure.status.message}"
            ) from failure
        except PluginError as fault:
            raise VerbFailure("fault", f"homeport: {fault.status.message}") from fault

    async def _bind(self, args: BindingArgs, deadline: float) -> Answer:
        """Bind with the pod's profile, or without one, unless the pod is already bound to the node.

        Raises ``NotBound``, ``PluginError`` and ``VerbFailure``.
        """
        target = Target(self._context, args)
        pod = await target.looked_up_pod()
        if pod.node_name and self._cluster.assumed.get(pod.uid) is not None:
            raise NotBound(error(UNCONFIRMED.format(pod.node_name)))
        if pod.node_name == args.node:
            return Answer(encode_binding(), "already_bound")
        if pod.node_name:
            raise NotBound(error(f'the pod is already bound to node "{pod.node_name}"'))
        framework = self._context.framework_for_request("bind", pod)
        if framework is None:
            await self._bind_foreign(pod, target.node().name, deadline)
        else:
            await self._bind_checked(framework, pod, target, args.node, deadline)
        return Answer(encode_binding(), "bound")

    async def _bind_checked(
        self, framework: Framework, pod: Pod, target: Target, node_name: str, deadline: float
    ) -> None:
        """Bind a pod that has a profile here. Calls of ``post_bind`` run in the background.

        Raises ``NotBound``, ``PluginError`` and ``VerbFailure``.
        """
        await self._context.look_up_missing(framework, pod, at_bind=True)
        transaction = Transaction(framework, target, node_name, self._context, self._settlements, self._clock, deadline)
        pod, state = await transaction.run()
        task = asyncio.create_task(framework.binding.post_bind(state, pod, node_name))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _bind_foreign(self, pod: Pod, node_name: str, deadline: float) -> None:
        """Bind a pod that has no profile here, without checking its constraints.

        kube-scheduler calls bind for such pods too, and would retry a refused pod again and again. Raises ``NotBound``,
        also if ``bind_others`` is false.
        """
        if not self._bind_others:
            raise NotBound(error(NO_PROFILE.format(printable(pod.spec.scheduler_name))))
        self._cluster.assume(pod, node_name)
        clearance: BindClearance | None = None
        try:
            sent = partial(self._settlements.sent, pod.uid)
            with passed_down(pod, node_name, sent, lambda: deadline - self._clock()) as clearance:
                status: Status = await self._binder.bind(pod, node_name, {})
            require_bound(status, clearance)
        except BaseException:
            self._settlements.ended(pod.uid)
            give_up(self._cluster, pod, clearance)
            raise
        self._cluster.accept(pod.uid)
