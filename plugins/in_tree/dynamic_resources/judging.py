"""What is said of a node: whether the claims of a pod can be met there, remembered for as long as that stands.

To search a node takes a fraction of a millisecond, and there are thousands. What a search rests on is the claims'
specs, the node, the slices seen from there and what is taken of their pools: while these are the same, so is what came
of it, for every pod that asks for the same.
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
from plugins.in_tree.dynamic_resources.allocator import Failed, Said, Search, Solution
from plugins.in_tree.dynamic_resources.cel import Selector
from plugins.in_tree.dynamic_resources.cel_functions import CelError
from plugins.in_tree.dynamic_resources.cel_scope import Budget, device_variables
from plugins.in_tree.dynamic_resources.cel_syntax import Unsupported
from plugins.in_tree.dynamic_resources.inventory import Inventory
from plugins.in_tree.dynamic_resources.unjudged import NAME, AllocationError, Unjudged

REASON_NOT_ALL: Final = "cannot allocate all claims"

STEPS_AT_ONCE: Final = 2000
"""Steps of searches after which an evaluation lets others have their turn: some 5 ms, and the last search on top."""

STEPS_OF_A_NODE: Final = 60
"""What it counts to gather the pools of a node."""

_DEVICES_OF_A_STEP: Final = 8
"""That are put in line for a search."""

_STEPS_OF_A_LOOK: Final = 4
"""What it counts to see that a node is known already."""

MOST_KNOWN_BYTES: Final = 64 << 20
"""Of outcomes, of all nodes and of pods of all kinds, beside those that the last evaluations asked for. About."""

MOST_MADE_BYTES: Final = 4 << 20
"""Of specs that are made here, the same."""

_EVALUATIONS: Final = 8
"""Whose outcomes are kept in any case: one that was searched ahead begins anew, perhaps after others had their turn."""

_BYTES_OF_AN_OUTCOME: Final = 400
_BYTES_OF_A_POOL: Final = 150
_BYTES_OF_A_REQUEST: Final = 600

_MEMO_BYTES: Final = 4 << 20
_SAID_BYTES: Final = 4 << 20
_BYTES_OF_WHAT_IS_SAID: Final = 300
_BYTES_OF_A_PART: Final = 40
_NOT_ALL: Final = unresolvable(REASON_NOT_ALL).by(NAME)

Outcome = Solution | Status


class _Known(Struct, frozen=True):
    """An outcome, and what it rests on. ``claims``: the only ones that it is said of, where it names them."""

    rests_on: tuple[Any, ...]
    outcome: Outcome
    claims: tuple[str, ...] | None = None


class _Kind(Struct):
    """What is known by node of pods that ask for the same ``specs``, whose identity is the key.

    ``evaluation``: the number of the last one that asked. One pod may ask each node for something else, where device
    plugins have some of its extended resources.
    """

    specs: tuple[ClaimSpec, ...]
    weight: int
    evaluation: int = 0
    by_node: dict[str, _Known] = {}


class _MadeSpec(Struct):
    """``evaluation``: the number of the last one that asked for it."""

    spec: ClaimSpec
    evaluation: int = 0


class Judging:
    """Searches for one profile, and remembers."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._selectors = Memo[str, Selector | None](_MEMO_BYTES)
        self._kinds: dict[Hashable, _Kind] = {}
        self._known_bytes = 0
        self._specs: dict[tuple[DeviceRequest, ...], _MadeSpec] = {}
        self._made_bytes = 0
        self._evaluation = 0
        self._said = Memo[tuple[str, str, int], Said](_SAID_BYTES)
        self._said_at = -1
        self._steps = 0

    def begin(self) -> None:
        """An evaluation begins."""
        self._steps = 0
        self._evaluation += 1

    def of(self, claims: Sequence[ResourceClaim], node: NodeInfo, rest: Iterable[tuple[Any, ...]]) -> Outcome:
        """What alternatives the claims get on a node, or why not.

        ``rest``: what else may be asked, as (claims, node). Raises ``Unprepared`` when this evaluation has taken too
        long already: all of it is searched then, with pauses.
        """
        outcome = self._of(claims, node)
        if outcome is None:
            if self._steps > STEPS_AT_ONCE:
                raise Unprepared(self._ahead([(claims, node)], rest))
            outcome, steps = run_to_end(self._searched(claims, node))
            self._steps += steps
        return outcome

    def _ahead(self, *asked: Iterable[tuple[Any, ...]]) -> Iterator[None]:
        steps = 0
        for each in asked:
            for claims, node in each:
                steps += _STEPS_OF_A_LOOK
                if self._of(claims, node) is None:
                    steps += (yield from self._searched(claims, node))[1]
                if steps > STEPS_AT_ONCE // 2:
                    steps = 0
                    yield

    def _of(self, claims: Sequence[ResourceClaim], node: NodeInfo) -> Outcome | None:
        """What is known of it, and holds."""
        known = self._kind(claims).by_node.get(node.name)
        if known is None or known.rests_on != self._rests_on(node):
            return None
        if known.claims is not None and known.claims != _names(claims):
            return None
        return known.outcome

    def _kind(self, claims: Sequence[ResourceClaim]) -> _Kind:
        """What is remembered of pods that ask for the same, which is asked for now."""
        key = tuple(id(it.spec) for it in claims)
        found = self._kinds.get(key)
        if found is None or found.evaluation != self._evaluation:
            found = self._kinds.pop(key, None)
            if found is None:
                specs = tuple(it.spec for it in claims)
                found = _Kind(specs, _BYTES_OF_AN_OUTCOME + sum(map(_weight, specs)))
                self._known_bytes += found.weight
            found.evaluation = self._evaluation
            self._kinds[key] = found
            self._make_room()
        return found

    def _make_room(self) -> None:
        """Of what was asked for just now nothing is forgotten: it has to be there when it is asked for again."""
        while self._known_bytes > MOST_KNOWN_BYTES:
            key, oldest = next(iter(self._kinds.items()))
            if oldest.evaluation > self._evaluation - _EVALUATIONS:
                break
            del self._kinds[key]
            self._known_bytes -= oldest.weight

    def _rests_on(self, node: NodeInfo) -> tuple[Any, ...]:
        inventory = self._inventory
        slices = inventory.slices_for(node.name)
        pools = inventory.stand_of(slices[0])
        return (node.node.labels, slices, pools, inventory.stand_of_shared_pools(), inventory.classes_version())

    def _searched(self, claims: Sequence[ResourceClaim], node: NodeInfo) -> Generator[None, None, tuple[Outcome, int]]:
        rests_on = self._rests_on(node)
        outcome, steps, for_all = yield from self._search(claims, node)
        kind = self._kind(claims)
        if node.name not in kind.by_node:
            weight = _BYTES_OF_AN_OUTCOME + _BYTES_OF_A_POOL * len(rests_on[2])
            kind.weight += weight
            self._known_bytes += weight
        kind.by_node[node.name] = _Known(rests_on, outcome, None if for_all else _names(claims))
        self._make_room()
        return outcome, steps

    def spec_of(self, requests: tuple[DeviceRequest, ...]) -> ClaimSpec:
        """One spec for equal requests, as claims of one template have: what is remembered is remembered by it."""
        found = self._specs.pop(requests, None)
        if found is None:
            found = _MadeSpec(ClaimSpec(requests))
            self._made_bytes += _weight(found.spec)
        found.evaluation = self._evaluation
        self._specs[requests] = found
        while self._made_bytes > MOST_MADE_BYTES:
            key, oldest = next(iter(self._specs.items()))
            if oldest.evaluation > self._evaluation - _EVALUATIONS:
                break
            del self._specs[key]
            self._made_bytes -= _weight(oldest.spec)
        return found.spec

    def _search(
        self, claims: Sequence[ResourceClaim], node: NodeInfo
    ) -> Generator[None, None, tuple[Outcome, int, bool]]:
        """The outcome, the steps it took, and whether it holds for other pods that ask for the same."""
        inventory = self._inventory
        search: Search | None = None
        self._said_now()
        try:
            near, anywhere = inventory.slices_for(node.name)
            pools = inventory.gathering.pools(node.node, near, anywhere)
            search = Search(node.node, claims, pools, inventory.device_class, inventory.use, self._matches)
            found = yield from search.run()
        except Unjudged as cause:
            return unresolvable(cause.reason).by(NAME), _steps(search), True
        except AllocationError as cause:
            return error(str(cause)), _steps(search), False
        if not isinstance(found, Failed):
            return found, _steps(search), True
        return (unresolvable(found.reason).by(NAME) if found.reason else _NOT_ALL), _steps(search), True

    def _said_now(self) -> None:
        """What was said of devices is kept while they are the same."""
        if self._said_at != self._inventory.slices_version:
            self._said_at = self._inventory.slices_version
            self._said = Memo(_SAID_BYTES)

    def _matches(self, expression: str, driver: str, device: Device) -> Said:
        key = (expression, driver, id(device))
        found = self._said.get(key)
        if found is MISSING:
            found = self._evaluated(expression, driver, device)
            text = found.outcome if isinstance(found.outcome, str) else ""
            self._said.put(key, found, len(expression) + len(text) + _BYTES_OF_WHAT_IS_SAID)
        return found

    def _evaluated(self, expression: str, driver: str, device: Device) -> Said:
        selector = self._selectors.get(expression)
        if selector is MISSING:
            selector = _selector(expression)
            self._selectors.put(expression, selector, len(expression) * _BYTES_OF_A_PART)
        if selector is None:
            return Said(None)
        budget = Budget()
        try:
            return Said(selector.matches(device_variables(driver, device), budget), budget.steps)
        except CelError as fault:
            return Said(str(fault), budget.steps)
        except Unsupported:
            return Said(None, budget.steps)


def _selector(expression: str) -> Selector | None:
    try:
        return Selector(expression)
    except Unsupported:
        return None


def _weight(spec: ClaimSpec) -> int:
    """Its bytes, about: what is remembered holds on to it when its claim is gone."""
    asked = [it for request in spec.requests for it in (request.exactly, *request.first_available) if it is not None]
    texts = sum(len(text or "") for it in asked for text in it.selectors)
    texts += sum(len(text) for it in spec.constraints for text in it.requests)
    return _BYTES_OF_A_REQUEST * (1 + len(asked) + len(spec.constraints)) + texts


def _names(claims: Sequence[ResourceClaim]) -> tuple[str, ...]:
    return tuple(map(str, claims))


def _steps(search: Search | None) -> int:
    return STEPS_OF_A_NODE + (0 if search is None else search.steps + search.devices // _DEVICES_OF_A_STEP)
