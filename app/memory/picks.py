"""Which node filter picked for a pod, where it picks.

An extender is never told what became of it. Asked about the pod again at once and on the very same picture, the same
node is the answer: the question was sent again. Asked later, or on another picture, the pick has come to nothing: the
scheduler could not reserve the node, or the bind failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import choice
from time import monotonic
from typing import Final, Protocol

from msgspec import Struct

from app.framework.handle import Clock
from app.kube.memo import Newest

_MOST: Final = 4096
"""Pods between a pick and whatever comes of it, and those that were bound since: nobody asks about these again."""


SAME_SECONDS: Final = 0.5
"""A scheduler tries a pod again after a second at the earliest."""


class Counter(Protocol):
    """What is told of each pick."""

    def inc(self) -> None: ...


class _Pick(Struct, frozen=True, gc=False):
    node: str
    generation: int
    until: float


class Picks:
    """``made`` counts picks, ``failed`` those that came to nothing. The newest are remembered, by the pod's UID."""

    def __init__(self, *, made: Counter, failed: Counter, clock: Clock = monotonic) -> None:
        self._clock = clock
        self._made = made
        self._failed = failed
        self._kept = Newest[str, _Pick](_MOST)

    def asked(self, uid: str, generation: int) -> None:
        """The pod is asked about on a picture of this ``generation``."""
        known = self._kept.get(uid)
        if known is not None and (known.generation != generation or self._clock() >= known.until):
            del self._kept[uid]
            self._failed.inc()

    def one_of(self, best: Sequence[str], uid: str, generation: int) -> str:
        """Any of the ``best`` nodes, at least one; the one of before if it is among them and nothing has changed."""
        self.asked(uid, generation)
        known = self._kept.get(uid)
        if known is not None and known.node in best:
            return known.node
        node = best[0] if len(best) == 1 else choice(best)  # noqa: S311  # ties, no secret
        self._made.inc()
        if uid:
            self._kept.put(uid, _Pick(node, generation, self._clock() + SAME_SECONDS))
        return node
