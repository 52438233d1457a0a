"""Allocation of devices on nodes, with cached outcomes.

Searching one node takes a fraction of a millisecond, which is too long for thousands of nodes. The outcome depends on
five inputs: the specs of the claims, the node's labels, the DeviceClasses, the slices that the node can reach, and the
allocations from their pools. While these are unchanged, the outcome is reused for all pods whose claims have the same
specs.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from app.framework.background import run_to_end
from app.framework.counts import Unprepared
from app.framework.node_info import NodeInfo
from app.framework.status import Status, error, unresolvable
from app.kube.memo import MISSING, Memo
from app.kube.resource_v1 import ClaimSpec, Device, DeviceRequest, ResourceClaim
from plugins.in_tree.dynamic_resources.allocator import AllocationSearch, NoSolution, SelectorResult, Solution
from plugins.in_tree.dynamic_resources.cel import DeviceSelector
from plugins.in_tree.dynamic_resources.cel_functions import CelError
from plugins.in_tree.dynamic_resources.cel_scope import StepBudget, device_variables
from plugins.in_tree.dynamic_resources.cel_syntax import Unsupported
from plugins.in_tree.dynamic_resources.errors import NAME, AllocationError, CannotEvaluate
from plugins.in_tree.dynamic_resources.inventory import Inventory

REASON_NOT_ALL: Final = "cannot allocate all claims"

MAX_STEPS_PER_EVALUATION: Final = 2000
"""Number of steps (about 5 ms) after which an evaluation raises ``Unprepared`` before its next search."""

STEPS_PER_NODE: Final = 60
"""Number of steps for collecting the pools of a node."""

_DEVICES_PER_STEP: Final = 8
"""Number of devices whose preparation for a search counts as one step."""

_STEPS_PER_LOOKUP: Final = 4
"""Number of steps for finding the cached outcome of a node."""

MAX_OUTCOME_BYTES: Final = 64 << 20
"""Maximum estimated size in bytes of the cached outcomes. Outcomes of the last evaluations are kept even if they exceed
it.
"""

MAX_SPEC_BYTES: Final = 4 << 20
"""Maximum estimated size in bytes of the cached specs of placeholder claims.

Specs of the last evaluations are kept even if they exceed it.
"""

_KEPT_EVALUATIONS: Final = 8
"""Number of latest evaluations whose outcomes and specs are always kept.

