"""Corrects what is written of homes where no bind does, and remembers homes beyond their owners.

The owner's UID is written beside a home that a person, or an earlier Homeport, wrote: a copy on another object can be
told apart then. A copied home is removed, so that whatever a person writes there later is plainly theirs.

A home that belongs to a name is kept in a Home object (``kubectl get homes``). A machine that is made anew under its
name finds its home there. Without the CustomResourceDefinition nothing is remembered, and homes end with their owners.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from math import inf
from operator import attrgetter
from typing import Final

import structlog
from msgspec import Struct

from app.framework.handle import Handle
from app.framework.objects import Unreadable
from app.kube.core_v1 import Pod
from app.kube.homes_v1alpha1 import Home, memory_name
from app.kube.kinds import AnnotatedObject, Kind
from app.kube.names import is_subdomain
from plugins.sticky_node import events
from plugins.sticky_node.annotations import (
    HOME,
    HOME_MACHINE,
    HOME_POD,
    home_in,
    is_confirmed,
    is_copied,
    last_pod_in,
    ownership_annotations,
    readable,
    release_annotations,
    remember,
    restored_annotations,
    slot_key,
    slots_of,
    without,
)
from plugins.sticky_node.args import StickyNodeArgs
from plugins.sticky_node.background import ResumableIteration, Steps, WriteBudget, WriteBudgetExhausted
from plugins.sticky_node.owners import HOMES, Owner, Owners, remembered
from plugins.sticky_node.pods import ActivePods, is_slot
from plugins.sticky_node.recorder import MigratedHomes, PendingHomes, Recorder

_LOG: Final = structlog.get_logger(__name__)


class _Correction(Struct):
    """What is not as it should be: the annotations that mend it · the slots with copies · whether that is all."""

    written: dict[str, str | None] = {}
    copied: list[str] = []
    is_all: bool = True


class HomeOwnership:
    """Writes the owner's UID beside each home, and removes homes that were copied from another object."""

    def __init__(
        self, owners: Owners, active: ActivePods, recorder: Recorder, attempts: WriteBudget, handle: Handle
    ) -> None:
        self._owners = owners
        self._active = active
        self._recorder = recorder
        self._attempts = attempts
        self._handle = handle
        self._correct_objects: dict[str, AnnotatedObject] = {}
        self._iteration = ResumableIteration(owners, owners.keepers(), self._correct_objects)

    async def all(self) -> bool:
        """Look at every owner that is not as it was when nothing was to be done; whether nothing is left to do."""
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
                complete &= await self._attempts.of_owner(obj.uid, partial(self._correct, kind, obj, wrong))
            elif wrong.is_all:
                self._correct_objects[obj.uid] = obj
            complete &= wrong.is_all
        return complete

    def _correction(self, kind: Kind[AnnotatedObject], obj: AnnotatedObject) -> _Correction:
        """All that is to be put right on one object, in one write."""
        written: dict[str, str | None] = {}
        copied: list[str] = []
        is_all = True
        for slot in slots_of(obj, per_ordinal=self._owners.is_per_ordinal(kind)):
            if is_copied(obj, slot):
                copied.append(slot)
                written |= without(obj, slot)
            elif home_in(obj, slot) and not is_confirmed(obj, slot):
                of_slot = self._sealed(kind, obj, slot)
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

    def _sealed(self, kind: Kind[AnnotatedObject], obj: AnnotatedObject, slot: str) -> dict[str, str | None] | None:
        """A person wrote it after whatever migration there was: its home does not follow that one any more.

        ``None`` while the pod in which the machine runs since then is not in the picture.
        """
        home, running = home_in(obj, slot), self._owners.running(obj)
        written = ownership_annotations(Owner(kind, obj, slot, running or obj), home, self._recorder.machine(home))
        if running is not None and running.moved_to == running.node_name != "":
            if (pod := self._active.of(running)) is None:
                return None
            written[slot_key(HOME_POD, slot)] = pod.uid
        return written


MOST_ORPHANS: Final = 1000
"""Homes of a namespace whose machines are not there that are kept: the last ones that were written."""

MOST_OF_NAMESPACE: Final = 10_000
"""Homes of one namespace: those that are there are kept up, and no more are made."""

MOST_REMEMBERED: Final = 512
"""Homes of one object that are remembered."""


