"""Building blocks of background tasks: yielding, resumable iteration, a write budget, and a scan of all homes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from time import monotonic
from typing import Any, Final, Generic, Protocol, TypeVar

import structlog
from msgspec import Struct
from msgspec.structs import replace

from app.framework.background import next_delay
from app.framework.handle import Clock, Sleep
from app.framework.objects import NotServed, ObjectGone, Objects, Unreadable, WriteConflict
from app.homes.protocol import Whereabouts
from app.kube.api_errors import ApiUnavailable, UnknownOutcome
from app.kube.core_v1 import Pod
from app.kube.kinds import AnnotatedObject, Kind
from app.kube.kubevirt_v1 import VirtualMachineInstance
from plugins.sticky_node.annotations import HOME, recorded_home
from plugins.sticky_node.owners import HOMES, Owner, Owners, Slot
from plugins.sticky_node.pods import slots

_STEP: Final = 32
"""Number of items between two pauses of a generator. Generators count items instead of measuring time."""

STEP_SECONDS: Final = 0.001
"""Seconds of work after which a task yields. It first finishes the current item."""

TICK_SECONDS: Final = 0.25
"""Seconds that a background task sleeps before it checks for work again, and time limit of its writes in between."""

LOOK_SECONDS: Final = 1.0
"""Minimum time between two checks of all owners for changes, or of all waiting pods."""

Item = TypeVar("Item")


class Steps:
    """Lets other tasks run: await an instance once per item. It yields unless it yielded within ``STEP_SECONDS``."""

    def __init__(self, sleep: Sleep) -> None:
        self._sleep = sleep
        self._until = 0.0

    async def __call__(self) -> None:
        if monotonic() > self._until:
            await self._sleep(0)
            self._until = monotonic() + STEP_SECONDS


def in_steps(items: Iterable[Item | None]) -> Iterator[Item | None]:
    """Yield the items that are not ``None``, and one ``None`` per ``_STEP`` items so that the caller can pause."""
    for number, item in enumerate(items):
        if number % _STEP == _STEP - 1:
            yield None
        if item is not None:
            yield item


T = TypeVar("T", bound=AnnotatedObject)


class ObjectSource(Protocol):
    """Source of objects: the snapshot or ``Owners``, which yields ``None`` for objects that keep no homes."""

    def every(self, kind: Kind[T]) -> Iterator[T | None]: ...


class ResumableIteration(Generic[T]):
    """Iterates over all objects of some kinds. After an early stop, the next iteration starts at the last object."""

    def __init__(self, objects: ObjectSource, kinds: Iterable[Kind[T]], settled: dict[str, Any]) -> None:
        """``settled``: the caller's results by UID. A complete iteration removes those of objects not yielded."""
        self._objects = objects
        self._kinds = tuple(kinds)
        self._settled = settled
        self._at = ""

    def __iter__(self) -> Iterator[tuple[Kind[T], T | None]]:
        """Yield each object once with its kind, in its current version.

        For each skipped object, (kind, ``None``) is yielded, because skipping many objects takes time, too.
        """
        first = self._at
        is_there = not first
        there: set[str] = set()
        for kind, obj in self._every():
            is_there = is_there or (obj is not None and obj.uid == first)
            if is_there and obj is not None:
                self._at = obj.uid
                there.add(obj.uid)
            yield kind, obj if is_there else None
        for kind, obj in self._every() if first else ():
            if obj is not None:
                if is_there and obj.uid == first:
                    break
                self._at = obj.uid
                there.add(obj.uid)
            yield kind, obj
        self._at = ""
        for uid in self._settled.keys() - there:
            del self._settled[uid]

    def _every(self) -> Iterator[tuple[Kind[T], T | None]]:
        for kind in self._kinds:
            for obj in self._objects.every(kind):
                yield kind, obj


_MOST_WRITES: Final = 25
"""Maximum number of writes in one phase of a round, so that thousands of adopted homes do not delay other writes."""

_MOST_REFUSED: Final = 5
"""Maximum number of failed writes in one phase of a round, because further writes would probably fail, too."""

_MOST_OF_ONE: Final = 5
"""Maximum number of writes with one key within ``_WITHIN_SECONDS``, in case another client reverts each of them."""

_WITHIN_SECONDS: Final = 60.0
_SHORTEST_REST: Final = 60.0

_UNANSWERED_REST: Final = 2.0
"""First back-offs in seconds after a rejected write (``_SHORTEST_REST``), and after a write without an answer. The
latter is short, because a home might be waiting to be written.
"""

