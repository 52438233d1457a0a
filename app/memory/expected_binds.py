"""Delays a decision briefly for an expected bind.

kube-scheduler sends the next pod while the bind of the last one is still in flight. If the decision about the next pod
ignores that bind, the bind of the next pod can fail. The next pod then waits for seconds in back-off. Scores that
ignore the bind put too many pods on one node.

A bind is *expected* if Homeport returned nodes for the pod a moment ago and the pod is not bound yet. A filter request
waits for an expected bind if a hard constraint of its pod depends on the node of that bind. A prioritize request waits
if a score of its pod depends on that node. With ``pick``, a filter request waits for every expected bind. A filter
request also waits if a node passes now, but would not pass with the pods that can still be bound to it (ADR 41).

A bind is expected for at least as long as any request waits. A bind that does not arrive during a wait is no longer
expected. The next waits are then half as long, until binds arrive in time again. For example, kube-scheduler binds a
pod seconds later if its volume must be created first. The next pods must not all wait for that bind.
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
"""Maximum number of seconds for which a bind is expected."""

_LEAST_SHARE: Final = 1 / 16
"""Lower bound of the maximum wait, as a fraction of ``wait_seconds``. A wait in vain halves the maximum wait."""

_MOST_OTHERS: Final = 8
"""Maximum number of pods that ``wait`` returns. The decision then assumes these pods on their possible nodes.

A scheduler has fewer binds in flight at a time.
"""

Matters = Callable[[Pod, Pod], bool]
"""Function of two pods. Returns true if the node of the second pod can affect the decision about the first pod."""

ExpectedPods = Sequence[tuple[Pod, Sequence[str]]]
"""Pods with expected binds, each with the nodes to which it can be bound."""


class ExpectedBinds:
    """Expected binds, for which requests can wait. Each bind is expected for at most a second.

    ``wait_seconds``: maximum wait of one request; 0 disables waiting. ``observe``: called with the seconds of each
    ``wait`` that begins with an expected bind. ``is_placed``: returns true if the snapshot has the pod on a node, for
    example after a bind by another binder.
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
        """Expect a bind of ``pod`` to one of ``nodes``, unless waiting is disabled or the pod has no UID."""
        if self._wait_seconds and pod.uid:
            self._expected.put(pod.uid, (pod, nodes, self._clock() + _EXPECTED_SECONDS))

    def arrived(self, uid: str) -> None:
        """Stop expecting the bind of a pod, because the snapshot has it on a node, or it will not be bound."""
        if self._expected.pop(uid, None) is not None:
            self._changed.set()
            self._changed = asyncio.Event()

    def expects(self, matters: Matters, pod: Pod) -> bool:
        """Return True if ``wait`` would wait for an expected bind that affects ``pod``."""
        return bool(self._expected) and bool(self._relevant_uids(matters, pod))

    async def wait(self, matters: Matters, pod: Pod) -> ExpectedPods:
        """Wait until no expected bind that affects ``pod`` is left, or until the maximum wait has passed.

        The caller must compute its decision after this. Return all other pods that still have expected binds, also
        those that do not affect ``pod``; at most the latest ``_MOST_OTHERS``.
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
        return [(other, nodes) for uid, (other, nodes, _) in self._expected.items() if uid != pod.uid][-_MOST_OTHERS:]

    def _learn(self, in_vain: list[str]) -> None:
        """Adapt the maximum wait, and stop expecting the binds of the pods ``in_vain``.

        ``in_vain``: UIDs of the pods whose binds did not arrive in time. If there are any, the maximum wait is halved.
        Else it is doubled, up to ``wait_seconds``.
        """
        self._share = max(self._share / 2, _LEAST_SHARE) if in_vain else min(self._share * 2, 1.0)
        for uid in in_vain:
            del self._expected[uid]

    def _relevant_uids(self, matters: Matters, pod: Pod) -> list[str]:
        """Return the UIDs of other pods whose expected bind affects ``pod``. Drop binds that are no longer expected."""
        now = self._clock()
        for uid in [uid for uid, (other, _, until) in self._expected.items() if until <= now or self._is_placed(other)]:
            del self._expected[uid]
        return [uid for uid, (other, _, _) in self._expected.items() if uid != pod.uid and matters(pod, other)]
