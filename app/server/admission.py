"""Admission of calls: limit of calls in flight, order, and deadline.

A scheduler gives up after its ``httpTimeout``; a later answer is useless. So each call has a deadline, counted from its
first byte. Calls that decide (filter, prioritize, preempt) are rejected at once beyond a limit, because they would be
late. Binds are never rejected, because kube-scheduler has hundreds in flight.

Calls that have been read are decided one per round of the event loop. Otherwise a whole burst would be decided in one
round, and requests that arrive meanwhile would not be seen.

Not here: the answer to a rejected call (``errors``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf
from time import monotonic
from typing import Final

from app.server.timely import OutOfTime
from app.verbs.outcome import Verb, VerbFailure
from app.verbs.stepwise import LoopQueue

READ_WHEN_LATE: Final = 4 << 20
"""Maximum bytes of a body that is read only for its names, when there is no time to decide."""

MOST_LATE_READS: Final = 16
"""Maximum number of such bodies at a time: their memory is not covered by the limit of calls in flight."""

OVERLOADED: Final = "homeport: too many calls in flight"
OUT_OF_TIME: Final = "homeport: not decided within the time limit"

HostsOf = Callable[[bytes | memoryview], Awaitable[Sequence[str]]]
"""Returns the node names in a request; empty if it cannot be read."""


class Lane:
    """Limit and queue of some verbs. ``most``: maximum number of calls in flight."""

    def __init__(self, most: float = inf) -> None:
        self._most = most
        self._in_flight = 0
        self.wait_turn: Final = LoopQueue().wait

    def enter(self) -> None:
        """Count a call, which must call ``leave`` at its end. Raises ``VerbFailure`` (``overloaded``)."""
        if self._in_flight >= self._most:
            raise VerbFailure("overloaded", OVERLOADED)
        self._in_flight += 1

    def leave(self) -> None:
        self._in_flight -= 1


class Admission:
    """Limits of calls. ``seconds``: maximum time from arrival to the answer; ``of_verb``: for verbs with another limit.

    ``most``: maximum number of deciding calls in flight. ``hosts_of``: reads the node names of a rejected request.
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
        """Return the seconds from arrival to the answer of a verb."""
        return self._of_verb.get(verb, self.seconds)

    def deadline(self, arrived: float | None, seconds: float) -> float:
        """Return the time on the clock at which the answer must be sent."""
        return (self._clock() if arrived is None else arrived) + seconds

    def left(self, deadline: float) -> float:
        """Return the seconds until the deadline."""
        return deadline - self._clock()

    async def wait_turn(self, lane: Lane, deadline: float) -> None:
        """Wait until the call can decide; one call decides per round of the event loop. Raises ``OutOfTime``."""
        await lane.wait_turn()
        if self.left(deadline) <= 0:
            raise OutOfTime