_LONGEST_REST: Final = 960.0
"""Maximum back-off in seconds."""
_LOG: Final = structlog.get_logger(__name__)


class WriteBudgetExhausted(Exception):  # not an error
    """The current phase of a round has used up its writes, or too many failed. The next round continues the phase."""


class _Backoff(Struct):
    """Back-off of a key. ``seconds``: its length. ``until``: its end on the monotonic clock."""

    seconds: float
    until: float


class _WriteCount(Struct):
    """Number of writes with one key since ``since`` (time on the monotonic clock)."""

    since: float
    writes: int = 0


class WriteBudget:
    """Limits writes per phase of a round and per key, and backs off from a key whose write fails. A key stands for an
    object, or for one home of it. Methods that write return true if nothing is left to do for the key. They raise
    ``WriteBudgetExhausted`` once the current phase has used up its writes, and at its fifth failure
    (``_MOST_REFUSED``).
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._backoffs: dict[str, _Backoff] = {}
        self._often: dict[str, _WriteCount] = {}
        self._causes: dict[bool, str] = {}
        self._remembers_from = 0.0
        self._refused = 0
        self._of_part = 0
        self.writes = 0

    def begin(self) -> None:
        """Begin a round: reset ``writes``, and forget old back-offs and counts of writes."""
        self.writes = 0
        now = self._clock()
        self._backoffs = {key: it for key, it in self._backoffs.items() if it.until + _LONGEST_REST > now}
        self._often = {key: it for key, it in self._often.items() if it.since + _WITHIN_SECONDS > now}

    def begin_part(self) -> None:
        """Begin a phase of the round. Each phase has its own limits of writes and of failures."""
        self._of_part = self._refused = 0

    def end(self) -> None:
        """End a complete round. If no back-off is left, the next failure is logged even if its cause is the same."""
        if not self._backoffs:
            self._causes.clear()

    def may_remember(self) -> bool:
        """Return true if Homes may be written. False for a minute after the API server did not serve the kind."""
        return self._clock() >= self._remembers_from

    async def of_owner(self, key: str, work: Callable[[], Awaitable[bool | None]]) -> bool:
        """Perform one write to an owner, unless the key is in back-off or was written too often (``_MOST_OF_ONE``).

        The back-off takes a minute after a rejected write, two seconds after one without an answer, and doubles with
        each further failure, up to 16 minutes. A repeated cause is not logged. ``key``: the object's UID, followed by
        the slot if the write concerns only one home. ``work`` writes; it returns ``False`` if something is left to do.
        """
        return await self._try(key, work, of_memory=False)

    async def of_memory(self, key: str, work: Callable[[], Awaitable[None]]) -> bool:
        """Perform one write of a Home object, with a back-off and a count of its own. ``key``: ``namespace/name``.

        If the API server does not serve the kind, no Home is written for a minute, and the result is ``False``.
        """
        if not self.may_remember():
            return False
        return await self._try(f"Home {key}", work, of_memory=True)

    async def _try(self, key: str, work: Callable[[], Awaitable[bool | None]], *, of_memory: bool) -> bool:
        now = self._clock()
        rest = self._backoffs.get(key)
        often = self._often.setdefault(key, _WriteCount(now))
        if (rest is not None and rest.until > now) or often.writes == _MOST_OF_ONE:
            return False
        if self._of_part == _MOST_WRITES:
            raise WriteBudgetExhausted
        self._of_part += 1
        self.writes += 1
        often.writes += 1
        try:
            is_done = await work() is not False
        except (WriteConflict, Unreadable):
            return False
        except ObjectGone:
            is_done = True
        except OSError as cause:
            if of_memory and isinstance(cause, NotServed):
                self._remembers_from = self._clock() + _SHORTEST_REST
            self._failed(key, cause, of_memory=of_memory)
            return False
        self._backoffs.pop(key, None)
        return is_done

    def _failed(self, key: str, failure: OSError, *, of_memory: bool) -> None:
        cause = str(failure)
        if cause != self._causes.get(of_memory):
            self._causes[of_memory] = cause
            _LOG.warning("homes not remembered" if of_memory else "homes not reconciled", cause=cause)
        before = self._backoffs.get(key)
        is_refused = not isinstance(failure.__cause__, (ApiUnavailable, UnknownOutcome))
        shortest = _SHORTEST_REST if is_refused else _UNANSWERED_REST
        seconds = next_delay(0.0 if before is None else before.seconds, shortest, _LONGEST_REST)
        self._backoffs[key] = _Backoff(seconds, self._clock() + seconds)
        self._refused += 1
        if self._refused == _MOST_REFUSED:
            raise WriteBudgetExhausted


class HomeEntry(Struct, frozen=True, gc=False):
    """Home of an owner, and the owner's pod. ``home`` is empty if the owner has only a pod. If there are several pods,
    ``pod`` is the one with the highest ``_rank``.

    ``waits_since``: creation time of the oldest pod without a node, in RFC 3339; empty if there is none.
    """

    owner: Owner
    home: str
    pod: Pod | None = None
    waits_since: str = ""

    @property
    def machine(self) -> Whereabouts:
        """State of the owner's pod: it runs at home, runs elsewhere, waits for a node, or does not exist."""
        if self.pod is None:
            return Whereabouts.IDLE
        if not self.pod.node_name:
            return Whereabouts.WAITING
        return Whereabouts.AT_HOME if self.pod.node_name == self.home else Whereabouts.ELSEWHERE


