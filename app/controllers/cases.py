"""State of one pod under the sampling guard, and the effect of its nominations."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, Literal

from msgspec import Struct

from app.controllers.pacing import Shape
from app.framework.background import next_delay
from app.framework.handle import Clock
from app.kube.core_v1 import Pod, PodSpec
from app.verbs.outcome import Outcome

_FIRST_LOOK_SECONDS: Final = 0.5
_LONGEST_LOOK_SECONDS: Final = 15.0
"""Maximum delay between two evaluations of a pod that no node fits; it doubles from ``_FIRST_LOOK_SECONDS``."""

_UNKNOWN_SECONDS: Final = 2.0
"""Seconds to wait for a pod that filter was called for but that the watch has not reported yet."""

_LATEST_UNSEEN_SECONDS: Final = 0.1
"""Seconds after the patch within which a filter call can still carry the pod without its nomination."""

QUIET_SECONDS: Final = 0.01
"""Delay between our last refusal and the patch.

The scheduler has then processed the answer, and usually also the retry that its own condition update causes 6 ms later.
"""

LONGEST_QUIET_SECONDS: Final = 0.1
"""Maximum of ``QUIET_SECONDS`` in total, for a pod that filter is called for again and again without a pause."""

_SHORTEST_SECONDS: Final = 0.001

Effect = Literal["hit", "refused", "overtaken", "lost", "unanswered"]
"""``hit``: in-tree filters and Homeport passed the node · ``refused``: in-tree filters rejected it.

``overtaken``: Homeport no longer passes the node, or the pod found another node, or is gone · ``lost``: the scheduler
cleared the nomination without trying it, because it was still processing an earlier answer · ``unanswered``: no effect
was seen in time.
"""


class Case:
    """Refused pod that the sampling guard handles. Times are on the guard's clock.

    ``node``: node of the last nomination · ``effect``: future of its effect, while it is pending · ``shown``: number of
    names in the request that refused the pod.

    ``pod``: the cached pod once ``seen``; the watch has until ``unknown_until`` to report it · ``whole``: the pod with
    all fields that in-tree filters read, once it was fetched · ``shape``: set by the first evaluation · ``counted``:
    the metric has counted the pod · ``called``: filter was called for the pod again · ``over``: the pod needs no guard
    any more.
    """

    def __init__(self, pod: Pod, shown: int, now: float) -> None:
        self.pod = pod
        self.shown = shown
        self.shape: Shape | None = None
        self.whole: Pod | None = None
        self.seen = False
        self.unknown_until = now + _UNKNOWN_SECONDS
        self.refused_at = now
        self.called = asyncio.Event()
        self.look_pause = 0.0
        self.counted = False
        self.lost = 0
        self.node = ""
        self.taken_at: float | None = None
        self.unseen = 0
        self.effect: asyncio.Future[Effect] | None = None
        self.over = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    @property
    def spec(self) -> PodSpec:
        """Pod spec under which nodes that in-tree filters refused are stored, see ``pacing.Excluded``."""
        return (self.whole or self.pod).spec

    def hear(self, pod: Pod, only: str, outcome: Outcome, now: float) -> None:
        """Note the answer to a filter call for the pod; ``only``: the node, if the request named one."""
        passed = outcome == "feasible"
        if only and only == self.node:
            self._settle("hit" if passed else "overtaken")
        elif self.node and pod.nominated_node_name == self.node:
            self._settle("refused")
        if passed:
            self._settle("overtaken")
            self.over.set()
            self.called.set()
        else:
            self.called.set()
            self.refused_at = now
            self._miss(pod, now)

    def next_look(self) -> float:
        """Return the seconds until the next evaluation. They double with each evaluation that found no node."""
        self.look_pause = next_delay(self.look_pause, _FIRST_LOOK_SECONDS, _LONGEST_LOOK_SECONDS)
        return self.look_pause

    def nominate(self, node: str) -> asyncio.Future[Effect]:
        """Record that a nomination is being sent; return the future of its effect."""
        self.node = node
        self.taken_at = None
        self.unseen = 0
        self.effect = asyncio.get_running_loop().create_future()
        return self.effect

    def _miss(self, pod: Pod, now: float) -> None:
        """Treat the nomination as lost at the second filter call without it: the first can have begun before the
        patch.
        """
        if self.taken_at is not None and not pod.nominated_node_name:
            self.unseen += 1
            if self.unseen > 1 or now > self.taken_at + _LATEST_UNSEEN_SECONDS:
                self._settle("lost")

    def _settle(self, effect: Effect) -> None:
        """Set the effect, unless one is set."""
        if self.effect is not None and not self.effect.done():
            self.effect.set_result(effect)

    async def pause(self, seconds: float) -> None:
        """Sleep for at most ``seconds``; return at once when the case is over."""
        if seconds <= 0.0:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self.over.wait(), max(seconds, _SHORTEST_SECONDS))

    async def quiet(self, clock: Clock) -> None:
        """Wait until the scheduler has probably processed our last refusal."""
        latest = clock() + LONGEST_QUIET_SECONDS
        while not self.over.is_set():
            remaining = min(self.refused_at + QUIET_SECONDS, latest) - clock()
            if remaining <= 0.0:
                return
            await self.pause(remaining)


class NominationStep(Struct, frozen=True):
    """Next step for a pod: nominate it to ``node``; without a node, evaluate it again later, or leave it alone.

    ``wait``: seconds until the next evaluation. ``wait_if_called``: seconds until the next evaluation if filter refuses
    the pod once more meanwhile, because the cluster may have changed. 0 means never.
    """

    node: str = ""
    wait: float = 0.0
    wait_if_called: float = 0.0


LEAVE: Final = NominationStep()
