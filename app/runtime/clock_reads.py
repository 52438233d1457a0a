"""Detection of verdicts that depend on the time. If such a verdict is cached, it must have an expiry (``until``)."""

from __future__ import annotations

from app.framework.handle import Clock


class MissingExpiry(Exception):
    """Error: a plugin read a clock to compute an answer that would be cached without an expiry."""

    def __init__(self, point: str) -> None:
        if point == "Filter":
            super().__init__(
                "read a clock and returned a verdict without an expiry, which would be cached forever: set until= "
                "(math.inf if the verdict does not expire), or declare Reads.CLUSTER"
            )
        else:
            super().__init__(f"read a clock, but answers of {point} are cached: declare Reads.CLUSTER")


class ClockReads:
    """Counter of a plugin's clock reads."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def counting(self, clock: Clock) -> Clock:
        """Return a clock with the time of ``clock``. Each read of it increments ``count``."""

        def counted() -> float:
            self.count += 1
            return clock()

        return counted