class HomeScan:
    """Scans all homes on every call: first the pods that can have a home, then the owners.

    ``remembered`` is a separate scan of the homes whose owners no longer exist.
    """

    def __init__(self, owners: Owners, objects: Objects) -> None:
        self._owners = owners
        self._objects = objects

    def __call__(self) -> Iterator[HomeEntry | None]:
        """Yield each home, and each owner with only a pod; ``None`` after short steps. Raises ``Unreadable``."""
        seen: dict[Slot, HomeEntry] = {}
        for pod in in_steps(self._owners.pods()):
            if pod is None:
                yield None
            elif not pod.terminating:
                self._note(pod, seen)
        for keeper in in_steps(self.owners()):
            if keeper is None:
                yield None
                continue
            owner = keeper if recorded_home(keeper) else self._owners.keeper(keeper.kind, keeper.obj, keeper.slot)
            if home := recorded_home(owner):
                entry = seen.pop(owner.key, None)
                yield HomeEntry(owner, home) if entry is None else replace(entry, home=home)
        for entry in in_steps(seen.values()):
            yield None if entry is None else replace(entry, home=recorded_home(entry.owner))

    def remembered(self) -> Iterator[HomeEntry | None]:
        """Yield the remembered homes whose owners no longer exist, and ``None`` after each short step."""
        for home in in_steps(self._objects.every(HOMES) if self._owners.remembers() else ()):
            if home is None:
                yield None
                continue
            with suppress(Unreadable):  # an unreadable owner exists
                owner = self._owners.gone(home)
                if owner is not None:
                    yield HomeEntry(owner, home.node)

    def _note(self, pod: Pod, seen: dict[Slot, HomeEntry]) -> None:
        owner = None
        with suppress(Unreadable):
            owner = self._owners.of(pod)
        if not isinstance(owner, Owner):
            return
        known = seen.get(owner.key)
        if known is None or known.pod is None or _rank(owner, pod) > _rank(owner, known.pod):
            since = "" if known is None else known.waits_since
            known = seen[owner.key] = HomeEntry(owner, "", pod, since)
        if not pod.node_name:
            since = min(pod.created, known.waits_since) if known.waits_since else pod.created
            seen[owner.key] = replace(known, waits_since=since)

    def owners(self) -> Iterator[Owner | None]:
        """Yield every owner once for each of its homes, or once without a slot if no home is written on it.

        Homes remembered from predecessors are not looked up. ``None`` replaces each object that keeps no homes.
        """
        for kind in self._owners.keepers():
            per_ordinal = self._owners.is_per_ordinal(kind)
            for obj in self._owners.every(kind):
                if obj is None:
                    yield None
                    continue
                for slot in slots(obj.annotations, HOME, per_ordinal=per_ordinal) or ("",):
                    yield Owner(kind, obj, slot, obj)


def _rank(owner: Owner, pod: Pod) -> int:
    """Return how advanced a pod is: 0 without a node, 1 elsewhere than at home, 2 at home.

    The result is 3 on the node that KubeVirt has published for the virtual machine.
    """
    if not pod.node_name:
        return 0
    machine = owner.controller
    if isinstance(machine, VirtualMachineInstance) and machine.node_name == pod.node_name:
        return 3
    return 2 if pod.node_name == recorded_home(owner) else 1
