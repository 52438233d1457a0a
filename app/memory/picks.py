"""Nodes that filter picked for pods. Used only if ``pick`` is configured, so that filter answers with one node.

An extender does not learn the outcome of its answers. If the scheduler sends the pod again at once and the snapshot has
not changed, the request is a retry and gets the same node. If the scheduler sends the pod later, or the snapshot has
changed, the pick has failed: the scheduler could not reserve the node, or the bind failed.
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
"""Maximum number of remembered picks. They include picks of bound pods, because only newer picks displace them."""

SAME_SECONDS: Final = 0.5
"""Seconds after a pick within which a request about the pod is a retry, if the snapshot has not changed.

After a failure, a scheduler waits for at least a second (back-off).
"""


class PickCounter(Protocol):
    """Counter of picks, of all or of failed ones."""

    def inc(self) -> None: ...


class _Pick(Struct, frozen=True, gc=False):
    """Picked node. A request before ``until``, with the snapshot still at ``generation``, is a retry."""

    node: str
    generation: int
    until: float


class Picks:
    """Latest picks by pod UID.

    ``made``: counter of picks. ``failed``: counter of picks after which the scheduler sent the pod again; retries do
    not increase it.
    """

    def __init__(self, *, made: PickCounter, failed: PickCounter, clock: Clock = monotonic) -> None:
        self._clock = clock
        self._made = made
        self._failed = failed
        self._picks = Newest[str, _Pick](_MOST)

    def requested(self, uid: str, generation: int) -> None:
        """Count the pod's pick as failed, and forget it, if this filter request about the pod is not a retry.

        It is a retry within ``SAME_SECONDS`` of the pick, while ``Cluster.generation`` is the same. ``generation``: its
        current value.
        """
        known = self._picks.get(uid)
        if known is not None and (known.generation != generation or self._clock() >= known.until):
            del self._picks[uid]
            self._failed.inc()

    def pick(self, best: Sequence[str], uid: str, generation: int) -> str:
        """Return one of the ``best`` nodes: on a retry the last pick, if it is among them, else a random one.

        ``best`` must not be empty.
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
