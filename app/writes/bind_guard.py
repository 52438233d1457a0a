"""Guard through which every Binding is sent: the decision is checked in the same step of the event loop as the send.

Between a decision and its write, time passes: a connection is opened, credentials are read, and the snapshot changes.
So the sender calls the check again when it has nothing left to wait for, and sends at once if the check passes.

The transaction passes the check down through a context variable (``passed_down``), because ``Binder.bind`` is part of
the plugin API and takes only a pod, a node and annotations. ``bind`` returns or raises the outcome of the check.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from time import monotonic
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from app.framework.status import Status, error
from app.kube.api_errors import ApiError, ApiUnavailable
from app.kube.api_requests import PreSendCheck
from app.kube.core_v1 import Pod
from app.writes.batches import BindBatches

Sent = TypeVar("Sent")

BLIND_SECONDS: Final = 2.0
"""Maximum time in seconds that a Binding waits for a watch that is being reopened."""

_LOOK_SECONDS: Final = 0.01
"""Interval in seconds at which a waiting Binding checks whether the watch is open again."""


class NotBound(Exception):
    """The pod is not bound.

    ``status`` gives the reason: an Error, or a rejection if the pod differs from the decision.
    """

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


class NotYet(Exception):
    """The check must be repeated after ``until`` returns; ``until`` raises ``NotBound`` if waiting is useless."""

    def __init__(self, until: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self.until = until


class BindClearance(Struct):
    """Permission to send Bindings of one pod (``uid``) to one ``node`` if ``check`` passes, until it is ``over``.

    ``was_held``: the Binding was already held for a batch, so that a retry is sent at once. ``unclear``: number of
    Bindings that were sent and whose sender has not returned an outcome. If the sender is cancelled or fails, the
    number stays above 0, and the pod must stay assumed.
    """

    uid: str
    node: str
    check: PreSendCheck
    seconds_left: Callable[[], float]
    was_held: bool = False
    over: bool = False
    unclear: int = 0


_PASSED: Final[ContextVar[BindClearance]] = ContextVar("passed")


@contextmanager
def passed_down(
    pod: Pod, node_name: str, check: PreSendCheck, seconds_left: Callable[[], float] = lambda: BLIND_SECONDS
) -> Iterator[BindClearance]:
    """Allow Bindings of this pod to this node within the context, and in tasks started within it.

    ``check`` is called in the step that sends the Binding; if it returns, the Binding is sent. It raises ``NotBound``
    if the Binding must not be sent, and ``NotYet`` if something must be awaited first. The binder passes other
    exceptions on. ``seconds_left`` returns how long this bind may still wait.
    """
    clearance = BindClearance(pod.uid, node_name, check, seconds_left)
    token = _PASSED.set(clearance)
    try:
        yield clearance
    finally:
        clearance.over = True
        _PASSED.reset(token)


def _clearance_for(pod: Pod, node_name: str) -> BindClearance:
    """Return the clearance for this pod and node. Raises ``NotBound`` without one."""
    clearance = _PASSED.get(None)
    if clearance is None or clearance.uid != pod.uid:
        raise NotBound(error(f'no bind of pod "{pod}" is in flight here'))
    if clearance.node != node_name:
        raise NotBound(error(f'decided on node "{clearance.node}", not on "{node_name}"'))
    return clearance


class BindLeadership(Protocol):
    """Part of the leadership interface that the guard uses."""

    def may_bind(self, namespace: str) -> str:
        """Return why pods of the namespace must not be bound now; empty if they may."""
        ...

    async def admitted(self, namespace: str, seconds: float) -> str:
        """Like ``may_bind``, but first wait at most ``seconds`` for binds to become possible."""
        ...

    def is_remembered(self, scheduler_name: str) -> bool:
        """Return true if the Lease is known to name that scheduler: only then Bindings of its pods may be sent."""
        ...

    async def remember(self, scheduler_name: str, seconds: float) -> str:
        """Add the scheduler to the Lease and wait at most ``seconds``; return why it is not written."""
        ...


class SingleProcess:
    """Leadership of a single process, which can always bind."""

    def may_bind(self, _namespace: str) -> str:
        return ""

    async def admitted(self, _namespace: str, _seconds: float) -> str:
        return ""

    def is_remembered(self, _scheduler_name: str) -> bool:
        return True

    async def remember(self, _scheduler_name: str, _seconds: float) -> str:
        return ""


_ALONE: Final = SingleProcess()


def _always() -> bool:
    """Default for ``follows`` without watches."""
    return True


class BindGuard:
    """Guard shared by all binders of a process. Only here a bind checks leadership: when it begins and when it is sent.

    Leadership is checked after the transaction's check. ``follows`` returns true while pods and nodes are watched;
    without a watch, other binds would not be seen. ``batches`` groups Bindings; without it each is sent at once.
    """

    def __init__(
        self,
        leadership: BindLeadership = _ALONE,
        follows: Callable[[], bool] = _always,
        batches: BindBatches | None = None,
    ) -> None:
        self._leadership = leadership
        self._follows = follows
        self.batches = batches or BindBatches(0.0, monotonic)

    async def admitted(self, namespace: str, seconds: float) -> str:
        """Return why no bind can begin in the namespace, after a wait of at most ``seconds``; empty if one can."""
        problem = self._leadership.may_bind(namespace)
        return await self._leadership.admitted(namespace, seconds) if problem else ""

    async def through(self, pod: Pod, node_name: str, send: Callable[[PreSendCheck], Awaitable[Sent]]) -> Sent:
        """Call ``send``, which calls its argument immediately before it sends, and returns once the outcome is known.

        Raises ``NotBound``, and exceptions of ``send`` and the check. After an ``ApiError`` or ``ApiUnavailable`` the
        Binding has no effect; after any other exception raised once it was sent, its outcome is unclear.
        """
        clearance = _clearance_for(pod, node_name)
        in_flight = 0

        def check() -> None:
            nonlocal in_flight
            answered()  # second attempt: the first was refused because of expired credentials
            self._check(clearance, pod)
            in_flight = 1
            clearance.unclear += in_flight

        def answered() -> None:
            nonlocal in_flight
            clearance.unclear -= in_flight
            in_flight = 0

        if not clearance.was_held:
            clearance.was_held = True
            await self.batches.wait_for_batch(clearance.seconds_left())
        while True:
            try:
                sent = await send(check)
            except NotYet as not_yet:
                until = not_yet.until
            except (ApiError, ApiUnavailable):
                answered()
                raise
            else:
                answered()
                return sent
            await until()

    def _check(self, clearance: BindClearance, pod: Pod) -> None:
        """Raise ``NotBound`` or ``NotYet`` if the Binding must not be sent now."""
        if clearance.over:
            raise NotBound(error(f'the bind of pod "{pod}" has ended'))
        if not self._follows():
            raise NotYet(self._until_following)
        clearance.check()
        problem = self._leadership.may_bind(pod.namespace)
        if problem:
            raise NotBound(error(problem))
        if not self._leadership.is_remembered(pod.spec.scheduler_name):
            raise NotYet(partial(self._until_remembered, pod.spec.scheduler_name, clearance.seconds_left))

    async def _until_remembered(self, scheduler_name: str, seconds_left: Callable[[], float]) -> None:
        problem = await self._leadership.remember(scheduler_name, seconds_left())
        if problem:
            raise NotBound(error(problem))

    async def _until_following(self) -> None:
        for _ in range(round(BLIND_SECONDS / _LOOK_SECONDS)):
            if self._follows():
                return
            await asyncio.sleep(_LOOK_SECONDS)  # polled: a watch is usually reopened within milliseconds
        raise NotBound(error("pods or nodes are not being watched at the moment"))
