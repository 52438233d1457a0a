"""Lets a decision wait a moment for a bind that is due.

kube-scheduler asks about the next pod while the bind of the last one is still on its way to us. Deciding without it
leads to a conflict at bind, which costs the pod seconds of back-off, and to scores that pile up pods. So: a pod that
was told of a node in the last moments and has no bind yet is *due*; a filter whose hard constraints depend on where it
went waits for it, briefly, and so does a prioritize whose scores do. A filter that some node passes alone, and not
beside the due pods that may go there, waits for these too (ADR 41).

A scheduler works on one pod after the other: when it asks about the next, the bind of the last has been sent or never
will be. So a bind stays due for longer than anybody waits for it; but one that was waited for in vain is given up, and
the next ones are waited for half as long, until binds come in time again (a pod whose volume is made first is bound
seconds later, and those behind it should not all stand still).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from app.framework.handle import Clock
from app.kube.core_v1 import Pod
from app.kube.memo import Newest

_MOST_DUE: Final = 64
_DUE_SECONDS: Final = 1.0
_LEAST_SHARE: Final = 1 / 16
_MOST_BESIDE: Final = 8
"""Due pods that a decision imagines on its nodes: a scheduler has fewer binds on their way to us at a time."""

Matters = Callable[[Pod, Pod], bool]
"""Whether where the second pod runs may matter to the decision about the first."""

DuePods = Sequence[tuple[Pod, Sequence[str]]]
"""Pods whose binds are due, each with the nodes that it may take."""


class ExpectedBinds:
    """``wait_seconds``: the longest one call waits; 0 switches waiting off. A bind is due for a second at most.

    ``is_placed``: whether the picture has the pod on a node, as where its bind was not asked of us.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        wait_seconds: float,
        observe: Callable[[float], None],
        is_placed: Callable[[Pod], bool] = lambda _: False,
    ) -> None:
        self._clock = clock
        self._wait_seconds = wait_seconds
        self._share = 1.0
        self._due = Newest[str, tuple[Pod, Sequence[str], float]](_MOST_DUE)
        self._changed = asyncio.Event()
        self._observe = observe
        self._is_placed = is_placed

    def expect(self, pod: Pod, nodes: Sequence[str] = ()) -> None:
        """Note that the bind of ``pod`` to one of ``nodes`` is due."""
        if self._wait_seconds and pod.uid:
            self._due.put(pod.uid, (pod, nodes, self._clock() + _DUE_SECONDS))

    def arrived(self, uid: str) -> None:
        """The pod is placed in the picture, or will not be: nobody needs to wait for it."""
        if self._due.pop(uid, None) is not None:
            self._changed.set()
            self._changed = asyncio.Event()

    def expects(self, matters: Matters, pod: Pod) -> bool:
        """Whether there is a bind to wait for."""
        return bool(self._due) and bool(self._those_that_matter(matters, pod))

    async def wait(self, matters: Matters, pod: Pod) -> DuePods:
        """Wait until no due bind that matters to ``pod`` is left, or the time is up; the decision then reads anew.

        Return the other pods that are still due, the latest ones.
        """
        if not self._due:
            return ()
        started = self._clock()
        deadline = started + self._wait_seconds * self._share
        awaited: list[str] = []
        while (due := self._those_that_matter(matters, pod)) and self._clock() < deadline:
            awaited = awaited or due
            try:
                await asyncio.wait_for(self._changed.wait(), deadline - self._clock())
            except TimeoutError:
                break
        if awaited:
            left = self._those_that_matter(matters, pod)
            self._learn([uid for uid in awaited if uid in left])
        self._observe(self._clock() - started)
        return [(other, nodes) for uid, (other, nodes, _) in self._due.items() if uid != pod.uid][-_MOST_BESIDE:]

    def _learn(self, in_vain: list[str]) -> None:
        """Wait half as long after a wait in vain, and twice as long (up to the whole) after one that was not."""
        self._share = max(self._share / 2, _LEAST_SHARE) if in_vain else min(self._share * 2, 1.0)
        for uid in in_vain:
            del self._due[uid]

    def _those_that_matter(self, matters: Matters, pod: Pod) -> list[str]:
        now = self._clock()
        for uid in [uid for uid, (other, _, until) in self._due.items() if until <= now or self._is_placed(other)]:
            del self._due[uid]
        return [uid for uid, (other, _, _) in self._due.items() if uid != pod.uid and matters(pod, other)]
