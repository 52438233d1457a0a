"""Nodes that filter picked for pods, if ``pick`` is configured.

An extender does not learn the outcome of its answers. If the scheduler sends the pod again at once and the snapshot has
not changed, the request is a retry and gets the same node. Later, or with a changed snapshot, the pick has failed: the
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
"""Maximum number of pods remembered, including pods bound since, for which no request follows."""

SAME_SECONDS: Final = 0.5
"""Time in which a repeated request is a retry, because a scheduler backs off for at least a second."""


class PickCounter(Protocol):
    """Counter, increased for each pick."""

    def inc(self) -> None: ...


class _Pick(Struct, frozen=True, gc=False):
    node: str
    generation: int
    until: float


class Picks:
    """Latest picks by pod UID. ``made`` counts picks, ``failed`` picks that did not lead to a bind."""

    def __init__(self, *, made: PickCounter, failed: PickCounter, clock: Clock = monotonic) -> None:
        self._clock = clock
        self._made = made
        self._failed = failed
        self._picks = Newest[str, _Pick](_MOST)

    def requested(self, uid: str, generation: int) -> None:
        """Record a request about the pod with the snapshot of this ``generation``. An earlier pick counts as failed if
        the snapshot changed or the time for a retry is over.
        """
        known = self._picks.get(uid)
        if known is not None and (known.generation != generation or self._clock() >= known.until):
            del self._picks[uid]
            self._failed.inc()

    def pick(self, best: Sequence[str], uid: str, generation: int) -> str:
        """Return one of the ``best`` nodes, of which there is at least one: the last pick on a retry, else a random
        one.
        """
        self.requested(uid, generation)
        known = self._picks.get(uid)
        if known is not None and known.node in best:
            return known.node
        node = best[0] if len(best) == 1 else choice(best)  # noqa: S311  # breaks ties, needs no secure randomness
        self._made.inc()
        if uid:
            self._picks.put(uid, _Pick(node, generation, self._clock() + SAME_SECONDS))
        return node
