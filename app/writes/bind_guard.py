"""Every Binding leaves through one guard, whoever sends it: the decision is checked in the step that sends it.

Between a decision and the moment its write can leave, time passes: a connection is opened, credentials are read. The
picture moves on meanwhile. So the sender asks again when nothing is left to wait for, and what may leave then leaves.

What is asked is the check that the transaction has passed down, see ``passed_down``. It travels with the call, through
a plugin that knows nothing of it: ``Binder.bind`` takes a pod, a node and annotations, and that is a contract with the
plugins of others. What it says comes back as what ``bind`` returns or raises.
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
"""How long a Binding waits for a watch that is being opened again."""

_LOOK_SECONDS: Final = 0.01


class NotBound(Exception):
    """The pod is not bound. ``status`` says why: an Error, or a rejection where it is not what was decided on."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


class NotYet(Exception):
    """The check shall be asked again after ``until``, which raises ``NotBound`` if there is no use in that."""

    def __init__(self, until: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self.until = until


class Passed(Struct):
    """The check of a transaction, valid for that pod on that node until it is ``over``.

    ``had_turn``: it was held once, to leave with others; a Binding that is sent again after that leaves at once.
    ``unclear``: number of Bindings that have left and whose sender has not returned an outcome. A sender that is
    cancelled or fails never does, and then the pod must keep its place.
    """

    uid: str
    node: str
    check: PreSendCheck
    seconds_left: Callable[[], float]
    had_turn: bool = False
    over: bool = False
    unclear: int = 0


_PASSED: Final[ContextVar[Passed]] = ContextVar("passed")


@contextmanager
def passed_down(
    pod: Pod, node_name: str, check: PreSendCheck, seconds_left: Callable[[], float] = lambda: BLIND_SECONDS
) -> Iterator[Passed]:
    """Within it, and in tasks that are begun within it, a Binding of this pod to this node may leave.

    ``check`` is asked in the step in which it would leave. If it returns, it does. It raises ``NotBound`` where it must
    not leave, ``NotYet`` where something is to be awaited first; whatever else it raises comes out of the binder, as it
    is. ``seconds_left``: how long this bind may wait for anything.
    """
    passed = Passed(pod.uid, node_name, check, seconds_left)
    token = _PASSED.set(passed)
    try:
        yield passed
    finally:
        passed.over = True
        _PASSED.reset(token)


def _passed_to(pod: Pod, node_name: str) -> Passed:
    """Raises ``NotBound``."""
    passed = _PASSED.get(None)
    if passed is None or passed.uid != pod.uid:
        raise NotBound(error(f'no bind of pod "{pod}" is under way here'))
    if passed.node != node_name:
        raise NotBound(error(f'decided on node "{passed.node}", not on "{node_name}"'))
    return passed


class Leadership(Protocol):
    """Whether this process may bind, where it is one of several."""

    def may_bind(self, namespace: str) -> str:
        """Why it may not bind there now; empty if it may."""
        ...

    async def admitted(self, namespace: str, seconds: float) -> str:
        """The same, after a wait of at most so many seconds for it to become possible."""
        ...

    def is_remembered(self, scheduler_name: str) -> bool:
        """Whether the Lease is known to name that scheduler: only then may a Binding for its pods leave."""
        ...

    async def remember(self, scheduler_name: str, seconds: float) -> str:
        """Have the Lease name it, and wait at most so many seconds; returns why it does not."""
        ...


class _Alone:
    """Where there is only one process."""

    def may_bind(self, _namespace: str) -> str:
        return ""

    async def admitted(self, _namespace: str, _seconds: float) -> str:
        return ""

    def is_remembered(self, _scheduler_name: str) -> bool:
        return True

    async def remember(self, _scheduler_name: str, _seconds: float) -> str:
        return ""


_ALONE: Final = _Alone()


def _always() -> bool:
    """Where nothing is watched."""
    return True


class BindGuard:
    """One for all binders of a process, and the one place where bind asks who leads: at its beginning and its end.

    ``leadership`` is asked after the check. ``follows``: whether pods and nodes are being watched; while not, others
    bind and we do not see it. ``batches``: has Bindings leave together; without it each leaves by itself.
    """

    def __init__(
        self,
        leadership: Leadership = _ALONE,
        follows: Callable[[], bool] = _always,
        batches: BindBatches | None = None,
    ) -> None:
        self._leadership = leadership
        self._follows = follows
        self.batches = batches or BindBatches(0.0, monotonic)

    async def admitted(self, namespace: str, seconds: float) -> str:
        """Why no bind in the namespace is begun here, after a wait of at most so many seconds; empty if one may be."""
        problem = self._leadership.may_bind(namespace)
        return await self._leadership.admitted(namespace, seconds) if problem else ""

    async def through(self, pod: Pod, node_name: str, send: Callable[[PreSendCheck], Awaitable[Sent]]) -> Sent:
        """Call ``send``, which calls its argument immediately before it sends, and returns once the outcome is known.

        Raises ``NotBound`` and what ``send`` and the check raise. After an ``ApiError`` or ``ApiUnavailable`` the
        Binding has no effect; after anything else that was raised once it had left its outcome is unclear.
        """
        passed = _passed_to(pod, node_name)
        left = 0

        def ask() -> None:
            nonlocal left
            answered()  # a second attempt: the first was refused, since the credentials were too old
            self._ask(passed, pod)
            left = 1
            passed.unclear += left

        def answered() -> None:
            nonlocal left
            passed.unclear -= left
            left = 0

        if not passed.had_turn:
            passed.had_turn = True
            await self.batches.turn(passed.seconds_left())
        while True:
            try:
                sent = await send(ask)
            except NotYet as not_yet:
                until = not_yet.until
            except (ApiError, ApiUnavailable):
                answered()
                raise
            else:
                answered()
                return sent
            await until()

    def _ask(self, passed: Passed, pod: Pod) -> None:
        if passed.over:
            raise NotBound(error(f'the bind of pod "{pod}" is over'))
        if not self._follows():
            raise NotYet(self._until_following)
        passed.check()
        problem = self._leadership.may_bind(pod.namespace)
        if problem:
            raise NotBound(error(problem))
        if not self._leadership.is_remembered(pod.spec.scheduler_name):
            raise NotYet(partial(self._until_remembered, pod.spec.scheduler_name, passed.seconds_left))

    async def _until_remembered(self, scheduler_name: str, seconds_left: Callable[[], float]) -> None:
        problem = await self._leadership.remember(scheduler_name, seconds_left())
        if problem:
            raise NotBound(error(problem))

    async def _until_following(self) -> None:
        for _ in range(round(BLIND_SECONDS / _LOOK_SECONDS)):
            if self._follows():
                return
            await asyncio.sleep(_LOOK_SECONDS)  # a watch is opened again in a moment, or not for long
        raise NotBound(error("pods or nodes are not being watched at the moment"))
