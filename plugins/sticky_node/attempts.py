"""What one round of upkeep may write, and what is left alone for a while since it was refused, or written so often."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from msgspec import Struct

from app.framework.interface import Clock, NotServed, ObjectGone, Unreadable, WriteConflict
from app.kube.api_errors import ApiUnavailable, UnknownOutcome

_MOST_WRITES: Final = 25
"""Of one part of a round: what is adopted by the thousand takes turns with everything else that is written."""

_MOST_REFUSED: Final = 5
"""Of one part of a round: where nothing can be written little is tried at a time."""

_MOST_OF_ONE: Final = 5
"""Writes of one object within ``_WITHIN_SECONDS``: somebody who takes them back each time gets no more."""

_WITHIN_SECONDS: Final = 60.0

_SHORTEST_REST: Final = 60.0
_UNANSWERED_REST: Final = 2.0
"""The first, where nobody answered: until it is tried again a home may not be written."""

_LONGEST_REST: Final = 960.0

_LOG: Final = structlog.get_logger(__name__)


class Enough(Exception):  # no error: the rest has its turn in the next round
    """A part of a round has written as much as it may."""


class _Rest(Struct):
    """``seconds``: how long it was · ``until``: by the clock."""

    seconds: float
    until: float


class _Often(Struct):
    """Writes of one object ``since`` then, by the clock."""

    since: float
    writes: int = 0


class Attempts:
    """Each answers whether nothing is left to do for what was attempted, and raises ``Enough``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rests: dict[str, _Rest] = {}
        self._often: dict[str, _Often] = {}
        self._causes: dict[bool, str] = {}
        self._remembers_from = 0.0
        self._refused = 0
        self._of_part = 0
        self.writes = 0

    def begin(self) -> None:
        """A round."""
        self.writes = 0
        now = self._clock()
        self._rests = {key: it for key, it in self._rests.items() if it.until + _LONGEST_REST > now}
        self._often = {key: it for key, it in self._often.items() if it.since + _WITHIN_SECONDS > now}

    def begin_part(self) -> None:
        """One of its parts."""
        self._of_part = self._refused = 0

    def end(self) -> None:
        """It has looked at everything: where nothing is refused any more, a cause is told anew when it comes back."""
        if not self._rests:
            self._causes.clear()

    def may_remember(self) -> bool:
        """Whether it is worth looking: not for a while after the kind was found to be missing."""
        return self._clock() >= self._remembers_from

    async def of_owner(self, key: str, work: Callable[[], Awaitable[bool | None]]) -> bool:
        """One write on an object: refused, it is left alone for a minute, and longer each time it is refused again;
        where nobody answers, for two seconds at first.

        Each cause is told once. ``key``: its UID, and what of it is written if that is not all · ``work`` may answer
        ``False``: something is left.
        """
        return await self._try(key, work, of_memory=False)

    async def of_memory(self, key: str, work: Callable[[], Awaitable[None]]) -> bool:
        """One write of a Home: who may not write that records homes all the same. ``key``: namespace and name.

        Where the kind is not served none is tried for a minute.
        """
        if not self.may_remember():
            return False
        return await self._try(f"Home {key}", work, of_memory=True)

    async def _try(self, key: str, work: Callable[[], Awaitable[bool | None]], *, of_memory: bool) -> bool:
        now = self._clock()
        rest = self._rests.get(key)
        often = self._often.setdefault(key, _Often(now))
        if (rest is not None and rest.until > now) or often.writes == _MOST_OF_ONE:
            return False
        if self._of_part == _MOST_WRITES:
            raise Enough
        self._of_part += 1
        self.writes += 1
        often.writes += 1
        try:
            is_done = await work() is not False
        except (WriteConflict, Unreadable):
            return False
        except ObjectGone:
            is_done = True
        except OSError as cause:
            if of_memory and isinstance(cause, NotServed):
                self._remembers_from = self._clock() + _SHORTEST_REST
            self._failed(key, cause, of_memory=of_memory)
            return False
        self._rests.pop(key, None)
        return is_done

    def _failed(self, key: str, failure: OSError, *, of_memory: bool) -> None:
        cause = str(failure)
        if cause != self._causes.get(of_memory):
            self._causes[of_memory] = cause
            _LOG.warning("homes not remembered" if of_memory else "homes not kept up", cause=cause)
        before = self._rests.get(key)
        is_refused = not isinstance(failure.__cause__, (ApiUnavailable, UnknownOutcome))
        shortest = _SHORTEST_REST if is_refused else _UNANSWERED_REST
        seconds = shortest if before is None else min(max(2 * before.seconds, shortest), _LONGEST_REST)
        self._rests[key] = _Rest(seconds, self._clock() + seconds)
        self._refused += 1
        if self._refused == _MOST_REFUSED:
            raise Enough
