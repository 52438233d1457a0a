"""Detection of verdicts that depend on the time. If such a verdict is cached, it must have an expiry (``until``)."""

from __future__ import annotations

from app.framework.handle import Clock


class UndatedAnswer(Exception):
    """Error: a plugin read a clock to compute an answer that would be cached without an expiry."""

    def __init__(self, point: str) -> None:
        if point == "Filter":
            super().__init__(
                "read a clock and gave a verdict without an end, which would be cached for ever: give it until= "
                "(math.inf if it does not end), or declare Reads.CLUSTER"
            )
        else:
            super().__init__(f"read a clock, but answers of {point} are cached: declare Reads.CLUSTER")


class ClockReads:
    """Number of clock reads by a plugin."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def counting(self, clock: Clock) -> Clock:
        """Return a clock with the time of ``clock``. Each read of it increments ``count``."""

        def counted() -> float:
            self.count += 1
            return clock()

        return counted
