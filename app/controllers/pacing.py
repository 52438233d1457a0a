"""Rate limits of nominations, for the process and for each pod shape; and nodes excluded from nominations.

A failed nomination costs kube-scheduler two cycles for the pod. When it clears the field it also retries every refused
pod of the same or a lower priority.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final

from msgspec import Struct

from app.framework.handle import Clock
from app.kube.core_v1 import Pod, PodSpec
from app.kube.memo import Newest

NOMINATION_SECONDS: Final = 0.1
"""Delay between two nominations of the process: ten a second."""

LOOK_SECONDS: Final = 0.005
"""Delay between two evaluations of all nodes. One evaluation takes about 2 ms for 5,000 nodes."""

MISS_SECONDS: Final = 1.0
"""Back-off of a shape after its first failed nomination."""

MISS_FACTOR: Final = 4
MOST_MISS_SECONDS: Final = 300.0
"""Maximum back-off. Each consecutive failure multiplies it by ``MISS_FACTOR``; kube-scheduler retries after five
minutes too.
"""

_MOST_SHAPES: Final = 4096
_MOST_EXCLUDED: Final = 1 << 16


class Shape(Struct, frozen=True):
    """Key of pods that are nominated alike, whatever their owner: equal namespace and spec.

    ``only``: the node if exactly one passes Homeport's filters, such as the home of a machine; empty otherwise.
    """

    namespace: str
    spec: PodSpec
    only: str


def shape_of(pod: Pod, names: Sequence[str]) -> Shape:
    """Return the shape of a pod for which the nodes of ``names`` pass Homeport's filters."""
    return Shape(pod.namespace, pod.spec, names[0] if len(names) == 1 else "")


class Attempts(Struct):
    """Back-off of one shape. ``misses``: consecutive failures. Times are on the caller's clock."""

    misses: int = 0
    not_before: float = 0.0

    def missed(self, now: float) -> None:
        """Record a failed nomination. Failures during the back-off count as one."""
        if now < self.not_before:
            return
        self.not_before = now + min(MISS_SECONDS * MISS_FACTOR**self.misses, MOST_MISS_SECONDS)
        self.misses += 1

    def hit(self) -> None:
        """Record that the scheduler used the node: ends the back-off."""
        self.misses = 0
        self.not_before = 0.0


class Excluded:
    """Nodes that in-tree filters refused for pods of a spec, each until the node or its pods change.

    ``stamp`` returns a value that changes whenever the node or its pods do.
    """

    def __init__(self, stamp: Callable[[str], Hashable]) -> None:
        self._stamp = stamp
        self._stamps = Newest[tuple[PodSpec, str], Hashable](_MOST_EXCLUDED)

    def add(self, spec: PodSpec, name: str, stamp: Hashable) -> None:
        """Exclude a node. ``stamp``: its stamp when in-tree filters were called. The oldest are forgotten first."""
        self._stamps.put((spec, name), stamp)

    def has(self, spec: PodSpec, name: str) -> bool:
        """Return true if the node is excluded; forget a node that has changed."""
        stamp = self._stamps.get((spec, name))
        if stamp is not None and stamp != self._stamp(name):
            del self._stamps[spec, name]
            return False
        return stamp is not None


class Pacing:
    """Rate limits of all shapes and of the process; ``clock`` returns seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shapes = Newest[Shape, Attempts](_MOST_SHAPES)
        self._next_nomination = 0.0
        self._next_look = 0.0

    def attempts(self, shape: Shape) -> Attempts:
        """Return the back-off of a shape. Least recently used shapes are forgotten beyond a maximum number."""
        attempts = self._shapes.get(shape) or Attempts()
        self._shapes.put(shape, attempts)
        return attempts

    def held(self, shape: Shape) -> float:
        """Return the seconds until pods of the shape can be nominated; 0 or less if they can be now."""
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
