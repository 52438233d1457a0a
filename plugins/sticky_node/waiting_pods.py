"""Pods that wait for a home: woken once filter may answer otherwise, and asked about where their home refuses them.

kube-scheduler wakes no pod because time has passed or a home was moved. The reasons that are found out decide nothing:
filter uses the result of a nomination, and kube-scheduler its own filters.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection, Hashable
from contextlib import suppress
from math import inf
from typing import Any, Final

from msgspec import Struct

from app.framework.background import longer
from app.framework.handle import NOT_KNOWN, Handle
from app.framework.objects import Unreadable
from app.homes.protocol import State
from app.kube.core_v1 import Pod
from app.kube.kinds import Kind
from app.kube.memo import Newest
from plugins.sticky_node import events
from plugins.sticky_node.background import Steps
from plugins.sticky_node.events import reasons_text
from plugins.sticky_node.grace import GraceClocks
from plugins.sticky_node.owners import Owner, Owners
from plugins.sticky_node.policy import Action, Decision, is_held

FIRST_ASK_SECONDS: Final = 3.0
"""Delay after the first refusal: within it, the sampling guard nominates a home that was not in the sample."""

ASK_AGAIN_SECONDS: Final = 15.0
LONGEST_ASK_SECONDS: Final = 480.0
"""Shortest and longest time between two questions about a pod. It doubles: most pods wait for one reason."""

MOST: Final = 1024
MOST_OF_NAMESPACE: Final = 128
"""Maximum number of pods that are asked about, in all and of one namespace. Later ones get no Event."""

TICK_SECONDS: Final = 0.25
PACE_SECONDS: Final = 0.1
"""Delay between two questions."""


class _RefusedPod(Struct):
    """``not_before``: clock time of the next question. ``told``: home and reasons of the last Event."""

    pod: Pod
    not_before: float
    pause: float = ASK_AGAIN_SECONDS
    told: tuple[str, str] = ("", "")


class HomeRefusalReporter:
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
        self._decision = decided
        self._handle = handle
        self.begin()

    def begin(self) -> None:
        """This process decides from now on."""
        self._pods: dict[str, _RefusedPod] = {}
        self._of_namespace: Counter[str] = Counter()

    def knows(self, pod: Pod) -> bool:
        """Return whether it is asked about the pod."""
        return pod.uid in self._pods

    def note(self, pod: Pod) -> None:
        """The scheduler has found no node for a pod that is held."""
        if len(self._pods) < MOST and self._of_namespace[pod.namespace] < MOST_OF_NAMESPACE:
            self._put(_RefusedPod(pod, self._handle.timing.clock() + FIRST_ASK_SECONDS))

    def _put(self, refused: _RefusedPod) -> None:
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
        refused.pause = longer(refused.pause, ASK_AGAIN_SECONDS, LONGEST_ASK_SECONDS)
        self._put(refused)  # behind all others

    def _held(self, pod: Pod) -> tuple[Pod, Owner, Decision] | None:
        """The pod, if it still waits for a home that takes pods."""
        newest = self._newest(pod)
        with suppress(Unreadable):
            if newest is not None and isinstance(owner := self._owners.of(newest), Owner):
                decision = self._decision(owner, newest)
                return (newest, owner, decision) if is_held(decision) else None
        return None


LOOK_SECONDS: Final = 1.0
NEW_LOOK_SECONDS: Final = 0.5
"""Shortest time between two comparisons of all waiting pods, and of those that were refused just now."""

NEW_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 1.0
"""Time after its first, and after a later refusal, in which a pod counts as new: the scheduler writes its condition."""

SEARCH_SECONDS: Final = 30.0
"""Delay between two searches for waiting pods that filter was never asked about, and precision of their gates' end."""

AT_ONCE: Final = 10
"""Pods woken in one tick after a take-over: fewer than the tick can wake, so that other reasons need not queue."""

MOST_KNOWN: Final = 1 << 14
"""Maximum number of pods that are compared; the oldest are dropped first, and the next search finds them again."""


