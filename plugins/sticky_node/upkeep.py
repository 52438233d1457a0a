"""Keeps what is written of homes right where no bind does: in the background, in whoever decides.

- A home that a person wrote, or an earlier Homeport, gets the owner's UID beside it: a copy of it can be told then.
- What was copied from another object is removed, so that whatever a person writes there later is plainly theirs.
- A machine that has migrated takes its home along, if it lived at home.
- A machine that runs and never had a home gets the node it runs on.
- A home that is the name's is remembered beyond its owner, and given back to an object made anew under that name.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from math import inf
from time import time
from typing import Final

import structlog

from app.framework.interface import Handle, ObjectGone, Unreadable, WriteConflict
from app.kube.core_v1 import Pod
from app.kube.homes_v1alpha1 import Home
from app.kube.kinds import VIRTUAL_MACHINE_INSTANCES, AnnotatedObject, Kind
from app.kube.kubevirt_v1 import VirtualMachineInstance
from app.kube.names import is_subdomain
from plugins.sticky_node import events
from plugins.sticky_node.active import ActivePods
from plugins.sticky_node.args import StickyNodeArgs
from plugins.sticky_node.home import (
    By,
    Claim,
    heard_in,
    home_in,
    home_key,
    home_pod,
    is_foreign,
    is_sealed,
    machine_key,
    pod_key,
    readable,
    recorded_home,
    sealed,
    slots_of,
    taken_back,
    without,
)
from plugins.sticky_node.making import Making
from plugins.sticky_node.memory import HOMES, MOST_ORPHANS, Memory
from plugins.sticky_node.owners import Owner, Owners
from plugins.sticky_node.recording import Recorder
from plugins.sticky_node.steps import Steps

_PERIOD_SECONDS: Final = 1.0
_LATER_SECONDS: Final = 10.0
_REFUSED_SECONDS: Final = 60.0
_MOST_WRITES: Final = 50
"""Of one round: machines that are adopted by the thousand take turns with everything else that is written."""

_MOST_REFUSED: Final = 5
"""Of one round: after so many it is not one object that cannot be written, and all wait."""

_ALL: Final = ""
_SLOT: Final = re.compile(r"[0-9-]*")
_LOG: Final = structlog.get_logger(__name__)


class _Enough(Exception):  # no error: the rest has its turn in the next round
    """A round has written as much as it may."""


class Upkeep:
    """``is_off`` tells whether the policy of an owner is ``off``: of its machines nothing is recorded."""

    def __init__(
        self,
        args: StickyNodeArgs,
        owners: Owners,
        active: ActivePods,
        making: Making,
        recorder: Recorder,
        handle: Handle,
        *,
        is_off: Callable[[Owner], bool],
        wall_clock: Callable[[], float] = time,
    ) -> None:
        self._args = args
        self._owners = owners
        self._active = active
        self._making = making
        self._recorder = recorder
        self._is_off = is_off
        self._objects = handle.objects
        self._writer = handle.writer
        self._serves = handle.serves
        self._events = handle.event_recorder
        self._sleep = handle.sleep
        self._has_machines = VIRTUAL_MACHINE_INSTANCES in owners.controllers()
        self._clock = handle.clock
        self._memory = Memory(handle.objects, handle.writer, wall_clock)
        self._kinds = {(it.api_version, it.kind): it for it in owners.keepers() if owners.is_remembered(it)}
        self._remembers_from = 0.0
        self._not_remembered = ""
        self._seen: tuple[int, ...] = ()
        self._again = 0.0
        self._not_before: dict[str, float] = {}
        self._cause = ""
        self._writes = 0
        self._refused = 0

    async def run(self) -> None:
        """A round each second in which an owner or a machine has changed, and later on for what the last one left."""
        while True:
            versions = self._versions()
            if versions != self._seen or self._clock() >= self._again:
                self._seen = versions
                is_done = await self.round()
                self._again = inf if is_done else self._clock() + (_PERIOD_SECONDS if self._writes else _LATER_SECONDS)
            await self._sleep(_PERIOD_SECONDS)

    async def round(self) -> bool:
        """Look at all owners and machines once; whether nothing is left to do.

        What cannot be written is told once for each cause, and left alone for a minute.
        """
        self._writes = self._refused = 0
        now = self._clock()
        self._not_before = {uid: until for uid, until in self._not_before.items() if until > now}
        if _ALL in self._not_before:
            return False
        try:
            of_owners = await self._keepers()
            of_memory = not self._kinds or await self._memories()
            of_machines = not self._has_machines or await self._machines()
            is_remembered = await self._unremembered()
        except _Enough:
            return False
        if not self._not_before:
            self._cause = ""
        return of_owners and of_memory and of_machines and is_remembered

    async def _attempt(self, uid: str, work: Callable[[], Awaitable[bool]]) -> bool:
        """One write about the object of this UID; whether nothing is left to do for it. Raises ``_Enough``."""
        if uid in self._not_before:
            return False
        self._count()
        try:
            return await work()
        except OSError as cause:
            self._failed(uid, str(cause))
            return False

    async def _attempt_memory(self, work: Callable[[], Awaitable[None]]) -> bool:
        """The same of one write about what is remembered: who may not write that records homes all the same."""
        if self._clock() < self._remembers_from:
            return True
        self._count()
        try:
            await work()
        except WriteConflict:
            return False
        except ObjectGone:
            return True
        except OSError as cause:
            self._remembers_from = self._clock() + _REFUSED_SECONDS
            if str(cause) != self._not_remembered:
                self._not_remembered = str(cause)
                _LOG.warning("homes not remembered", cause=self._not_remembered)
            return True
        self._not_remembered = ""
        return True

    def _count(self) -> None:
        if self._writes == _MOST_WRITES:
            raise _Enough
        self._writes += 1

    def _failed(self, uid: str, cause: str) -> None:
        if cause != self._cause:
            self._cause = cause
            _LOG.warning("homes not kept up", cause=cause)
        self._refused += 1
        self._not_before[uid if self._refused < _MOST_REFUSED else _ALL] = self._clock() + _REFUSED_SECONDS
        if self._refused == _MOST_REFUSED:
            raise _Enough

    def _versions(self) -> tuple[int, ...]:
        memory = (HOMES,) if self._kinds else ()
        kinds = dict.fromkeys((*self._owners.keepers(), *self._owners.controllers(), *memory))
        return tuple(map(self._objects.version, kinds))

    async def _keepers(self) -> bool:
        complete, steps = True, Steps(self._sleep)
        for kind in self._owners.keepers():
            for found in self._objects.every(kind):
                await steps()
                if found.annotations and (work := self._work(kind, found)) is not None:
                    complete &= await self._attempt(found.uid, work)
        return complete

    async def _unremembered(self) -> bool:
        complete, steps = True, Steps(self._sleep)
        for kind in self._kinds.values():
            for found in self._objects.every(kind):
                await steps()
                for slot in self._to_remember(kind, found):
                    complete &= await self._attempt_memory(partial(self._remember, kind, found, slot))
        return complete

    def _to_remember(self, kind: Kind[AnnotatedObject], found: AnnotatedObject) -> Iterator[str]:
        """The slots with homes of the object's own that are to be remembered, and are not or otherwise."""
        for slot in slots_of(found):
            home = home_in(found, slot)
            if home and is_sealed(found, slot) and is_subdomain(home):
                known = self._memory.of(kind, found, slot)
                told = (found.uid, home, found.annotations.get(machine_key(slot), ""))
                if known is None or told != (known.keeper.uid, known.node, known.machine):
                    yield slot

    async def _remember(self, kind: Kind[AnnotatedObject], found: AnnotatedObject, slot: str) -> None:
        machine = found.annotations.get(machine_key(slot), "")
        await self._memory.keep(kind, found, slot, home_in(found, slot), machine)

    async def _memories(self) -> bool:
        """Give back what is remembered, and forget what a person gave up, or what is too much."""
        complete, steps = True, Steps(self._sleep)
        orphans: dict[str, list[Home]] = {}
        for home in self._objects.every(HOMES):
            await steps()
            keeper = home.keeper
            kind = self._kinds.get((keeper.api_version, keeper.kind))
            if kind is None:
                continue
            with suppress(Unreadable):
                found = self._objects.get(kind, home.namespace, keeper.name)
                if found is None:
                    orphans.setdefault(home.namespace, []).append(home)
                elif self._memory.of(kind, found, keeper.slot) is home and not home_in(found, keeper.slot):
                    complete &= await self._settle(kind, found, home)
        for found_there in orphans.values():
            found_there.sort(key=lambda it: it.since)
            for home in found_there[:-MOST_ORPHANS]:
                complete &= await self._attempt_memory(partial(self._memory.forget, home))
        return complete

    async def _settle(self, kind: Kind[AnnotatedObject], found: AnnotatedObject, home: Home) -> bool:
        """An object is there and has no home: its own was given up, or it has its predecessor's."""
        slot = home.keeper.slot
        if home.keeper.uid == found.uid or heard_in(found, slot):
            return await self._attempt_memory(partial(self._memory.forget, home))
        if not _SLOT.fullmatch(slot) or is_foreign(found, slot):
            return True
        return await self._attempt(found.uid, partial(self._give_back, Owner(kind, found, slot, found, home), home))

    async def _give_back(self, owner: Owner, home: Home) -> bool:
        try:
            await self._writer.annotate(owner.kind, owner.found, taken_back(owner, home))
        except WriteConflict:
            return False
        except ObjectGone:
            return True
        _LOG.info("home remembered", machine=str(owner), node=home.node)
        events.remembered(self._events, owner, home.node)
        return True

    def _work(self, kind: Kind[AnnotatedObject], found: AnnotatedObject) -> Callable[[], Awaitable[bool]] | None:
        """One write for all that is to be put right on one object, if anything is."""
        slots = tuple(slots_of(found))
        copied = [slot for slot in slots if is_foreign(found, slot)]
        given = [slot for slot in slots if home_in(found, slot) and not is_sealed(found, slot)]
        if not copied and not given:
            return None
        return lambda: self._keep(kind, found, copied, given)

    async def _keep(
        self, kind: Kind[AnnotatedObject], found: AnnotatedObject, copied: list[str], given: list[str]
    ) -> bool:
        written: dict[str, str | None] = {}
        for slot in copied:
            written |= without(found, slot)
        for slot in given:
            written |= self._sealed(kind, found, slot)
        try:
            await self._writer.annotate(kind, found, written)
        except WriteConflict:
            return False
        except ObjectGone:
            return True
        for slot in copied:
            self._not_inherited(kind, found, found.annotations.get(home_key(slot), ""))
        return True

    def _sealed(self, kind: Kind[AnnotatedObject], found: AnnotatedObject, slot: str) -> dict[str, str | None]:
        """A person wrote it after whatever migration there was: its home does not follow that one any more."""
        home = home_in(found, slot)
        running = self._running(found)
        owner = Owner(kind, found, slot, running or found)
        written = sealed(owner, home, self._recorder.machine(home))
        if running is not None and running.moved_to == running.node_name and (pod := self._active.of(running)):
            written[pod_key(slot)] = pod.uid
        return written

    def _running(self, found: AnnotatedObject) -> VirtualMachineInstance | None:
        """The instance of a machine, which has its name."""
        if not self._has_machines:
            return None
        instance = self._objects.get(VIRTUAL_MACHINE_INSTANCES, found.namespace, found.name)
        if instance is None:
            return None
        keeper = instance.owner.uid if instance.owner is not None else instance.uid
        return instance if keeper == found.uid else None

    def _not_inherited(self, kind: Kind[AnnotatedObject], found: AnnotatedObject, home: str) -> None:
        if home:
            machine = f"{kind.kind} {found.namespace}/{found.name}"
            _LOG.info("home not inherited", machine=machine, node=readable(home))
            events.not_inherited(self._events, kind, found, home)

    async def _machines(self) -> bool:
        """Claims of machines that run, each heard once. ``False``: something of a machine is not in the picture yet."""
        complete, steps = True, Steps(self._sleep)
        for machine in self._objects.every(VIRTUAL_MACHINE_INSTANCES):
            await steps()
            if not machine.node_name:
                continue
            pod = self._active.of(machine)
            if pod is None or not self._objects.has_node(machine.node_name):
                complete = False
                continue
            with suppress(Unreadable):
                claim = self._claim(machine, pod)
                if claim is not None:
                    complete &= await self._attempt(claim.owner.found.uid, partial(self._recorder.hear, claim))
        return complete

    def _claim(self, machine: VirtualMachineInstance, pod: Pod) -> Claim | None:
        owner = self._owners.of(pod) if self._serves(pod.spec.scheduler_name) else None
        if not isinstance(owner, Owner) or self._making.of(pod) is not None or self._is_off(owner):
            return None
        home, heard = recorded_home(owner), home_pod(owner)
        if home and self._args.follow_migration and _has_left(machine, owner, home) and heard != pod.uid:
            return Claim(pod, machine.node_name, owner, heard, True, home, By.MIGRATION)
        if not home and not heard and self._args.adopt:
            return Claim(pod, machine.node_name, owner, heard, True, by=By.ADOPTION)
        return None


def _has_left(machine: VirtualMachineInstance, owner: Owner, home: str) -> bool:
    """Whether it migrated away from the home, which was written before: KubeVirt moves ``status.nodeName`` last.

    ``migrationState.completed`` tells nothing: it is true of migrations that failed, too.
    """
    is_there = machine.node_name == machine.moved_to != machine.moved_from
    return is_there and home == machine.moved_from and is_sealed(owner.found, owner.slot)
