"""Copies homes to their owners. What cannot be written is said once, kept in memory, and tried again."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import structlog
from msgspec.structs import replace

from app.framework.interface import Handle, ObjectGone, Unreadable, WriteConflict
from app.kube.core_v1 import Pod
from plugins.sticky_node import events
from plugins.sticky_node.active import ActivePods, is_target
from plugins.sticky_node.home import (
    HOME,
    HOME_AFTER,
    HOME_REPLACES,
    By,
    Claim,
    home_pod,
    machine_of,
    on_owner,
    readable,
    recorded_home,
)
from plugins.sticky_node.making import Making
from plugins.sticky_node.owners import Owner, Owners, Slot
from plugins.sticky_node.steps import Steps

_ATTEMPTS: Final = 5

_LOG: Final = structlog.get_logger(__name__)


class Recorder:
    """Hears claims: each at most once, and only from the pod that decides."""

    def __init__(self, owners: Owners, active: ActivePods, making: Making, handle: Handle) -> None:
        self._owners = owners
        self._active = active
        self._making = making
        self._objects = handle.objects
        self._nodes = handle.nodes
        self._writer = handle.writer
        self._serves = handle.serves
        self._sleep = handle.sleep
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
        steps = Steps(self._sleep)
        for pod in self._objects.annotated_pods():
            await steps()
            with suppress(Unreadable):
                if (found := self._word_of(pod)) is not None:
                    without_claim.discard(found.owner.key)
                    await self.record(found)
        for key in without_claim:
            self._causes.pop(key, None)

    def open_claim(self, owner: Owner) -> Claim | None:
        """Return the claim that would make the machine's home now: one in memory, or one on its bound pods."""
        claims = [it for it in self._making.made() if it.owner.key == owner.key]
        for pod in self._active.pods(owner):
            with suppress(Unreadable):
                if (claim := self._word_of(pod)) is not None:
                    claims.append(claim)
        return next((it for it in claims if it.makes(owner) and self._decides(it)), None)

    def _word_of(self, pod: Pod) -> Claim | None:
        """The claim that a bound pod carries, if it says where it is, is ours, and was not tried from memory.

        The target of a migration makes no home by its bind: with it a migration has only begun.
        """
        if pod.annotations.get(HOME) != pod.node_name or not self._serves(pod.spec.scheduler_name) or is_target(pod):
            return None
        owner = self._owners.of(pod)
        if not isinstance(owner, Owner) or self._making.is_made(pod):
            return None
        after = pod.annotations.get(HOME_AFTER, "")
        if home_pod(owner) != after:
            return None  # as of nearly every pod: another was heard since, or this one was
        decides = self._active.decides(pod, pod.node_name, owner)
        return Claim(pod, pod.node_name, owner, after, decides, pod.annotations.get(HOME_REPLACES, ""))

    async def record(self, claim: Claim) -> None:
        """Write the home to its owner, unless the claim is closed. Done with it, it is forgotten, and else kept."""
        try:
            if not await self.hear(claim):
                self._making.keep(claim)
        except OSError as cause:
            self._failed(claim, self._owners.newest(claim.owner) or claim.owner, str(cause))

    async def hear(self, claim: Claim) -> bool:
        """Write what the claim says, if it still says anything; ``False`` if its owner kept changing meanwhile.

        Raises ``OSError`` if it cannot be written.
        """
        for _ in range(_ATTEMPTS):
            owner = self._owners.newest(claim.owner)
            if owner is None or not claim.is_open(owner):
                self._settled(claim, owner)
                return True
            claim = replace(claim, decides=self._decides(claim))
            if not claim.decides and claim.makes(owner):
                self._settled(claim, owner)
                return True
            try:
                written = on_owner(owner, claim, self.machine(claim.node))
                await self._writer.annotate(owner.kind, owner.found, written)
            except WriteConflict:
                continue
            except ObjectGone:
                self._settled(claim, None)
                return True
            self._written(claim, owner)
            return True
        return False

    def machine(self, node: str) -> str:
        """The machine that a node is; empty where it is not known."""
        with suppress(Unreadable):
            found = self._nodes.get(node)
            return "" if found is None else machine_of(found.node)
        return ""

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
        if claim.makes(owner):
            self._made(claim, owner)
        elif home not in ("", claim.node):
            events.overridden(self._events, owner, claim, home)

    def _made(self, claim: Claim, owner: Owner) -> None:
        machine, before, pod = str(owner), readable(claim.replaces), str(claim.pod)
        if claim.by is By.MIGRATION:
            _LOG.info("home followed", machine=machine, before=before, node=claim.node, pod=pod)
        elif claim.by is By.ADOPTION:
            _LOG.info("home adopted", machine=machine, node=claim.node, pod=pod)
        elif claim.replaces:
            _LOG.info("home remade", machine=machine, before=before, node=claim.node, pod=pod)
        else:
            _LOG.info("home made", machine=machine, node=claim.node, pod=pod)
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
        if recorded_home(owner) in (claim.replaces, claim.node):
            self._making.keep(claim)
        else:
            self._making.drop(claim.pod)
