"""Delays a decision briefly for an expected bind.

kube-scheduler sends the next pod while the bind of the last one is still in flight. A decision without that bind can
conflict at bind, which costs the pod seconds of back-off, and its scores pile pods up on one node. A bind is *expected*
if the pod was answered nodes a moment ago and has no bind yet. A filter waits for expected binds if its hard
constraints depend on their nodes, and a prioritize if its scores do. A filter also waits if some node passes alone, but
not together with the pods of expected binds that can go there (ADR 41).

A scheduler handles one pod after the other: when it sends the next, the bind of the last has been sent or never will
be. So a bind is expected for longer than any call waits for it. A bind that does not arrive during a wait is no longer
expected, and the next waits are half as long, until binds arrive in time again. For example, a pod whose volume is
created first is bound seconds later, and the pods behind it must not all wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from app.framework.handle import Clock
from app.kube.core_v1 import Pod
from app.kube.memo import Newest

_MOST_EXPECTED: Final = 64
"""Maximum number of pods with an expected bind."""

_EXPECTED_SECONDS: Final = 1.0
"""Seconds for which a bind is expected."""

_LEAST_SHARE: Final = 1 / 16
"""Smallest fraction of ``wait_seconds`` that a call waits after binds that did not arrive."""

_MOST_BESIDE: Final = 8
"""Maximum number of pods with expected binds that a decision assumes on their nodes; a scheduler has fewer binds in
flight at a time.
"""

Matters = Callable[[Pod, Pod], bool]
"""Returns true if the node of the second pod can affect the decision about the first."""

ExpectedPods = Sequence[tuple[Pod, Sequence[str]]]
"""Pods with expected binds, each with the nodes that it can take."""


class ExpectedBinds:
    """Expected binds. ``wait_seconds``: maximum wait of one call; 0 disables waiting.

    A bind is expected for at most a second.

    ``is_placed`` returns true if the snapshot has the pod on a node, for example after a bind by another binder.
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
        self._expected = Newest[str, tuple[Pod, Sequence[str], float]](_MOST_EXPECTED)
        self._changed = asyncio.Event()
        self._observe = observe
        self._is_placed = is_placed

    def expect(self, pod: Pod, nodes: Sequence[str] = ()) -> None:
        """Expect a bind of ``pod`` to one of ``nodes``."""
        if self._wait_seconds and pod.uid:
            self._expected.put(pod.uid, (pod, nodes, self._clock() + _EXPECTED_SECONDS))

    def arrived(self, uid: str) -> None:
        """Stop expecting a bind: the pod is on a node in the snapshot, or will not be bound."""
        if self._expected.pop(uid, None) is not None:
            self._changed.set()
            self._changed = asyncio.Event()

    def expects(self, matters: Matters, pod: Pod) -> bool:
        """Return true if a call about ``pod`` would wait for a bind."""
        return bool(self._expected) and bool(self._relevant_uids(matters, pod))

    async def wait(self, matters: Matters, pod: Pod) -> ExpectedPods:
        """Wait until no expected bind that affects ``pod`` is left, or the time is up; then the decision must be
        computed again.

        Return the other pods with expected binds, the latest ones.
        """
        if not self._expected:
            return ()
        started = self._clock()
        deadline = started + self._wait_seconds * self._share
        awaited: list[str] = []
        while (relevant := self._relevant_uids(matters, pod)) and self._clock() < deadline:
            awaited = awaited or relevant
            try:
                await asyncio.wait_for(self._changed.wait(), deadline - self._clock())
            except TimeoutError:
                break
        if awaited:
            left = self._relevant_uids(matters, pod)
            self._learn([uid for uid in awaited if uid in left])
        self._observe(self._clock() - started)
        return [(other, nodes) for uid, (other, nodes, _) in self._expected.items() if uid != pod.uid][-_MOST_BESIDE:]

    def _learn(self, in_vain: list[str]) -> None:
        """Halve the wait after a bind that did not arrive; double it, up to the maximum, after binds that did."""
        self._share = max(self._share / 2, _LEAST_SHARE) if in_vain else min(self._share * 2, 1.0)
        for uid in in_vain:
            del self._expected[uid]

    def _relevant_uids(self, matters: Matters, pod: Pod) -> list[str]:
        now = self._clock()
        for uid in [uid for uid, (other, _, until) in self._expected.items() if until <= now or self._is_placed(other)]:
            del self._expected[uid]
        return [uid for uid, (other, _, _) in self._expected.items() if uid != pod.uid and matters(pod, other)]
