"""The bind verb: who asks for a bind is told what became of it.

One transaction per pod, owned by the service and not by the HTTP request: a caller that hangs up changes nothing, and
one that asks for the same again joins it. What a transaction does, and in which order: ``transaction``.

Before it, the pod is found, in the picture or by reading it; UID and node must be right; already bound there is
success. After it, success is answered, and then come the plugins' ``post_bind``.

A caller waits for ``time_limit`` at most. A transaction waits for nothing for as long as that, so that its caller is
told why: a pod that is not let go by Permit until then is rejected there, and its place is free. It is never bound
after its caller was told that it still waits, for a scheduler then no longer keeps the room that the pod takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from math import inf
from typing import Any, Final

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
"""How long an orderly end waits for binds under way."""

_LEAD: Final = 0.05
_MOST_LEAD: Final = 0.5
"""Part of the time limit, and seconds, by which a transaction stops waiting before its caller does."""

_LOOK_SECONDS: Final = 1.0
"""Between looks whether a bind that nobody asks for any more has come to Permit."""

_TAKE_OVER: Final = 0.9
"""Part of its time that a bind waits for a take-over, so that it can say in time what for."""

NO_PROFILE: Final = 'no profile for schedulerName "{}", and bindOthers is false'
UNCONFIRMED: Final = 'an earlier bind of this pod to node "{}" is not confirmed yet'
ELSEWHERE: Final = "the pod is to be bound to another node by now"
LOST: Final = "the pod was deleted, or bound by somebody else"
ENDS: Final = "the process ends, and the pod still waits at Permit"


class _Running(Struct, frozen=True):
    node: str
    uid: str
    task: asyncio.Task[Answer]


class BindVerb:
    """``time_limit``: the longest that a caller is kept waiting, in seconds.

    ``bind_others``: whether pods of no profile here are bound, unchecked. ``waiting``: the pods at Permit.
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
        self._running: dict[ObjectKey, _Running] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._settlements = Settlements(self._cluster.assumed, bind_guard.batches)
        self._cluster.assumed.on_lost(lambda uid: waiting.reject(uid, LOST))

    async def __call__(self, body: bytes | memoryview, seconds: float = inf) -> Answer:
        """Answer a bind request whose caller waits for so many seconds. Raises ``VerbFailure``."""
        deadline = self._clock() + min(self._time_limit, seconds)
        try:
            args = decode_binding(body)
        except MalformedRequest as malformed:
            raise VerbFailure("bad_request", f"homeport: malformed bind request: {malformed}") from None
        problem = await self._bind_guard.admitted(args.namespace, (deadline - self._clock()) * _TAKE_OVER)
        if problem:
            raise VerbFailure("no_leader", f"homeport: {problem}")
        task = await self._transaction(args, deadline)
        done, _ = await asyncio.wait({task}, timeout=deadline - self._clock())
        if not done:
            raise VerbFailure("out_of_time", "homeport: the bind has not settled in time")
        if task.cancelled():
            raise VerbFailure("out_of_time", "homeport: the process ends, and the bind has not settled")
        return task.result()

    async def drain(self, seconds: float = DRAIN_SECONDS) -> bool:
        """Wait for all transactions and what follows them, for an orderly end; then give them up.

        Pods that wait at Permit go back to their schedulers at once: nothing of them is on its way. Returns ``False``
        if the outcome of a bind is unknown: its Binding may still arrive, and the next leader has to fence its pod.
        """
        self._waiting.close(ENDS)
        until = self._clock() + seconds
        with self._bind_guard.batches.awaited():
            while (left := [*(it.task for it in self._running.values()), *self._background]) and self._clock() < until:
                await asyncio.wait(left, timeout=until - self._clock())
        for (namespace, name), running in self._running.items():
            _LOG.warning("bind not settled at the end", pod=f"{namespace}/{name}", node=running.node)
            running.task.cancel()
        return not left and not self._cluster.assumed.in_flight()

    async def _transaction(self, args: BindingArgs, deadline: float) -> asyncio.Task[Answer]:
        """The running transaction for the same pod and node, or a new one once another node's has settled.

        That one is not waited for at Permit: nobody asks for it any more.
        """
        key = (args.namespace, args.name)
        while (running := self._running.get(key)) is not None:
            if (running.node, running.uid) == (args.node, args.uid):
                return running.task
            self._waiting.reject(running.uid, ELSEWHERE)
            left = deadline - self._clock()
            with self._bind_guard.batches.awaited():
                done, _ = await asyncio.wait({running.task}, timeout=min(left, _LOOK_SECONDS))
            if not done and left <= _LOOK_SECONDS:
                raise VerbFailure("out_of_time", "homeport: an earlier bind of this pod has not settled in time")
        waits_until = deadline - min(_LEAD * (deadline - self._clock()), _MOST_LEAD)
        task = asyncio.create_task(self._answer(args, waits_until))
        self._running[key] = _Running(args.node, args.uid, task)
        task.add_done_callback(lambda done: self._end(key, args.uid, done))
        return task

    def _end(self, key: ObjectKey, uid: str, task: asyncio.Task[Answer]) -> None:
        del self._running[key]
        self._context.due.arrived(uid)
        if not task.cancelled():
            task.exception()  # the caller may have hung up: nobody else would look

    async def _answer(self, args: BindingArgs, deadline: float) -> Answer:
        """Raises ``VerbFailure``."""
        require_snapshot(self._context.problem)
        try:
            return await self._bound(args, deadline)
        except NotBound as found:
            conflict = found.status.code is not Code.ERROR
            raise VerbFailure(
                "bind_conflict" if conflict else "bind_failed", f"homeport: {found.status.message}"
            ) from found
        except PluginError as fault:
            raise VerbFailure("fault", f"homeport: {fault.status.message}") from fault

    async def _bound(self, args: BindingArgs, deadline: float) -> Answer:
        """Raises ``NotBound``, ``PluginError`` and ``VerbFailure``."""
        target = Target(self._context, args)
        pod = await target.looked_up_pod()
        if pod.node_name and self._cluster.assumed.get(pod.uid) is not None:
            raise NotBound(error(UNCONFIRMED.format(pod.node_name)))
        if pod.node_name == args.node:
            return Answer(encode_binding(), "already_bound")
        if pod.node_name:
            raise NotBound(error(f'the pod is already bound to node "{pod.node_name}"'))
        framework = self._context.asked_framework("bind", pod)
        if framework is None:
            await self._bind_foreign(pod, target.node().name, deadline)
        else:
            await self._bind_checked(framework, pod, target, args.node, deadline)
        return Answer(encode_binding(), "bound")

    async def _bind_checked(
        self, framework: Framework, pod: Pod, target: Target, node_name: str, deadline: float
    ) -> None:
        await self._context.look_up_missing(framework, pod, at_bind=True)
        transaction = Transaction(framework, target, node_name, self._context, self._settlements, self._clock, deadline)
        pod, state = await transaction.run()
        self._spawn(framework.binding.post_bind(state, pod, node_name))

    async def _bind_foreign(self, pod: Pod, node_name: str, deadline: float) -> None:
        """A pod of no profile here: kube-scheduler leaves its binding to us all the same.

        It sends an extender the pods of all its profiles, and would ask about one that is refused again and again.
        """
        if not self._bind_others:
            raise NotBound(error(NO_PROFILE.format(printable(pod.spec.scheduler_name))))
        self._cluster.assume(pod, node_name)
        passed: BindClearance | None = None
        try:
            with passed_down(pod, node_name, _nothing_to_break, lambda: deadline - self._clock()) as passed:
                status: Status = await self._binder.bind(pod, node_name, {})
            require_bound(status, passed)
        except BaseException:
            give_up(self._cluster, pod, passed)
            raise
        self._cluster.accept(pod.uid)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _nothing_to_break() -> None:
    """The check of a pod that no plugin here judges."""