class _WaitingPod(Struct):
    """A pod that filter was asked about. ``verdict``: basis of filter's first answer, or of the last wake-up.

    ``answered``: basis of the last answer since the comparison. ``new_until``: clock time. ``told``: the last report.
    """

    pod: Pod
    verdict: Hashable
    answered: Hashable
    new_until: float
    ends_at: float | None = None
    told: Hashable = None


class PodWaker:
    """Keeps what filter went by for each pod that waits, and compares. ``refused``: those that their home refuses."""

    def __init__(
        self,
        owners: Owners,
        handle: Handle,
        verdict: Callable[[Pod], Hashable],
        ends_at: Callable[[Pod], float | None],
        decided: Callable[[Owner, Pod], Decision],
        kinds: Collection[Kind[Any]],
        clocks: GraceClocks,
    ) -> None:
        self.refused = HomeRefusalReporter(owners, handle, self.waiting, decided)
        self._owners = owners
        self._clocks = clocks
        self._verdict = verdict
        self._ends_at = ends_at
        self._decision = decided
        self._kinds: Final = tuple(kinds)
        self._handle = handle
        self._forget_all()

    def _forget_all(self) -> None:
        self.refused.begin()
        self._waits = Newest[str, _WaitingPod](MOST_KNOWN)
        self._new: dict[str, _WaitingPod] = {}
        self._backlog: deque[Pod] = deque()
        self._stamp: object = None
        self._deadline = inf
        self._looked_at = self._looked_at_new = self._searched_at = -inf

    def answered(self, pod: Pod, verdict: Hashable) -> None:
        """Whoever asks for an explanation asks filter too: a later answer takes no pod's turn to be woken.

        It may begin what ends by time alone: also a pod that is known is looked at shortly after.
        """
        now, wait = self._handle.timing.clock(), self._waits.get(pod.uid)
        if wait is not None:
            wait.answered = verdict
            wait.new_until = max(wait.new_until, now + AGAIN_SECONDS)
            self._new[pod.uid] = wait
            return
        wait = self._new[pod.uid] = _WaitingPod(pod, verdict, verdict, now + NEW_SECONDS)
        if (forgotten := self._waits.put(pod.uid, wait)) is not None:
            self._new.pop(forgotten[0], None)

    async def run(self) -> None:
        """Wake pods until cancelled. ``refused`` runs beside."""
        steps = Steps(self._handle.timing.sleep)
        while True:
            await self.look(steps)
            await self._handle.timing.sleep(TICK_SECONDS)

    async def begin(self) -> None:
        """This process decides from now on: every pod is woken once, those first that nothing keeps waiting."""
        self._forget_all()
        steps = Steps(self._handle.timing.sleep)
        self._stamp, self._searched_at = self._stamp_now(), self._handle.timing.clock()
        async for pod in self._waiting(set(), steps):
            with suppress(Unreadable):
                if isinstance(owner := self._owners.of(pod), Owner):
                    decision = self._decision(owner, pod)
                    is_held = decision.action in (Action.WAIT, Action.HOME)
                    (self._backlog.append if is_held else self._backlog.appendleft)(pod)
                    self._add_if_held(pod, decision)

    async def look(self, steps: Steps) -> None:
        """Wake those whose verdict has changed since."""
        now = self._handle.timing.clock()
        if self._backlog:
            self._handle.activate([self._backlog.popleft() for _ in range(min(AT_ONCE, len(self._backlog)))])
        if self._new and now - self._looked_at_new >= NEW_LOOK_SECONDS:
            self._looked_at_new = now
            await self._look_at(list(self._new.values()), steps)
        if now - self._searched_at >= SEARCH_SECONDS:
            self._searched_at = now
            await self._search(steps)
        if now - self._looked_at < LOOK_SECONDS:
            return
        stamp = self._stamp_now()
        if stamp != self._stamp or self._handle.timing.wall_clock() >= self._deadline:
            self._stamp, self._looked_at = stamp, now
            self._deadline = inf
            await self._look_at(list(self._waits.values()), steps)

    def _stamp_now(self) -> object:
        """What verdicts rest on, beside time."""
        return (self._handle.nodes.generation, *map(self._handle.objects.version, self._kinds))

    async def _waiting(self, pending: set[str], steps: Steps) -> AsyncIterator[Pod]:
        """Those of this profile, each once. Pods may come and go while it is read.

        ``pending`` gets the UIDs of all that have no node; those that have gates are noted.
        """
        for pod in self._owners.pods():
            await steps()
            if pod.node_name or pod.uid in pending:
                continue
            pending.add(pod.uid)
            if pod.spec.gated:
                self._clocks.gated(pod)
            if _waits(pod) and self._handle.profile.serves(pod.spec.scheduler_name):
                yield pod

    async def _search(self, steps: Steps) -> None:
        """A pod that in-tree filters refuse everywhere never comes to ours. Nor does one wait for us."""
        pending: set[str] = set()
        async for pod in self._waiting(pending, steps):
            if pod.uid not in self._waits:
                with suppress(Unreadable):
                    if isinstance(owner := self._owners.of(pod), Owner):
                        self._add_if_held(pod, self._decision(owner, pod))
        self._clocks.ungated(pending)
        if self._owners.follows_claims:  # who shares a claim moves no version
            self._stamp = None

    def _add_if_held(self, pod: Pod, decision: Decision) -> None:
        """A pod that nothing holds is left alone: it can only be held later."""
        if decision.action is not Action.ALL:
            self.answered(pod, self._verdict(pod))

    async def _look_at(self, waits: Collection[_WaitingPod], steps: Steps) -> None:
        for wait in waits:
            with suppress(Unreadable):
                self._look_at_one(wait)
            await steps()

    def _look_at_one(self, wait: _WaitingPod) -> None:
        pod = self.waiting(wait.pod)
        if pod is None:
            self._waits.pop(wait.pod.uid, None)
            self._new.pop(wait.pod.uid, None)
            self.refused.forget(wait.pod.uid)
            return
        now, verdict = self._handle.timing.wall_clock(), self._verdict(pod)
        is_news = not verdict == wait.verdict == wait.answered
        wait.pod, wait.verdict, wait.answered, wait.ends_at = pod, verdict, verdict, self._ends_at(pod)
        if wait.ends_at is not None and wait.ends_at > now:
            self._deadline = min(self._deadline, wait.ends_at)
        if self._handle.timing.clock() >= wait.new_until:
            self._new.pop(pod.uid, None)
        is_untold = is_news or wait.told is None
        is_refused = bool(pod.unschedulable_since) and not self.refused.knows(pod)
        owner = self._owners.of(pod) if is_untold or is_refused else None
        if is_news and owner is None:  # its claim keeps no homes any more, or is shared now
            self._handle.activate((pod,))
        elif isinstance(owner, Owner):
            decision = self._decision(owner, pod)
            if is_news and decision.action is not Action.WAIT:
                self._handle.activate((pod,))
            if is_untold:
                self._report(wait, owner, decision)
            if is_refused and is_held(decision):
                self.refused.note(pod)

    def waiting(self, pod: Pod) -> Pod | None:
        """The pod as it is now; ``None`` if it waits no more."""
        newest = self._owners.newest_pod(pod)
        return newest if newest is not None and _waits(newest) else None

    def _report(self, wait: _WaitingPod, owner: Owner, decision: Decision) -> None:
        news = (decision.home, decision.home_state.state, decision.over)
        told, wait.told = wait.told, news
        if news == told:
            return
        recorder, pod = self._handle.event_recorder, wait.pod
        if decision.over:
            events.grace_over(recorder, owner, pod, decision, self.refused.said(pod, decision.home))
        elif decision.home_state.state is State.VOLUME_ELSEWHERE:
            events.elsewhere(recorder, owner, pod, decision)
        elif decision.action is Action.WAIT:
            events.waits(recorder, pod, decision)


def _waits(pod: Pod) -> bool:
    return not (pod.node_name or pod.terminating or pod.spec.gated)
