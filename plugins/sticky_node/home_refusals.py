"""Reports why a usable home rejects the pod that waits for it. The reasons affect no decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from msgspec import Struct

from app.framework.background import next_delay
from app.framework.handle import NOT_KNOWN, Handle
from app.framework.objects import Unreadable
from app.kube.core_v1 import Pod
from plugins.sticky_node import events
from plugins.sticky_node.background import TICK_SECONDS
from plugins.sticky_node.events import reasons_text
from plugins.sticky_node.owners import Owner, Owners
from plugins.sticky_node.policy import Decision, is_held

FIRST_ASK_SECONDS: Final = 3.0
"""Delay after the first refusal: within it, the sampling guard nominates a home missing from the sample."""

ASK_AGAIN_SECONDS: Final = 15.0
"""Minimum time between two queries about a pod. The time doubles, because most pods wait for one reason."""
LONGEST_ASK_SECONDS: Final = 480.0
"""Maximum time between two queries about a pod."""

MOST: Final = 1024
"""Maximum number of pods queried. Pods beyond it get no Event."""
MOST_OF_NAMESPACE: Final = 128
"""Maximum number of pods queried in one namespace, so that one tenant cannot displace all others."""

PACE_SECONDS: Final = 0.1
"""Delay between two queries."""


class _RefusedPod(Struct):
    """Pod rejected by its usable home. ``not_before``: time of the next query on the monotonic clock.

    ``told``: home and reasons of the last Event.
    """

    pod: Pod
    not_before: float
    pause: float = ASK_AGAIN_SECONDS
    told: tuple[str, str] = ("", "")


class HomeRefusalReporter:
    """Reports why a usable home rejects a pod, by evaluating the in-tree filters for the home.

    ``newest``: returns the pod in its newest version, ``None`` once it no longer waits · ``decided``: returns the
    decision for a pod.
    """

    def __init__(
        self,
        owners: Owners,
        handle: Handle,
        newest: Callable[[Pod], Pod | None],
        decided: Callable[[Owner, Pod], Decision],
    ) -> None:
        self._owners = owners
        self._newest = newest
        self._decision = decided
        self._handle = handle
        self.begin()

    def begin(self) -> None:
        """Clear the memory when this process becomes the leader."""
        self._pods: dict[str, _RefusedPod] = {}
        self._of_namespace: Counter[str] = Counter()

    def knows(self, pod: Pod) -> bool:
        """Return whether the pod is queried."""
        return pod.uid in self._pods

    def note(self, pod: Pod) -> None:
        """Add a pod that is restricted to its home, and for which the scheduler found no node."""
        if len(self._pods) < MOST and self._of_namespace[pod.namespace] < MOST_OF_NAMESPACE:
            self._put(_RefusedPod(pod, self._handle.timing.clock() + FIRST_ASK_SECONDS))

    def _put(self, refused: _RefusedPod) -> None:
        self._pods[refused.pod.uid] = refused
        self._of_namespace[refused.pod.namespace] += 1

    def forget(self, uid: str) -> None:
        """Remove a pod that no longer waits."""
        refused = self._pods.pop(uid, None)
        if refused is not None:
            self._of_namespace[refused.pod.namespace] -= 1
            if not self._of_namespace[refused.pod.namespace]:
                del self._of_namespace[refused.pod.namespace]

    def said(self, pod: Pod, home: str) -> str:
        """Return the last reported reasons of this home; empty without any."""
        refused = self._pods.get(pod.uid)
        return refused.told[1] if refused is not None and refused.told[0] == home else ""

    async def run(self) -> None:
        """Query one pod at a time until cancelled."""
        while True:
            now = self._handle.timing.clock()
            due = next((uid for uid, it in self._pods.items() if it.not_before <= now), None)
            if due is None:
                await self._handle.timing.sleep(TICK_SECONDS)
            else:
                await self._query(due)
                await self._handle.timing.sleep(PACE_SECONDS)

    async def _query(self, uid: str) -> None:
        refused = self._pods[uid]
        before = self._held(refused.pod)
        verdict = NOT_KNOWN if before is None else await self._handle.profile.why(refused.pod, before[2].home)
        now = self._held(refused.pod)
        self.forget(uid)
        if before is None or now is None:
            return
        pod, owner, decision = now
        if decision.home == before[2].home and verdict.reasons:
            told, refused.told = refused.told, (decision.home, reasons_text(verdict.reasons))
            if told != refused.told:
                events.refused(self._handle.event_recorder, owner, pod, decision, refused.told[1])
        refused.pod = pod
        refused.not_before = self._handle.timing.clock() + refused.pause
        refused.pause = next_delay(refused.pause, ASK_AGAIN_SECONDS, LONGEST_ASK_SECONDS)
        self._put(refused)  # at the end of the queue

    def _held(self, pod: Pod) -> tuple[Pod, Owner, Decision] | None:
        """Return the pod with its owner and decision, if it still waits for a usable home."""
        newest = self._newest(pod)
        with suppress(Unreadable):
            if newest is not None and isinstance(owner := self._owners.of(newest), Owner):
                decision = self._decision(owner, newest)
                return (newest, owner, decision) if is_held(decision) else None
        return None
