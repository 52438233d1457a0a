"""Writes homes to their owners: those made by binds, those of virtual machines that migrated or ran before Homeport,
and remembered homes.

A home that cannot be written is reported once per cause, kept in memory, and retried. If a virtual machine migrates
away from its home, the new node becomes its home. A running one that never had a home gets one on its node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Final

import structlog
from msgspec.structs import replace

from app.framework.handle import Handle
from app.framework.objects import ObjectGone, Unreadable, WriteConflict
from app.kube.core_v1 import Pod
from app.kube.homes_v1alpha1 import HomeRecord, memory_name
from app.kube.kinds import AnnotatedObject, Kind
from app.kube.names import is_subdomain
from plugins.sticky_node import events
from plugins.sticky_node.annotations import (
    HOME,
    HOME_AFTER,
    HOME_MACHINE,
    HOME_REPLACES,
    Claim,
    ClaimSource,
    PendingHomes,
    home_in,
    home_pod,
    is_confirmed,
    is_copied,
    last_pod_in,
    machine_of,
    owner_annotations,
    readable,
    recorded_home,
    remember,
    restored_annotations,
    slot_key,
    slots_of,
)
from plugins.sticky_node.background import ResumableIteration, Steps, WriteBudget
from plugins.sticky_node.owners import HOMES, Owner, Owners, Slot, remembered
from plugins.sticky_node.pods import ActivePods, is_slot, is_target

_ATTEMPTS: Final = 5
"""Maximum number of attempts to write one claim while its owner keeps changing."""

MOST_ORPHANS: Final = 1000
"""Maximum number of remembered homes per namespace whose owners do not exist; the newest are kept."""

MOST_OF_NAMESPACE: Final = 10_000
"""Maximum number of Homes in one namespace. At the limit, existing Homes are updated, but no new ones are created."""

MOST_REMEMBERED: Final = 512
"""Maximum number of remembered homes of one object."""

_LOG: Final = structlog.get_logger(__name__)


class Recorder:
    """Writes claimed homes to the owners: each claim at most once, and only that of the owner's active pod."""

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
        """Record all open claims: those in memory, and those on bound pods of this profile.

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
        """Return the claim, in memory or on a pod of any profile, that would make the owner's home now, or ``None``."""
        claims = [it for it in self._pending.made() if it.owner.key == owner.key]
        for pod in self._active.pods(owner.controller):
            with suppress(Unreadable):
                if (claim := self._claim_on(pod)) is not None:
                    claims.append(claim)
        return next((it for it in claims if it.makes(owner) and self._decides(it)), None)

    def _claim_on(self, pod: Pod) -> Claim | None:
        """Return the open claim on a bound pod; ``None`` if it has none, or if the claim is already in memory.

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
        """Write the claim's home to its owner. If the write fails, keep the claim, unless a user wrote another home."""
        try:
            if not await self.write_claim(claim):
                self._pending.keep(claim)
        except OSError as cause:
            self._failed(claim, self._owners.newest(claim.owner) or claim.owner, str(cause))

    async def write_claim(self, claim: Claim) -> bool:
        """Write the claim to its owner; drop it if the owner is gone, it is closed, or its pod must not make the home.

        Return ``False`` if the owner kept changing. Raises ``OSError`` if it cannot be written, and ``Unreadable``.
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
                written = owner_annotations(owner, claim, machine_of(self._handle, claim.node))
                await self._handle.writer.annotate(owner.kind, owner.obj, written)
            except WriteConflict:
                continue
            except ObjectGone:
                self._settled(claim, None)
                return True
            self._written(claim, owner)
            return True
        return False

    def _decides(self, claim: Claim) -> bool:
        """Return true if the pod may make the home now; the last result if its owner was deleted or replaced."""
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
        """Drop a claim that needs no write. Report its home if an earlier write seemed to fail but succeeded."""
        was_tried = self._causes.pop(claim.owner.key, None) is not None
        self._pending.drop(claim.pod)
        if was_tried and owner is not None and home_pod(owner) == claim.pod.uid:
            self._made(claim, owner)

    def _failed(self, claim: Claim, owner: Owner, cause: str) -> None:
        """Report a failed write if its cause has changed. Keep the claim, unless a user wrote another home."""
        if self._causes.get(owner.key) != cause:
            self._causes[owner.key] = cause
            _LOG.warning("home not recorded", machine=str(owner), verb="patch", pod=str(claim.pod), cause=cause)
            events.not_recorded(self._handle.event_recorder, owner, claim, cause)
        if recorded_home(owner) in (claim.replaces, claim.node):
            self._pending.keep(claim)
        else:
            self._pending.drop(claim.pod)


class RememberedHomes:
    """Keeps Home objects equal to the owners' homes, and restores homes to recreated owners."""

    def __init__(self, owners: Owners, budget: WriteBudget, handle: Handle) -> None:
        self._budget = budget
        self._handle = handle
        self._noted: dict[str, tuple[AnnotatedObject, tuple[HomeRecord, ...]]] = {}
        self._owners = owners
        self._full: set[str] = set()
        self._kinds = {(it.api_version, it.kind): it for it in owners.keepers() if owners.is_remembered(it)}
        self._iteration = ResumableIteration(owners, self._kinds.values(), self._noted)
        self._iteration_of_homes = ResumableIteration(handle.objects, (HOMES,), {})

    async def all(self) -> bool:
        """Restore remembered homes; delete those that a user released. Return true if nothing is left to do."""
        complete, steps = True, Steps(self._handle.timing.sleep)
        for _, home in self._iteration_of_homes:
            await steps()
            kind = None if home is None else self._kind_of(home)
            if home is None or kind is None:
                continue
            try:
                obj = self._handle.objects.get(kind, home.namespace, home.keeper.name)
                slot = home.keeper.slot
                if obj is None or not self._owners.keeps(kind, obj):
                    continue
                if remembered(self._handle.objects, kind, obj, slot) is not home or home_in(obj, slot):
                    continue
            except Unreadable:
                complete = False
                continue
            complete &= await self._settle(kind, obj, home)
        return complete

    async def forget(self) -> bool:
        """Delete the oldest Homes of missing owners beyond ``MOST_ORPHANS``. Return true if nothing is left to do."""
        complete, steps = True, Steps(self._handle.timing.sleep)
        orphans: dict[str, list[HomeRecord]] = {}
        for home in self._handle.objects.every(HOMES):
            await steps()
            kind = self._kind_of(home)
            with suppress(Unreadable):  # an unreadable owner exists
                if kind is not None and self._handle.objects.get(kind, home.namespace, home.keeper.name) is None:
                    orphans.setdefault(home.namespace, []).append(home)
        for orphans_there in orphans.values():
            for home in sorted(orphans_there, key=attrgetter("since"))[:-MOST_ORPHANS]:
                complete &= await self._forget(home)
        return complete

    def _kind_of(self, home: HomeRecord) -> Kind[AnnotatedObject] | None:
        return self._kinds.get((home.keeper.api_version, home.keeper.kind))

    async def _forget(self, home: HomeRecord) -> bool:
        return await self._budget.of_memory("/".join(home.key), partial(self._handle.writer.delete, HOMES, home))

    async def _settle(self, kind: Kind[AnnotatedObject], obj: AnnotatedObject, home: HomeRecord) -> bool:
        """Handle an object without a home: delete the Home if the object had its own home, else restore the home."""
        slot = home.keeper.slot
        if home.keeper.uid == obj.uid or last_pod_in(obj, slot):
            return await self._forget(home)
        if not is_slot(slot) or is_copied(obj, slot):
            return True
        owner = Owner(kind, obj, slot, obj, home)
        return await self._budget.of_owner(" ".join(owner.key), partial(self._give_back, owner, home))

    async def _give_back(self, owner: Owner, home: HomeRecord) -> None:
        await self._handle.writer.annotate(owner.kind, owner.obj, restored_annotations(owner, home))
        _LOG.info("home remembered", machine=str(owner), node=home.node)
        events.remembered(self._handle.event_recorder, owner, home.node)

    async def note(self) -> bool:
        """Write the Homes that are missing or outdated; return true if nothing is left to do."""
        if not self._budget.may_remember():
            return False
        complete, steps = True, Steps(self._handle.timing.sleep)
        there: dict[str, set[str]] | None = None
        for kind, obj in self._iteration:
            await steps()
            if obj is None:
                continue
            try:
                slots = self._unnoted(kind, obj)
            except Unreadable:
                complete = False
                continue
            for slot in slots:
                name = memory_name(kind.api_version, kind.kind, obj.name, slot)
                there = await self._there(steps) if there is None else there
                if self._has_room(there[obj.namespace], obj.namespace, name):
                    key = f"{obj.namespace}/{name}"
                    machine = obj.annotations.get(slot_key(HOME_MACHINE, slot), "")
                    keep = partial(remember, self._handle, kind, obj, slot, home_in(obj, slot), machine)
                    complete &= await self._budget.of_memory(key, keep)
        return complete

    async def _there(self, steps: Steps) -> dict[str, set[str]]:
        """Return the names of the Homes in each namespace."""
        there: dict[str, set[str]] = defaultdict(set)
        for home in self._handle.objects.every(HOMES):
            await steps()
            there[home.namespace].add(home.name)
        return there

    def _has_room(self, there: set[str], namespace: str, name: str) -> bool:
        """Add the name to ``there`` and return true; return false if it is new and the namespace is full."""
        if name not in there and len(there) >= MOST_OF_NAMESPACE:
            if namespace not in self._full:
                self._full.add(namespace)
                _LOG.warning("homes not remembered", cause=f"namespace {namespace} has {MOST_OF_NAMESPACE} Homes")
            return False
        there.add(name)
        return True

    def _unnoted(self, kind: Kind[AnnotatedObject], obj: AnnotatedObject) -> tuple[str, ...]:
        """Return the slots whose Homes have to be written. An empty result is cached until something changes.

        Raises ``Unreadable``.
        """
        noted, homes = self._noted.get(obj.uid, (None, ()))
        if noted is obj and all(self._handle.objects.get(HOMES, *home.key) is home for home in homes):
            return ()  # unchanged since the last check
        slots = tuple(self._to_remember(kind, obj))
        if not slots:
            known = (remembered(self._handle.objects, kind, obj, slot) for slot in self._slots_of(kind, obj))
            self._noted[obj.uid] = (obj, tuple(it for it in known if it is not None))
        return slots

    def _slots_of(self, kind: Kind[AnnotatedObject], obj: AnnotatedObject) -> list[str]:
        """Return the valid slots of its home annotations, lowest ordinals first, at most ``MOST_REMEMBERED``."""
        return list(filter(is_slot, slots_of(obj, per_ordinal=self._owners.is_per_ordinal(kind))))[:MOST_REMEMBERED]

    def _to_remember(self, kind: Kind[AnnotatedObject], obj: AnnotatedObject) -> Iterator[str]:
        """Yield the slots with confirmed homes whose Home object is missing or different."""
        for slot in self._slots_of(kind, obj):
            home = home_in(obj, slot)
            if home and is_confirmed(obj, slot) and is_subdomain(home):
                known = remembered(self._handle.objects, kind, obj, slot)
                current = (obj.uid, home, obj.annotations.get(slot_key(HOME_MACHINE, slot), ""))
                if known is None or current != (known.keeper.uid, known.node, known.machine):
                    yield slot
