"""Who is let in, when it is its turn, and by when it must be answered.

A scheduler gives up after its ``httpTimeout``, and what is answered later was decided for nobody. So each call has a
deadline, counted from its first byte. Deciding calls beyond a limit are turned away at once: behind that many they
would only be late. Binds are never turned away, kube-scheduler has hundreds under way.

Calls that have been read take turns, one decision for each round of the event loop: otherwise a burst would be decided
in a single round, and what arrives meanwhile would not even be seen.

Not here: what is told to whom is turned away (``errors``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf
from time import monotonic
from typing import Final

from app.server.timely import OutOfTime
from app.verbs.outcome import Verb, VerbFailure
from app.verbs.slices import Turns

READ_WHEN_LATE: Final = 4 << 20
"""Bytes of a body that are still worth reading for the names in it, where there is no time to decide."""

MOST_LATE_READS: Final = 16
"""Such bodies at a time: each is memory that no limit on calls under way counts."""

OVERLOADED: Final = "homeport: too many calls are under way"
OUT_OF_TIME: Final = "homeport: not decided within the time limit"

HostsOf = Callable[[bytes | memoryview], Awaitable[Sequence[str]]]
"""The names that a request asks about; none where it cannot be read."""


class Lane:
    """The calls of some verbs. ``most``: how many may be under way."""

    def __init__(self, most: float = inf) -> None:
        self._most = most
        self._under_way = 0
        self.turn: Final = Turns().turn

    def enter(self) -> None:
        """Raises ``VerbFailure`` (``overloaded``). Who has entered leaves."""
        if self._under_way >= self._most:
            raise VerbFailure("overloaded", OVERLOADED)
        self._under_way += 1

    def leave(self) -> None:
        self._under_way -= 1


class Admission:
    """``seconds`` from arrival to the answer, ``of_verb``: where a verb has a limit of its own.

    ``most``: deciding calls under way at once.
    """

    def __init__(
        self,
        seconds: float,
        most: int,
        hosts_of: HostsOf,
        clock: Callable[[], float] = monotonic,
        *,
        of_verb: Mapping[Verb, float] = {},
    ) -> None:
        self.seconds: Final = seconds
        self._of_verb = of_verb
        self._clock = clock
        self.hosts_of = hosts_of
        self.deciding = Lane(most)
        self.binding = Lane()
        self.late_reads = asyncio.Semaphore(MOST_LATE_READS)

    def time_limit(self, verb: Verb) -> float:
        """Seconds from arrival to the answer of a verb."""
        return self._of_verb.get(verb, self.seconds)

    def deadline(self, arrived: float | None, seconds: float) -> float:
        """When the answer must leave, on the clock, to what may take so long."""
        return (self._clock() if arrived is None else arrived) + seconds

    def left(self, deadline: float) -> float:
        """Seconds until then."""
        return deadline - self._clock()

    async def turn(self, lane: Lane, deadline: float) -> None:
        """Wait for a turn to decide. Raises ``OutOfTime`` where it comes too late."""
        await lane.turn()
        if self.left(deadline) <= 0:
            raise OutOfTime
