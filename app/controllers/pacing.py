"""Rate limits of nominations, for the process and for each group of equal pods (``Shape``), and nodes excluded from
nominations.

Nominations are limited because a failed one is expensive: it costs kube-scheduler two scheduling cycles for the pod.
When kube-scheduler clears the nomination, it also retries every refused pod of the same or a lower priority.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final

from msgspec import Struct

from app.framework.handle import Clock
from app.kube.core_v1 import Pod, PodSpec
from app.kube.memo import Newest

NOMINATION_SECONDS: Final = 0.1
"""Minimum seconds between two nominations by the process, so that it makes at most ten a second."""

LOOK_SECONDS: Final = 0.005
"""Seconds of a time slot to evaluate all nodes; also the pause of ``second_looks`` after an evaluation.

An evaluation of 5,000 nodes takes about 2 ms.
"""

MISS_SECONDS: Final = 1.0
"""Seconds for which no pod of a ``Shape`` is nominated after the first failed nomination of one."""

MISS_FACTOR: Final = 4
MOST_MISS_SECONDS: Final = 300.0
"""Maximum back-off in seconds. Each consecutive failure multiplies the back-off by ``MISS_FACTOR``.

The maximum is the five minutes after which kube-scheduler retries an unschedulable pod in any case.
"""

_MOST_SHAPES: Final = 4096
_MOST_EXCLUDED: Final = 1 << 16
"""Maximum numbers of stored shapes, and of pairs of a pod spec and an excluded node. The oldest are dropped first."""


class Shape(Struct, frozen=True):
    """Group of pods that share one back-off: they have equal namespaces and specs. Their owners can differ.

    ``only`` is the node if the pods have exactly one candidate node, for example their home; empty otherwise.
    """

    namespace: str
    spec: PodSpec
    only: str


def shape_of(pod: Pod, names: Sequence[str]) -> Shape:
    """Return the shape of a pod. ``names``: its candidate nodes, see ``candidate_nodes``."""
    return Shape(pod.namespace, pod.spec, names[0] if len(names) == 1 else "")


class Attempts(Struct):
    """Back-off of one shape: ``misses`` is the number of consecutive failed nominations.

    No pod of the shape is nominated before ``not_before``. Times are on the caller's clock.
    """

    misses: int = 0
    not_before: float = 0.0

    def missed(self, now: float) -> None:
        """Record a failed nomination and begin the back-off. A failure during the back-off is ignored."""
        if now < self.not_before:
            return
        self.not_before = now + min(MISS_SECONDS * MISS_FACTOR**self.misses, MOST_MISS_SECONDS)
        self.misses += 1

    def hit(self) -> None:
        """Record that the nominated node passed all filters, and end the back-off."""
        self.misses = 0
        self.not_before = 0.0


class Excluded:
    """Nodes to which pods with a given spec are not nominated, each until the node or its pods change. In-tree filters
    rejected the node, or a nomination to it was ``refused`` or ``unanswered``.

    ``stamp`` returns, for a node name, a value that changes whenever the node or one of its pods changes.
    """

    def __init__(self, stamp: Callable[[str], Hashable]) -> None:
        self._stamp = stamp
        self._stamps = Newest[tuple[PodSpec, str], Hashable](_MOST_EXCLUDED)

    def add(self, spec: PodSpec, name: str, stamp: Hashable) -> None:
        """Exclude a node for pods with this spec. ``stamp`` is the node's stamp before in-tree filters were called."""
        self._stamps.put((spec, name), stamp)

    def has(self, spec: PodSpec, name: str) -> bool:
        """Return true if the node is excluded and has not changed since; forget it if it has changed."""
        stamp = self._stamps.get((spec, name))
        if stamp is not None and stamp != self._stamp(name):
            del self._stamps[spec, name]
            return False
        return stamp is not None


class Pacing:
    """Rate limits of nominations and evaluations, and the back-off of each shape. ``clock`` returns seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shapes = Newest[Shape, Attempts](_MOST_SHAPES)
        self._next_nomination = 0.0
        self._next_look = 0.0

    def attempts(self, shape: Shape) -> Attempts:
        """Return the back-off of a shape. At most 4,096 shapes are stored; the least recently used are forgotten."""
        attempts = self._shapes.get(shape) or Attempts()
        self._shapes.put(shape, attempts)
        return attempts

    def held(self, shape: Shape) -> float:
        """Return the seconds until pods of the shape may be nominated; 0 or less if that is allowed now."""
        return self.attempts(shape).not_before - self._clock()

    def until_nomination(self) -> float:
        """Reserve the next time slot for a nomination; return the seconds until it begins."""
        now = self._clock()
        slot = max(now, self._next_nomination)
        self._next_nomination = slot + NOMINATION_SECONDS
        return slot - now

    def until_look(self) -> float:
        """Reserve the next time slot to evaluate all nodes; return the seconds until it begins."""
        now = self._clock()
        slot = max(now, self._next_look)
        self._next_look = slot + LOOK_SECONDS
        return slot - now
