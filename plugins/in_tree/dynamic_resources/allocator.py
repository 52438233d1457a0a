"""Exhaustive search for devices for the claims of a pod on one node. The first complete solution is used.

The search handles claim after claim, request after request, device after device, and backtracks if a device is not
available. Source of the rules: ``structured/internal/incubating`` of Kubernetes 1.36. Devices are tried in
kube-scheduler's order, because the order determines the chosen alternative of a request, and so the score.

Tenants can write claims for which a search would take hours, so the number of steps is limited.
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
from plugins.in_tree.dynamic_resources.constraints import ClaimConstraint, MatchAttribute, constraint_of
from plugins.in_tree.dynamic_resources.errors import (
    REASON_EXPRESSION,
    REASON_LONG_OBJECT,
    REASON_STEPS,
    AllocationError,
    CannotEvaluate,
)
from plugins.in_tree.dynamic_resources.pools import Pool, device_matches

MAX_STEPS: Final = 5000
"""Maximum number of steps for one node, about 20 ms. A search with 16 devices takes a few hundred steps."""

STEPS_PER_SELECTOR: Final = 8
"""Minimum number of steps for evaluating a selector for a device. Reusing the result counts as one step."""

_PARTS_PER_STEP: Final = 8
"""Number of evaluated parts of an expression that count as one step."""

_CHARACTERS_PER_STEP: Final = 8
"""Number of characters of a long expression that count as one step, because the expression might have to be parsed."""

_SHORT_EXPRESSION: Final = 256
"""Maximum length of an expression whose parsing is not counted."""

_CONSTRAINTS_PER_STEP: Final = 4
_DEVICES_PER_STEP: Final = 8
_COUNTERS_PER_STEP: Final = 8
"""Numbers of constraints, devices and counters whose examination counts as one step."""

_MAX_DEVICES_IN_PROOF: Final = 50_000
"""Limit of the work to prove that a node has too few devices, in examined devices (about 25 ms).

