"""A home that is the name's is remembered beyond its owner, and given back to an object made anew under that name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from app.framework.interface import Handle, Unreadable
from app.kube.homes_v1alpha1 import Home
from app.kube.kinds import AnnotatedObject, Kind
from app.kube.names import is_subdomain
from plugins.sticky_node import events
from plugins.sticky_node.attempts import Attempts
from plugins.sticky_node.home import heard_in, home_in, is_foreign, is_sealed, machine_key, slots_of, taken_back
from plugins.sticky_node.memory import HOMES, MOST_ORPHANS, Memory
from plugins.sticky_node.owners import Owner, Owners
from plugins.sticky_node.steps import Steps

_SLOT: Final = re.compile(r"[0-9-]*")
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
        self._kinds = {(it.api_version, it.kind): it for it in owners.keepers() if owners.is_remembered(it)}

    async def all(self) -> bool:
        """Give back what is remembered, and forget what a person gave up, or what is too much."""
        if not self._kinds:
            return True
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
                complete &= await self._attempts.of_memory(partial(self._memory.forget, home))
        return complete

    async def _settle(self, kind: Kind[AnnotatedObject], found: AnnotatedObject, home: Home) -> bool:
        """An object is there and has no home: its own was given up, or it has its predecessor's."""
        slot = home.keeper.slot
        if home.keeper.uid == found.uid or heard_in(found, slot):
            return await self._attempts.of_memory(partial(self._memory.forget, home))
        if not _SLOT.fullmatch(slot) or is_foreign(found, slot):
            return True
        return await self._attempts.of_owner(
            found.uid, partial(self._give_back, Owner(kind, found, slot, found, home), home)
        )

    async def _give_back(self, owner: Owner, home: Home) -> None:
        await self._writer.annotate(owner.kind, owner.found, taken_back(owner, home))
        _LOG.info("home remembered", machine=str(owner), node=home.node)
        events.remembered(self._events, owner, home.node)

    async def note(self) -> bool:
        """Remember every home as it is now; whether nothing is left to do."""
        complete, steps = True, Steps(self._sleep)
        seen: set[str] = set()
        for kind in self._kinds.values():
            for found in self._objects.every(kind):
                await steps()
                seen.add(found.uid)
                if self._is_noted(found):
                    continue
                slots = tuple(self._to_remember(kind, found))
                if not slots:
                    known = (self._memory.of(kind, found, slot) for slot in slots_of(found))
                    self._noted[found.uid] = (found, tuple(it for it in known if it is not None))
                for slot in slots:
                    complete &= await self._attempts.of_memory(partial(self._remember, kind, found, slot))
        for uid in self._noted.keys() - seen:
            del self._noted[uid]
        return complete

    def _is_noted(self, found: AnnotatedObject) -> bool:
        """Whether the object and what is remembered of it are as they were when nothing was to be done."""
        known, homes = self._noted.get(found.uid, (None, ()))
        return known is found and all(self._objects.get(HOMES, *home.key) is home for home in homes)

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
