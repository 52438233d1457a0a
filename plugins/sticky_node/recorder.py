"""Writes homes to their owners: homes made by binds, and homes of machines that migrated or ran before Homeport.

A home that cannot be written is reported once, kept in memory, and retried. A machine that migrates takes its home
along if it ran at home. A running machine that never had a home gets one on its node.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Final

import structlog
from msgspec.structs import replace

from app.framework.handle import Handle
from app.framework.objects import ObjectGone, Unreadable, WriteConflict
from app.kube.core_v1 import Pod
from plugins.sticky_node import events
from plugins.sticky_node.annotations import (
    HOME,
    HOME_AFTER,
    HOME_REPLACES,
    Claim,
    ClaimSource,
    home_pod,
    owner_annotations,
    readable,
    recorded_home,
)
from plugins.sticky_node.background import Steps
from plugins.sticky_node.owners import Owner, Owners, Slot
from plugins.sticky_node.pods import ActivePods, is_target


class PendingHomes:
    """Claims that are not recorded yet, by the UID of their pod.

    Several pods of one owner can be bound at the same time; the later ones have to follow the first. If the first bind
    fails, the next pod takes its place.
    """

    def __init__(self) -> None:
        self._claims: dict[str, Claim] = {}
        self._of_owner: dict[Slot, dict[str, Claim]] = {}
        self._made: set[str] = set()

    def begin(self, claim: Claim) -> None:
        """Add the claim of a bind in flight, which makes the home if it succeeds."""
        self._claims[claim.pod.uid] = claim
        self._of_owner.setdefault(claim.owner.key, {})[claim.pod.uid] = claim

    def pod_bound(self, claim: Claim) -> None:
        """Note that the claim's pod is bound, and that the home is not on its owner yet."""
        self.begin(claim)
        self._made.add(claim.pod.uid)

    def keep(self, claim: Claim) -> None:
        """Keep a claim whose owner cannot be written now. It replaces claims of the owner's earlier pods."""
        self.pod_bound(claim)
        for other in list(self._of_owner[claim.owner.key].values()):
            if other.pod.uid != claim.pod.uid and self.is_made(other.pod):
                self.drop(other.pod)

    def drop(self, pod: Pod) -> None:
        """Drop the pod's claim, if any.

        The claim is found by the pod, because the pod's owner cannot be found any more if a machine is stopped during a
        bind.
        """
        claim = self._claims.pop(pod.uid, None)
        if claim is None:
            return
        self._made.discard(pod.uid)
        of_owner = self._of_owner[claim.owner.key]
        del of_owner[pod.uid]
        if not of_owner:
            del self._of_owner[claim.owner.key]

    def of(self, pod: Pod) -> Claim | None:
        return self._claims.get(pod.uid)

    def holds(self, owner: Owner, pod: Pod) -> Claim | None:
        """Return the first claim of another pod that can still make the home, which ``pod`` has to follow; ``None``
        without one.

        A claim that replaces a home takes effect immediately, in place of the recorded home.
        """
        claims = self._of_owner.get(owner.key, {}).values()
        return next((it for it in claims if it.pod.uid != pod.uid and it.decides and it.makes(owner)), None)

    def is_made(self, pod: Pod) -> bool:
        """Return whether the pod is bound and its home is not recorded yet."""
        return pod.uid in self._made

    def made(self) -> Collection[Claim]:
        """Return the claims whose pods are bound."""
        return [self._claims[uid] for uid in self._made]


_ATTEMPTS: Final = 5
_LOG: Final = structlog.get_logger(__name__)


