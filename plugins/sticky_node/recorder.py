"""Writes homes to their owners: those that binds make, and those of machines that migrated or ran before Homeport.

A home that cannot be written is reported once, kept in memory, and tried again. A machine that migrates takes its home
along if it ran at home. A machine that never had a home gets one where it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Final

import structlog
from msgspec.structs import replace

from app.framework.handle import Handle
from app.framework.objects import ObjectGone, Unreadable, WriteConflict
from app.kube.core_v1 import Pod
from app.kube.kinds import VIRTUAL_MACHINE_INSTANCES
from app.kube.kubevirt_v1 import VirtualMachineInstance
from plugins.sticky_node import events
from plugins.sticky_node.annotations import (
    HOME,
    HOME_AFTER,
    HOME_REPLACES,
    Claim,
    ClaimSource,
    home_in,
    home_pod,
    is_confirmed,
    is_own,
    owner_annotations,
    readable,
    recorded_home,
)
from plugins.sticky_node.args import StickyNodeArgs
from plugins.sticky_node.background import ResumableIteration, Steps, WriteBudget
from plugins.sticky_node.owners import Owner, Owners, Slot
from plugins.sticky_node.pods import ActivePods, is_target


class PendingHomes:
    """Claims by their pod's UID. Several pods of one owner may be on their way, the later ones held by the first.

    Whichever arrives makes the home: where the first does not, the next holds the others.
    """

    def __init__(self) -> None:
        self._claims: dict[str, Claim] = {}
        self._of_owner: dict[Slot, dict[str, Claim]] = {}
        self._made: set[str] = set()

    def begin(self, claim: Claim) -> None:
        """A bind is under way that makes the home if it succeeds."""
        self._claims[claim.pod.uid] = claim
        self._of_owner.setdefault(claim.owner.key, {})[claim.pod.uid] = claim

    def pod_bound(self, claim: Claim) -> None:
        """The pod is there, and the home is not on its owner."""
        self.begin(claim)
        self._made.add(claim.pod.uid)

    def keep(self, claim: Claim) -> None:
        """Its owner cannot be written now. It takes the place of what earlier pods of the owner made."""
        self.pod_bound(claim)
        for other in list(self._of_owner[claim.owner.key].values()):
            if other.pod.uid != claim.pod.uid and self.is_made(other.pod):
                self.drop(other.pod)

    def drop(self, pod: Pod) -> None:
        """By the pod, not its owner: a machine that is stopped during a bind takes the way to it along."""
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
        """The claim that holds ``pod``, a pod of the owner: the first of another pod that may yet make the home.

        Where it is to replace a home, it holds already, and the home it replaces does not.
        """
        claims = self._of_owner.get(owner.key, {}).values()
        return next((it for it in claims if it.pod.uid != pod.uid and it.decides and it.makes(owner)), None)

    def is_made(self, pod: Pod) -> bool:
        """Return whether the pod is there, and waits to have its home recorded."""
        return pod.uid in self._made

    def made(self) -> Collection[Claim]:
        """Those whose pods are there."""
        return [self._claims[uid] for uid in self._made]


_ATTEMPTS: Final = 5
_LOG: Final = structlog.get_logger(__name__)


class Recorder:
    """Writes the home of a claim to its owner: each claim at most once, and only that of the active pod."""

    def __init__(self, owners: Owners, active: ActivePods, making: PendingHomes, handle: Handle) -> None:
        self._owners = owners
        self._active = active
        self._pending = making
        self._handle = handle
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
        """Return the claim that would make the machine's home now: one in memory, or one on its bound pods.

        A pod of another profile counts too: each profile has a plugin of its own, and memory of its own.
        """
        claims = [it for it in self._pending.made() if it.owner.key == owner.key]
        for pod in self._active.pods(owner.controller):
            with suppress(Unreadable):
                if (claim := self._claim_on(pod)) is not None:
                    claims.append(claim)
        return next((it for it in claims if it.makes(owner) and self._decides(it)), None)

    def _claim_on(self, pod: Pod) -> Claim | None:
        """Return the claim that a bound pod carries if it says where the pod is, and was not tried from memory.

        The target of a migration makes no home by its bind: with it a migration has only begun.
        """
        if pod.annotations.get(HOME) != pod.node_name or is_target(pod):
            return None
        owner = self._owners.of(pod)
        if not isinstance(owner, Owner) or self._pending.is_made(pod):
            return None
        after = pod.annotations.get(HOME_AFTER, "")
        if home_pod(owner) != after:
            return None  # as of nearly every pod: another was heard since, or this one was
        decides = self._active.decides(pod, pod.node_name, owner.controller)
        return Claim(pod, pod.node_name, owner, after, decides, pod.annotations.get(HOME_REPLACES, ""))

    async def record(self, claim: Claim) -> None:
        """Write the home to its owner, unless the claim is closed. Done with it, it is forgotten, and else kept."""
        try:
            if not await self.write_claim(claim):
                self._pending.keep(claim)
        except OSError as cause:
            self._failed(claim, self._owners.newest(claim.owner) or claim.owner, str(cause))

    async def write_claim(self, claim: Claim) -> bool:
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
        """The machine that a node is; empty where it is not known."""
        with suppress(Unreadable):
            info = self._handle.nodes.get(node)
            return "" if info is None else info.node.state.machine
        return ""

    def _decides(self, claim: Claim) -> bool:
        """As it is now; of a machine that was stopped since, as it was."""
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
        """There is nothing to write, or a write of which nobody heard has arrived."""
        was_tried = self._causes.pop(claim.owner.key, None) is not None
        self._pending.drop(claim.pod)
        if was_tried and owner is not None and home_pod(owner) == claim.pod.uid:
            self._made(claim, owner)

    def _failed(self, claim: Claim, owner: Owner, cause: str) -> None:
        """Said again only if the cause changes. A home that a person wrote needs none of ours in memory."""
        if self._causes.get(owner.key) != cause:
            self._causes[owner.key] = cause
            _LOG.warning("home not recorded", machine=str(owner), verb="patch", pod=str(claim.pod), cause=cause)
            events.not_recorded(self._handle.event_recorder, owner, claim, cause)
        if recorded_home(owner) in (claim.replaces, claim.node):
            self._pending.keep(claim)
        else:
            self._pending.drop(claim.pod)


class MigratedHomes:
    """Finds machines of KubeVirt that migrated, or run without a home. ``is_off``: whether their policy is ``off``."""

    def __init__(
        self,
        args: StickyNodeArgs,
        owners: Owners,
        active: ActivePods,
        making: PendingHomes,
        recorder: Recorder,
        attempts: WriteBudget,
        handle: Handle,
        is_off: Callable[[Owner, Pod], bool],
    ) -> None:
        self._args = args
        self._owners = owners
        self._active = active
        self._pending = making
        self._recorder = recorder
        self._attempts = attempts
        self._is_off = is_off
        self._handle = handle
        self._settled: dict[str, tuple[VirtualMachineInstance, Owner]] = {}
        self._iteration = ResumableIteration(handle.objects, (VIRTUAL_MACHINE_INSTANCES,), self._settled)

    async def all(self) -> bool:
        """Claims of machines that run, each heard once. ``False``: something of a machine is not in the picture yet."""
        complete, steps = True, Steps(self._handle.timing.sleep)
        for _, machine in self._iteration:
            await steps()
            if machine is None or not machine.node_name or self._is_settled(machine):
                continue
            pod = self._active.of(machine)
            if pod is None or not self._handle.objects.has_node(machine.node_name):
                complete = False
                continue
            try:
                claim = self._claim(machine, pod)
            except Unreadable:
                complete = False
                continue
            if claim is not None:
                key = " ".join(claim.owner.key)
                complete &= await self._attempts.of_owner(key, partial(self._recorder.write_claim, claim))
        return complete

    def _is_settled(self, machine: VirtualMachineInstance) -> bool:
        """Return whether it and its owner are as they were when nothing was to be done."""
        known, owner = self._settled.get(machine.uid, (None, None))
        if known is not machine or owner is None:
            return False
        with suppress(Unreadable):
            return self._handle.objects.get(owner.kind, *owner.obj.key) is owner.obj
        return False

    def _claim(self, machine: VirtualMachineInstance, pod: Pod) -> Claim | None:
        owner = self._owners.of(pod) if self._handle.profile.serves(pod.spec.scheduler_name) else None
        if not isinstance(owner, Owner) or self._pending.of(pod) is not None or self._is_off(owner, pod):
            return None
        home, heard = recorded_home(owner), home_pod(owner)
        if self._args.follow_migration and heard != pod.uid and _has_left(machine, pod, owner):
            return Claim(pod, machine.node_name, owner, heard, True, home, ClaimSource.MIGRATION)
        if not home and not heard and self._args.adopt and not is_own(owner.obj, owner.slot):
            return Claim(pod, machine.node_name, owner, heard, True, by=ClaimSource.ADOPTION)
        if home_in(owner.obj, owner.slot):
            self._settled[machine.uid] = (machine, owner)
        return None


def _has_left(machine: VirtualMachineInstance, pod: Pod, owner: Owner) -> bool:
    """Return true if the machine migrated away from its home, which was its home before: KubeVirt sets the node last.

    ``migrationState.completed`` does not help: it is true of failed migrations, too.
    """
    source = machine.moved_from
    if not source or not machine.node_name == machine.moved_to != source:
        return False
    home = recorded_home(owner)
    return (home == source and is_confirmed(owner.obj, owner.slot)) or _was_to_be(home, source, pod, owner)


def _was_to_be(home: str, source: str, pod: Pod, owner: Owner) -> bool:
    """Return true if the source was about to become the home when the migration began, and nothing came in between.

    The target's Binding carries that claim, see ``pre_bind``: the pod that made it is gone.
    """
    carried = [pod.annotations.get(key, "") for key in (HOME, HOME_AFTER, HOME_REPLACES)]
    return is_target(pod) and carried == [source, home_pod(owner), home]
