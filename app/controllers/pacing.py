"""Budgets of nominations: one for the process, one for each shape of pod; and nodes that are not worth one.

A nomination in vain costs kube-scheduler two cycles for the pod, and one for every refused pod of that or a lower
priority, which it wakes when it clears the field.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final

from msgspec import Struct

from app.framework.handle import Clock
from app.kube.core_v1 import Pod, PodSpec
from app.kube.memo import Newest

NOMINATION_SECONDS: Final = 0.1
"""Time between two nominations of the process: ten a second."""

LOOK_SECONDS: Final = 0.005
"""Time between two looks at all nodes, each of which takes some 2 ms for 5,000 of them."""

MISS_SECONDS: Final = 1.0
"""Pause of a shape after a first nomination in vain."""

MISS_FACTOR: Final = 4
MOST_MISS_SECONDS: Final = 300.0
"""Each further miss in a row makes the pause longer by the factor, up to this: kube-scheduler's own last resort."""

_MOST_SHAPES: Final = 4096
_MOST_EXCLUDED: Final = 1 << 16


class Shape(Struct, frozen=True):
    """What pods have in common that would be nominated alike, whoever owns them.

    ``only``: the node, if one alone passes Homeport's filters: the home of a machine, say.
    """

    namespace: str
    spec: PodSpec
    only: str


def shape_of(pod: Pod, names: Sequence[str]) -> Shape:
    """Return the shape of a pod for which the nodes of ``names`` pass Homeport's filters."""
    return Shape(pod.namespace, pod.spec, names[0] if len(names) == 1 else "")


class Attempts(Struct):
    """Back-off of one shape. Times are on the caller's clock."""

    misses: int = 0
    not_before: float = 0.0

    def missed(self, now: float) -> None:
        """Note a nomination in vain. Those of pods that miss at the same time count as one."""
        if now < self.not_before:
            return
        self.not_before = now + min(MISS_SECONDS * MISS_FACTOR**self.misses, MOST_MISS_SECONDS)
        self.misses += 1

    def hit(self) -> None:
        """Note that the scheduler took the node."""
        self.misses = 0
        self.not_before = 0.0


class Excluded:
    """Nodes that in-tree filters refused for pods of a spec, each until it or its pods change.

    ``stamp`` returns a value that changes with them.
    """

    def __init__(self, stamp: Callable[[str], Hashable]) -> None:
        self._stamp = stamp
        self._stamps = Newest[tuple[PodSpec, str], Hashable](_MOST_EXCLUDED)

    def add(self, spec: PodSpec, name: str, stamp: Hashable) -> None:
        """Exclude a node. ``stamp``: that of the node when the question was asked. The oldest are forgotten first."""
        self._stamps.put((spec, name), stamp)

    def has(self, spec: PodSpec, name: str) -> bool:
        """Return if the node is excluded, and forget it if it has changed."""
        found = self._stamps.get((spec, name))
        if found is not None and found != self._stamp(name):
            del self._stamps[spec, name]
            return False
        return found is not None


class Pacing:
    """Budgets of all shapes and of the process; ``clock`` is in seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shapes = Newest[Shape, Attempts](_MOST_SHAPES)
        self._next_nomination = 0.0
        self._next_look = 0.0

    def attempts(self, shape: Shape) -> Attempts:
        """Return the back-off of a shape. Of too many, those that were used least lately are forgotten."""
        found = self._shapes.get(shape) or Attempts()
        self._shapes.put(shape, found)
        return found

    def held(self, shape: Shape) -> float:
        """Return the seconds until pods of the shape may be nominated; 0 or less if they may be now."""
        return self.attempts(shape).not_before - self._clock()

    def until_nomination(self) -> float:
        """Take the next turn to nominate; return the seconds until it comes."""
        now = self._clock()
        turn = max(now, self._next_nomination)
        self._next_nomination = turn + NOMINATION_SECONDS
        return turn - now

    def until_look(self) -> float:
        """Take the next turn to look at all nodes; return the seconds until it comes."""
        now = self._clock()
        turn = max(now, self._next_look)
        self._next_look = turn + LOOK_SECONDS
        return turn - now
