"""A home that is the name's is remembered beyond its owner, and given back to an object made anew under that name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from app.framework.interface import Handle, Unreadable
from app.kube.homes_v1alpha1 import Home, memory_name
from app.kube.kinds import AnnotatedObject, Kind
from app.kube.names import is_subdomain
from plugins.sticky_node import events
from plugins.sticky_node.attempts import Attempts
from plugins.sticky_node.home import heard_in, home_in, is_foreign, is_sealed, machine_key, slots_of, taken_back
from plugins.sticky_node.memory import HOMES, MOST_OF_NAMESPACE, MOST_ORPHANS, MOST_REMEMBERED, Memory
from plugins.sticky_node.owners import Owner, Owners
from plugins.sticky_node.slots import is_slot
from plugins.sticky_node.steps import Steps
from plugins.sticky_node.turns import Turns

_LOG: Final = structlog.get_logger(__name__)


class Remembering:
    """Goes over what is remembered, and over the owners whose homes are to be."""

    def __init__(self, owners: Owners, attempts: Attempts, handle: Handle) -> None:
        self._attempts = attempts
        self._objects = handle.objects
        self._writer = handle.writer
        self._events = handle.event_recorder
        self._sleep = handle.sleep
        self._memory = Memory(handle.objects, handle.writer, handle.wall_clock)
        self._noted: dict[str, tuple[AnnotatedObject, tuple[Home, ...]]] = {}
        self._owners = owners
        self._full: set[str] = set()
        self._kinds = {(it.api_version, it.kind): it for it in owners.keepers() if owners.is_remembered(it)}
        self._turns = Turns(owners, self._kinds.values())
        self._turns_of_homes = Turns(handle.objects, (HOMES,))

    async def all(self) -> bool:
        """Give back what is remembered, and forget what a person gave up."""
        complete, steps = True, Steps(self._sleep)
        for _, home in self._turns_of_homes if self._kinds else ():
            await steps()
            kind = None if home is None else self._kind_of(home)
            if home is None or kind is None:
                continue
            try:
                found = self._objects.get(kind, home.namespace, home.keeper.name)
                slot = home.keeper.slot
                if found is None or not self._owners.keeps(kind, found):
                    continue
                if self._memory.of(kind, found, slot) is not home or home_in(found, slot):
                    continue
            except Unreadable:
                complete = False
                continue
            complete &= await self._settle(kind, found, home)
        return complete

    async def forget(self) -> bool:
        """Of machines that are not there as many are kept as may be."""
        complete, steps = True, Steps(self._sleep)
        orphans: dict[str, list[Home]] = {}
        for home in self._objects.every(HOMES) if self._kinds else ():
            await steps()
            kind = self._kind_of(home)
            with suppress(Unreadable):  # it is there
                if kind is not None and self._objects.get(kind, home.namespace, home.keeper.name) is None:
                    orphans.setdefault(home.namespace, []).append(home)
        for found_there in orphans.values():
            found_there.sort(key=lambda it: it.since)
            for home in found_there[:-MOST_ORPHANS]:
                complete &= await self._forget(home)
        return complete

    def _kind_of(self, home: Home) -> Kind[AnnotatedObject] | None:
        return self._kinds.get((home.keeper.api_version, home.keeper.kind))

    async def _forget(self, home: Home) -> bool:
        return await self._attempts.of_memory("/".join(home.key), partial(self._memory.forget, home))

    async def _settle(self, kind: Kind[AnnotatedObject], found: AnnotatedObject, home: Home) -> bool:
        """An object is there and has no home: its own was given up, or it has its predecessor's."""
        slot = home.keeper.slot
        if home.keeper.uid == found.uid or heard_in(found, slot):
            return await self._forget(home)
        if not is_slot(slot) or is_foreign(found, slot):
            return True
        owner = Owner(kind, found, slot, found, home)
        return await self._attempts.of_owner(" ".join(owner.key), partial(self._give_back, owner, home))

    async def _give_back(self, owner: Owner, home: Home) -> None:
        await self._writer.annotate(owner.kind, owner.found, taken_back(owner, home))
        _LOG.info("home remembered", machine=str(owner), node=home.node)
        events.remembered(self._events, owner, home.node)

    async def note(self) -> bool:
        """Remember every home as it is now; whether nothing is left to do."""
        if not self._kinds:
            return True
        if not self._attempts.may_remember():
            return False
        complete, steps = True, Steps(self._sleep)
        seen: set[str] = set()
        there: dict[str, set[str]] | None = None
        for kind, found in self._turns:
            await steps()
            if found is None:
                continue
            seen.add(found.uid)
            try:
                slots = self._unnoted(kind, found)
            except Unreadable:
                complete = False
                continue
            for slot in slots:
                name = memory_name(kind.api_version, kind.kind, found.name, slot)
                there = await self._there(steps) if there is None else there
                if self._has_room(there[found.namespace], found.namespace, name):
                    key = f"{found.namespace}/{name}"
                    complete &= await self._attempts.of_memory(key, partial(self._remember, kind, found, slot))
        for uid in self._noted.keys() - seen:
            del self._noted[uid]
        return complete

    async def _there(self, steps: Steps) -> dict[str, set[str]]:
        """The names of the Homes of each namespace."""
        there: dict[str, set[str]] = defaultdict(set)
        for home in self._objects.every(HOMES):
            await steps()
            there[home.namespace].add(home.name)
        return there

    def _has_room(self, there: set[str], namespace: str, name: str) -> bool:
        """Whether one of that name may be written; it is counted then."""
        if name not in there and len(there) >= MOST_OF_NAMESPACE:
            if namespace not in self._full:
                self._full.add(namespace)
                _LOG.warning("homes not remembered", cause=f"namespace {namespace} has {MOST_OF_NAMESPACE} Homes")
            return False
        there.add(name)
        return True

    def _unnoted(self, kind: Kind[AnnotatedObject], found: AnnotatedObject) -> tuple[str, ...]:
        """The slots whose homes are to be remembered. That there are none is noted. Raises ``Unreadable``."""
        if self._is_noted(found):
            return ()
        slots = tuple(self._to_remember(kind, found))
        if not slots:
            known = (self._memory.of(kind, found, slot) for slot in self._slots_of(kind, found))
            self._noted[found.uid] = (found, tuple(it for it in known if it is not None))
        return slots

    def _is_noted(self, found: AnnotatedObject) -> bool:
        """Whether the object and what is remembered of it are as they were when nothing was to be done."""
        known, homes = self._noted.get(found.uid, (None, ()))
        return known is found and all(self._objects.get(HOMES, *home.key) is home for home in homes)

    def _slots_of(self, kind: Kind[AnnotatedObject], found: AnnotatedObject) -> list[str]:
        """Those that pods of the object can have: no more than ``MOST_REMEMBERED``, the first ordinals."""
        there = slots_of(found, per_ordinal=self._owners.is_per_ordinal(kind))
        return list(filter(is_slot, there))[:MOST_REMEMBERED]

    def _to_remember(self, kind: Kind[AnnotatedObject], found: AnnotatedObject) -> Iterator[str]:
        """The slots with homes of the object's own that are to be remembered, and are not or otherwise."""
        for slot in self._slots_of(kind, found):
            home = home_in(found, slot)
            if home and is_sealed(found, slot) and is_subdomain(home):
                known = self._memory.of(kind, found, slot)
                told = (found.uid, home, found.annotations.get(machine_key(slot), ""))
                if known is None or told != (known.keeper.uid, known.node, known.machine):
                    yield slot

    async def _remember(self, kind: Kind[AnnotatedObject], found: AnnotatedObject, slot: str) -> None:
        machine = found.annotations.get(machine_key(slot), "")
        await self._memory.keep(kind, found, slot, home_in(found, slot), machine)
