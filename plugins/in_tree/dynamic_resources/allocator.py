"""Finds devices for the claims of a pod on a node: the first full solution of an exhaustive search.

Claims one after the other, of each its requests, of each request one device after the other; whoever cannot be had
sends the search back to the one before. Source of the rules: ``structured/internal/incubating`` of Kubernetes 1.36, in
whose order devices are tried: which of several alternatives a request gets shows in its score.

A tenant can write claims for which such a search takes hours. It has a number of steps, and then it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, product
from typing import Final, TypeAlias

from msgspec import Struct

from app.kube.core_v1 import Node
from app.kube.resource_v1 import (
    MOST_RESULTS,
    Amount,
    Amounts,
    Device,
    DeviceClass,
    DeviceID,
    DeviceRequest,
    DeviceTaint,
    ExactRequest,
    ResourceClaim,
    ResourceSlice,
)
from plugins.in_tree.dynamic_resources.capacity import consumed, fits
from plugins.in_tree.dynamic_resources.constraints import Constraint, Match, constraint_of
from plugins.in_tree.dynamic_resources.pools import Pool, device_matches
from plugins.in_tree.dynamic_resources.unjudged import (
    REASON_EXPRESSION,
    REASON_LONG_OBJECT,
    REASON_STEPS,
    AllocationError,
    Unjudged,
)

MOST_STEPS: Final = 5000
"""Devices looked at for one node, and what their selectors take: some 20 ms. With 16 devices it is a few hundred."""

STEPS_OF_A_SELECTOR: Final = 8
"""What it counts to ask a selector about a device for the first time, be it ever so short."""

_PARTS_OF_A_STEP: Final = 8
"""Of an expression."""

_CHARACTERS_OF_A_STEP: Final = 8
"""Of an expression that is longer than ``_SHORT``: it may have to be read."""

_SHORT: Final = 256
_CONSTRAINTS_OF_A_STEP: Final = 4
_DEVICES_OF_A_STEP: Final = 8
_COUNTERS_OF_A_STEP: Final = 8

_MOST_LOOKED_AT: Final = 50_000
"""Devices, to prove that there are too few of them, when the steps are used up: some 25 ms in all."""

_DEVICES_BETWEEN_TURNS: Final = 4096
"""Devices that such a proof looks at before others have their turn."""

MOST_DEVICES: Final = 128
"""Or requests, of one pod: each is a few calls deep."""

REASON_INVALID_POOLS: Final = "invalid resource pools were encountered"
ALL: Final = "All"
EXACT_COUNT: Final = "ExactCount"
_TAINTED: Final = ("NoSchedule", "NoExecute")
_NONE: Final[Amounts] = {}

_MOST_CHOICES: Final = 32
"""Of values that several constraints could mean, before they are left out of account."""

_Value: TypeAlias = tuple[type, object]
_NO_VALUE: Final[_Value] = (object, None)

RequestKey: TypeAlias = tuple[int, int, int]
"""Which claim, which of its requests, which of the alternatives of that."""

Undo: TypeAlias = Callable[[], None]
"""Gives back one thing that was taken for a device."""


class Said(Struct, frozen=True):
    """What came of an expression for a device: true, false, or the words of an error; ``None`` where it is not judged.

    ``steps``: parts of it that were looked at.
    """

    outcome: bool | str | None
    steps: int = 0


Matches: TypeAlias = Callable[[str, str, Device], Said]
"""What an expression says of a device of a driver. The same answer, steps and all, whenever it is asked."""


class Use(Struct, frozen=True):
    """What claims have of the devices of a pool: ``taken`` as a whole, ``shared`` in part, with how much of it.

    ``shared`` is ``None`` for a device where nobody says how much.
    """

    taken: frozenset[str] = frozenset()
    shared: Mapping[str, Amounts | None] = {}


NO_USE: Final = Use()


class Failed(Struct, frozen=True):
    """There is no solution; ``reason`` is that of a node with invalid pools, else empty."""

    reason: str = ""


Solution: TypeAlias = tuple[frozenset[str], ...]
"""For each claim the alternatives that were chosen, as ``request/subrequest``."""


class _Unproven(Exception):
    """To prove that there are too few devices takes too long."""


class _TooMany(Exception):
    """A claim would get more devices than its status can hold. Sends the search further back than mere failure."""


class _Candidate(Struct, frozen=True, eq=False):
    """A device in its ``place`` among all of the node. ``taken``: a claim has it."""

    place: int
    device: Device
    id: DeviceID
    slice: ResourceSlice
    pool: Pool
    taken: bool


class _Request(Struct, eq=False):
    """A request, or one alternative of ``parent``, with what was found out about it."""

    request: ExactRequest
    parent: str
    device_class: DeviceClass
    count: int = 0
    all_devices: tuple[_Candidate, ...] = ()

    @property
    def admin_access(self) -> bool:
        return not self.parent and bool(self.request.admin_access)


class Search:
    """One search, for one node. ``uses`` tells what claims have of a pool, ``matches`` what a selector says."""

    def __init__(
        self,
        node: Node,
        claims: Sequence[ResourceClaim],
        pools: Sequence[Pool],
        classes: Callable[[str], DeviceClass | None],
        uses: Callable[[tuple[str, str]], Use],
        matches: Matches,
    ) -> None:
        self._node = node
        self._claims = claims
        self._pools = pools
        self._classes = classes
        self._uses = uses
        self._matches = matches
        self.steps = 0
        self._requests: dict[RequestKey, _Request] = {}
        self._constraints: list[list[Constraint]] = []
        self.devices = sum(len(it.devices) for pool in pools for it in pool.slices)
        """The number of devices that the node can reach."""
        self._candidates: list[_Candidate] = []
        self._more_candidates = self._made()
        self._selectable: dict[RequestKey, dict[int, bool]] = {}
        self._said: dict[str, dict[int, Said]] = {}
        self._looked_at = 0
        self._allocating: dict[DeviceID, set[int]] = {}
        self._capacity: dict[DeviceID, dict[str, Amount]] = {}
        self._available: dict[str, dict[str, dict[str, Amount]]] = {}
        self._consumed: dict[str, dict[str, dict[str, Amount]]] = {}
        self._overdrawn: set[str] = set()
        self._results: list[list[str]] = [[] for _ in claims]

    def _made(self) -> Iterator[_Candidate]:
        place = 0
        for pool in self._pools:
            for it in pool.slices:
                taken = self._uses(it.pool_id).taken
                for device in it.devices:
                    device_id = (it.driver, it.pool, device.name)
                    yield _Candidate(place, device, device_id, it, pool, device.name in taken)
                    place += 1

    def _from(self, start: int, stop: int | None = None) -> Iterator[_Candidate]:
        """Devices in their order. They are made when a search first gets there: few searches get far."""
        made = self._candidates
        for place in range(start, self.devices if stop is None else stop):
            while place >= len(made):
                made.append(next(self._more_candidates))
            yield made[place]

    def run(self) -> Generator[None, None, Solution | Failed]:
        """Search, and yield between short steps. Raises ``AllocationError`` and ``Unjudged``.

        All selectors are asked before the first yield.
        """
        total = sum(self._prepare(index, claim) for index, claim in enumerate(self._claims))
        total = max(total, sum(len(it.spec.requests) for it in self._claims))
        if total > MOST_DEVICES:
            raise Unjudged(REASON_STEPS)
        try:
            done = self._allocate(0, 0, 0, 0, alternative=False, start=0)
        except _TooMany:
            raise AllocationError("allocation max size exceeded") from None
        except Unjudged:
            if self.steps <= MOST_STEPS or not (yield from self._cannot_do()):
                raise
            done = False
        if done:
            return tuple(frozenset(it for it in found if "/" in it) for found in self._results)
        return Failed(REASON_INVALID_POOLS if any(it.invalid for it in self._pools) else "")

    # What is asked for.

    def _prepare(self, index: int, claim: ResourceClaim) -> int:
        """Find out about all requests of a claim; returns how many devices they need at the least."""
        if claim.spec.oversized:
            raise Unjudged(REASON_LONG_OBJECT)
        least = 0
        for number, request in enumerate(claim.spec.requests):
            counts = []
            for place, (asked, parent) in enumerate(_alternatives(request)):
                found = self._found_out(claim, (index, number, place), asked, parent)
                counts.append(found.count)
            least += min(counts)
        if least > MOST_RESULTS:
            raise AllocationError(
                f"claim {claim}: number of requested devices {least} exceeds the claim limit of {MOST_RESULTS}"
            )
        self._constraints.append([constraint_of(str(claim), *it) for it in enumerate(claim.spec.constraints)])
        return least

    def _found_out(self, claim: ResourceClaim, key: RequestKey, asked: ExactRequest, parent: str) -> _Request:
        self._step()
        where = f"claim {claim}, request {asked.name}"
        for number, selector in enumerate(asked.selectors):
            if selector is None:
                raise AllocationError(f"{where}, selector #{number}: CEL expression empty (unsupported selector type?)")
        if not asked.device_class:
            raise AllocationError(f"{where}: missing device class name (unsupported request type?)")
        device_class = self._classes(asked.device_class)
        if device_class is None:
            raise AllocationError(
                f"{where}: could not retrieve device class {asked.device_class}: "
                f'deviceclass.resource.k8s.io "{asked.device_class}" not found'
            )
        if device_class.oversized:
            raise Unjudged(REASON_LONG_OBJECT)
        found = self._requests[key] = _Request(asked, parent, device_class)
        if asked.mode == EXACT_COUNT:
            found.count = asked.count
        elif asked.mode == ALL:
            found.all_devices = tuple(self._all_devices(where, key, found))
            found.count = len(found.all_devices)
        else:
            raise AllocationError(f"{where}: unsupported count mode {asked.mode}")
        return found

    def _all_devices(self, where: str, key: RequestKey, request: _Request) -> list[_Candidate]:
        found: list[_Candidate] = []
        start = 0
        for pool in self._pools:
            if pool.incomplete:
                raise AllocationError(
                    f"{where}: asks for all devices, but resource pool {pool} is currently being updated"
                )
            if pool.invalid:
                raise AllocationError(f"{where}: asks for all devices, but resource pool {pool} is currently invalid")
            stop = start + sum(len(it.devices) for it in pool.slices)
            self._step(1 + (stop - start) // _DEVICES_OF_A_STEP)
            of_pool, start = self._from(start, stop), stop
            found += (it for it in of_pool if self._is_selectable(key, request, it) and self._has_capacity(request, it))
        return found

    # The search.

    def _allocate(self, claim: int, number: int, place: int, taken: int, *, alternative: bool, start: int) -> bool:
        """Find a device for what is asked for there, and for all that follows. ``taken``: devices it has already.

        ``alternative``: it is one particular alternative of its request. ``start``: the place at which it goes on; the
        order of the devices of one request makes no difference. Raises ``_TooMany``.
        """
        self._step()
        if claim >= len(self._claims):
            return True
        if number >= len(self._claims[claim].spec.requests):
            try:
                return self._allocate(claim + 1, 0, 0, 0, alternative=False, start=0)
            except _TooMany:
                return False  # another choice in this claim may leave the next an alternative with fewer devices
        request = self._requests[claim, number, place]
        if not alternative and request.parent:
            return self._first_available(claim, number)
        every = request.request.mode == ALL
        if every and not request.all_devices:
            return False
        if taken >= request.count:
            return self._allocate(claim, number + 1, 0, 0, alternative=False, start=0)
        if len(self._results[claim]) + request.count - taken > MOST_RESULTS:
            raise _TooMany
        here = (claim, number, place)
        if every:
            return self._take(here, taken, request, request.all_devices[taken], alternative, 0, must=True)
        return self._take_any(here, taken, request, alternative, start)

    def _first_available(self, claim: int, number: int) -> bool:
        too_many = True
        place = 0
        while (claim, number, place) in self._requests:
            try:
                if self._allocate(claim, number, place, 0, alternative=True, start=0):
                    return True
                too_many = False
            except _TooMany:
                pass
            place += 1
        if too_many:
            raise _TooMany
        return False

    def _take_any(self, here: RequestKey, taken: int, request: _Request, alternative: bool, start: int) -> bool:
        for candidate in self._from(start):
            self._step()
            if self._is_usable(here, request, candidate) and self._take(
                here, taken, request, candidate, alternative, candidate.place + 1, must=False
            ):
                return True
        return False

    def _is_usable(self, here: RequestKey, request: _Request, candidate: _Candidate) -> bool:
        if request.admin_access:
            if here[0] in self._allocating.get(candidate.id, ()):
                return False
        elif candidate.taken or self._allocating.get(candidate.id):
            return False
        return self._is_selectable(here, request, candidate) and self._has_capacity(request, candidate)

    def _take(
        self,
        here: RequestKey,
        taken: int,
        request: _Request,
        candidate: _Candidate,
        alternative: bool,
        following: int,
        *,
        must: bool,
    ) -> bool:
        """Take a device, and find all that follows; give it back where that cannot be found."""
        if sum(map(len, self._results)) >= MOST_DEVICES:
            raise Unjudged(REASON_STEPS)
        undo = self._occupy(here, request, candidate, must=must)
        if undo is None:
            return False
        try:
            if self._allocate(*here, taken + 1, alternative=alternative, start=following):
                return True
        except _TooMany:
            _roll_back(undo)
            raise
        _roll_back(undo)
        return False

    def _step(self, steps: int = 1) -> None:
        self.steps += steps
        if self.steps > MOST_STEPS:
            raise Unjudged(REASON_STEPS)

    def _cannot_do(self) -> Generator[None, None, bool]:
        """Return whether there are too few devices for all requests, however they are given out.

        Called when the steps of the search are used up. A device that no selector has judged yet counts as selected.
        """
        try:
            if (yield from self._any_shareable()):
                return False
            return (yield from self._is_proven())
        except _Unproven:
            return False

    def _look_at(self, devices: int) -> None:
        self._looked_at += devices
        if self._looked_at > _MOST_LOOKED_AT:
            raise _Unproven

    def _all_slices(self) -> Iterator[tuple[int, ResourceSlice] | None]:
        """Yield each slice with the place of its first device, and ``None`` where others may have their turn.

        It makes no candidates: that takes several times as long as to look at a device.
        """
        self._look_at(self.devices)
        place = pause = 0
        for pool in self._pools:
            for it in pool.slices:
                yield place, it
                place += len(it.devices)
                if place - pause >= _DEVICES_BETWEEN_TURNS:
                    pause = place
                    yield None

    def _any_shareable(self) -> Generator[None, None, bool]:
        for found in self._all_slices():
            if found is None:
                yield
            elif any(device.shareable for device in found[1].devices):
                return True
        return False

    def _is_proven(self) -> Generator[None, None, bool]:
        constraints = [(claim, it) for claim, each in enumerate(self._constraints) for it in each]
        same = [(claim, it) for claim, it in constraints if isinstance(it, Match)][:_MOST_CHOICES]
        values = []
        for _, constraint in same:
            values.append((yield from self._values(constraint)) or [_NO_VALUE])
        choices = list(islice(product(*values), _MOST_CHOICES + 1))
        if len(choices) > _MOST_CHOICES:
            return (yield from self._too_few([]))
        for each in choices:
            if not (yield from self._too_few([(*it, value) for it, value in zip(same, each, strict=True)])):
                return False
        return True

    def _values(self, constraint: Match) -> Generator[None, None, list[_Value]]:
        values: dict[_Value, None] = {}
        for found in self._all_slices():
            if found is None:
                yield
                continue
            for device in found[1].devices:
                has, value = constraint.lookup(found[1].driver, device)
                if has:
                    values[type(value), value] = None
        return list(values)

    def _too_few(self, chosen: Sequence[tuple[int, Match, _Value]]) -> Generator[None, None, bool]:
        """Return the same where each constraint means one value."""
        owner: dict[int, tuple[RequestKey, int]] = {}
        would_do: dict[RequestKey, list[int]] = {}
        for key, request in self._requests.items():
            if not request.parent and not request.admin_access:
                would_do[key] = yield from self._would_do(key, request, chosen)
                for number in range(request.count):
                    if not self._matched((key, number), would_do, owner, set()):
                        return True
                yield
        return False

    def _would_do(
        self, key: RequestKey, request: _Request, chosen: Sequence[tuple[int, Match, _Value]]
    ) -> Generator[None, None, list[int]]:
        known = self._selectable.get(key, {})
        meant = [(it, value) for claim, it, value in chosen if claim == key[0] and it.concerns(*_names(request))]
        places: list[int] = []
        for found in self._all_slices():
            if found is None:
                yield
                continue
            first, of_slice = found
            taken = self._uses(of_slice.pool_id).taken
            places += (
                place
                for place, device in enumerate(of_slice.devices, first)
                if known.get(place) is not False
                and device.name not in taken
                and not _prevented(device.taints, request.request)
                and all(_has(constraint, of_slice.driver, device, value) for constraint, value in meant)
            )
        return places

    def _matched(
        self,
        slot: tuple[RequestKey, int],
        would_do: Mapping[RequestKey, list[int]],
        owner: dict[int, tuple[RequestKey, int]],
        seen: set[int],
    ) -> bool:
        """Return whether ``slot`` can have a device if others are moved, each to another that would do for it."""
        self._look_at(1 + len(would_do[slot[0]]) // _DEVICES_OF_A_STEP)
        for place in would_do[slot[0]]:
            if place not in seen:
                seen.add(place)
                if place not in owner or self._matched(owner[place], would_do, owner, seen):
                    owner[place] = slot
                    return True
        return False

    # One device.

    def _is_selectable(self, key: RequestKey, request: _Request, it: _Candidate) -> bool:
        known = self._selectable.setdefault(key, {})
        found = known.get(it.place)
        if found is None:
            found = self._selected(self._claims[key[0]], request, it)
            if found and it.slice.per_device:
                found = device_matches(self._node, it.device)
            known[it.place] = found
        return found

    def _selected(self, claim: ResourceClaim, request: _Request, it: _Candidate) -> bool:
        device_class = request.device_class
        for whose, selectors in (
            (f"class {device_class.name}", device_class.selectors),
            (f"claim {claim}", request.request.selectors),
        ):
            for number, expression in enumerate(selectors):
                outcome = self._asked(expression or "", it)
                if isinstance(outcome, str):
                    raise AllocationError(f"{whose}: selector #{number}: CEL runtime error: {outcome}")
                if not outcome:
                    return False
        return True

    def _asked(self, expression: str, it: _Candidate) -> bool | str:
        """What an expression says of a device, or the error; asked once, however many requests have it."""
        said = self._said.get(expression)
        if said is None:
            said = self._said[expression] = {}
            if len(expression) > _SHORT:
                self._step(len(expression) // _CHARACTERS_OF_A_STEP)
        found = said.get(it.place)
        if found is None:
            self._step(STEPS_OF_A_SELECTOR)
            found = said[it.place] = self._matches(expression, it.slice.driver, it.device)
            self._step(max(0, found.steps // _PARTS_OF_A_STEP - STEPS_OF_A_SELECTOR))
        else:
            self._step()
        if found.outcome is None:
            raise Unjudged(REASON_EXPRESSION)
        return found.outcome

    def _has_capacity(self, request: _Request, it: _Candidate) -> bool:
        device = it.device
        if not device.capacity and not request.request.capacity:
            return True
        self._step()
        allocated = self._use(it.id).shared.get(device.name) or _NONE
        return fits(request.request.capacity, device.capacity, allocated, self._capacity.get(it.id, _NONE))

    def _use(self, device: DeviceID) -> Use:
        return self._uses((device[0], device[1]))

    def _is_shared(self, device: DeviceID) -> bool:
        return self._use(device).shared.get(device[2]) is not None or device in self._capacity

    def _occupy(self, here: RequestKey, request: _Request, it: _Candidate, *, must: bool) -> list[Undo] | None:
        """Take a device, if it is to be had; returns how it is given back."""
        undo: list[Undo] = []
        free = self._is_free(here, request, it) and self._take_counters(it, undo)
        if (
            free
            and not _prevented(it.device.taints, request.request)
            and self._take_constraints(here, request, it, undo, must=must)
            and self._mark(here, request, it, undo)
        ):
            return undo
        _roll_back(undo)
        return None

    def _is_free(self, here: RequestKey, request: _Request, it: _Candidate) -> bool:
        if request.admin_access:
            return it.device.shareable or here[0] not in self._allocating.get(it.id, ())
        return not it.taken and not self._allocating.get(it.id)

    def _take_counters(self, it: _Candidate, undo: list[Undo]) -> bool:
        """Whoever shares a device has no need of counters beyond those of the first."""
        device = it.device
        if not device.consumes or (device.shareable and self._is_shared(it.id)):
            return True
        if not self._count_up(it):
            return False
        undo.append(lambda: self._count_down(it))
        return True

    def _take_constraints(
        self, here: RequestKey, request: _Request, it: _Candidate, undo: list[Undo], *, must: bool
    ) -> bool:
        claim = here[0]
        base, sub = _names(request)
        self._step(len(self._constraints[claim]) // _CONSTRAINTS_OF_A_STEP)
        for constraint in self._constraints[claim]:
            if not constraint.add(base, sub, it.slice.driver, it.device):
                if must:
                    raise AllocationError(
                        f"claim {self._claims[claim]}, request {request.request.name}: cannot add device "
                        f"{'/'.join(it.id)} because a claim constraint would not be satisfied"
                    )
                return False
            undo.append(partial(constraint.remove, base, sub))
        return True

    def _mark(self, here: RequestKey, request: _Request, it: _Candidate, undo: list[Undo]) -> bool:
        claim, device = here[0], it.device
        if not device.shareable:
            self._allocating.setdefault(it.id, set()).add(claim)
            undo.append(lambda: self._allocating[it.id].discard(claim))
        if not self._has_capacity(request, it):
            return False
        if device.shareable:
            self._take_capacity(request, it, undo)
        base, sub = _names(request)
        self._results[claim].append(f"{base}/{sub}" if sub else base)
        undo.append(partial(self._results[claim].__delitem__, -1))
        return True

    def _take_capacity(self, request: _Request, it: _Candidate, undo: list[Undo]) -> None:
        was_shared = it.id in self._capacity
        taken = consumed(request.request.capacity, it.device.capacity)
        known = self._capacity.setdefault(it.id, {})
        for name, amount in taken.items():
            known[name] = known.get(name, 0) + amount

        def give_back() -> None:
            for name, amount in taken.items():
                known[name] -= amount
            if not was_shared and not any(known.values()):
                del self._capacity[it.id]

        undo.append(give_back)

    # Counters that devices share.

    def _count_up(self, it: _Candidate) -> bool:
        """Take what a device needs of the counters of its pool, if all of them suffice then.

        Kept by the pool's name alone, as upstream does: pools of two drivers may have the same.
        """
        self._step(3 + sum(len(use.counters) for use in it.device.consumes) // _COUNTERS_OF_A_STEP)
        name = it.pool.name
        available = self._available.get(name)
        if available is None:
            available = self._available[name] = self._left(it.pool)
        taken = self._consumed.setdefault(name, {})
        for use in it.device.consumes:
            of_set = taken.setdefault(use.counter_set, {})
            for counter, amount in use.counters.items():
                of_set[counter] = of_set.get(counter, 0) + amount
        if name not in self._overdrawn and all(
            _suffice(available.get(use.counter_set, _NONE), taken[use.counter_set], use.counters)
            for use in it.device.consumes
        ):
            return True
        self._count_down(it)
        return False

    def _count_down(self, it: _Candidate) -> None:
        taken = self._consumed[it.pool.name]
        for use in it.device.consumes:
            for counter, amount in use.counters.items():
                taken[use.counter_set][counter] -= amount

    def _left(self, pool: Pool) -> dict[str, dict[str, Amount]]:
        """What the devices that claims have leave of the counters, which may be less than nothing."""
        left = {name: dict(counters) for name, counters in pool.counter_sets.items()}
        for it in (*pool.slices, *pool.elsewhere):
            use = self._uses(it.pool_id)
            for device in it.devices:
                self._step()
                if device.name in use.taken or device.name in use.shared:
                    for consumption in device.consumes:
                        counters = left.get(consumption.counter_set, {})
                        for counter, amount in consumption.counters.items():
                            if counter in counters:
                                counters[counter] -= amount
        if any(amount < 0 for counters in left.values() for amount in counters.values()):
            self._overdrawn.add(pool.name)
        return left


def _suffice(left: Amounts, taken: Amounts, counters: Iterable[str]) -> bool:
    """Whether as much is left of counters as is taken. One that the pool does not have is not looked at."""
    return all(left.get(it, taken[it]) >= taken[it] for it in counters)


def _has(constraint: Match, driver: str, device: Device, value: _Value) -> bool:
    has, found = constraint.lookup(driver, device)
    return has and (type(found), found) == value


def _roll_back(undo: list[Undo]) -> None:
    """In the opposite order."""
    while undo:
        undo.pop()()


def _alternatives(request: DeviceRequest) -> list[tuple[ExactRequest, str]]:
    """What would do, each with the name of the request if it is one of several."""
    if request.first_available:
        return [(it, request.name) for it in request.first_available]
    if request.exactly is None:
        raise AllocationError(f"request {request.name}: unsupported request type")
    return [(request.exactly, "")]


def _names(request: _Request) -> tuple[str, str]:
    """Of the request, and of the alternative."""
    return (request.parent, request.request.name) if request.parent else (request.request.name, "")


def _prevented(taints: tuple[DeviceTaint, ...], request: ExactRequest) -> bool:
    return any(it.effect in _TAINTED and not _tolerated(it, request) for it in taints)


def _tolerated(taint: DeviceTaint, request: ExactRequest) -> bool:
    for it in request.tolerations:
        if it.effect in ("", taint.effect) and it.key in ("", taint.key):
            if it.operator in ("", "Equal") and it.value == taint.value:
                return True
            if it.operator == "Exists":
                return True
    return False
