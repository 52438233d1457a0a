"""Corrects recorded homes outside of binds, and remembers homes beyond their owners.

The owner's UID is written beside a home that a user, or an earlier Homeport, wrote, so that a copy on another object is
recognized later. A copied home is removed, so that whatever a user writes there later is clearly the user's.

A home that belongs to a name is also kept in a Home object (``kubectl get homes``), so that a machine recreated under
its name gets its home back. Without the CustomResourceDefinition, homes end with their owners.
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

from app.framework.handle import Handle
from app.framework.objects import Unreadable
from app.kube.core_v1 import Pod
from app.kube.homes_v1alpha1 import HomeRecord, memory_name
from app.kube.kinds import AnnotatedObject, Kind
from app.kube.names import is_subdomain
from plugins.sticky_node import events
from plugins.sticky_node.annotations import (
    HOME_MACHINE,
    home_in,
    is_confirmed,
    is_copied,
    last_pod_in,
    remember,
    restored_annotations,
    slot_key,
    slots_of,
)
from plugins.sticky_node.args import StickyNodeArgs
from plugins.sticky_node.background import ResumableIteration, Steps, WriteBudget, WriteBudgetExhausted
from plugins.sticky_node.home_ownership import HomeOwnership
from plugins.sticky_node.migrated_homes import MigratedHomes
from plugins.sticky_node.owners import HOMES, Owner, Owners, remembered
from plugins.sticky_node.pods import ActivePods, is_slot
from plugins.sticky_node.recorder import PendingHomes, Recorder

_LOG: Final = structlog.get_logger(__name__)


MOST_ORPHANS: Final = 1000
"""Maximum number of remembered homes per namespace whose owners do not exist; the newest are kept."""

MOST_OF_NAMESPACE: Final = 10_000
"""Maximum number of Homes in one namespace: beyond it, existing Homes are updated, but no more are created."""

MOST_REMEMBERED: Final = 512
"""Maximum number of remembered homes of one object."""


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
        """Restore remembered homes, and delete those whose home a user removed.

        Return whether nothing is left to do.
        """
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
        """Delete the oldest remembered homes of missing owners beyond ``MOST_ORPHANS``; return whether nothing is left
        to do.
        """
        complete, steps = True, Steps(self._handle.timing.sleep)
        orphans: dict[str, list[HomeRecord]] = {}
        for home in self._handle.objects.every(HOMES):
            await steps()
            kind = self._kind_of(home)
            with suppress(Unreadable):  # an unreadable owner exists
                if kind is not None and self._handle.objects.get(kind, home.namespace, home.keeper.name) is None:
                    orphans.setdefault(home.namespace, []).append(home)
        for found_there in orphans.values():
            for home in sorted(found_there, key=attrgetter("since"))[:-MOST_ORPHANS]:
                complete &= await self._forget(home)
        return complete

    def _kind_of(self, home: HomeRecord) -> Kind[AnnotatedObject] | None:
        return self._kinds.get((home.keeper.api_version, home.keeper.kind))

    async def _forget(self, home: HomeRecord) -> bool:
        return await self._budget.of_memory("/".join(home.key), partial(self._handle.writer.delete, HOMES, home))

    async def _settle(self, kind: Kind[AnnotatedObject], obj: AnnotatedObject, home: HomeRecord) -> bool:
        """Handle an existing object without a home: delete its own Home, or restore its predecessor's."""
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
        """Write every changed home to its Home object; return whether nothing is left to do."""
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
        """Return whether a Home of that name may be written; if so, count it."""
        if name not in there and len(there) >= MOST_OF_NAMESPACE:
            if namespace not in self._full:
                self._full.add(namespace)
                _LOG.warning("homes not remembered", cause=f"namespace {namespace} has {MOST_OF_NAMESPACE} Homes")
            return False
        there.add(name)
        return True

    def _unnoted(self, kind: Kind[AnnotatedObject], obj: AnnotatedObject) -> tuple[str, ...]:
        """Return the slots whose homes have to be written. An empty result is cached until something changes.

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
        """Return the slots that pods of the object can have, at most ``MOST_REMEMBERED``, lowest ordinals first."""
        return list(filter(is_slot, slots_of(obj, per_ordinal=self._owners.is_per_ordinal(kind))))[:MOST_REMEMBERED]

    def _to_remember(self, kind: Kind[AnnotatedObject], obj: AnnotatedObject) -> Iterator[str]:
        """Yield the slots with confirmed homes whose Home object is missing or different."""
        for slot in self._slots_of(kind, obj):
            home = home_in(obj, slot)
            if home and is_confirmed(obj, slot) and is_subdomain(home):
                known = remembered(self._handle.objects, kind, obj, slot)
                told = (obj.uid, home, obj.annotations.get(slot_key(HOME_MACHINE, slot), ""))
                if known is None or told != (known.keeper.uid, known.node, known.machine):
                    yield slot


_PERIOD_SECONDS: Final = 1.0
"""Delay between two checks for changes, and before the next round if the last one wrote something."""
_LATER_SECONDS: Final = 10.0
"""Delay before the next round if the last one left something to do but wrote nothing."""


class Reconciler:
    """Runs the corrections of recorded homes in rounds.

    ``is_off``: returns whether the policy of an owner with that pod is ``off``, so that nothing is recorded for its
    machine.
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
        """Run a round, at most one per second, when an owner or a machine has changed, and later for what was left
        over.
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
        """Check all owners and machines once; return whether nothing is left to do. A concurrent call returns ``False``
        at once.
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
