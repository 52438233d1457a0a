"""Wakes pods that wait for a home once filter might answer differently, and reports why usable homes reject their pods.

kube-scheduler does not wake pods when time passes or a home is moved. The reported reasons do not affect decisions.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection, Hashable
from contextlib import suppress
from math import inf
from typing import Any, Final, TypeAlias

from msgspec import Struct

from app.framework.background import next_delay
from app.framework.handle import NOT_KNOWN, Handle
from app.framework.objects import Unreadable
from app.homes.protocol import State
from app.kube.core_v1 import Pod
from app.kube.kinds import Kind
from app.kube.memo import Newest
from plugins.sticky_node import events
from plugins.sticky_node.background import LOOK_SECONDS, TICK_SECONDS, Steps
from plugins.sticky_node.events import reasons_text
from plugins.sticky_node.grace import GraceClocks
from plugins.sticky_node.owners import Owner, Owners
from plugins.sticky_node.policy import Action, Decision, is_held

Decide: TypeAlias = Callable[[Owner, Pod], Decision]

NEW_LOOK_SECONDS: Final = 0.5
"""Minimum seconds between two comparisons of the pods that filter was called for just now."""

NEW_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 1.0
"""Seconds of frequent comparisons after filter's first and later calls for a pod, while its condition is written."""

SEARCH_SECONDS: Final = 30.0
"""Delay between two searches for pods that filter was never called for, and for pods with scheduling gates."""

AT_ONCE: Final = 10
"""Number of pods of the backlog woken per tick after a change of leader. Other pods are woken in addition, so they do
not queue behind the backlog.
"""

MOST_KNOWN: Final = 1 << 14
"""Maximum number of pods with stored verdicts. The oldest are dropped first, and the next search finds them again."""

FIRST_ASK_SECONDS: Final = 3.0
"""Delay before the first evaluation, so that the sampling guard can first nominate the pod to its home."""

ASK_AGAIN_SECONDS: Final = 15.0
LONGEST_ASK_SECONDS: Final = 480.0
"""Minimum and maximum time between two evaluations of a pod's home. It doubles, because most reasons never change."""

MOST: Final = 1024
"""Maximum number of rejected pods whose homes are evaluated. Further pods get no Event about the reasons."""

MOST_OF_NAMESPACE: Final = 128
"""Maximum number of pods of one namespace whose homes are evaluated, so that a tenant cannot displace all others."""

EVALUATION_INTERVAL_SECONDS: Final = 0.1
"""Delay between the evaluations of two pods' homes."""


class _RefusedPod(Struct):
    """Pod rejected by its usable home. ``not_before``: monotonic time of the next evaluation. ``reported``: home and
    reasons of the last Event.
    """

    pod: Pod
    not_before: float
    pause: float = ASK_AGAIN_SECONDS
    reported: tuple[str, str] = ("", "")


class HomeRefusalReporter:
    """Reports why a usable home rejects a pod, by evaluating the in-tree filters for the home.

    ``newest``: returns the pod's newest version, ``None`` once it no longer waits. ``decided``: returns the decision.
    """

    def __init__(self, owners: Owners, handle: Handle, newest: Callable[[Pod], Pod | None], decided: Decide) -> None:
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
        """Return true if the pod is among those whose refusals are reported."""
        return pod.uid in self._pods

    def note(self, pod: Pod) -> None:
        """Add an unschedulable pod that is restricted to its home, unless too many pods are known."""
        if len(self._pods) < MOST and self._of_namespace[pod.namespace] < MOST_OF_NAMESPACE:
            self._put(_RefusedPod(pod, self._handle.timing.clock() + FIRST_ASK_SECONDS))

    def _put(self, refused: _RefusedPod) -> None:
        self._pods[refused.pod.uid] = refused
        self._of_namespace[refused.pod.namespace] += 1

    def forget(self, uid: str) -> None:
        """Remove a pod, if it is known."""
        if (refused := self._pods.pop(uid, None)) is not None:
            self._of_namespace -= Counter((refused.pod.namespace,))  # drops namespaces without pods

    def reported_reasons(self, pod: Pod, home: str) -> str:
        """Return the last reported reasons why this home rejects the pod; empty if none were reported."""
        refused = self._pods.get(pod.uid)
        return refused.reported[1] if refused is not None and refused.reported[0] == home else ""

    async def run(self) -> None:
        """Evaluate the home of one pod at a time, until cancelled."""
        while True:
            now = self._handle.timing.clock()
            due = next((uid for uid, it in self._pods.items() if it.not_before <= now), None)
            if due is None:
                await self._handle.timing.sleep(TICK_SECONDS)
            else:
                await self._query(due)
                await self._handle.timing.sleep(EVALUATION_INTERVAL_SECONDS)

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
            reported, refused.reported = refused.reported, (decision.home, reasons_text(verdict.reasons))
            if reported != refused.reported:
                events.refused(self._handle.event_recorder, owner, pod, decision, refused.reported[1])
        refused.pod = pod
        refused.not_before = self._handle.timing.clock() + refused.pause
        refused.pause = next_delay(refused.pause, ASK_AGAIN_SECONDS, LONGEST_ASK_SECONDS)
        self._put(refused)  # at the end of the queue

    def _held(self, pod: Pod) -> tuple[Pod, Owner, Decision] | None:
        """Return the pod with its owner and decision; ``None`` unless it still waits for a usable home."""
        newest = self._newest(pod)
        with suppress(Unreadable):
            if newest is not None and isinstance(owner := self._owners.of(newest), Owner):
                decision = self._decision(owner, newest)
                return (newest, owner, decision) if is_held(decision) else None
        return None


