"""Guard through which every Binding is sent: it checks the decision immediately before the Binding is sent.

The snapshot can change while a connection is opened and credentials are read for the Binding. So the sender calls the
check last, after everything that it must await. If the check passes, the sender sends the Binding in the same
event-loop iteration.

The bind transaction provides the check through a context variable (``passed_down``). ``Binder.bind`` has no parameter
for it, because that method is part of the plugin API and takes only a pod, a node and annotations.
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
"""Maximum time in seconds that a Binding waits while the watch of pods or nodes is interrupted."""

_LOOK_SECONDS: Final = 0.01
"""Interval in seconds at which a waiting Binding checks whether pods and nodes are watched again."""


class NotBound(Exception):
    """Raised if a Binding must not be sent, so that the pod is not bound.

    ``status``: a rejection, for example if the decision is no longer valid, or an Error.
    """

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


class NotYet(Exception):
    """Raised by a check that cannot pass yet. ``BindGuard.through`` awaits ``until()`` and sends again.

    ``until`` raises ``NotBound`` if its condition is not met in time.
    """

    def __init__(self, until: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self.until = until


class BindClearance(Struct):
    """Permission to bind the pod ``uid`` to ``node`` if ``check`` passes. ``over``: true once the bind has ended."""

    uid: str
    node: str
    check: PreSendCheck
    seconds_left: Callable[[], float]
    was_held: bool = False
    """True once the first Binding was passed to ``BindBatches``, so that a retry does not wait for a batch again."""
    over: bool = False
    unclear: int = 0
    """Number of Bindings that were sent and have no known outcome. If it is not 0, the pod must stay assumed."""


_PASSED: Final[ContextVar[BindClearance]] = ContextVar("passed")


@contextmanager
def passed_down(
    pod: Pod, node_name: str, check: PreSendCheck, seconds_left: Callable[[], float] = lambda: BLIND_SECONDS
) -> Iterator[BindClearance]:
    """Allow Bindings of this pod to this node within the context, and in tasks started within it.

    ``check`` is called immediately before the Binding is sent. It raises ``NotBound`` to forbid the Binding, and
    ``NotYet`` if something must be awaited first; otherwise the Binding is sent. The binder does not catch other
    exceptions. ``seconds_left`` returns how many seconds this bind may still wait.
    """
    clearance = BindClearance(pod.uid, node_name, check, seconds_left)
    token = _PASSED.set(clearance)
    try:
        yield clearance
    finally:
        clearance.over = True
        _PASSED.reset(token)


def _clearance_for(pod: Pod, node_name: str) -> BindClearance:
    """Return the clearance of the current context. Raises ``NotBound`` if there is none for this pod and node."""
    clearance = _PASSED.get(None)
    if clearance is None or clearance.uid != pod.uid:
        raise NotBound(error(f'no bind of pod "{pod}" is in flight here'))
    if clearance.node != node_name:
        raise NotBound(error(f'decided on node "{clearance.node}", not on "{node_name}"'))
    return clearance


class BindLeadership(Protocol):
    """Part of the leadership interface that the guard uses."""

    def may_bind(self, namespace: str) -> str:
        """Return why pods of the namespace must not be bound now, or an empty string if binding is allowed."""
        ...

    async def admitted(self, namespace: str, seconds: float) -> str:
        """Wait at most ``seconds`` for a take-over by this process; return the result of ``may_bind``."""
        ...

    def is_remembered(self, scheduler_name: str) -> bool:
        """Return true if the Lease is known to list this scheduler. If not, its pods must not be bound yet."""
        ...

    async def remember(self, scheduler_name: str, seconds: float) -> str:
        """Add the scheduler to the Lease within ``seconds``; return why that failed, or an empty string."""
        ...


class SingleProcess:
    """Leadership interface for a process without other replicas: binds are always allowed."""

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
    """Default of ``BindGuard.follows``, for a process without watches: no Binding waits for them."""
    return True


class BindGuard:
    """Guard that all binders of a process share. It checks leadership when a bind begins and when its Binding is sent.

    ``follows`` returns true while pods and nodes are watched. While it returns false, Bindings wait for at most
    ``BLIND_SECONDS``, because the snapshot misses the binds of other schedulers. ``batches`` groups Bindings; by
    default each is sent at once.
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
        """Return why a bind in the namespace must not begin, or "". First wait at most ``seconds`` for a take-over."""
        problem = self._leadership.may_bind(namespace)
        return await self._leadership.admitted(namespace, seconds) if problem else ""

    async def through(self, pod: Pod, node_name: str, send: Callable[[PreSendCheck], Awaitable[Sent]]) -> Sent:
        """Call ``send`` with a check that permits or forbids the Binding; return the result of ``send``.

        ``send`` must call the check immediately before it sends, and return once the outcome is known. It is called
        again after ``NotYet``. Raises ``NotBound`` if the Binding is forbidden, and the other exceptions of ``send``.
        After ``NotBound``, ``ApiError`` and ``ApiUnavailable`` the Binding has no effect; after other exceptions it
        might have been sent.
        """
        clearance = _clearance_for(pod, node_name)
        in_flight = 0

        def check() -> None:
            nonlocal in_flight
            answered()  # this check can be the second: the client sends again after a 401, with new credentials
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
        """Raise ``NotBound`` if the Binding must not be sent, and ``NotYet`` if something must be awaited first."""
        if clearance.over:
            raise NotBound(error(f'the bind of pod "{pod}" has ended'))
        if not self._follows():
            raise NotYet(self._until_following)
        problem = self._leadership.may_bind(pod.namespace)
        if problem:
            raise NotBound(error(problem))
        if not self._leadership.is_remembered(pod.spec.scheduler_name):
            raise NotYet(partial(self._until_remembered, pod.spec.scheduler_name, clearance.seconds_left))
        clearance.check()  # last, because a check that passes tells other binds that the Binding is sent

    async def _until_remembered(self, scheduler_name: str, seconds_left: Callable[[], float]) -> None:
        problem = await self._leadership.remember(scheduler_name, seconds_left())
        if problem:
            raise NotBound(error(problem))

    async def _until_following(self) -> None:
        for _ in range(round(BLIND_SECONDS / _LOOK_SECONDS)):
            if self._follows():
                return
            await asyncio.sleep(_LOOK_SECONDS)  # a short interval, because a watch usually reopens within milliseconds
        raise NotBound(error("pods or nodes are not being watched at the moment"))
