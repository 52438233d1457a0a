"""When the next attempt for a pod may be, and the next look at all nodes: what is in vain is not hammered."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from msgspec import Struct, field

from app.framework.interface import Clock
from app.kube.core_v1 import Pod

REPEAT_SECONDS: Final = 1.0
"""Between two repeats, whosoever: a rejected nomination costs the scheduler two cycles and wakes what it rejected."""

LOOK_SECONDS: Final = 0.005
"""Between two looks at all nodes, each of which takes some 2 ms for 5,000 of them."""

MOST_MISSES: Final = 6
"""Misses in a row after which a workload is left to the scheduler's own windows for ``REST_SECONDS``."""

REST_SECONDS: Final = 300.0
_FIRST_SECONDS: Final = 0.25
_NODE_SECONDS: Final = 10.0
_MOST_SECONDS: Final = 300.0
_MOST_REJECTED: Final = 64
_MOST_WORKLOADS: Final = 4096

_LONGEST_UID: Final = 64
"""A UID has 36 characters; whoever creates a pod writes any into its owner references."""


class _Rejection(Struct, frozen=True):
    until: float
    times: int


class Attempts(Struct):
    """What became of the nominations of one workload: its replicas ask for the same and are rejected for the same.

    A node that in-tree filters rejected is out for 10 s, twice as long each time they do so again. Between two
    attempts lies a back-off that doubles with every miss in a row, and after ``MOST_MISSES`` of them a rest. Times
    are on the caller's clock.
    """

    misses: int = 0
    not_before: float = 0.0
    rejected: dict[str, _Rejection] = field(default_factory=dict)

    def missed(self, node: str, now: float, *, in_tree: bool) -> None:
        """A pod did not get ``node``. ``in_tree``: because of a filter that is not ours, as far as can be told.

        What replicas miss at the same time is one miss.
        """
        if in_tree:
            self._reject(node, now)
        if now < self.not_before:
            return
        self.misses += 1
        pause = REST_SECONDS if self.misses >= MOST_MISSES else _FIRST_SECONDS * 2 ** (self.misses - 1)
        self.misses %= MOST_MISSES
        self.not_before = now + pause

    def _reject(self, node: str, now: float) -> None:
        before = self.rejected.pop(node, None)
        times = 1 if before is None else before.times + 1
        if len(self.rejected) >= _MOST_REJECTED:
            self.rejected.pop(next(iter(self.rejected)))
        self.rejected[node] = _Rejection(now + min(_NODE_SECONDS * 2 ** (times - 1), _MOST_SECONDS), times)

    def forget(self, now: float) -> None:
        """What was rejected long ago says nothing any more."""
        for name in [name for name, it in self.rejected.items() if it.until + _MOST_SECONDS <= now]:
            del self.rejected[name]

    def hit(self, node: str) -> None:
        """The scheduler took the node."""
        self.misses = 0
        self.not_before = 0.0
        self.rejected.pop(node, None)

    @property
    def repeats(self) -> bool:
        """Whether the next attempt follows one that was in vain."""
        return bool(self.misses or self.rejected)

    def rejected_at(self, now: float) -> dict[str, float]:
        """The nodes that were rejected lately, each with the time at which it may be tried again."""
        return {name: it.until for name, it in self.rejected.items() if it.until > now}


def workload_of(pod: Pod) -> str:
    """What shares its attempts: the pods of one controller, or a pod alone. A UID."""
    return pod.owner.uid if pod.owner is not None and len(pod.owner.uid) <= _LONGEST_UID else pod.uid


class Pacing:
    """Times of all workloads together; ``clock`` is in seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._workloads: OrderedDict[str, Attempts] = OrderedDict()
        self._next_repeat = 0.0
        self._next_look = 0.0

    def attempts(self, pod: Pod) -> Attempts:
        """What is known of the pod's workload. Of too many, those that were not asked for are forgotten first."""
        key = workload_of(pod)
        found = self._workloads.setdefault(key, Attempts())
        found.forget(self._clock())
        self._workloads.move_to_end(key)
        if len(self._workloads) > _MOST_WORKLOADS:
            self._workloads.popitem(last=False)
        return found

    def held(self, pod: Pod) -> float:
        """Seconds until the next attempt for the pod; 0 or less if it may be now."""
        attempts = self.attempts(pod)
        repeat = self._next_repeat if attempts.repeats else 0.0
        return max(attempts.not_before, repeat) - self._clock()

    def begin(self, pod: Pod) -> Attempts:
        """An attempt for the pod begins."""
        attempts = self.attempts(pod)
        if attempts.repeats:
            self._next_repeat = self._clock() + REPEAT_SECONDS
        return attempts

    def until_look(self) -> float:
        """Take the next turn to look at all nodes; returns the seconds until it comes."""
        now = self._clock()
        slot = max(now, self._next_look)
        self._next_look = slot + LOOK_SECONDS
        return slot - now