class _WaitingPod(Struct):
    """Pod from a filter call or a search. ``verdict``: filter's first verdict, or the one at the last comparison.

    ``answered``: filter's latest verdict. ``new_until``: monotonic end of frequent comparisons. ``reported``: the last
    report.
    """

    pod: Pod
    verdict: Hashable
    answered: Hashable
    new_until: float
    ends_at: float | None = None
    reported: Hashable = None


class PodWaker:
    """Stores filter's verdict for each waiting pod. Once it has changed, wakes the pod, unless it still has to wait."""

    def __init__(
        self,
        owners: Owners,
        handle: Handle,
        verdict: Callable[[Pod], Hashable],
        ends_at: Callable[[Pod], float | None],
        decided: Decide,
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
        """Store the verdict of a filter call.

        Filter can also run without a scheduling attempt, as in a search for victims. So a later verdict replaces only
        ``answered``, and the pod is still woken. The call can start a grace period, so a known pod is compared soon.
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
        """Wake pods until cancelled. ``refused`` runs as a separate task."""
        steps = Steps(self._handle.timing.sleep)
        while True:
            await self.look(steps)
            await self._handle.timing.sleep(TICK_SECONDS)

    async def begin(self) -> None:
        """Restart as the new leader: queue all waiting pods with an owner, those not restricted to a home first."""
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
        """Wake the pods whose verdict has changed, and the next pods of the backlog from a take-over."""
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
        """Return a key that changes with every change of a node, or of another object that verdicts depend on."""
        return (self._handle.nodes.generation, *map(self._handle.objects.version, self._kinds))

    async def _waiting(self, pending: set[str], steps: Steps) -> AsyncIterator[Pod]:
        """Yield the waiting pods of this profile that can have a home, each once. Pods can change meanwhile.

        For all profiles, UIDs of pods without a node are added to ``pending``, and gated pods are noted in the clocks.
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
        """Find waiting pods that are not stored, mostly because in-tree filters reject them on every node."""
        pending: set[str] = set()
        async for pod in self._waiting(pending, steps):
            if pod.uid not in self._waits:
                with suppress(Unreadable):
                    if isinstance(owner := self._owners.of(pod), Owner):
                        self._add_if_held(pod, self._decision(owner, pod))
        self._clocks.ungated(pending)
        if self._owners.follows_claims:  # pods that begin to share a claim change no object's version
            self._stamp = None

    def _add_if_held(self, pod: Pod, decision: Decision) -> None:
        """Add the pod if the decision does not allow all nodes. An unrestricted pod need not be woken."""
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
        is_unreported = is_news or wait.reported is None
        is_refused = bool(pod.unschedulable_since) and not self.refused.knows(pod)
        owner = self._owners.of(pod) if is_unreported or is_refused else None
        if is_news and owner is None:  # the volume claim no longer keeps homes, or is shared now
            self._handle.activate((pod,))
        elif isinstance(owner, Owner):
            decision = self._decision(owner, pod)
            if is_news and decision.action is not Action.WAIT:
                self._handle.activate((pod,))
            if is_unreported:
                self._report(wait, owner, decision)
            if is_refused and is_held(decision):
                self.refused.note(pod)

    def waiting(self, pod: Pod) -> Pod | None:
        """Return the newest version of the pod; ``None`` if it no longer waits."""
        newest = self._owners.newest_pod(pod)
        return newest if newest is not None and _waits(newest) else None

    def _report(self, wait: _WaitingPod, owner: Owner, decision: Decision) -> None:
        news = (decision.home, decision.home_state.state, decision.over)
        reported, wait.reported = wait.reported, news
        if news == reported:
            return
        recorder, pod = self._handle.event_recorder, wait.pod
        if decision.over:
            events.grace_over(recorder, owner, pod, decision, self.refused.reported_reasons(pod, decision.home))
        elif decision.home_state.state is State.VOLUME_ELSEWHERE:
            events.elsewhere(recorder, owner, pod, decision)
        elif decision.action is Action.WAIT:
            events.waits(recorder, pod, decision)


def _waits(pod: Pod) -> bool:
    return not (pod.node_name or pod.terminating or pod.spec.gated)