class Recorder:
    """Writes the home of a claim to its owner: each claim at most once, and only claims of the active pod."""

    def __init__(self, owners: Owners, active: ActivePods, pending: PendingHomes, handle: Handle) -> None:
        self._owners = owners
        self._active = active
        self._pending = pending
        self._handle = handle
        self._causes: dict[Slot, str] = {}

    def cause(self, owner: Owner) -> str:
        """Return why the last attempt to write the owner's home failed; empty if it did not fail."""
        return self._causes.get(owner.key, "")

    async def record_open(self) -> None:
        """Record all open claims: those in memory, and those on bound pods.

        If one owner is unreadable, its claims wait, and the others are still recorded. The failure cause of an owner is
        dropped together with its last claim.
        """
        without_claim = set(self._causes)
        for claim in self._pending.made():
            without_claim.discard(claim.owner.key)
            with suppress(Unreadable):
                await self.record(claim)
        steps = Steps(self._handle.timing.sleep)
        for pod in self._handle.objects.annotated_pods():
            await steps()
            if not self._handle.profile.serves(pod.spec.scheduler_name):
                continue
            with suppress(Unreadable):
                if (claim_on_pod := self._claim_on(pod)) is not None:
                    without_claim.discard(claim_on_pod.owner.key)
                    await self.record(claim_on_pod)
        for key in without_claim:
            self._causes.pop(key, None)

    def open_claim(self, owner: Owner) -> Claim | None:
        """Return the claim that would make the machine's home now, from memory or from its bound pods; ``None`` without
        one.

        Pods of other profiles are included, because each profile has its own plugin instance and memory.
        """
        claims = [it for it in self._pending.made() if it.owner.key == owner.key]
        for pod in self._active.pods(owner.controller):
            with suppress(Unreadable):
                if (claim := self._claim_on(pod)) is not None:
                    claims.append(claim)
        return next((it for it in claims if it.makes(owner) and self._decides(it)), None)

    def _claim_on(self, pod: Pod) -> Claim | None:
        """Return the claim on a bound pod; ``None`` if it names another node, or if it is already in memory.

        The target of a migration makes no home by its bind, because the migration has only begun.
        """
        if pod.annotations.get(HOME) != pod.node_name or is_target(pod):
            return None
        owner = self._owners.of(pod)
        if not isinstance(owner, Owner) or self._pending.is_made(pod):
            return None
        after = pod.annotations.get(HOME_AFTER, "")
        if home_pod(owner) != after:
            return None  # the usual case: this pod or a later one was recorded
        decides = self._active.decides(pod, pod.node_name, owner.controller)
        return Claim(pod, pod.node_name, owner, after, decides, pod.annotations.get(HOME_REPLACES, ""))

    async def record(self, claim: Claim) -> None:
        """Write the claim's home to its owner. The claim is dropped if that succeeds or it is closed, and kept
        otherwise.
        """
        try:
            if not await self.write_claim(claim):
                self._pending.keep(claim)
        except OSError as cause:
            self._failed(claim, self._owners.newest(claim.owner) or claim.owner, str(cause))

    async def write_claim(self, claim: Claim) -> bool:
        """Write the claim to its owner unless it is closed; return ``False`` if the owner kept changing meanwhile.

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
                written = owner_annotations(owner, claim, self.machine(claim.node))
                await self._handle.writer.annotate(owner.kind, owner.obj, written)
            except WriteConflict:
                continue
            except ObjectGone:
                self._settled(claim, None)
                return True
            self._written(claim, owner)
            return True
        return False

    def machine(self, node: str) -> str:
        """Return the systemUUID of a node; empty if it is unknown."""
        with suppress(Unreadable):
            info = self._handle.nodes.get(node)
            return "" if info is None else info.node.state.machine
        return ""

    def _decides(self, claim: Claim) -> bool:
        """Return whether the pod is active now; for a machine that was stopped, whether it was when last checked."""
        owner = self._owners.of(claim.pod)
        if not isinstance(owner, Owner) or owner.key != claim.owner.key:
            return claim.decides
        return self._active.decides(claim.pod, claim.node, owner.controller)

    def _written(self, claim: Claim, owner: Owner) -> None:
        self._causes.pop(claim.owner.key, None)
        self._pending.drop(claim.pod)
        home = recorded_home(owner)
        if claim.makes(owner):
            self._made(claim, owner)
        elif home not in ("", claim.node):
            events.overridden(self._handle.event_recorder, owner, claim, home)

    def _made(self, claim: Claim, owner: Owner) -> None:
        machine, before, pod = str(owner), readable(claim.replaces), str(claim.pod)
        if claim.by is ClaimSource.MIGRATION:
            _LOG.info("home followed", machine=machine, before=before, node=claim.node, pod=pod)
        elif claim.by is ClaimSource.ADOPTION:
            _LOG.info("home adopted", machine=machine, node=claim.node, pod=pod)
        elif claim.replaces:
            _LOG.info("home remade", machine=machine, before=before, node=claim.node, pod=pod)
        else:
            _LOG.info("home made", machine=machine, node=claim.node, pod=pod)
        events.made(self._handle.event_recorder, owner, claim)

    def _settled(self, claim: Claim, owner: Owner | None) -> None:
        """Drop a claim that needs no write, or whose earlier write succeeded although its answer was lost."""
        was_tried = self._causes.pop(claim.owner.key, None) is not None
        self._pending.drop(claim.pod)
        if was_tried and owner is not None and home_pod(owner) == claim.pod.uid:
            self._made(claim, owner)

    def _failed(self, claim: Claim, owner: Owner, cause: str) -> None:
        """Handle a failed write. Each cause is reported once. The claim is dropped if a user wrote another home."""
        if self._causes.get(owner.key) != cause:
            self._causes[owner.key] = cause
            _LOG.warning("home not recorded", machine=str(owner), verb="patch", pod=str(claim.pod), cause=cause)
            events.not_recorded(self._handle.event_recorder, owner, claim, cause)
        if recorded_home(owner) in (claim.replaces, claim.node):
            self._pending.keep(claim)
        else:
            self._pending.drop(claim.pod)
