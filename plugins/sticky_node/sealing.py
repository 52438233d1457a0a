"""Tells homes that are an object's own from copies of another's, by what stands beside them.

A home that a person wrote, or an earlier Homeport, gets the owner's UID beside it: a copy of it can be told then. What
was copied is removed, so that whatever a person writes there later is plainly theirs.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import structlog
from msgspec import Struct

from app.framework.interface import Handle, Unreadable
from app.kube.kinds import VIRTUAL_MACHINE_INSTANCES, AnnotatedObject, Kind
from app.kube.kubevirt_v1 import VirtualMachineInstance
from plugins.sticky_node import events
from plugins.sticky_node.active import ActivePods
from plugins.sticky_node.attempts import Attempts
from plugins.sticky_node.home import (
    given_up,
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
from plugins.sticky_node.turns import Turns

_LOG: Final = structlog.get_logger(__name__)


class _Wrong(Struct):
    """What is not as it should be: the annotations that mend it · the slots with copies · whether that is all."""

    written: dict[str, str | None] = {}
    copied: list[str] = []
    is_all: bool = True


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
        self._turns = Turns(owners, owners.keepers())
        self._has_machines = VIRTUAL_MACHINE_INSTANCES in owners.controllers()

    async def all(self) -> bool:
        """Look at every owner that is not as it was when nothing was to be done; whether nothing is left to do."""
        complete, steps = True, Steps(self._sleep)
        seen: set[str] = set()
        for kind, found in self._turns:
            await steps()
            if found is None:
                continue
            seen.add(found.uid)
            if self._in_order.get(found.uid) is found:
                continue
            try:
                wrong = self._wrong(kind, found) if found.annotations else _Wrong()
            except Unreadable:
                complete = False
                continue
            if wrong.written:
                complete &= await self._attempts.of_owner(found.uid, partial(self._put_right, kind, found, wrong))
            elif wrong.is_all:
                self._in_order[found.uid] = found
            complete &= wrong.is_all
        for uid in self._in_order.keys() - seen:
            del self._in_order[uid]
        return complete

    def _wrong(self, kind: Kind[AnnotatedObject], found: AnnotatedObject) -> _Wrong:
        """All that is to be put right on one object, in one write."""
        written: dict[str, str | None] = {}
        copied: list[str] = []
        is_all = True
        for slot in slots_of(found, per_ordinal=self._owners.is_per_ordinal(kind)):
            if is_foreign(found, slot):
                copied.append(slot)
                written |= without(found, slot)
            elif home_in(found, slot) and not is_sealed(found, slot):
                of_slot = self._sealed(kind, found, slot)
                is_all &= of_slot is not None
                written |= of_slot or {}
            else:
                written |= given_up(found, slot)
        return _Wrong(written, copied, is_all)

    async def _put_right(self, kind: Kind[AnnotatedObject], found: AnnotatedObject, wrong: _Wrong) -> None:
        await self._writer.annotate(kind, found, wrong.written)
        for slot in wrong.copied:
            self._not_inherited(kind, found, found.annotations.get(home_key(slot), ""))

    def _sealed(self, kind: Kind[AnnotatedObject], found: AnnotatedObject, slot: str) -> dict[str, str | None] | None:
        """A person wrote it after whatever migration there was: its home does not follow that one any more.

        ``None`` while the pod in which the machine runs since then is not in the picture.
        """
        home = home_in(found, slot)
        running = self._running(found)
        owner = Owner(kind, found, slot, running or found)
        written = sealed(owner, home, self._recorder.machine(home))
        if running is not None and running.moved_to == running.node_name != "":
            pod = self._active.of(running)
            if pod is None:
                return None
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
