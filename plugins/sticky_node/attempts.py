"""What one round of upkeep may write, and what is left alone for a while since it was refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from app.framework.interface import Clock, ObjectGone, WriteConflict

_MOST_WRITES: Final = 50
"""Of one round: machines that are adopted by the thousand take turns with everything else that is written."""

_MOST_REFUSED: Final = 5
"""Of one round: after so many it is not one object that cannot be written, and all wait."""

_REFUSED_SECONDS: Final = 60.0

_ALL: Final = ""
_LOG: Final = structlog.get_logger(__name__)


class Enough(Exception):  # no error: the rest has its turn in the next round
    """A round has written as much as it may."""


class Attempts:
    """Each answers whether nothing is left to do for what was attempted, and raises ``Enough``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._not_before: dict[str, float] = {}
        self._cause = ""
        self._remembers_from = 0.0
        self._not_remembered = ""
        self._refused = 0
        self.writes = 0

    def begin(self) -> bool:
        """A round; whether it may write at all."""
        self.writes = self._refused = 0
        now = self._clock()
        self._not_before = {uid: until for uid, until in self._not_before.items() if until > now}
        return _ALL not in self._not_before

    def end(self) -> None:
        """It has looked at everything: where nothing is refused any more, the cause is told anew when it comes back."""
        if not self._not_before:
            self._cause = ""

    async def of_owner(self, uid: str, work: Callable[[], Awaitable[bool | None]]) -> bool:
        """One write on the object of this UID. Refused, it is told once for each cause, and left alone for a minute.

        ``work`` may answer ``False``: something is left.
        """
        if uid in self._not_before:
            return False
        self._count()
        try:
            return await work() is not False
        except WriteConflict:
            return False
        except ObjectGone:
            return True
        except OSError as cause:
            self._failed(uid, str(cause))
            return False

    async def of_memory(self, work: Callable[[], Awaitable[None]]) -> bool:
        """One write about what is remembered: who may not write that records homes all the same."""
        if self._clock() < self._remembers_from:
            return True
        self._count()
        try:
            await work()
        except WriteConflict:
            return False
        except ObjectGone:
            return True
        except OSError as cause:
            self._remembers_from = self._clock() + _REFUSED_SECONDS
            if str(cause) != self._not_remembered:
                self._not_remembered = str(cause)
                _LOG.warning("homes not remembered", cause=self._not_remembered)
            return True
        self._not_remembered = ""
        return True

    def _count(self) -> None:
        if self.writes == _MOST_WRITES:
            raise Enough
        self.writes += 1

    def _failed(self, uid: str, cause: str) -> None:
        if cause != self._cause:
            self._cause = cause
            _LOG.warning("homes not kept up", cause=cause)
        self._refused += 1
        self._not_before[uid if self._refused < _MOST_REFUSED else _ALL] = self._clock() + _REFUSED_SECONDS
        if self._refused == _MOST_REFUSED:
            raise Enough
