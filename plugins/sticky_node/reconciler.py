"""Corrects recorded homes independently of binds, and keeps homes of deleted owners.

A home written by a user, or by an earlier release, lacks a ``home-owner`` annotation that names it. The reconciler
writes one with the owner's UID, so that a copy on another object can be recognized. A copied home is removed, so that a
home that appears there later is known to come from a user.

For owners with ``remember: name``, the home is also kept in a Home object (``kubectl get homes``). An owner recreated
under the same name gets its home back. Without the CustomResourceDefinition, a home is lost when its owner is deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from typing import Final

import structlog
from msgspec import Struct

from app.framework.handle import Handle
from app.framework.objects import Unreadable
from app.kube.core_v1 import Pod
from app.kube.kinds import VIRTUAL_MACHINE_INSTANCES, AnnotatedObject, Kind
from app.kube.kubevirt_v1 import VirtualMachineInstance
from plugins.sticky_node import events
from plugins.sticky_node.annotations import (
    HOME,
    HOME_AFTER,
    HOME_POD,
    HOME_REPLACES,
    Claim,
    ClaimSource,
    PendingHomes,
    home_in,
    home_pod,
    is_confirmed,
    is_copied,
    is_own,
    machine_of,
    ownership_annotations,
    readable,
    recorded_home,
    release_annotations,
    slot_key,
    slots_of,
    without,
)
from plugins.sticky_node.args import StickyNodeArgs
from plugins.sticky_node.background import ResumableIteration, Steps, WriteBudget, WriteBudgetExhausted
from plugins.sticky_node.owners import HOMES, Owner, Owners
from plugins.sticky_node.pods import ActivePods, is_target
from plugins.sticky_node.recorder import Recorder, RememberedHomes

_LOG: Final = structlog.get_logger(__name__)


_PERIOD_SECONDS: Final = 1.0
"""Delay between two checks for changes, and before the next round if the last one tried to write and left something to
do.
"""
_LATER_SECONDS: Final = 10.0
"""Delay before the next round if the last one left something to do but did not try to write."""


class Reconciler:
    """Runs the corrections of recorded homes in rounds.

    ``is_off(owner, pod)`` returns true if the policy of the owner's pod is ``off``. If so, no migration or adoption of
    the virtual machine is recorded.
    """

    def __init__(
        self,
        args: StickyNodeArgs,
        owners: Owners,
        active: ActivePods,
        pending: PendingHomes,
        recorder: Recorder,
        handle: Handle,
        *,
        is_off: Callable[[Owner, Pod], bool],
    ) -> None:
        self._handle = handle
        self._budget = WriteBudget(handle.timing.clock)
        self._ownership = HomeOwnership(owners, active, recorder, self._budget, handle)
        self._remembered = RememberedHomes(owners, self._budget, handle)
        self._migrated = MigratedHomes(args, owners, active, pending, recorder, self._budget, handle, is_off)
        remembers = owners.remembers()
        parts = (
            (self._ownership.all, True),
            (self._remembered.all, remembers),
            (self._migrated.all, owners.has_machines()),
            (self._remembered.note, remembers),
            (self._remembered.forget, remembers),
        )
        self._parts = tuple(part for part, applies in parts if applies)
        memory = (HOMES,) if remembers else ()
        self._kinds = tuple(dict.fromkeys((*owners.keepers(), *owners.controllers(), *memory)))
        self._seen: tuple[int, ...] = ()
        self._is_running = False
        self._again = 0.0

    async def run(self) -> None:
        """Run a round when an owner, a controller of pods or a Home has changed, at most one per second. If something
        was left to do, run another round later.
        """
        while True:
            versions = tuple(map(self._handle.objects.version, self._kinds))
            if versions != self._seen or self._handle.timing.clock() >= self._again:
                self._seen = versions
                is_done = await self.round()
                wait = _PERIOD_SECONDS if self._budget.writes else _LATER_SECONDS
                self._again = inf if is_done else self._handle.timing.clock() + wait
            await self._handle.timing.sleep(_PERIOD_SECONDS)

    async def round(self) -> bool:
        """Run each correction until its end or until its writes are used up; return true if nothing is left to do. A
        call during another round returns ``False`` at once.
        """
        if self._is_running:
            return False
        self._is_running = is_done = is_whole = True
        self._budget.begin()
        try:
            for part in self._parts:
                self._budget.begin_part()
                try:
                    is_done &= await part()
                except WriteBudgetExhausted:
                    is_done = is_whole = False
        finally:
            self._is_running = False
        if is_whole:
            self._budget.end()
        return is_done


class _Correction(Struct):
    """Corrections for one object.

    ``written``: annotations to write. ``copied``: slots with copied homes. ``is_all``: false if something cannot be
    decided yet.
    """

    written: dict[str, str | None] = {}
    copied: list[str] = []
    is_all: bool = True


class HomeOwnership:
    """Writes ``home-owner`` for each home, and removes homes that were copied from another object.

    Of a home that a user removed, it also removes the recorded systemUUID.
    """

    def __init__(
        self, owners: Owners, active: ActivePods, recorder: Recorder, budget: WriteBudget, handle: Handle
    ) -> None:
        self._owners = owners
        self._active = active
        self._recorder = recorder
        self._budget = budget
        self._handle = handle
        self._correct_objects: dict[str, AnnotatedObject] = {}
        self._iteration = ResumableIteration(owners, owners.keepers(), self._correct_objects)

    async def all(self) -> bool:
        """Correct every owner that has changed since it was found correct; return true if nothing is left to do."""
        complete, steps = True, Steps(self._handle.timing.sleep)
        for kind, obj in self._iteration:
            await steps()
            if obj is None or self._correct_objects.get(obj.uid) is obj:
                continue
            try:
                wrong = self._correction(kind, obj) if obj.annotations else _Correction()
            except Unreadable:
                complete = False
                continue
            if wrong.written:
                complete &= await self._budget.of_owner(obj.uid, partial(self._correct, kind, obj, wrong))
            elif wrong.is_all:
                self._correct_objects[obj.uid] = obj
            complete &= wrong.is_all
        return complete

    def _correction(self, kind: Kind[AnnotatedObject], obj: AnnotatedObject) -> _Correction:
        """Return everything to correct on one object, to be written in one request."""
        written: dict[str, str | None] = {}
        copied: list[str] = []
        is_all = True
        for slot in slots_of(obj, per_ordinal=self._owners.is_per_ordinal(kind)):
            if is_copied(obj, slot):
                copied.append(slot)
                written |= without(obj, slot)
            elif home_in(obj, slot) and not is_confirmed(obj, slot):
                of_slot = self._confirming_annotations(kind, obj, slot)
                is_all &= of_slot is not None
                written |= of_slot or {}
            else:
                written |= release_annotations(obj, slot)
        return _Correction(written, copied, is_all)

    async def _correct(self, kind: Kind[AnnotatedObject], obj: AnnotatedObject, wrong: _Correction) -> None:
        await self._handle.writer.annotate(kind, obj, wrong.written)
        for home in filter(None, (obj.annotations.get(slot_key(HOME, slot)) for slot in wrong.copied)):
            machine = f"{kind.kind} {obj.namespace}/{obj.name}"
            _LOG.info("home not inherited", machine=machine, node=readable(home))
            events.not_inherited(self._handle.event_recorder, kind, obj, home)

    def _confirming_annotations(
        self, kind: Kind[AnnotatedObject], obj: AnnotatedObject, slot: str
    ) -> dict[str, str | None] | None:
        """Return the annotations that confirm a home that a user wrote; ``None`` if they cannot be known yet.

        The user wrote the home after any finished migration, so the home must not follow that migration. Therefore, if
        the machine has migrated, ``home-pod`` names the pod that runs now. The result is ``None`` while that pod is not
        in the snapshot.
        """
        home, running = home_in(obj, slot), self._owners.running(obj)
        written = ownership_annotations(Owner(kind, obj, slot, running or obj), home, machine_of(self._handle, home))
        if running is not None and running.moved_to == running.node_name != "":
            if (pod := self._active.of(running)) is None:
                return None
            written[slot_key(HOME_POD, slot)] = pod.uid
        return written


class MigratedHomes:
    """Records homes of virtual machines that migrated, or that run without a home. ``is_off``: see ``Reconciler``."""

    def __init__(
        self,
        args: StickyNodeArgs,
        owners: Owners,
        active: ActivePods,
        pending: PendingHomes,
        recorder: Recorder,
        budget: WriteBudget,
        handle: Handle,
        is_off: Callable[[Owner, Pod], bool],
    ) -> None:
        self._args = args
        self._owners = owners
        self._active = active
        self._pending = pending
        self._recorder = recorder
        self._budget = budget
        self._is_off = is_off
        self._handle = handle
        self._settled: dict[str, tuple[VirtualMachineInstance, Owner]] = {}
        self._iteration = ResumableIteration(handle.objects, (VIRTUAL_MACHINE_INSTANCES,), self._settled)

    async def all(self) -> bool:
        """Record the claims of running virtual machines. Return ``False`` if some remain to be recorded.

        A claim remains if the machine's pod or node is not in the snapshot yet, an object is unreadable, or a write did
        not succeed.
        """
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
                complete &= await self._budget.of_owner(key, partial(self._recorder.write_claim, claim))
        return complete

    def _is_settled(self, machine: VirtualMachineInstance) -> bool:
        """Return true if the virtual machine and its owner have not changed since a check found nothing to do."""
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
        home, last_pod = recorded_home(owner), home_pod(owner)
        if self._args.follow_migration and last_pod != pod.uid and _has_left(machine, pod, owner):
            return Claim(pod, machine.node_name, owner, last_pod, True, home, ClaimSource.MIGRATION)
        if not home and not last_pod and self._args.adopt and not is_own(owner.obj, owner.slot):
            return Claim(pod, machine.node_name, owner, last_pod, True, by=ClaimSource.ADOPTION)
        if home_in(owner.obj, owner.slot):
            self._settled[machine.uid] = (machine, owner)
        return None


def _has_left(machine: VirtualMachineInstance, pod: Pod, owner: Owner) -> bool:
    """Return true if the virtual machine has completed a migration away from its home, or from the node that was about
    to become its home.

    KubeVirt updates ``nodeName`` last. ``migrationState.completed`` does not help, because it is true for failed
    migrations, too.
    """
    source = machine.moved_from
    if not source or not machine.node_name == machine.moved_to != source:
        return False
    home = recorded_home(owner)
    return (home == source and is_confirmed(owner.obj, owner.slot)) or _was_to_be(home, source, pod, owner)


def _was_to_be(home: str, source: str, pod: Pod, owner: Owner) -> bool:
    """Return true if the source node was about to become the home when the migration began. False if another home or
    pod was recorded since.

    The source pod, which made the claim, is deleted, so the target's Binding carries the claim (see ``pre_bind``).
    """
    carried = [pod.annotations.get(key, "") for key in (HOME, HOME_AFTER, HOME_REPLACES)]
    return is_target(pod) and carried == [source, home_pod(owner), home]
