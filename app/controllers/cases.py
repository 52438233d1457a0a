"""State of one pod that the sampling guard handles, and the effect of its nominations."""

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
"""Maximum seconds between two evaluations of a pod that has no possible node.

The first delay has ``_FIRST_LOOK_SECONDS``, and each further one is doubled.
"""

_UNKNOWN_SECONDS: Final = 2.0
"""Maximum number of seconds to wait for the watch to report a pod that filter was called for."""

_LATEST_UNSEEN_SECONDS: Final = 0.1
"""Seconds after a nomination was written within which one filter call without it does not prove that it is lost."""

QUIET_SECONDS: Final = 0.01
"""Seconds without a further refusal of a pod by Homeport before the guard evaluates the pod.

After this time the scheduler has processed the last refusal. Usually it has also retried the pod once more: it updates
the pod's condition itself, and this update triggers a retry 6 ms later.
"""

LONGEST_QUIET_SECONDS: Final = 0.1
"""Maximum seconds that ``Case.quiet`` waits, because each new refusal of the pod prolongs the wait."""

_SHORTEST_SECONDS: Final = 0.001
"""Minimum seconds of a pause that is longer than 0, so that it lets other tasks run."""


Effect = Literal["hit", "refused", "overtaken", "lost", "unanswered"]
"""Effect of a nomination.

- ``hit``: in-tree filters and Homeport passed the nominated node.
- ``refused``: in-tree filters rejected the node.
- ``overtaken``: Homeport no longer passes the node, another node passed, the pod no longer waits, or a scheduler
  nominated it or preempts for it.
- ``lost``: the scheduler cleared the nomination without trying it, because it was still processing an earlier answer.
- ``unanswered``: no effect was seen in time.
"""


class Case:
    """State of a refused pod that the sampling guard handles. Times are on the guard's clock.

    ``pod`` is the pod of the request until the cache has it (``seen``), then the cached pod. If the cache does not have
    it by ``unknown_until``, the case ends. ``whole`` is the pod with all fields that in-tree filters read, once it was
    fetched. ``shown`` is the number of node names in the refused request that began the case. ``shape`` is the
    ``pacing.Shape`` of the pod at its last evaluation; ``None`` before the first.

    ``node`` is the node of the last nomination, ``taken_at`` the time at which it was written (``None`` before), and
    ``effect`` the future of its effect. ``unseen`` counts the refused requests after ``taken_at`` that lack the
    nomination. ``lost`` counts the lost nominations that caused no back-off. ``counted`` is true once a metric has
    counted the pod. ``called`` is set at each filter call for the pod. ``over`` is set once the pod needs no nomination
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
        """Spec under which ``pacing.Excluded`` stores the pod's excluded nodes: that of ``whole`` if it was fetched."""
        return (self.whole or self.pod).spec

    def process_answer(self, pod: Pod, only: str, outcome: Outcome, now: float) -> None:
        """Process the outcome of a filter call for the pod. ``only``: name of the request's only node; else empty."""
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
        """Return the seconds until the next evaluation. The delay doubles with each call, up to a maximum."""
        self.look_pause = next_delay(self.look_pause, _FIRST_LOOK_SECONDS, _LONGEST_LOOK_SECONDS)
        return self.look_pause

    def nominate(self, node: str) -> asyncio.Future[Effect]:
        """Record that a nomination to the node is being sent; return the future of its effect."""
        self.node = node
        self.taken_at = None
        self.unseen = 0
        self.effect = asyncio.get_running_loop().create_future()
        return self.effect

    def _miss(self, pod: Pod, now: float) -> None:
        """Process a refusal of the pod. The written nomination might be lost if the pod in the request lacks it.

        A first such request soon after the patch proves nothing, because it might have been sent before the patch. The
        nomination is lost at a second one, or at a first one after ``_LATEST_UNSEEN_SECONDS``.
        """
        if self.taken_at is not None and not pod.nominated_node_name:
            self.unseen += 1
            if self.unseen > 1 or now > self.taken_at + _LATEST_UNSEEN_SECONDS:
                self._settle("lost")

    def _settle(self, effect: Effect) -> None:
        """Set the effect of the current nomination, unless it is already known."""
        if self.effect is not None and not self.effect.done():
            self.effect.set_result(effect)

    async def pause(self, seconds: float) -> None:
        """Sleep for ``seconds``, or until the case is over."""
        if seconds <= 0.0:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self.over.wait(), max(seconds, _SHORTEST_SECONDS))

    async def quiet(self, clock: Clock) -> None:
        """Wait until the scheduler has probably processed Homeport's last refusal of the pod."""
        latest = clock() + LONGEST_QUIET_SECONDS
        while not self.over.is_set():
            remaining = min(self.refused_at + QUIET_SECONDS, latest) - clock()
            if remaining <= 0.0:
                return
            await self.pause(remaining)


class NominationStep(Struct, frozen=True):
    """Next step for a pod: nominate it to ``node``, or, if ``node`` is empty, evaluate it again later or never.

    ``wait`` is the number of seconds until the next evaluation. ``wait_if_called`` is the number of seconds until an
    evaluation that takes place only if filter is called for the pod meanwhile. 0 means that there is no such
    evaluation.
    """

    node: str = ""
    wait: float = 0.0
    wait_if_called: float = 0.0


LEAVE: Final = NominationStep()
"""Step that ends the case: the pod is not evaluated again, unless filter refuses it later."""


def is_settled(pod: Pod) -> bool:
    """Return true if the pod does not wait for a node: it is assigned, terminating, finished or gated."""
    return bool(pod.node_name) or pod.terminating or pod.finished or pod.spec.gated
