"""Records on each owner the time at which its home became unusable, and reports every change of state.

Several profiles can have the plugin and see the same owners. The first one to write a change also reports it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final

import structlog
from msgspec import Struct

from app.framework.background import next_delay
from app.framework.handle import Handle
from app.framework.objects import ObjectGone, Unreadable, WriteConflict
from app.homes.protocol import Policy, State
from app.kube.api_errors import ApiError
from app.kube.kinds import NAMESPACES, AnnotatedObject, Kind
from plugins.sticky_node import events
from plugins.sticky_node.annotations import HOME, HOME_SINCE, recorded_home, slot_key
from plugins.sticky_node.background import LOOK_SECONDS, TICK_SECONDS, Steps
from plugins.sticky_node.events import HomesBySlot, OwnedHome, StateReporter
from plugins.sticky_node.grace import GraceClocks
from plugins.sticky_node.home_state import HomeState, HomeStates
from plugins.sticky_node.owners import Owner, Owners
from plugins.sticky_node.pods import slots
from plugins.sticky_node.policy import Policies, unknown_policy

WRITE_INTERVAL_SECONDS: Final = 0.02
"""Delay after each write, which limits writes to 50 per second."""

REST_SECONDS: Final = 5.0
"""Minimum pause after a successful write to an owner."""
LONGEST_REST: Final = 960.0
"""Maximum of the pause after a write. It doubles if the same value is soon written again: profiles can disagree.
"""

AGAIN_SECONDS: Final = 60.0
"""Maximum back-off of an owner that cannot be written, and of all owners while a permission seems to be missing."""

_REFUSING: Final = 3
"""If writes are forbidden in this many namespaces, and none succeeds, a permission is assumed to be missing."""

_FORBIDDEN: Final = 403
_PAUSE_SECONDS: Final = 1.0
"""First back-off in seconds of an owner that cannot be written, and of all owners (see ``AGAIN_SECONDS``)."""

_ATTEMPTS: Final = 5
"""Maximum number of attempts of one write while the owner keeps changing."""

_OF_OWNER: Final = "owner"

_ANY: Final = HomeState(State.NONE)
"""State of a home whose policy is ``off``: its node does not matter."""

_LOG: Final = structlog.get_logger(__name__)


class _CheckedOwner(Struct, frozen=True):
    """Owner as last checked, with its homes at that time."""

    obj: AnnotatedObject
    homes: HomesBySlot


class _Unwritten(Struct):
    """Owner to write. ``given``: slots with new or moved homes. ``pause``: last back-off in seconds."""

    kind: Kind[AnnotatedObject]
    obj: AnnotatedObject
    given: set[str]
    pause: float = 0.0


class _WritePause(Struct, frozen=True):
    """Last write to an owner, and the pause after it, which ends at ``until`` on the monotonic clock."""

    changes: Mapping[str, str | None]
    seconds: float
    until: float


class UnusableHomes:
    """Checks owners that changed, and all owners once a node or, with namespace rules, a Namespace has changed.

    It writes ``home-since`` to the owners whose annotation is not up to date.
    """

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
        """Clear the memory when this process becomes the leader, because the memory can be outdated."""
        self._known: dict[str, _CheckedOwner] = {}
        self._stamp: tuple[object, object] = (None, None)
        self._looked_at = -LOOK_SECONDS
        self._unwritten: dict[str, _Unwritten] = {}
        self._delayed: list[tuple[float, int, str]] = []
        self._ready: list[tuple[float, int, str]] = []
        self._numbers = count()
        self._pauses: dict[str, _WritePause] = {}
        self._reporter = StateReporter(self._handle)
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
        """Check for changes, and queue the owners that have to be written."""
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
                    with suppress(Unreadable):  # checked again after the next change
                        await self._look_at(kind, obj, known, steps, is_first=is_first)
                await steps()
        for uid in self._known.keys() - there:
            self._pauses.pop(uid, None)
            for home in self._known.pop(uid).homes.values():
                self._reporter.forget(home.owner.key)
                self._clocks.forget(home.owner.key)

    def _stamp_now(self) -> tuple[object, object]:
        """Return two keys: one changes with nodes and Namespaces, which all home states depend on, one with owners."""
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
            self._reporter.settled(homes)
        self._report_policy(Owner(kind, obj, "", obj), known)
        self._known[obj.uid] = _CheckedOwner(obj, homes)

    async def _look_again(self, kind: Kind[AnnotatedObject], earlier: AnnotatedObject, steps: Steps) -> None:
        """Check the newest version of an owner that was checked before. It is called after a pod has started a grace
        period, and before a write.
        """
        obj, known = self._handle.objects.get(kind, earlier.namespace, earlier.name), self._known.get(earlier.uid)
        if obj is not None and known is not None and obj.uid == earlier.uid:
            await self._look_at(kind, obj, known, steps, is_first=False)

    def _enqueue(self, kind: Kind[AnnotatedObject], obj: AnnotatedObject) -> _Unwritten:
        uid = obj.uid
        if uid not in self._unwritten:
            pause = self._pauses.get(uid)
            delay = 0.0 if pause is None else pause.until - self._handle.timing.clock()
            self._wait(uid, _Unwritten(kind, obj, set()), delay)
        return self._unwritten[uid]

    async def _homes(self, kind: Kind[AnnotatedObject], obj: AnnotatedObject, steps: Steps) -> HomesBySlot:
        homes: dict[str, OwnedHome] = {}
        for slot in slots(obj.annotations, HOME, per_ordinal=self._owners.is_per_ordinal(kind)):
            await steps()
            owner = Owner(kind, obj, slot, obj)
            node = recorded_home(owner)
            if node:
                homes[slot] = OwnedHome(owner, node, self._home_state(owner, node))
        return homes

    def _home_state(self, owner: Owner, node: str) -> HomeState:
        """Return the state of a home, from its node alone; ``NONE`` if the policy is ``off``.

        A pod template can override ``off``, unless the owner's annotation sets it. If a pod has then requested the
        grace period, the node's state is returned.
        """
        applied = self._policies.of(owner)
        is_off = applied.policy is Policy.OFF
        if is_off and (applied.source == _OF_OWNER or not self._clocks.is_requested(owner, node)):
            return _ANY
        return self._home_states.of_node(node, owner)

    def _report_policy(self, owner: Owner, known: _CheckedOwner | None) -> None:
        policy = unknown_policy(owner)
        if policy and (known is None or policy != unknown_policy(Owner(owner.kind, known.obj, "", known.obj))):
            events.unknown_policy(self._handle.event_recorder, owner, policy)

    async def _changes(self, obj: AnnotatedObject, homes: HomesBySlot, steps: Steps) -> dict[str, str | None]:
        """Return the annotations to write on the owner; ``None`` removes a key. Keys are kept if other profiles might
        need them.
        """
        changes: dict[str, str | None] = {}
        for slot, home in homes.items():
            await steps()
            written = obj.annotations.get(slot_key(HOME_SINCE, slot))
            wanted = self._since(home, written)
            if wanted != written:
                changes[slot_key(HOME_SINCE, slot)] = wanted
        there = slots(obj.annotations, HOME_SINCE, per_ordinal=True)
        return {**changes, **dict.fromkeys(slot_key(HOME_SINCE, slot) for slot in there if slot not in homes)}

    def _since(self, home: OwnedHome, written: str | None) -> str | None:
        state = home.home_state.state
        if state is State.NONE and self._policies.of(home.owner).source != _OF_OWNER:
            return written
        if state in (State.NONE, State.USABLE):
            self._clocks.ended(home.owner, home.node)
            return None
        return self._clocks.text(home.owner, home.node, state)

    async def write(self, seconds: float, steps: Steps) -> None:
        """Write queued owners for at most ``seconds``: shortest back-off first, equal ones in queue order."""
        begun = self._handle.timing.clock()
        while self._delayed and self._delayed[0][0] <= begun:
            _, number, uid = heappop(self._delayed)
            heappush(self._ready, (self._unwritten[uid].pause, number, uid))
            await steps()
        while self._ready:
            now = self._handle.timing.clock()
            if now >= begun + seconds or now < self._barred_until:
                return
            _, _, uid = heappop(self._ready)
            entry = self._unwritten[uid]
            try:
                await self._write(uid, entry, steps)
            except Unreadable:  # the owner cannot be read now: retry later
                entry.pause = next_delay(entry.pause, _PAUSE_SECONDS, AGAIN_SECONDS)
                self._wait(uid, entry, entry.pause)
            await self._handle.timing.sleep(WRITE_INTERVAL_SECONDS)

    async def _write(self, uid: str, entry: _Unwritten, steps: Steps) -> None:
        """Write one queued owner if it still needs a write. If the write fails, queue the owner again.

        Raises ``Unreadable``.
        """
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
                self._reporter.unwritten(homes, entry.given)
                return self._failed(uid, entry, cause)
            self._pause = 0.0
            self._forbidden.clear()
            self._is_failure_logged = False
            self._pause_writes(uid, changes)
            return self._reporter.written(obj, homes, entry.given)
        return self._wait(uid, entry, _PAUSE_SECONDS)

    def _pause_writes(self, uid: str, changes: Mapping[str, str | None]) -> None:
        before = self._pauses.get(uid)
        seconds = REST_SECONDS
        now = self._handle.timing.clock()
        if before is not None and before.changes == changes and now - before.until < before.seconds:
            seconds = next_delay(before.seconds, REST_SECONDS, LONGEST_REST)
        self._pauses[uid] = _WritePause(changes, seconds, now + seconds)

    def _failed(self, uid: str, entry: _Unwritten, cause: OSError) -> None:
        """Log the first failed write since a success, and queue the owner for a retry.

        If a permission seems to be missing, no owner is written for a while.
        """
        if not self._is_failure_logged:
            self._is_failure_logged = True
            machine = str(Owner(entry.kind, entry.obj, "", entry.obj))
            _LOG.warning("state of homes not recorded", machine=machine, verb="patch", cause=str(cause))
        refusal = cause.__cause__
        if isinstance(refusal, ApiError) and refusal.status == _FORBIDDEN:
            self._forbidden.add(entry.obj.namespace)
        if len(self._forbidden) >= _REFUSING:
            self._pause = next_delay(self._pause, _PAUSE_SECONDS, AGAIN_SECONDS)
            self._barred_until = self._handle.timing.clock() + self._pause
        entry.pause = next_delay(entry.pause, _PAUSE_SECONDS, AGAIN_SECONDS)
        self._wait(uid, entry, entry.pause)

    def _wait(self, uid: str, entry: _Unwritten, seconds: float) -> None:
        """Queue an owner for a write after a delay. Each owner is in only one of ``_delayed`` and ``_ready``, once."""
        self._unwritten[uid] = entry
        heappush(self._delayed, (self._handle.timing.clock() + seconds, next(self._numbers), uid))
