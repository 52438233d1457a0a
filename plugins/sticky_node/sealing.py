"""Tells homes that are an object's own from copies of another's, by what stands beside them.

A home that a person wrote, or an earlier Homeport, gets the owner's UID beside it: a copy of it can be told then. What
was copied is removed, so that whatever a person writes there later is plainly theirs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from app.framework.interface import Handle
from app.kube.kinds import VIRTUAL_MACHINE_INSTANCES, AnnotatedObject, Kind
from app.kube.kubevirt_v1 import VirtualMachineInstance
from plugins.sticky_node import events
from plugins.sticky_node.active import ActivePods
from plugins.sticky_node.attempts import Attempts
from plugins.sticky_node.home import (
    home_in,
    home_key,
    is_foreign,
    is_sealed,
    pod_key,
    readable,
    sealed,
    slots_of,
    without,
)
from plugins.sticky_node.owners import Owner, Owners
from plugins.sticky_node.recording import Recorder
from plugins.sticky_node.steps import Steps

_LOG: Final = structlog.get_logger(__name__)


class Sealing:
    """Goes over the objects that keep homes."""

    def __init__(
        self, owners: Owners, active: ActivePods, recorder: Recorder, attempts: Attempts, handle: Handle
    ) -> None:
        self._owners = owners
        self._active = active
        self._recorder = recorder
        self._attempts = attempts
        self._objects = handle.objects
        self._writer = handle.writer
        self._events = handle.event_recorder
        self._sleep = handle.sleep
        self._in_order: dict[str, AnnotatedObject] = {}
        self._has_machines = VIRTUAL_MACHINE_INSTANCES in owners.controllers()

    async def all(self) -> bool:
        """Look at every owner that is not as it was when nothing was to be done; whether nothing is left to do."""
        complete, steps = True, Steps(self._sleep)
        seen: set[str] = set()
        for kind in self._owners.keepers():
            for found in self._objects.every(kind):
                await steps()
                seen.add(found.uid)
                if self._in_order.get(found.uid) is found:
                    continue
                work = self._work(kind, found) if found.annotations else None
                if work is None:
                    self._in_order[found.uid] = found
                else:
                    complete &= await self._attempts.of_owner(found.uid, work)
        for uid in self._in_order.keys() - seen:
            del self._in_order[uid]
        return complete

    def _work(self, kind: Kind[AnnotatedObject], found: AnnotatedObject) -> Callable[[], Awaitable[None]] | None:
        """One write for all that is to be put right on one object, if anything is."""
        slots = tuple(slots_of(found))
        copied = [slot for slot in slots if is_foreign(found, slot)]
        given = [slot for slot in slots if home_in(found, slot) and not is_sealed(found, slot)]
        if not copied and not given:
            return None
        return lambda: self._keep(kind, found, copied, given)

    async def _keep(
        self, kind: Kind[AnnotatedObject], found: AnnotatedObject, copied: list[str], given: list[str]
    ) -> None:
        written: dict[str, str | None] = {}
        for slot in copied:
            written |= without(found, slot)
        for slot in given:
            written |= self._sealed(kind, found, slot)
        await self._writer.annotate(kind, found, written)
        for slot in copied:
            self._not_inherited(kind, found, found.annotations.get(home_key(slot), ""))

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