Such a proof is tried after a search has run out of steps.
"""

_DEVICES_BETWEEN_YIELDS: Final = 4096
"""Number of devices after which a proof yields in a pass over all slices."""

MAX_DEVICES: Final = 128
"""Maximum number of devices, and of requests, of one pod. Each adds several nested Python calls, and Python limits
their depth.
"""

REASON_INVALID_POOLS: Final = "invalid resource pools were encountered"
ALL: Final = "All"
EXACT_COUNT: Final = "ExactCount"
_TAINTED: Final = ("NoSchedule", "NoExecute")
"""Effects of device taints that a request must tolerate to get the device."""

_NONE: Final[Amounts] = {}

_MAX_CHOICES: Final = 32
"""Maximum number of combinations of attribute values that a proof tries. If there are more, the proof ignores all
constraints. Also the maximum number of ``matchAttribute`` constraints from which the combinations are formed.
"""

_Value: TypeAlias = tuple[type, object]
_NO_VALUE: Final[_Value] = (object, None)
"""Value that no device has. In a proof, it is the required value of an attribute that all devices lack."""

RequestKey: TypeAlias = tuple[int, int, int]
"""(index of the claim, index of its request, index of the alternative)"""

Undo: TypeAlias = Callable[[], None]
"""Function that reverts one effect of taking a device."""


class SelectorResult(Struct, frozen=True):
    """Result of a selector for a device.

    ``outcome``: true, false or an error text; ``None`` if Homeport cannot evaluate the selector. ``steps``: number of
    evaluated parts of the expression.
    """

    outcome: bool | str | None
    steps: int = 0


MatchDevice: TypeAlias = Callable[[str, str, Device], SelectorResult]
"""Function from (expression, driver, device) to the result. It must return equal results for equal arguments."""


class PoolAllocations(Struct, frozen=True):
    """Allocated devices of a pool.

    ``taken``: names of devices allocated as a whole. ``shared``: consumed capacities of shared devices; ``None`` for a
    device whose allocations specify none.
    """

    taken: frozenset[str] = frozenset()
    shared: Mapping[str, Amounts | None] = {}


NO_ALLOCATIONS: Final = PoolAllocations()


class NoSolution(Struct, frozen=True):
    """The search found no solution. ``reason``: set if the node has invalid pools; otherwise empty."""

    reason: str = ""


Solution: TypeAlias = tuple[frozenset[str], ...]
"""Names of the chosen alternatives, as ``request/subrequest``: one set for each claim, in order."""


class _ProofTooLong(Exception):
    """The proof that there are too few devices would exceed the limit ``_MAX_DEVICES_IN_PROOF``."""


class _TooManyResults(Exception):
    """A claim would get more devices than its status can hold.

    The search then backtracks to another alternative or an earlier claim. Trying other devices for the same request
    would not help.
    """


class _Candidate(Struct, frozen=True, eq=False):
    """Device at ``position`` in the order of the search. ``taken``: true if a claim holds the whole device."""

    position: int
    device: Device
    id: DeviceID
    slice: ResourceSlice
    pool: Pool
    taken: bool


class _PreparedRequest(Struct, eq=False):
    """Request, or alternative of the request ``parent``, with derived values.

    ``parent`` is empty for a request without alternatives. ``count``: number of devices to allocate. ``all_devices``:
    the devices to allocate if the allocation mode is All.
    """

    request: ExactRequest
    parent: str
    device_class: DeviceClass
    count: int = 0
    all_devices: tuple[_Candidate, ...] = ()

    @property
    def admin_access(self) -> bool:
        """True if the request has admin access. Alternatives of a request cannot have it."""
        return not self.parent and bool(self.request.admin_access)


class AllocationSearch:
    """Search for devices for the claims of a pod on one node.

    ``classes``: function from a name to the DeviceClass; it returns ``None`` if there is none. ``allocations_of``:
    function from a pool to its allocations. ``match_device``: evaluates a selector. ``devices``: number of devices in
    the slices that the node can use. ``steps``: steps taken so far.
    """

    def __init__(
        self,
        node: Node,
        claims: Sequence[ResourceClaim],
        pools: Sequence[Pool],
        classes: Callable[[str], DeviceClass | None],
        allocations_of: Callable[[tuple[str, str]], PoolAllocations],
        match_device: MatchDevice,
    ) -> None:
        self._node = node
        self._claims = claims
        self._pools = pools
        self._classes = classes
        self._allocations_of = allocations_of
        self._match_device = match_device
        self.steps = 0
        self._requests: dict[RequestKey, _PreparedRequest] = {}
        self._constraints: list[list[ClaimConstraint]] = []
        self.devices = sum(len(it.devices) for pool in pools for it in pool.slices)
        self._candidates: list[_Candidate] = []
        self._more_candidates = self._make_candidates()
        self._selectable: dict[RequestKey, dict[int, bool]] = {}
        self._results_by_selector: dict[str, dict[int, SelectorResult]] = {}
        self._examined = 0
        self._allocating: dict[DeviceID, set[int]] = {}
        self._capacity: dict[DeviceID, dict[str, Amount]] = {}
        self._available: dict[str, dict[str, dict[str, Amount]]] = {}
        self._consumed: dict[str, dict[str, dict[str, Amount]]] = {}
        self._overdrawn: set[str] = set()
        self._results: list[list[str]] = [[] for _ in claims]

    def _make_candidates(self) -> Iterator[_Candidate]:
        position = 0
        for pool in self._pools:
            for resource_slice in pool.slices:
                taken = self._allocations_of(resource_slice.pool_id).taken
                for device in resource_slice.devices:
                    device_id = (resource_slice.driver, resource_slice.pool, device.name)
                    yield _Candidate(position, device, device_id, resource_slice, pool, device.name in taken)
                    position += 1

    def _from(self, start: int, stop: int | None = None) -> Iterator[_Candidate]:
        """Yield the devices from position ``start`` on. ``stop``: position before which to end; ``None`` for all.

        Candidates are created on demand, because few searches reach many devices.
        """
        candidates = self._candidates
        for position in range(start, self.devices if stop is None else stop):
            while position >= len(candidates):
                candidates.append(next(self._more_candidates))
            yield candidates[position]

    def run(self) -> Generator[None, None, Solution | NoSolution]:
        """Run the search and return its result. Raises ``AllocationError`` or ``CannotEvaluate``.

        After a search that ran out of steps, the generator tries to prove that there are too few devices. It yields
        only during this proof. No selector is evaluated after the first yield.
        """
        total = sum(self._prepare_claim(index, claim) for index, claim in enumerate(self._claims))
        total = max(total, sum(len(it.spec.requests) for it in self._claims))
        if total > MAX_DEVICES:
            raise CannotEvaluate(REASON_STEPS)
        try:
            done = self._allocate(0, 0, 0, 0, alternative=False, start=0)
        except _TooManyResults:
            raise AllocationError("allocation max size exceeded") from None
        except CannotEvaluate:
            if self.steps <= MAX_STEPS or not (yield from self._is_impossible()):
                raise
            done = False
        if done:
            return tuple(frozenset(it for it in results if "/" in it) for results in self._results)
        return NoSolution(REASON_INVALID_POOLS if any(it.invalid for it in self._pools) else "")

    # Requests.

    def _prepare_claim(self, index: int, claim: ResourceClaim) -> int:
        """Prepare all requests of a claim. Return the minimum number of devices that the claim needs."""
        if claim.spec.oversized:
            raise CannotEvaluate(REASON_LONG_OBJECT)
        least = 0
        for number, request in enumerate(claim.spec.requests):
            counts = []
            for position, (exact, parent) in enumerate(_alternatives(request)):
                prepared = self._prepare_request(claim, (index, number, position), exact, parent)
                counts.append(prepared.count)
            least += min(counts)
        if least > MOST_RESULTS:
            raise AllocationError(
                f"claim {claim}: number of requested devices {least} exceeds the claim limit of {MOST_RESULTS}"
            )
        self._constraints.append([constraint_of(str(claim), *it) for it in enumerate(claim.spec.constraints)])
        return least

    def _prepare_request(
        self, claim: ResourceClaim, key: RequestKey, exact: ExactRequest, parent: str
    ) -> _PreparedRequest:
        self._step()
        where = f"claim {claim}, request {exact.name}"
        for number, selector in enumerate(exact.selectors):
            if selector is None:
                raise AllocationError(f"{where}, selector #{number}: CEL expression empty (unsupported selector type?)")
        if not exact.device_class:
            raise AllocationError(f"{where}: missing device class name (unsupported request type?)")
        device_class = self._classes(exact.device_class)
        if device_class is None:
            raise AllocationError(
                f"{where}: could not retrieve device class {exact.device_class}: "
                f'deviceclass.resource.k8s.io "{exact.device_class}" not found'
            )
        if device_class.oversized:
            raise CannotEvaluate(REASON_LONG_OBJECT)
        prepared = self._requests[key] = _PreparedRequest(exact, parent, device_class)
        if exact.mode == EXACT_COUNT:
            prepared.count = exact.count
        elif exact.mode == ALL:
            prepared.all_devices = tuple(self._all_devices(where, key, prepared))
            prepared.count = len(prepared.all_devices)
        else:
            raise AllocationError(f"{where}: unsupported count mode {exact.mode}")
        return prepared

    def _all_devices(self, where: str, key: RequestKey, request: _PreparedRequest) -> list[_Candidate]:
        """Return all devices that match the request and have enough capacity, for the allocation mode All. Raises
        ``AllocationError`` if a pool is incomplete or invalid.
        """
        devices: list[_Candidate] = []
        start = 0
        for pool in self._pools:
            if pool.incomplete:
                raise AllocationError(
                    f"{where}: asks for all devices, but resource pool {pool} is currently being updated"
                )
            if pool.invalid:
                raise AllocationError(f"{where}: asks for all devices, but resource pool {pool} is currently invalid")
            stop = start + sum(len(it.devices) for it in pool.slices)
            self._step(1 + (stop - start) // _DEVICES_PER_STEP)
            of_pool, start = self._from(start, stop), stop
            devices += (
                it for it in of_pool if self._is_selectable(key, request, it) and self._has_capacity(request, it)
            )
        return devices

    # The search.

    def _allocate(self, claim: int, number: int, position: int, taken: int, *, alternative: bool, start: int) -> bool:
        """Take devices for a request, and for all requests and claims after it. Return false if that is not possible.

        ``claim``, ``number`` and ``position``: indexes of the claim, the request and the alternative. ``alternative``:
        true if the caller has chosen one of several alternatives of the request. ``taken``: number of devices that the
        request already has. ``start``: position of the first device to try, so that no set of devices is tried in two
        orders. Raises ``_TooManyResults``.
        """
        self._step()
        if claim >= len(self._claims):
            return True
        if number >= len(self._claims[claim].spec.requests):
            try:
                return self._allocate(claim + 1, 0, 0, 0, alternative=False, start=0)
            except _TooManyResults:
                return False  # try other devices here, because the next claim might then need fewer
        request = self._requests[claim, number, position]
        if not alternative and request.parent:
            return self._first_available(claim, number)
        every = request.request.mode == ALL
        if every and not request.all_devices:
            return False
        if taken >= request.count:
            return self._allocate(claim, number + 1, 0, 0, alternative=False, start=0)
        if len(self._results[claim]) + request.count - taken > MOST_RESULTS:
            raise _TooManyResults
        key = (claim, number, position)
        if every:
            return self._take(key, taken, request, request.all_devices[taken], alternative, 0, must=True)
        return self._take_any(key, taken, request, alternative, start)

    def _first_available(self, claim: int, number: int) -> bool:
        """Try the alternatives of a request in order, until the search succeeds with one. Return false if it succeeds
        with none.

        Raises ``_TooManyResults`` if each alternative would get too many devices.
        """
        too_many = True
        position = 0
        while (claim, number, position) in self._requests:
            try:
                if self._allocate(claim, number, position, 0, alternative=True, start=0):
                    return True
                too_many = False
            except _TooManyResults:
                pass
            position += 1
        if too_many:
            raise _TooManyResults
        return False

    def _take_any(self, key: RequestKey, taken: int, request: _PreparedRequest, alternative: bool, start: int) -> bool:
        for candidate in self._from(start):
            self._step()
            if self._is_usable(key, request, candidate) and self._take(
                key, taken, request, candidate, alternative, candidate.position + 1, must=False
            ):
                return True
        return False

    def _is_usable(self, key: RequestKey, request: _PreparedRequest, candidate: _Candidate) -> bool:
        if request.admin_access:
            if key[0] in self._allocating.get(candidate.id, ()):
                return False
        elif candidate.taken or self._allocating.get(candidate.id):
            return False
        return self._is_selectable(key, request, candidate) and self._has_capacity(request, candidate)

    def _take(
        self,
        key: RequestKey,
        taken: int,
        request: _PreparedRequest,
        candidate: _Candidate,
        alternative: bool,
        following: int,
        *,
        must: bool,
    ) -> bool:
        """Take a device, then the devices that this request and all later ones still need. If that is not possible,
        release the device and return false.

        ``following``: position of the next device to try. ``must``: see ``_try_device``.
        """
        if sum(map(len, self._results)) >= MAX_DEVICES:
            raise CannotEvaluate(REASON_STEPS)
        undo = self._try_device(key, request, candidate, must=must)
        if undo is None:
            return False
        try:
            if self._allocate(*key, taken + 1, alternative=alternative, start=following):
                return True
        except _TooManyResults:
            _roll_back(undo)
            raise
        _roll_back(undo)
        return False

    def _step(self, steps: int = 1) -> None:
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise CannotEvaluate(REASON_STEPS)

    def _is_impossible(self) -> Generator[None, None, bool]:
        """Return true if it is proven that there are too few devices for the requests.

        The proof is tried if the search has no steps left. A device is assumed to match unless a selector has rejected
        it.
        """
        try:
            if (yield from self._any_shareable()):
                return False
            return (yield from self._is_proven())
        except _ProofTooLong:
            return False

    def _examine(self, devices: int) -> None:
        self._examined += devices
        if self._examined > _MAX_DEVICES_IN_PROOF:
            raise _ProofTooLong

    def _all_slices(self) -> Iterator[tuple[int, ResourceSlice] | None]:
        """Yield (position of the first device, slice) for each slice, and ``None`` where other tasks can run.

        No ``_Candidate`` is created, because creating one takes several times as long as examining a device.
        """
        self._examine(self.devices)
        position = pause = 0
        for pool in self._pools:
            for resource_slice in pool.slices:
                yield position, resource_slice
                position += len(resource_slice.devices)
                if position - pause >= _DEVICES_BETWEEN_YIELDS:
                    pause = position
                    yield None

    def _any_shareable(self) -> Generator[None, None, bool]:
        for entry in self._all_slices():
            if entry is None:
                yield
            elif any(device.shareable for device in entry[1].devices):
                return True
        return False

    def _is_proven(self) -> Generator[None, None, bool]:
        constraints = [(claim, it) for claim, each in enumerate(self._constraints) for it in each]
        same = [(claim, it) for claim, it in constraints if isinstance(it, MatchAttribute)][:_MAX_CHOICES]
        values = []
        for _, constraint in same:
            values.append((yield from self._values(constraint)) or [_NO_VALUE])
        choices = list(islice(product(*values), _MAX_CHOICES + 1))
        if len(choices) > _MAX_CHOICES:
            return (yield from self._lacks_devices([]))
        for each in choices:
            if not (yield from self._lacks_devices([(*it, value) for it, value in zip(same, each, strict=True)])):
                return False
        return True

    def _values(self, constraint: MatchAttribute) -> Generator[None, None, list[_Value]]:
        values: dict[_Value, None] = {}
        for entry in self._all_slices():
            if entry is None:
                yield
                continue
            for device in entry[1].devices:
                has, value = constraint.lookup(entry[1].driver, device)
                if has:
                    values[type(value), value] = None
        return list(values)

    def _lacks_devices(self, chosen: Sequence[tuple[int, MatchAttribute, _Value]]) -> Generator[None, None, bool]:
        """Return true if too few devices have the values that ``chosen`` requires: (claim index, constraint, value)."""
        owner: dict[int, tuple[RequestKey, int]] = {}
        usable: dict[RequestKey, list[int]] = {}
        for key, request in self._requests.items():
            if not request.parent and not request.admin_access:
                usable[key] = yield from self._usable_positions(key, request, chosen)
                for number in range(request.count):
                    if not self._can_assign((key, number), usable, owner, set()):
                        return True
                yield
        return False

    def _usable_positions(
        self, key: RequestKey, request: _PreparedRequest, chosen: Sequence[tuple[int, MatchAttribute, _Value]]
    ) -> Generator[None, None, list[int]]:
        known = self._selectable.get(key, {})
        values = [(it, value) for claim, it, value in chosen if claim == key[0] and it.concerns(*_names(request))]
        positions: list[int] = []
        for entry in self._all_slices():
            if entry is None:
                yield
                continue
            first, resource_slice = entry
            taken = self._allocations_of(resource_slice.pool_id).taken
            positions += (
                position
                for position, device in enumerate(resource_slice.devices, first)
                if known.get(position) is not False
                and device.name not in taken
                and not _is_tainted(device.taints, request.request)
                and all(_has(constraint, resource_slice.driver, device, value) for constraint, value in values)
            )
        return positions

    def _can_assign(
        self,
        slot: tuple[RequestKey, int],
        usable: Mapping[RequestKey, list[int]],
        owner: dict[int, tuple[RequestKey, int]],
        seen: set[int],
    ) -> bool:
        """Assign a device to ``slot``; other slots can move (augmenting path). Return false if that is not possible."""
        self._examine(1 + len(usable[slot[0]]) // _DEVICES_PER_STEP)
        for position in usable[slot[0]]:
            if position not in seen:
                seen.add(position)
                if position not in owner or self._can_assign(owner[position], usable, owner, seen):
                    owner[position] = slot
                    return True
        return False

    # Checking and taking one device.

    def _is_selectable(self, key: RequestKey, request: _PreparedRequest, candidate: _Candidate) -> bool:
        known = self._selectable.setdefault(key, {})
        selectable = known.get(candidate.position)
        if selectable is None:
            selectable = self._selected(self._claims[key[0]], request, candidate)
            if selectable and candidate.slice.per_device:
                selectable = device_matches(self._node, candidate.device)
            known[candidate.position] = selectable
        return selectable

    def _selected(self, claim: ResourceClaim, request: _PreparedRequest, candidate: _Candidate) -> bool:
        device_class = request.device_class
        for whose, selectors in (
            (f"class {device_class.name}", device_class.selectors),
            (f"claim {claim}", request.request.selectors),
        ):
            for number, expression in enumerate(selectors):
                outcome = self._evaluate_selector(expression or "", candidate)
                if isinstance(outcome, str):
                    raise AllocationError(f"{whose}: selector #{number}: CEL runtime error: {outcome}")
                if not outcome:
                    return False
        return True

    def _evaluate_selector(self, expression: str, candidate: _Candidate) -> bool | str:
        """Return the result or error text of a selector, which is evaluated once for each device.

        Raises ``CannotEvaluate``.
        """
        results = self._results_by_selector.get(expression)
        if results is None:
            results = self._results_by_selector[expression] = {}
            if len(expression) > _SHORT_EXPRESSION:
                self._step(len(expression) // _CHARACTERS_PER_STEP)
        result = results.get(candidate.position)
        if result is None:
            self._step(STEPS_PER_SELECTOR)
            result = results[candidate.position] = self._match_device(
                expression, candidate.slice.driver, candidate.device
            )
            self._step(max(0, result.steps // _PARTS_PER_STEP - STEPS_PER_SELECTOR))
        else:
            self._step()
        if result.outcome is None:
            raise CannotEvaluate(REASON_EXPRESSION)
        return result.outcome

    def _has_capacity(self, request: _PreparedRequest, candidate: _Candidate) -> bool:
        device = candidate.device
        if not device.capacity and not request.request.capacity:
            return True
        self._step()
        allocated = self._allocations(candidate.id).shared.get(device.name) or _NONE
        return fits(request.request.capacity, device.capacity, allocated, self._capacity.get(candidate.id, _NONE))

    def _allocations(self, device: DeviceID) -> PoolAllocations:
        return self._allocations_of((device[0], device[1]))

    def _is_shared(self, device: DeviceID) -> bool:
        return self._allocations(device).shared.get(device[2]) is not None or device in self._capacity

    def _try_device(
        self, key: RequestKey, request: _PreparedRequest, candidate: _Candidate, *, must: bool
    ) -> list[Undo] | None:
        """Take a device if it is available. Return the functions that release it; ``None`` if it is not available.

        ``must``: true for the allocation mode All, where a device that violates a constraint is an error. Raises
        ``AllocationError`` for this error.
        """
        undo: list[Undo] = []
        free = self._is_free(key, request, candidate) and self._take_counters(candidate, undo)
        if (
            free
            and not _is_tainted(candidate.device.taints, request.request)
            and self._take_constraints(key, request, candidate, undo, must=must)
            and self._record(key, request, candidate, undo)
        ):
            return undo
        _roll_back(undo)
        return None

    def _is_free(self, key: RequestKey, request: _PreparedRequest, candidate: _Candidate) -> bool:
        if request.admin_access:
            return candidate.device.shareable or key[0] not in self._allocating.get(candidate.id, ())
        return not candidate.taken and not self._allocating.get(candidate.id)

    def _take_counters(self, candidate: _Candidate, undo: list[Undo]) -> bool:
        """Consume the counters that the device needs. Return false if they do not suffice.

        Only the first share of a device in a search consumes any; none does if allocated shares consume capacities.
        """
        device = candidate.device
        if not device.consumes or (device.shareable and self._is_shared(candidate.id)):
            return True
        if not self._consume_counters(candidate):
            return False
        undo.append(lambda: self._release_counters(candidate))
        return True

    def _take_constraints(
        self, key: RequestKey, request: _PreparedRequest, candidate: _Candidate, undo: list[Undo], *, must: bool
    ) -> bool:
        claim = key[0]
        base, sub = _names(request)
        self._step(len(self._constraints[claim]) // _CONSTRAINTS_PER_STEP)
        for constraint in self._constraints[claim]:
            if not constraint.add(base, sub, candidate.slice.driver, candidate.device):
                if must:
                    raise AllocationError(
                        f"claim {self._claims[claim]}, request {request.request.name}: cannot add device "
                        f"{'/'.join(candidate.id)} because a claim constraint would not be satisfied"
                    )
                return False
            undo.append(partial(constraint.remove, base, sub))
        return True

    def _record(self, key: RequestKey, request: _PreparedRequest, candidate: _Candidate, undo: list[Undo]) -> bool:
        claim, device = key[0], candidate.device
        if not device.shareable:
            self._allocating.setdefault(candidate.id, set()).add(claim)
            undo.append(lambda: self._allocating[candidate.id].discard(claim))
        if not self._has_capacity(request, candidate):
            return False
        if device.shareable:
            self._take_capacity(request, candidate, undo)
        base, sub = _names(request)
        self._results[claim].append(f"{base}/{sub}" if sub else base)
        undo.append(partial(self._results[claim].__delitem__, -1))
        return True

    def _take_capacity(self, request: _PreparedRequest, candidate: _Candidate, undo: list[Undo]) -> None:
        was_shared = candidate.id in self._capacity
        taken = consumed(request.request.capacity, candidate.device.capacity)
        known = self._capacity.setdefault(candidate.id, {})
        for name, amount in taken.items():
            known[name] = known.get(name, 0) + amount

        def give_back() -> None:
            for name, amount in taken.items():
                known[name] -= amount
            if not was_shared and not any(known.values()):
                del self._capacity[candidate.id]

        undo.append(give_back)

    # Counters that devices share.

    def _consume_counters(self, candidate: _Candidate) -> bool:
        """Consume a device's counters. If one is too low or the pool is overdrawn, consume none and return ``False``.

        As in kube-scheduler, consumption is tracked by pool name without the driver. So pools of the same name share it
        even if they belong to different drivers.
        """
        self._step(
            3 + sum(len(consumption.counters) for consumption in candidate.device.consumes) // _COUNTERS_PER_STEP
        )
        name = candidate.pool.name
        available = self._available.get(name)
        if available is None:
            available = self._available[name] = self._free_counters(candidate.pool)
        taken = self._consumed.setdefault(name, {})
        for consumption in candidate.device.consumes:
            of_set = taken.setdefault(consumption.counter_set, {})
            for counter, amount in consumption.counters.items():
                of_set[counter] = of_set.get(counter, 0) + amount
        if name not in self._overdrawn and all(
            _are_sufficient(
                available.get(consumption.counter_set, _NONE), taken[consumption.counter_set], consumption.counters
            )
            for consumption in candidate.device.consumes
        ):
            return True
        self._release_counters(candidate)
        return False

    def _release_counters(self, candidate: _Candidate) -> None:
        taken = self._consumed[candidate.pool.name]
        for consumption in candidate.device.consumes:
            for counter, amount in consumption.counters.items():
                taken[consumption.counter_set][counter] -= amount

    def _free_counters(self, pool: Pool) -> dict[str, dict[str, Amount]]:
        """Return the amounts of counters that allocated devices leave. If one is negative, because devices consume more
        than the pool has, mark the pool as overdrawn.
        """
        left = {name: dict(counters) for name, counters in pool.counter_sets.items()}
        for resource_slice in (*pool.slices, *pool.other_slices):
            allocations = self._allocations_of(resource_slice.pool_id)
            for device in resource_slice.devices:
                self._step()
                if device.name in allocations.taken or device.name in allocations.shared:
                    for consumption in device.consumes:
                        counters = left.get(consumption.counter_set, {})
                        for counter, amount in consumption.counters.items():
                            if counter in counters:
                                counters[counter] -= amount
        if any(amount < 0 for counters in left.values() for amount in counters.values()):
            self._overdrawn.add(pool.name)
        return left


def _are_sufficient(left: Amounts, taken: Amounts, counters: Iterable[str]) -> bool:
    """Return true if, for each of ``counters``, ``left`` covers ``taken``. Counters missing in ``left`` are ignored."""
    return all(left.get(it, taken[it]) >= taken[it] for it in counters)


def _has(constraint: MatchAttribute, driver: str, device: Device, value: _Value) -> bool:
    has, of_device = constraint.lookup(driver, device)
    return has and (type(of_device), of_device) == value


def _roll_back(undo: list[Undo]) -> None:
    """Run the functions in reverse order, and remove them from the list."""
    while undo:
        undo.pop()()


def _alternatives(request: DeviceRequest) -> list[tuple[ExactRequest, str]]:
    """Return the alternatives of a request, each with the name of the request as its parent.

    A request without alternatives is returned as its own only alternative, with an empty parent. Raises
    ``AllocationError`` for an unknown type.
    """
    if request.first_available:
        return [(it, request.name) for it in request.first_available]
    if request.exactly is None:
        raise AllocationError(f"request {request.name}: unsupported request type")
    return [(request.exactly, "")]


def _names(request: _PreparedRequest) -> tuple[str, str]:
    """Return (name of the request, name of the alternative); the second is empty if the request has no alternatives."""
    return (request.parent, request.request.name) if request.parent else (request.request.name, "")


def _is_tainted(taints: tuple[DeviceTaint, ...], request: ExactRequest) -> bool:
    return any(it.effect in _TAINTED and not _is_tolerated(it, request) for it in taints)


def _is_tolerated(taint: DeviceTaint, request: ExactRequest) -> bool:
    for toleration in request.tolerations:
        if toleration.effect in ("", taint.effect) and toleration.key in ("", taint.key):
            if toleration.operator in ("", "Equal") and toleration.value == taint.value:
                return True
            if toleration.operator == "Exists":
                return True
    return False