class RememberedHomes:
    """Keeps the Home objects as the owners' homes are, and gives homes back to owners that were made anew."""

    def __init__(self, owners: Owners, attempts: WriteBudget, handle: Handle) -> None:
        self._attempts = attempts
        self._handle = handle
        self._noted: dict[str, tuple[AnnotatedObject, tuple[Home, ...]]] = {}
        self._owners = owners
        self._full: set[str] = set()
        self._kinds = {(it.api_version, it.kind): it for it in owners.keepers() if owners.is_remembered(it)}
        self._iteration = ResumableIteration(owners, self._kinds.values(), self._noted)
        self._iteration_of_homes = ResumableIteration(handle.objects, (HOMES,), {})

    async def all(self) -> bool:
        """Give back what is remembered, and forget what a person gave up."""
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
        """Of machines that are not there as many are kept as may be."""
        complete, steps = True, Steps(self._handle.timing.sleep)
        orphans: dict[str, list[Home]] = {}
        for home in self._handle.objects.every(HOMES):
            await steps()
            kind = self._kind_of(home)
            with suppress(Unreadable):  # it is there
                if kind is not None and self._handle.objects.get(kind, home.namespace, home.keeper.name) is None:
                    orphans.setdefault(home.namespace, []).append(home)
        for found_there in orphans.values():
            for home in sorted(found_there, key=attrgetter("since"))[:-MOST_ORPHANS]:
                complete &= await self._forget(home)
        return complete

    def _kind_of(self, home: Home) -> Kind[AnnotatedObject] | None:
        return self._kinds.get((home.keeper.api_version, home.keeper.kind))

    async def _forget(self, home: Home) -> bool:
        return await self._attempts.of_memory("/".join(home.key), partial(self._handle.writer.delete, HOMES, home))

    async def _settle(self, kind: Kind[AnnotatedObject], obj: AnnotatedObject, home: Home) -> bool:
        """An object is there and has no home: its own was given up, or it has its predecessor's."""
        slot = home.keeper.slot
        if home.keeper.uid == obj.uid or last_pod_in(obj, slot):
            return await self._forget(home)
        if not is_slot(slot) or is_copied(obj, slot):
            return True
        owner = Owner(kind, obj, slot, obj, home)
        return await self._attempts.of_owner(" ".join(owner.key), partial(self._give_back, owner, home))

    async def _give_back(self, owner: Owner, home: Home) -> None:
        await self._handle.writer.annotate(owner.kind, owner.obj, restored_annotations(owner, home))
        _LOG.info("home remembered", machine=str(owner), node=home.node)
        events.remembered(self._handle.event_recorder, owner, home.node)

    async def note(self) -> bool:
        """Remember every home as it is now; whether nothing is left to do."""
        if not self._attempts.may_remember():
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
                    complete &= await self._attempts.of_memory(key, keep)
        return complete

    async def _there(self, steps: Steps) -> dict[str, set[str]]:
        """The names of the Homes of each namespace."""
        there: dict[str, set[str]] = defaultdict(set)
        for home in self._handle.objects.every(HOMES):
            await steps()
            there[home.namespace].add(home.name)
        return there

    def _has_room(self, there: set[str], namespace: str, name: str) -> bool:
        """Return whether one of that name may be written; it is counted then."""
        if name not in there and len(there) >= MOST_OF_NAMESPACE:
            if namespace not in self._full:
                self._full.add(namespace)
                _LOG.warning("homes not remembered", cause=f"namespace {namespace} has {MOST_OF_NAMESPACE} Homes")
            return False
        there.add(name)
        return True

    def _unnoted(self, kind: Kind[AnnotatedObject], obj: AnnotatedObject) -> tuple[str, ...]:
        """The slots whose homes are to be remembered. That there are none is noted. Raises ``Unreadable``."""
        noted, homes = self._noted.get(obj.uid, (None, ()))
        if noted is obj and all(self._handle.objects.get(HOMES, *home.key) is home for home in homes):
            return ()  # nothing has changed since nothing was to be done
        slots = tuple(self._to_remember(kind, obj))
        if not slots:
            known = (remembered(self._handle.objects, kind, obj, slot) for slot in self._slots_of(kind, obj))
            self._noted[obj.uid] = (obj, tuple(it for it in known if it is not None))
        return slots

    def _slots_of(self, kind: Kind[AnnotatedObject], obj: AnnotatedObject) -> list[str]:
        """Those that pods of the object can have: no more than ``MOST_REMEMBERED``, the first ordinals."""
        return list(filter(is_slot, slots_of(obj, per_ordinal=self._owners.is_per_ordinal(kind))))[:MOST_REMEMBERED]

    def _to_remember(self, kind: Kind[AnnotatedObject], obj: AnnotatedObject) -> Iterator[str]:
        """The slots with homes of the object's own that are to be remembered, and are not or otherwise."""
        for slot in self._slots_of(kind, obj):
            home = home_in(obj, slot)
            if home and is_confirmed(obj, slot) and is_subdomain(home):
                known = remembered(self._handle.objects, kind, obj, slot)
                told = (obj.uid, home, obj.annotations.get(slot_key(HOME_MACHINE, slot), ""))
                if known is None or told != (known.keeper.uid, known.node, known.machine):
                    yield slot


_PERIOD_SECONDS: Final = 1.0
_LATER_SECONDS: Final = 10.0


class Reconciler:
    """``is_off`` tells whether the policy of an owner with that pod is ``off``: nothing of that machine is recorded."""

    def __init__(
        self,
        args: StickyNodeArgs,
        owners: Owners,
        active: ActivePods,
        making: PendingHomes,
        recorder: Recorder,
        handle: Handle,
        *,
        is_off: Callable[[Owner, Pod], bool],
    ) -> None:
        self._handle = handle
        self._attempts = WriteBudget(handle.timing.clock)
        self._ownership = HomeOwnership(owners, active, recorder, self._attempts, handle)
        self._remembered = RememberedHomes(owners, self._attempts, handle)
        self._migrated = MigratedHomes(args, owners, active, making, recorder, self._attempts, handle, is_off)
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
        """A round each second in which an owner or a machine has changed, and later on for what the last one left."""
        while True:
            versions = tuple(map(self._handle.objects.version, self._kinds))
            if versions != self._seen or self._handle.timing.clock() >= self._again:
                self._seen = versions
                is_done = await self.round()
                wait = _PERIOD_SECONDS if self._attempts.writes else _LATER_SECONDS
                self._again = inf if is_done else self._handle.timing.clock() + wait
            await self._handle.timing.sleep(_PERIOD_SECONDS)

    async def round(self) -> bool:
        """Look at all owners and machines once; whether nothing is left to do. One at a time: another is left out."""
        if self._is_running:
            return False
        self._is_running = is_done = is_whole = True
        self._attempts.begin()
        try:
            for part in self._parts:
                self._attempts.begin_part()
                try:
                    is_done &= await part()
                except WriteBudgetExhausted:
                    is_done = is_whole = False
        finally:
            self._is_running = False
        if is_whole:
            self._attempts.end()
        return is_done
