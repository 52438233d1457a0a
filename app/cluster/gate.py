"""The gate through which every Binding leaves, whoever sends it: the last word is asked in the step that sends it.

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


class _NotCertain(Exception):
    """It may leave once other binds are settled."""


class _Blind(Exception):
    """It may leave once the picture follows the cluster again."""


class LastWord(Protocol):
    """Who decides about a bind."""

    def last_word(self, pod: Pod, node_name: str) -> Status | None:
        """Success: it leaves now. ``None``: not certain before other binds are settled. Else: it does not leave."""
        ...

    async def until_settled(self, pod: Pod) -> Status:
        """Wait until another bind is settled. Success: ask again."""
        ...


class _Open:
    """Lets everything out, for a picture on which nobody else decides."""

    def last_word(self, _pod: Pod, _node_name: str) -> Status | None:
        return SUCCESS

    async def until_settled(self, _pod: Pod) -> Status:
        return SUCCESS


BLIND_SECONDS: Final = 2.0
"""How long a Binding waits for a watch that is being opened again."""

_LOOK_SECONDS: Final = 0.01


def _always() -> bool:
    """Where nothing is watched."""
    return True


def _anybody(_namespace: str) -> str:
    """Where there is only one process."""
    return ""


class BindGate:
    """One for all binders of a process. Open until somebody ``keep``s it."""

    def __init__(self) -> None:
        self._keeper: LastWord = _Open()
        self._may_bind: Callable[[str], str] = _anybody
        self._follows: Callable[[], bool] = _always

    def keep(self, keeper: LastWord) -> None:
        self._keeper = keeper

    def fence(self, may_bind: Callable[[str], str]) -> None:
        """``may_bind(namespace)`` says why this process may not bind there now; it is asked after the keeper."""
        self._may_bind = may_bind

    def while_following(self, follows: Callable[[], bool]) -> None:
        """``follows``: whether pods and nodes are being watched. While not, others bind and we do not see it."""
        self._follows = follows

    async def through(self, pod: Pod, node_name: str, send: Callable[[Callable[[], None]], Awaitable[Sent]]) -> Sent:
        """``send`` asks what it is given immediately before it sends. Raises ``HeldBack`` and what ``send`` raises."""

        def ask() -> None:
            if not self._follows():
                raise _Blind
            word = self._keeper.last_word(pod, node_name)
            if word is None:
                raise _NotCertain
            if not word.is_success:
                raise HeldBack(word)
            problem = self._may_bind(pod.namespace)
            if problem:
                raise HeldBack(error(problem))

        while True:
            try:
                return await send(ask)
            except _Blind:
                await self._until_following()
            except _NotCertain:
                waited = await self._keeper.until_settled(pod)
                if not waited.is_success:
                    raise HeldBack(waited) from None

    async def _until_following(self) -> None:
        """Raises ``HeldBack``."""
        for _ in range(round(BLIND_SECONDS / _LOOK_SECONDS)):
            if self._follows():
                return
            await asyncio.sleep(_LOOK_SECONDS)  # a watch is opened again in a moment, or not for long
        raise HeldBack(error("pods or nodes are not being watched at the moment"))
