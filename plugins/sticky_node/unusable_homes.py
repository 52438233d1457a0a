"""What becomes of homes: since when one is not usable is written on its owner, and every change is told.

Who writes tells. Several profiles may have the plugin, each looks at the same owners, and one of them comes first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, TypeAlias

import structlog
from msgspec import Struct

from app.framework.background import longer
from app.framework.handle import Handle
from app.framework.objects import ObjectGone, Unreadable, WriteConflict
from app.homes.protocol import Policy, State
from app.kube.api_errors import ApiError
from app.kube.kinds import NAMESPACES, AnnotatedObject, Kind
from plugins.sticky_node import events
from plugins.sticky_node.annotations import HOME, HOME_SINCE, recorded_home, slot_key
from plugins.sticky_node.background import Steps
from plugins.sticky_node.grace import GraceClocks, read_since
from plugins.sticky_node.home_state import HomeState, HomeStates
from plugins.sticky_node.owners import Owner, Owners, Slot
from plugins.sticky_node.pods import slots
from plugins.sticky_node.policy import Policies, unknown_policy

TICK_SECONDS: Final = 0.25
LOOK_SECONDS: Final = 1.0
PACE_SECONDS: Final = 0.02
"""Delay between two checks for changes, shortest one between two comparisons, and delay after each write."""

REST_SECONDS: Final = 5.0
LONGEST_REST: Final = 960.0
"""Shortest and longest time between two writes to an owner. It doubles for equal writes: profiles can disagree."""

AGAIN_SECONDS: Final = 60.0
"""Longest back-off of an owner that could not be written, and of all owners while a right seems to be missing."""

_REFUSING: Final = 3
"""Number of namespaces with forbidden writes, and no successful write since, from which a right seems to be missing."""

_FORBIDDEN: Final = 403
_PAUSE_SECONDS: Final = 1.0
_ATTEMPTS: Final = 5
_OF_OWNER: Final = "owner"

_ANY: Final = HomeState(State.NONE)
"""State of a home whose policy is ``off``: its node does not matter."""

_LOG: Final = structlog.get_logger(__name__)


class _OwnedHome(Struct, frozen=True):
    """One home as it is. ``standing``: by its node alone; ``NONE`` where the policy is ``off``."""

    owner: Owner
    node: str
    home_state: HomeState


_Homes: TypeAlias = Mapping[str, _OwnedHome]
"""Of one owner, by slot."""


class _CheckedOwner(Struct, frozen=True):
    """An owner as it was looked at last, with its homes as they were then."""

    obj: AnnotatedObject
    homes: _Homes


class _Unwritten(Struct):
    """``given``: slots whose homes are new or moved since the last write. ``pause``: seconds of the last back-off."""

    kind: Kind[AnnotatedObject]
    obj: AnnotatedObject
    given: set[str]
    pause: float = 0.0


class _WritePause(Struct, frozen=True):
    """What was written on an owner last, and for how many seconds, until when, it is left alone since."""

    changes: Mapping[str, str | None]
    seconds: float
    until: float


class UnusableHomes:
    """Checks the owners that changed, and all owners once a node has changed."""

    def __init__(
        self,
        owners: Owners,
        home_states: HomeStates,
        policies: Policies,
        clocks: GraceClocks,
        handle: Handle,
        kinds: Collection[Kind[Any]],
    ) -> None:
        self._owners = owners
        self._keepers: Final = tuple(owners.keepers())
        self._shared: Final = tuple(it for it in kinds if it == NAMESPACES)
        self._home_states = home_states
        self._policies = policies
        self._clocks = clocks
        self._handle = handle
        self.begin()

    def begin(self) -> None:
        """This process decides from now on: what others have seen meanwhile, it has not."""
        self._known: dict[str, _CheckedOwner] = {}
        self._stamp: tuple[object, object] = (None, None)
        self._looked_at = -LOOK_SECONDS
        self._unwritten: dict[str, _Unwritten] = {}
        self._resting: list[tuple[float, int, str]] = []
        self._due: list[tuple[float, int, str]] = []
        self._numbers = count()
        self._pauses: dict[str, _WritePause] = {}
        self._reported_unwritten: dict[Slot, State] = {}
        self._barred_until = 0.0
        self._pause = 0.0
        self._forbidden: set[str] = set()
        self._is_failure_logged = False

    async def run(self) -> None:
        """Look for changes and write them, until cancelled."""
        steps = Steps(self._handle.timing.sleep)
        while True:
            await self.look(steps)
            await self.write(TICK_SECONDS, steps)
            await self._handle.timing.sleep(TICK_SECONDS)

    async def look(self, steps: Steps) -> None:
        begun = {it.obj.uid: it for it in self._clocks.take_begun()}
        for owner in begun.values():
            with suppress(Unreadable):
                await self._look_again(owner.kind, owner.obj, steps)
            await steps()
        now, stamp = self._handle.timing.clock(), self._stamp_now()
        if stamp == self._stamp or now - self._looked_at < LOOK_SECONDS:
            return
        is_first, all_of_them = self._stamp[0] is None, stamp[0] != self._stamp[0]
        self._stamp, self._looked_at = stamp, now
        there: set[str] = set()
        for kind in self._keepers:
            for obj in self._owners.every(kind):
                if obj is None:
                    await steps()
                    continue
                there.add(obj.uid)
                known = self._known.get(obj.uid)
                if all_of_them or known is None or known.obj is not obj:
                    with suppress(Unreadable):  # looked at again once anything moves
                        await self._look_at(kind, obj, known, steps, is_first=is_first)
                await steps()
        for uid in self._known.keys() - there:
            self._pauses.pop(uid, None)
            for home in self._known.pop(uid).homes.values():
                self._reported_unwritten.pop(home.owner.key, None)
                self._clocks.forget(home.owner.key)

    def _stamp_now(self) -> tuple[object, object]:
        """What the states of all homes rest on, and what owners are there."""
        version = self._handle.objects.version
        of_all = (self._handle.nodes.generation, *(version(it) for it in self._shared))
        return of_all, tuple(version(it) for it in self._keepers)

    async def _look_at(
        self,
        kind: Kind[AnnotatedObject],
        obj: AnnotatedObject,
        known: _CheckedOwner | None,
        steps: Steps,
        *,
        is_first: bool,
    ) -> None:
        homes = await self._homes(kind, obj, steps)
        for slot, was in known.homes.items() if known is not None else ():
            if slot not in homes:
                self._clocks.ended(Owner(kind, obj, slot, obj), was.node)
        if await self._changes(obj, homes, steps):
            before = homes if is_first else {} if known is None else known.homes
            given = {slot for slot, it in homes.items() if slot not in before or before[slot].node != it.node}
            self._enqueue(kind, obj).given.update(given)
        else:
            self._report_settled(homes)
        self._report_policy(Owner(kind, obj, "", obj), known)
        self._known[obj.uid] = _CheckedOwner(obj, homes)

    async def _look_again(self, kind: Kind[AnnotatedObject], earlier: AnnotatedObject, steps: Steps) -> None:
        """At one owner, since a pod of its has earlier or it is about to be written, if it was looked at before."""
        obj, known = self._handle.objects.get(kind, earlier.namespace, earlier.name), self._known.get(earlier.uid)
        if obj is not None and known is not None and obj.uid == earlier.uid:
            await self._look_at(kind, obj, known, steps, is_first=False)

    def _enqueue(self, kind: Kind[AnnotatedObject], obj: AnnotatedObject) -> _Unwritten:
        uid = obj.uid
        if uid not in self._unwritten:
            rest = self._pauses.get(uid)
            self._wait(uid, _Unwritten(kind, obj, set()), 0.0 if rest is None else rest.until)
        return self._unwritten[uid]

    async def _homes(self, kind: Kind[AnnotatedObject], obj: AnnotatedObject, steps: Steps) -> _Homes:
        homes: dict[str, _OwnedHome] = {}
        for slot in slots(obj.annotations, HOME, per_ordinal=self._owners.is_per_ordinal(kind)):
            await steps()
            owner = Owner(kind, obj, slot, obj)
            node = recorded_home(owner)
            if node:
                homes[slot] = _OwnedHome(owner, node, self._home_state(owner, node))
        return homes

    def _home_state(self, owner: Owner, node: str) -> HomeState:
        """Where the owner itself does not say ``off``, the template of a pod may say more, which then has asked."""
        applied = self._policies.of(owner)
        is_off = applied.policy is Policy.OFF
        if is_off and (applied.source == _OF_OWNER or not self._clocks.is_asked(owner, node)):
            return _ANY
        return self._home_states.of_node(node, owner)

    def _report_written(self, obj: AnnotatedObject, homes: _Homes, given: Collection[str]) -> None:
        """What is news beside what was written on the owner before."""
        now = self._handle.timing.wall_clock()
        for slot, home in homes.items():
            written = read_since(obj.annotations.get(slot_key(HOME_SINCE, slot), ""), home.node, now)
            before = State.USABLE if written is None else written.state
            told = self._reported_unwritten.pop(home.owner.key, before)
            self._report(home, told, is_given=slot in given)

    def _report_unwritten(self, homes: _Homes, given: Collection[str]) -> None:
        for slot, home in homes.items():
            told = self._reported_unwritten.get(home.owner.key, State.USABLE)
            self._report(home, told, is_given=slot in given)
            self._reported_unwritten[home.owner.key] = home.home_state.state

    def _report_settled(self, homes: _Homes) -> None:
        """There is nothing to be written: of what could not be, people may still have been told."""
        for home in homes.values():
            told = self._reported_unwritten.pop(home.owner.key, None)
            if told is not None and home.home_state.state is State.USABLE:
                self._report(home, told, is_given=False)

    def _report(self, home: _OwnedHome, before: State, *, is_given: bool) -> None:
        events.state_changed(
            self._handle.event_recorder, home.owner, home.node, home.home_state, before=before, is_given=is_given
        )

    def _report_policy(self, owner: Owner, known: _CheckedOwner | None) -> None:
        policy = unknown_policy(owner)
        if policy and (known is None or policy != unknown_policy(Owner(owner.kind, known.obj, "", known.obj))):
            events.unknown_policy(self._handle.event_recorder, owner, policy)

    async def _changes(self, obj: AnnotatedObject, homes: _Homes, steps: Steps) -> dict[str, str | None]:
        """What is to be written on the owner. What another profile may need stays."""
        changes: dict[str, str | None] = {}
        for slot, home in homes.items():
            await steps()
            written = obj.annotations.get(slot_key(HOME_SINCE, slot))
            wanted = self._since(home, written)
            if wanted != written:
                changes[slot_key(HOME_SINCE, slot)] = wanted
        there = slots(obj.annotations, HOME_SINCE, per_ordinal=True)
        return {**changes, **dict.fromkeys(slot_key(HOME_SINCE, slot) for slot in there if slot not in homes)}

    def _since(self, home: _OwnedHome, written: str | None) -> str | None:
        state = home.home_state.state
        if state is State.NONE and self._policies.of(home.owner).source != _OF_OWNER:
            return written
        if state in (State.NONE, State.USABLE):
            self._clocks.ended(home.owner, home.node)
            return None
        return self._clocks.text(home.owner, home.node, state)

    async def write(self, seconds: float, steps: Steps) -> None:
        """Write what waits, for so long at most: first what could be written so far, and then in the order it came."""
        begun = self._handle.timing.clock()
        while self._resting and self._resting[0][0] <= begun:
            _, number, uid = heappop(self._resting)
            heappush(self._due, (self._unwritten[uid].pause, number, uid))
            await steps()
        while self._due:
            now = self._handle.timing.clock()
            if now >= begun + seconds or now < self._barred_until:
                return
            _, _, uid = heappop(self._due)
            entry = self._unwritten[uid]
            try:
                await self._write(uid, entry, steps)
            except Unreadable:  # nothing is known against which to write
                entry.pause = longer(entry.pause, _PAUSE_SECONDS, AGAIN_SECONDS)
                self._later(uid, entry, entry.pause)
            await self._handle.timing.sleep(PACE_SECONDS)

    async def _write(self, uid: str, entry: _Unwritten, steps: Steps) -> None:
        await self._look_again(entry.kind, entry.obj, steps)
        del self._unwritten[uid]
        for _ in range(_ATTEMPTS):
            obj = self._handle.objects.get(entry.kind, entry.obj.namespace, entry.obj.name)
            if obj is None or obj.uid != uid:
                return None
            homes = await self._homes(entry.kind, obj, steps)
            changes = await self._changes(obj, homes, steps)
            if not changes:
                return None
            try:
                await self._handle.writer.annotate(entry.kind, obj, changes)
            except WriteConflict:
                continue
            except ObjectGone:
                return None
            except OSError as cause:
                self._report_unwritten(homes, entry.given)
                return self._failed(uid, entry, cause)
            self._pause = 0.0
            self._forbidden.clear()
            self._is_failure_logged = False
            self._pause_writes(uid, changes)
            return self._report_written(obj, homes, entry.given)
        return self._later(uid, entry, _PAUSE_SECONDS)

    def _pause_writes(self, uid: str, changes: Mapping[str, str | None]) -> None:
        before = self._pauses.get(uid)
        seconds = REST_SECONDS
        now = self._handle.timing.clock()
        if before is not None and before.changes == changes and now - before.until < before.seconds:
            seconds = longer(before.seconds, REST_SECONDS, LONGEST_REST)
        self._pauses[uid] = _WritePause(changes, seconds, now + seconds)

    def _failed(self, uid: str, entry: _Unwritten, cause: OSError) -> None:
        """Said once until something can be written. What holds is in memory."""
        if not self._is_failure_logged:
            self._is_failure_logged = True
            machine = str(Owner(entry.kind, entry.obj, "", entry.obj))
            _LOG.warning("state of homes not recorded", machine=machine, verb="patch", cause=str(cause))
        refusal = cause.__cause__
        if isinstance(refusal, ApiError) and refusal.status == _FORBIDDEN:
            self._forbidden.add(entry.obj.namespace)
        if len(self._forbidden) >= _REFUSING:
            self._pause = longer(self._pause, _PAUSE_SECONDS, AGAIN_SECONDS)
            self._barred_until = self._handle.timing.clock() + self._pause
        entry.pause = longer(entry.pause, _PAUSE_SECONDS, AGAIN_SECONDS)
        self._later(uid, entry, entry.pause)

    def _later(self, uid: str, entry: _Unwritten, seconds: float) -> None:
        self._wait(uid, entry, self._handle.timing.clock() + seconds)

    def _wait(self, uid: str, entry: _Unwritten, until: float) -> None:
        """Of each that waits there is one entry, of those that rest or of those that are due."""
        self._unwritten[uid] = entry
        heappush(self._resting, (until, next(self._numbers), uid))