An evaluation that raised ``Unprepared`` needs them when it is repeated.
"""

_BYTES_PER_OUTCOME: Final = 400
_BYTES_PER_POOL: Final = 150
_BYTES_PER_REQUEST: Final = 600
"""Estimated sizes of a cached outcome, of each own pool of its node, and of a request or constraint of a spec."""

_MAX_SELECTOR_BYTES: Final = 4 << 20
_MAX_RESULT_BYTES: Final = 4 << 20
_BYTES_PER_RESULT: Final = 300
_BYTES_PER_CHARACTER: Final = 40
"""Maximum sizes of the caches of compiled selectors and of their results. Estimated sizes of a result without its
texts, and of a compiled selector for each character.
"""

_NOT_ALL: Final = unresolvable(REASON_NOT_ALL).by(NAME)

Outcome = Solution | Status


class _CachedOutcome(Struct, frozen=True):
    """Outcome for a node. It is valid while ``inputs`` are unchanged.

    ``claims``: names of the claims, if the outcome is an Error with their names: it is valid for no other claims.
    ``None`` if the outcome is valid for all claims with the same specs.
    """

    inputs: tuple[Any, ...]
    outcome: Outcome
    claims: tuple[str, ...] | None = None


class _OutcomesBySpec(Struct):
    """Outcomes by node, for pods whose claims have the same ``specs``. The cache key is the identity of the spec
    objects.

    ``weight``: estimated size in bytes. ``evaluation``: number of the last evaluation that used these outcomes. One
    evaluation can use outcomes of several specs, if device plugins of some nodes provide the pod's extended resources.
    """

    specs: tuple[ClaimSpec, ...]
    weight: int
    evaluation: int = 0
    by_node: dict[str, _CachedOutcome] = {}


class _CachedSpec(Struct):
    """Spec of a placeholder claim. ``evaluation``: number of the last evaluation that used it."""

    spec: ClaimSpec
    evaluation: int = 0


class CachedAllocator:
    """Searches for devices for the claims of one profile's pods, and caches the outcomes."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._selectors = Memo[str, DeviceSelector | None](_MAX_SELECTOR_BYTES)
        self._by_specs: dict[Hashable, _OutcomesBySpec] = {}
        self._outcome_bytes = 0
        self._specs: dict[tuple[DeviceRequest, ...], _CachedSpec] = {}
        self._spec_bytes = 0
        self._evaluation = 0
        self._selector_results = Memo[tuple[str, str, int], SelectorResult](_MAX_RESULT_BYTES)
        self._results_version = -1
        self._steps = 0

    def begin(self) -> None:
        """Begin the evaluation of a pod: set the number of steps to 0."""
        self._steps = 0
        self._evaluation += 1

    def outcome(self, claims: Sequence[ResourceClaim], node: NodeInfo, rest: Iterable[tuple[Any, ...]]) -> Outcome:
        """Return the alternatives that the claims get on the node, a status that rejects the node, or an Error.

        ``rest``: (claims, node) pairs whose outcomes the evaluation might need next. Raises ``Unprepared`` if the
        outcome is not cached and the evaluation has no steps left. The work in ``Unprepared`` computes this outcome and
        those of all pairs.
        """
        outcome = self._cached(claims, node)
        if outcome is None:
            if self._steps > MAX_STEPS_PER_EVALUATION:
                raise Unprepared(self._ahead([(claims, node)], rest))
            outcome, steps = run_to_end(self._search_and_store(claims, node))
            self._steps += steps
        return outcome

    def _ahead(self, *sources: Iterable[tuple[Any, ...]]) -> Iterator[None]:
        steps = 0
        for each in sources:
            for claims, node in each:
                steps += _STEPS_PER_LOOKUP
                if self._cached(claims, node) is None:
                    steps += (yield from self._search_and_store(claims, node))[1]
                if steps > MAX_STEPS_PER_EVALUATION // 2:
                    steps = 0
                    yield

    def _cached(self, claims: Sequence[ResourceClaim], node: NodeInfo) -> Outcome | None:
        """Return the cached outcome; ``None`` if it is missing, outdated, or valid only for other claims."""
        known = self._outcomes_for(claims).by_node.get(node.name)
        if known is None or known.inputs != self._inputs(node):
            return None
        if known.claims is not None and known.claims != _names(claims):
            return None
        return known.outcome

    def _outcomes_for(self, claims: Sequence[ResourceClaim]) -> _OutcomesBySpec:
        """Return the outcomes by node for the specs of ``claims``, and mark them as used by the current evaluation."""
        key = tuple(id(it.spec) for it in claims)
        kind = self._by_specs.get(key)
        if kind is None or kind.evaluation != self._evaluation:
            kind = self._by_specs.pop(key, None)
            if kind is None:
                specs = tuple(it.spec for it in claims)
                kind = _OutcomesBySpec(specs, _BYTES_PER_OUTCOME + sum(map(_weight, specs)))
                self._outcome_bytes += kind.weight
            kind.evaluation = self._evaluation
            self._by_specs[key] = kind
            self._evict_oldest()
        return kind

    def _evict_oldest(self) -> None:
        """Evict the least recently used outcomes above ``MAX_OUTCOME_BYTES``, except those of the last evaluations."""
        while self._outcome_bytes > MAX_OUTCOME_BYTES:
            key, oldest = next(iter(self._by_specs.items()))
            if oldest.evaluation > self._evaluation - _KEPT_EVALUATIONS:
                break
            del self._by_specs[key]
            self._outcome_bytes -= oldest.weight

    def _inputs(self, node: NodeInfo) -> tuple[Any, ...]:
        """Return everything that the outcome for the node depends on, except the specs of the claims."""
        inventory = self._inventory
        slices = inventory.slices_for(node.name)
        pools = inventory.pool_states(slices[0])
        return (node.node.labels, slices, pools, inventory.shared_pool_states(), inventory.classes_version())

    def _search_and_store(
        self, claims: Sequence[ResourceClaim], node: NodeInfo
    ) -> Generator[None, None, tuple[Outcome, int]]:
        inputs = self._inputs(node)
        outcome, steps, for_all = yield from self._search(claims, node)
        kind = self._outcomes_for(claims)
        if node.name not in kind.by_node:
            weight = _BYTES_PER_OUTCOME + _BYTES_PER_POOL * len(inputs[2])
            kind.weight += weight
            self._outcome_bytes += weight
        kind.by_node[node.name] = _CachedOutcome(inputs, outcome, None if for_all else _names(claims))
        self._evict_oldest()
        return outcome, steps

    def spec_of(self, requests: tuple[DeviceRequest, ...]) -> ClaimSpec:
        """Return the cached spec for equal requests, or a new one. Outcomes are cached by the identity of specs."""
        cached = self._specs.pop(requests, None)
        if cached is None:
            cached = _CachedSpec(ClaimSpec(requests))
            self._spec_bytes += _weight(cached.spec)
        cached.evaluation = self._evaluation
        self._specs[requests] = cached
        while self._spec_bytes > MAX_SPEC_BYTES:
            key, oldest = next(iter(self._specs.items()))
            if oldest.evaluation > self._evaluation - _KEPT_EVALUATIONS:
                break
            del self._specs[key]
            self._spec_bytes -= _weight(oldest.spec)
        return cached.spec

    def _search(
        self, claims: Sequence[ResourceClaim], node: NodeInfo
    ) -> Generator[None, None, tuple[Outcome, int, bool]]:
        """Search the node. Return (outcome, steps, true if the outcome is valid for all claims with the same specs)."""
        inventory = self._inventory
        search: AllocationSearch | None = None
        self._drop_outdated_results()
        try:
            own_slices, shared = inventory.slices_for(node.name)
            pools = inventory.pool_builder.pools(node.node, own_slices, shared)
            search = AllocationSearch(
                node.node, claims, pools, inventory.device_class, inventory.allocations, self._matches
            )
            result = yield from search.run()
        except CannotEvaluate as cause:
            return unresolvable(cause.reason).by(NAME), _steps(search), True
        except AllocationError as cause:
            return error(str(cause)), _steps(search), False
        if not isinstance(result, NoSolution):
            return result, _steps(search), True
        return (unresolvable(result.reason).by(NAME) if result.reason else _NOT_ALL), _steps(search), True

    def _drop_outdated_results(self) -> None:
        """Drop the selector results if slices have changed, because results are cached by the identity of devices."""
        if self._results_version != self._inventory.slices_version:
            self._results_version = self._inventory.slices_version
            self._selector_results = Memo(_MAX_RESULT_BYTES)

    def _matches(self, expression: str, driver: str, device: Device) -> SelectorResult:
        key = (expression, driver, id(device))
        evaluated = self._selector_results.get(key)
        if evaluated is MISSING:
            evaluated = self._evaluated(expression, driver, device)
            text = evaluated.outcome if isinstance(evaluated.outcome, str) else ""
            self._selector_results.put(key, evaluated, len(expression) + len(text) + _BYTES_PER_RESULT)
        return evaluated

    def _evaluated(self, expression: str, driver: str, device: Device) -> SelectorResult:
        selector = self._selectors.get(expression)
        if selector is MISSING:
            selector = _selector(expression)
            self._selectors.put(expression, selector, len(expression) * _BYTES_PER_CHARACTER)
        if selector is None:
            return SelectorResult(None)
        budget = StepBudget()
        try:
            return SelectorResult(selector.matches(device_variables(driver, device), budget), budget.steps)
        except CelError as fault:
            return SelectorResult(str(fault), budget.steps)
        except Unsupported:
            return SelectorResult(None, budget.steps)


def _selector(expression: str) -> DeviceSelector | None:
    try:
        return DeviceSelector(expression)
    except Unsupported:
        return None


def _weight(spec: ClaimSpec) -> int:
    """Return the estimated size of a spec in bytes. It matters, because the cache keeps specs of deleted claims."""
    requests = [it for request in spec.requests for it in (request.exactly, *request.first_available) if it is not None]
    texts = sum(len(text or "") for it in requests for text in it.selectors)
    texts += sum(len(text) for it in spec.constraints for text in it.requests)
    return _BYTES_PER_REQUEST * (1 + len(requests) + len(spec.constraints)) + texts


def _names(claims: Sequence[ResourceClaim]) -> tuple[str, ...]:
    return tuple(map(str, claims))


def _steps(search: AllocationSearch | None) -> int:
    return STEPS_PER_NODE + (0 if search is None else search.steps + search.devices // _DEVICES_PER_STEP)
