"""A pod under the sampling guard: its state, and the effect of its nominations."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, Literal

from msgspec import Struct

from app.controllers.pacing import Shape
from app.framework.background import longer
from app.framework.handle import Clock
from app.kube.core_v1 import Pod, PodSpec
from app.verbs.outcome import Outcome

_FIRST_LOOK_SECONDS: Final = 0.5
_LONGEST_LOOK_SECONDS: Final = 15.0
_UNKNOWN_SECONDS: Final = 2.0
_LATEST_UNSEEN_SECONDS: Final = 0.1

QUIET_SECONDS: Final = 0.01
"""Delay between our last refusal and the patch: the scheduler has then dealt with the answer, and mostly with the retry
that its own condition update causes 6 ms later."""

LONGEST_QUIET_SECONDS: Final = 0.1
"""Maximum of that delay, for a pod that is asked about without a pause."""

_SHORTEST_SECONDS: Final = 0.001

Effect = Literal["hit", "refused", "overtaken", "lost", "unanswered"]
"""``hit``: in-tree filters passed the node, and so did we · ``refused``: in-tree filters did not · ``overtaken``: we no
longer passed it, or the pod found a node in another way, or is gone · ``lost``: the scheduler cleared it unseen, since
it was just dealing with an earlier answer · ``unanswered``: no effect was seen in time."""


class Case:
    """``node`` is where the pod was nominated to last; ``effect`` what came of it, while that is waited for.

    ``pod``: as the picture has it once it was ``seen`` there, which is waited for until ``unknown_until``. ``whole``:
    the pod with what in-tree filters read, once that is known. ``shape``: set with the first look. ``counted``: set
    once the metric has counted the pod.
    """

    __slots__ = (
        "asked",
        "counted",
        "effect",
        "look_pause",
        "lost",
        "node",
        "over",
        "pod",
        "refused_at",
        "seen",
        "shape",
        "shown",
        "taken_at",
        "task",
        "unknown_until",
        "unseen",
        "whole",
    )

    def __init__(self, pod: Pod, shown: int, now: float) -> None:
        self.pod = pod
        self.shown = shown
        self.shape: Shape | None = None
        self.whole: Pod | None = None
        self.seen = False
        self.unknown_until = now + _UNKNOWN_SECONDS
        self.refused_at = now
        self.asked = asyncio.Event()
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
        """The key of nodes that in-tree filters refused."""
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
            self.asked.set()
        else:
            self.asked.set()
            self.refused_at = now
            self._miss(pod, now)

    def next_look(self) -> float:
        """Return the seconds until the next look. They grow with each look that found no node."""
        self.look_pause = longer(self.look_pause, _FIRST_LOOK_SECONDS, _LONGEST_LOOK_SECONDS)
        return self.look_pause

    def nominate(self, node: str) -> asyncio.Future[Effect]:
        """Note that a nomination is on its way; return the future of its effect."""
        self.node = node
        self.taken_at = None
        self.unseen = 0
        self.effect = asyncio.get_running_loop().create_future()
        return self.effect

    def _miss(self, pod: Pod, now: float) -> None:
        """Take the nomination for lost at a second call without it: the first may have been under way already."""
        if self.taken_at is not None and not pod.nominated_node_name:
            self.unseen += 1
            if self.unseen > 1 or now > self.taken_at + _LATEST_UNSEEN_SECONDS:
                self._settle("lost")

    def _settle(self, effect: Effect) -> None:
        """Set the effect, unless one is set."""
        if self.effect is not None and not self.effect.done():
            self.effect.set_result(effect)

    async def pause(self, seconds: float) -> None:
        """Sleep, but not beyond the end of the case."""
        if seconds <= 0.0:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self.over.wait(), max(seconds, _SHORTEST_SECONDS))

    async def quiet(self, clock: Clock) -> None:
        """Wait until the scheduler has dealt with our last refusal."""
        latest = clock() + LONGEST_QUIET_SECONDS
        while not self.over.is_set():
            remaining = min(self.refused_at + QUIET_SECONDS, latest) - clock()
            if remaining <= 0.0:
                return
            await self.pause(remaining)


class NominationStep(Struct, frozen=True):
    """Next step for a pod: nominate it to ``node``, or look again, or (neither) leave it.

    ``wait``: seconds after which to look again. ``asked_wait``: seconds after which to do so if the pod is asked about
    and refused once more, since something may have changed. 0 stands for never.
    """

    node: str = ""
    wait: float = 0.0
    asked_wait: float = 0.0


LEAVE: Final = NominationStep()
