"""Soft homes that a pod is refused for once, because they were not among the nodes asked about.

kube-scheduler shows a sample. Whether the home was left out by lot, or an in-tree filter refused it, tells what becomes
of a nomination to it: the pod is refused everywhere, the sampling guard nominates it to its home, and either the home
is asked about next, or others are while the pod is nominated there. Where nothing comes of it, time ends the try.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from app.framework.interface import Clock

LONGEST_SECONDS: Final = 1.0
"""And at most one more until the pod is woken: a pod waits for its soft home no longer than 2 s."""

_MOST: Final = 4096
"""Pods that are remembered; the oldest are forgotten, and may then be tried once more."""


class _Try(Struct):
    """``ends_at``: on the clock that is never set."""

    home: str
    ends_at: float
    over: bool = False
    failed: bool = False


class Tries:
    """By the pod's UID. ``clock``: one that is never set, in seconds; ``wall_clock``: seconds since 1970."""

    def __init__(self, clock: Clock, wall_clock: Clock) -> None:
        self._now = clock
        self._wall_clock = wall_clock
        self._tries: dict[str, _Try] = {}

    def begin(self, uid: str, home: str) -> bool:
        """Whether the pod is to be refused: its first try of that home is not over."""
        known = self._tries.get(uid)
        if known is None or known.home != home:
            if len(self._tries) >= _MOST:
                del self._tries[next(iter(self._tries))]
            self._tries[uid] = _Try(home, self._now() + LONGEST_SECONDS)
            return True
        if self._now() >= known.ends_at:
            known.over = True
        return not known.over

    def end(self, uid: str, home: str) -> None:
        """The home did not take the pod: the rest may."""
        self.begin(uid, home)
        self._tries[uid].over = True

    def fail(self, uid: str, home: str) -> None:
        """The pod was to be bound there, and was not: it may go anywhere now."""
        self.end(uid, home)
        self._tries[uid].failed = True

    def has_failed(self, uid: str, home: str) -> bool:
        known = self._tries.get(uid)
        return known is not None and known.home == home and known.failed

    def is_over(self, uid: str, home: str) -> bool:
        known = self._tries.get(uid)
        return known is not None and known.home == home and (known.over or self._now() >= known.ends_at)

    def ends_at(self, uid: str, home: str) -> float | None:
        """Until when the pod is refused, in seconds since 1970; ``None`` if it is not."""
        known = self._tries.get(uid)
        if known is None or known.home != home or known.over:
            return None
        return self._wall_clock() + known.ends_at - self._now()
