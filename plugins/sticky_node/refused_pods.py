"""Pods that wait for a home which takes pods and which in-tree filters refuse: why is asked for, and people are told.

What is found out decides nothing: filter goes by what becomes of a nomination, and kube-scheduler by its own filters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import structlog
from msgspec import Struct

from app.framework.interface import NOT_KNOWN, Handle, Unreadable
from app.kube.core_v1 import Pod
from app.kube.names import shown
from plugins.sticky_node import events
from plugins.sticky_node.deciding import Decision
from plugins.sticky_node.home import readable
from plugins.sticky_node.owners import Owner, Owners
from plugins.sticky_node.table import Action, State

FIRST_SECONDS: Final = 3.0
"""From the first word of the scheduler's: by then a home that was merely not shown is led to."""

AGAIN_SECONDS: Final = 15.0
LONGEST_SECONDS: Final = 480.0
"""Until it is asked again. It doubles: what keeps a pod waiting may change, and most pods wait for one thing."""

MOST: Final = 1024
"""Pods that are asked about; there is no word on those that come later."""

MOST_OF_NAMESPACE: Final = 128
"""Of them: pods that never fit silence nobody else's."""

TICK_SECONDS: Final = 0.25
PACE_SECONDS: Final = 0.1
"""From one pod to the next."""

_MOST_REASONS: Final = 4
_LONGEST_REASON: Final = 160
"""Characters."""

_LOG: Final = structlog.get_logger(__name__)


class _Refused(Struct):
    """``not_before``: on the handle's clock. ``told``: the home and the reasons that people know."""

    pod: Pod
    not_before: float
    pause: float = AGAIN_SECONDS
    told: tuple[str, str] = ("", "")


class RefusedPods:
    """``newest``: a pod as it is now, ``None`` once it waits no more · ``decided``: what the table says for it."""

    def __init__(
        self,
        owners: Owners,
        handle: Handle,
        newest: Callable[[Pod], Pod | None],
        decided: Callable[[Owner, Pod], Decision],
    ) -> None:
        self._owners = owners
        self._newest = newest
        self._decided = decided
        self._why = handle.why
        self._events = handle.event_recorder
        self._clock = handle.clock
        self._sleep = handle.sleep
        self.begin()

    def begin(self) -> None:
        """This process decides from now on."""
        self._pods: dict[str, _Refused] = {}
        self._of_namespace: Counter[str] = Counter()

    def knows(self, pod: Pod) -> bool:
        """Whether it is asked about the pod."""
        return pod.uid in self._pods

    def note(self, pod: Pod) -> None:
        """The scheduler has found no node for a pod that is held."""
        if len(self._pods) < MOST and self._of_namespace[pod.namespace] < MOST_OF_NAMESPACE:
            self._put(_Refused(pod, self._clock() + FIRST_SECONDS))

    def _put(self, refused: _Refused) -> None:
        self._pods[refused.pod.uid] = refused
        self._of_namespace[refused.pod.namespace] += 1

    def forget(self, uid: str) -> None:
        """The pod waits no more."""
        refused = self._pods.pop(uid, None)
        if refused is not None:
            self._of_namespace[refused.pod.namespace] -= 1
            if not self._of_namespace[refused.pod.namespace]:
                del self._of_namespace[refused.pod.namespace]

    def said(self, pod: Pod, home: str) -> str:
        """The reasons that were told last of this home; empty if there were none."""
        refused = self._pods.get(pod.uid)
        return refused.told[1] if refused is not None and refused.told[0] == home else ""

    async def run(self) -> None:
        """Until it is cancelled: one at a time."""
        while True:
            now = self._clock()
            due = next((uid for uid, it in self._pods.items() if it.not_before <= now), None)
            if due is None:
                await self._sleep(TICK_SECONDS)
            else:
                await self._ask(due)
                await self._sleep(PACE_SECONDS)

    async def _ask(self, uid: str) -> None:
        refused = self._pods[uid]
        found = self._held(refused.pod)
        verdict = NOT_KNOWN if found is None else await self._why(refused.pod, found[2].home)
        now = self._held(refused.pod)
        self.forget(uid)
        if found is None or now is None:
            return
        pod, owner, decision = now
        if decision.home == found[2].home and verdict.reasons:
            self._tell(refused, owner, pod, decision, in_words(verdict.reasons))
        refused.pod = pod
        refused.not_before = self._clock() + refused.pause
        refused.pause = min(2 * refused.pause, LONGEST_SECONDS)
        self._put(refused)  # behind all others

    def _held(self, pod: Pod) -> tuple[Pod, Owner, Decision] | None:
        """The pod, if it still waits for a home that takes pods."""
        newest = self._newest(pod)
        if newest is None:
            return None
        try:
            owner = self._owners.of(newest)
            if not isinstance(owner, Owner):
                return None
            decision = self._decided(owner, newest)
        except Unreadable:
            return None
        return (newest, owner, decision) if is_held(decision) else None

    def _tell(self, refused: _Refused, owner: Owner, pod: Pod, decision: Decision, reasons: str) -> None:
        told = (decision.home, reasons)
        if told != refused.told:
            refused.told = told
            _LOG.info("home refuses", machine=str(owner), node=readable(decision.home), pod=str(pod), reasons=reasons)
            events.refused(self._events, owner, pod, decision, reasons)


def is_held(decision: Decision) -> bool:
    """Whether the pod may go to its home alone, which takes pods."""
    return decision.action is Action.HOME and decision.standing.state is State.USABLE


def in_words(reasons: Sequence[str]) -> str:
    """The first few, on one line. Names of resources among them are a tenant's."""
    said = [it if it.isprintable() and len(it) <= _LONGEST_REASON else shown(it) for it in reasons[:_MOST_REASONS]]
    more = len(reasons) - len(said)
    return ", ".join((*said, f"and {more} more") if more else said)
