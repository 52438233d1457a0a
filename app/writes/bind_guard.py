"""Every Binding leaves through one guard, whoever sends it: the decision is checked in the step that sends it.

Between a decision and the moment its write can leave, time passes: a connection is opened, credentials are read. The
picture moves on meanwhile. So the sender asks again when nothing is left to wait for, and what may leave then leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from app.framework.status import SUCCESS, Status, error
from app.kube.core_v1 import Pod

Sent = TypeVar("Sent")


class HeldBack(Exception):
    """The Binding did not leave. ``status`` says why."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


class _NotYet(Exception):
    """It may leave once ``until`` has returned, which raises ``HeldBack`` if that does not come to be."""

    def __init__(self, until: Callable[[Pod], Awaitable[None]]) -> None:
        super().__init__()
        self.until = until


class PreSendCheck(Protocol):
    """Who decides about a bind."""

    def pre_send_check(self, pod: Pod, node_name: str) -> Status | None:
        """Success: it leaves now. ``None``: not certain before other binds are settled. Else: it does not leave."""
        ...

    async def until_settled(self, pod: Pod) -> Status:
        """Wait until another bind is settled. Success: ask again."""
        ...

    def seconds_left(self, pod: Pod) -> float:
        """How long this bind may still wait for anything."""
        ...


class Leadership(Protocol):
    """Whether this process may bind, where it is one of several."""

    def may_bind(self, namespace: str) -> str:
        """Why it may not bind there now; empty if it may."""
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

    def is_remembered(self, _scheduler_name: str) -> bool:
        return True

    async def remember(self, _scheduler_name: str, _seconds: float) -> str:
        return ""


BLIND_SECONDS: Final = 2.0
"""How long a Binding waits for a watch that is being opened again."""

_LOOK_SECONDS: Final = 0.01


class _Open:
    """Lets everything out, for a picture on which nobody else decides."""

    def pre_send_check(self, _pod: Pod, _node_name: str) -> Status | None:
        return SUCCESS

    async def until_settled(self, _pod: Pod) -> Status:
        return SUCCESS

    def seconds_left(self, _pod: Pod) -> float:
        return BLIND_SECONDS


def _always() -> bool:
    """Where nothing is watched."""
    return True


class BindGuard:
    """One for all binders of a process. Open until somebody ``keep``s it."""

    def __init__(self) -> None:
        self._keeper: PreSendCheck = _Open()
        self._leadership: Leadership = _Alone()
        self._follows: Callable[[], bool] = _always

    def keep(self, keeper: PreSendCheck) -> None:
        self._keeper = keeper

    def lead_by(self, leadership: Leadership) -> None:
        """It is asked after the keeper."""
        self._leadership = leadership

    def while_following(self, follows: Callable[[], bool]) -> None:
        """``follows``: whether pods and nodes are being watched. While not, others bind and we do not see it."""
        self._follows = follows

    async def through(self, pod: Pod, node_name: str, send: Callable[[Callable[[], None]], Awaitable[Sent]]) -> Sent:
        """``send`` asks what it is given immediately before it sends. Raises ``HeldBack`` and what ``send`` raises."""
        while True:
            try:
                return await send(lambda: self._ask(pod, node_name))
            except _NotYet as not_yet:
                until = not_yet.until
            await until(pod)

    def _ask(self, pod: Pod, node_name: str) -> None:
        if not self._follows():
            raise _NotYet(self._until_following)
        word = self._keeper.pre_send_check(pod, node_name)
        if word is None:
            raise _NotYet(self._until_settled)
        if not word.is_success:
            raise HeldBack(word)
        problem = self._leadership.may_bind(pod.namespace)
        if problem:
            raise HeldBack(error(problem))
        if not self._leadership.is_remembered(pod.spec.scheduler_name):
            raise _NotYet(self._until_remembered)

    async def _until_settled(self, pod: Pod) -> None:
        waited = await self._keeper.until_settled(pod)
        if not waited.is_success:
            raise HeldBack(waited)

    async def _until_remembered(self, pod: Pod) -> None:
        seconds = self._keeper.seconds_left(pod)
        problem = await self._leadership.remember(pod.spec.scheduler_name, seconds)
        if problem:
            raise HeldBack(error(problem))

    async def _until_following(self, _pod: Pod) -> None:
        for _ in range(round(BLIND_SECONDS / _LOOK_SECONDS)):
            if self._follows():
                return
            await asyncio.sleep(_LOOK_SECONDS)  # a watch is opened again in a moment, or not for long
        raise HeldBack(error("pods or nodes are not being watched at the moment"))
