"""Marks recorded homes with their owner's UID, and removes homes that were copied from another object."""

from __future__ import annotations

from functools import partial
from typing import Final

import structlog
from msgspec import Struct

from app.framework.handle import Handle
from app.framework.objects import Unreadable
from app.kube.kinds import AnnotatedObject, Kind
from plugins.sticky_node import events
from plugins.sticky_node.annotations import (
    HOME,
    HOME_POD,
    home_in,
    is_confirmed,
    is_copied,
    ownership_annotations,
    readable,
    release_annotations,
    slot_key,
    slots_of,
    without,
)
from plugins.sticky_node.background import ResumableIteration, Steps, WriteBudget
from plugins.sticky_node.owners import Owner, Owners
from plugins.sticky_node.pods import ActivePods
from plugins.sticky_node.recorder import Recorder

_LOG: Final = structlog.get_logger(__name__)


class _Correction(Struct):
    """Corrections for one object.

    ``written``: annotations to write · ``copied``: slots with copied homes · ``is_all``: false if something cannot be
    decided yet.
    """

    written: dict[str, str | None] = {}
    copied: list[str] = []
    is_all: bool = True


class HomeOwnership:
    """Writes the owner's UID beside each home, and removes homes that were copied from another object."""

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
        """Check every owner that has changed since it was last correct; return whether nothing is left to do."""
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

        The user wrote it after any finished migration, so the home must not follow that migration: ``home-pod`` names
        the pod that runs now. ``None`` while that pod is not in the snapshot.
        """
        home, running = home_in(obj, slot), self._owners.running(obj)
        written = ownership_annotations(Owner(kind, obj, slot, running or obj), home, self._recorder.machine(home))
        if running is not None and running.moved_to == running.node_name != "":
            if (pod := self._active.of(running)) is None:
                return None
            written[slot_key(HOME_POD, slot)] = pod.uid
        return written
