"""Copies homes to their owners. What cannot be written is said once, kept in memory, and tried again."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from time import monotonic
from typing import Final

import structlog
from msgspec.structs import replace

from app.framework.interface import Handle, ObjectGone, Unreadable, WriteConflict
from app.kube.core_v1 import Pod
from plugins.sticky_node import events
from plugins.sticky_node.active import ActivePods
from plugins.sticky_node.home import HOME, HOME_AFTER, Claim, home_pod, on_owner, recorded_home
from plugins.sticky_node.making import Making
from plugins.sticky_node.owners import Owner, Owners, Slot

_ATTEMPTS: Final = 5
_STEP_SECONDS: Final = 0.002
"""Of looking at pods in one step of the loop: one with thousands of rivals takes as long as hundreds without."""

_LOG: Final = structlog.get_logger(__name__)


class _Breath:
    """Whatever else waits runs first."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class Recorder:
    """Hears claims: each at most once, and only from the pod that decides."""

    def __init__(self, owners: Owners, active: ActivePods, making: Making, handle: Handle) -> None:
        self._owners = owners
        self._active = active
        self._making = making
        self._objects = handle.objects
        self._writer = handle.writer
        self._serves = handle.serves
        self._events = handle.event_recorder
        self._causes: dict[Slot, str] = {}

    def cause(self, owner: Owner) -> str:
        """Why the owner's home could not be written when last tried; empty if it was not, or could."""
        return self._causes.get(owner.key, "")

    async def record_open(self) -> None:
        """Hear all claims that wait: those in memory, and those on bound pods.

        One owner that cannot be read must not keep the others from their homes: its claims wait. A cause goes with the
        last claim on its owner.
        """
        without_claim = set(self._causes)
        for claim in self._making.made():
            without_claim.discard(claim.owner.key)
            with suppress(Unreadable):
                await self.record(claim)
        until = monotonic() + _STEP_SECONDS
        for pod in self._objects.annotated_pods():
            if monotonic() > until:
                await _Breath()
                until = monotonic() + _STEP_SECONDS
            with suppress(Unreadable):
                if (found := self._word_of(pod)) is not None:
                    without_claim.discard(found.owner.key)
                    await self.record(found)
        for key in without_claim:
            self._causes.pop(key, None)

    def _word_of(self, pod: Pod) -> Claim | None:
        """The claim that a bound pod carries, if it says where it is, is ours, and was not tried from memory."""
        if pod.annotations.get(HOME) != pod.node_name or not self._serves(pod.spec.scheduler_name):
            return None
        owner = self._owners.of(pod)
        if not isinstance(owner, Owner) or self._making.is_made(pod):
            return None
        after = pod.annotations.get(HOME_AFTER, "")
        if home_pod(owner) != after:
            return None  # as of nearly every pod: another was heard since, or this one was
        return Claim(pod, pod.node_name, owner, after, self._active.decides(pod, pod.node_name, owner))

    async def record(self, claim: Claim) -> None:
        """Write the home to its owner, unless one is there or the claim is closed. Done with it, it is forgotten."""
        for _ in range(_ATTEMPTS):
            owner = self._owners.newest(claim.owner)
            if owner is None or not claim.is_open(owner):
                return self._settled(claim, owner)
            claim = replace(claim, decides=self._decides(claim))
            if not claim.decides and not recorded_home(owner):
                return self._settled(claim, owner)
            try:
                await self._writer.annotate(owner.kind, owner.found, on_owner(owner, claim))
            except WriteConflict:
                continue
            except ObjectGone:
                return self._settled(claim, None)
            except OSError as cause:
                return self._failed(claim, owner, str(cause))
            return self._written(claim, owner)
        return self._making.keep(claim)

    def _decides(self, claim: Claim) -> bool:
        """As it is now; of a machine that was stopped since, as it was."""
        owner = self._owners.of(claim.pod)
        if not isinstance(owner, Owner) or owner.key != claim.owner.key:
            return claim.decides
        return self._active.decides(claim.pod, claim.node, owner)

    def _written(self, claim: Claim, owner: Owner) -> None:
        self._causes.pop(claim.owner.key, None)
        self._making.drop(claim.pod)
        home = recorded_home(owner)
        if not home:
            self._made(claim, owner)
        elif home != claim.node:
            events.overridden(self._events, owner, claim, home)

    def _made(self, claim: Claim, owner: Owner) -> None:
        _LOG.info("home made", machine=str(owner), node=claim.node, pod=str(claim.pod))
        events.made(self._events, owner, claim)

    def _settled(self, claim: Claim, owner: Owner | None) -> None:
        """There is nothing to write, or a write of which nobody heard has arrived."""
        was_tried = self._causes.pop(claim.owner.key, None) is not None
        self._making.drop(claim.pod)
        if was_tried and owner is not None and home_pod(owner) == claim.pod.uid:
            self._made(claim, owner)

    def _failed(self, claim: Claim, owner: Owner, cause: str) -> None:
        """Said again only if the cause changes. A home that a person wrote needs none of ours in memory."""
        if self._causes.get(owner.key) != cause:
            self._causes[owner.key] = cause
            _LOG.warning("home not recorded", machine=str(owner), verb="patch", pod=str(claim.pod), cause=cause)
            events.not_recorded(self._events, owner, claim, cause)
        if recorded_home(owner):
            self._making.drop(claim.pod)
        else:
            self._making.keep(claim)
