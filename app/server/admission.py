"""Admission of calls: limit of calls in flight, order, and deadline.

A scheduler gives up after its ``httpTimeout``, so a later answer is useless. Each call therefore has a deadline, which
counts from the first byte of its request. The number of calls to filter, prioritize, preempt and cycle in flight is
limited. Further calls are rejected at once, because their answers would be late. The number of binds is not limited,
because kube-scheduler can have hundreds in flight.

Once its body is read, a call waits in the queue of its ``Lane``. One call of the queue is decided in each event-loop
iteration. Otherwise a burst of calls would delay the reading of new requests.

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
"""Maximum bytes of a prioritize request whose node names are read although the request is rejected or late. The answer
gives each of these nodes the same score.
"""

MOST_LATE_READS: Final = 16
"""Maximum number of bodies of rejected requests that are read at a time. The limit bounds their memory, because these
requests do not count as calls in flight.
"""

OVERLOADED: Final = "homeport: too many calls in flight"
OUT_OF_TIME: Final = "homeport: not decided within the time limit"

HostsOf = Callable[[bytes | memoryview], Awaitable[Sequence[str]]]
"""Function that returns the node names in the body of a request; empty if the body cannot be decoded."""


class Lane:
    """Limit and queue for a group of verbs. ``most``: maximum number of their calls in flight."""

    def __init__(self, most: float = inf) -> None:
        self._most = most
        self._in_flight = 0
        self.wait_turn: Final = LoopQueue().wait

    def enter(self) -> None:
        """Count one more call in flight; the caller must call ``leave`` at its end.

        Raises ``VerbFailure`` (``overloaded``) if the maximum is in flight.
        """
        if self._in_flight >= self._most:
            raise VerbFailure("overloaded", OVERLOADED)
        self._in_flight += 1

    def leave(self) -> None:
        self._in_flight -= 1


class Admission:
    """Limits for calls. ``seconds``: maximum time from a request's first byte to the answer.

    ``of_verb``: maximum times of verbs for which ``seconds`` does not hold. ``most``: maximum number of calls of
    filter, prioritize, preempt and cycle in flight. ``hosts_of`` reads the node names of a request that is rejected or
    late.
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
        """Return the maximum seconds from a request's first byte to the answer."""
        return self._of_verb.get(verb, self.seconds)

    def deadline(self, arrived: float | None, seconds: float) -> float:
        """Return the latest time for the answer: ``seconds`` after ``arrived``, or ``seconds`` from now if ``arrived``
        is ``None``.
        """
        return (self._clock() if arrived is None else arrived) + seconds

    def left(self, deadline: float) -> float:
        """Return the seconds until the deadline."""
        return deadline - self._clock()

    async def wait_turn(self, lane: Lane, deadline: float) -> None:
        """Wait until the call can decide: one call of a lane decides per event-loop iteration.

        Raises ``OutOfTime`` if the deadline has passed when the wait ends.
        """
        await lane.wait_turn()
        if self.left(deadline) <= 0:
            raise OutOfTime
