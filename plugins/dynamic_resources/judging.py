"""What is said of a node: whether the claims of a pod can be met there, remembered for as long as that stands.

To search a node takes a fraction of a millisecond, and there are thousands. What a search rests on is the claims'
specs, the node, the slices seen from there and what is taken of their pools: while these are the same, so is what came
of it, for every pod that asks for the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from app.framework.interface import Unprepared
from app.framework.node_info import NodeInfo
from app.framework.status import Status, error, unresolvable
from app.kube.memo import MISSING, Memo
from app.kube.resource_v1 import ClaimSpec, Device, DeviceRequest, ResourceClaim
from plugins.dynamic_resources.allocator import Failed, Search, Solution
from plugins.dynamic_resources.cel import Selector, device_variables
from plugins.dynamic_resources.cel_syntax import Unsupported
from plugins.dynamic_resources.inventory import Inventory
from plugins.dynamic_resources.pools import gather_pools
from plugins.dynamic_resources.unjudged import (
    NAME,
    REASON_EXPRESSION,
    AllocationError,
    Unjudged,
)

REASON_NOT_ALL: Final = "cannot allocate all claims"

STEPS_AT_ONCE: Final = 8000
"""Steps of searches that one evaluation takes before others have their turn: some 15 ms."""

STEPS_OF_A_NODE: Final = 60
"""What it counts to gather the pools of a node."""

_MOST_ASKED: Final = 64
"""Kinds of pods of which the outcomes are remembered. One pod may ask several nodes for different things."""

_MEMO_BYTES: Final = 4 << 20
_BYTES_OF_A_PART: Final = 40
_NOT_ALL: Final = unresolvable(REASON_NOT_ALL).by(NAME)

Outcome = Solution | Status


class _Known(Struct, frozen=True):
    """An outcome, and what it rests on. ``claims``: the only ones that it is said of, where it names them."""

    rests_on: tuple[Any, ...]
    outcome: Outcome
    claims: tuple[str, ...] | None = None


class Judging:
    """Searches for one profile, and remembers."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._selectors = Memo[str, Selector | None](_MEMO_BYTES)
        self._known: dict[Hashable, tuple[tuple[object, ...], dict[str, _Known]]] = {}
        self._specs: dict[tuple[DeviceRequest, ...], ClaimSpec] = {}
        self._steps = 0

    def begin(self) -> None:
        """An evaluation begins."""
        self._steps = 0

    def of(self, claims: Sequence[ResourceClaim], node: NodeInfo, rest: Iterable[tuple[Any, ...]]) -> Outcome:
        """What alternatives the claims get on a node, or why not.

        ``rest``: what else may be asked, as (claims, node). Raises ``Unprepared`` when this evaluation has taken too
        long already: all of it is searched then, with pauses.
        """
        outcome, steps = self._of(claims, node)
        if outcome is None:
            if self._steps > STEPS_AT_ONCE:
                raise Unprepared(self._ahead([(claims, node)], rest))
            outcome, steps = self._searched(claims, node)
            self._steps += steps
        return outcome

    def _ahead(self, *asked: Iterable[tuple[Any, ...]]) -> Iterator[None]:
        steps = 0
        for each in asked:
            for claims, node in each:
                if self._of(claims, node)[0] is None:
                    steps += self._searched(claims, node)[1]
                    if steps > STEPS_AT_ONCE // 4:
                        steps = 0
                        yield

    def _of(self, claims: Sequence[ResourceClaim], node: NodeInfo) -> tuple[Outcome | None, int]:
        """What is known of it, and holds."""
        kept = self._known.get(_key(claims))
        known = None if kept is None else kept[1].get(node.name)
        if known is None or known.rests_on != self._rests_on(node):
            return None, 0
        if known.claims is not None and known.claims != _names(claims):
            return None, 0
        return known.outcome, 0

    def _rests_on(self, node: NodeInfo) -> tuple[Any, ...]:
        inventory = self._inventory
        slices = inventory.slices_for(node.name)
        pools = {it.pool_id for each in slices for it in each}
        of_pools = {it: (inventory.use(it), inventory.of_pool(it)) for it in pools}
        return (node.node.labels, slices, of_pools, inventory.classes_version())

    def _searched(self, claims: Sequence[ResourceClaim], node: NodeInfo) -> tuple[Outcome, int]:
        outcome, steps, for_all = self._search(claims, node)
        key = _key(claims)
        kept = self._known.pop(key, None) or (tuple(it.spec for it in claims), {})
        self._known[key] = kept
        kept[1][node.name] = _Known(self._rests_on(node), outcome, None if for_all else _names(claims))
        if len(self._known) > _MOST_ASKED:
            del self._known[next(iter(self._known))]
        return outcome, steps

    def spec_of(self, requests: tuple[DeviceRequest, ...]) -> ClaimSpec:
        """One spec for equal requests, as claims of one template have: what is remembered is remembered by it."""
        found = self._specs.pop(requests, None) or ClaimSpec(requests)
        self._specs[requests] = found
        if len(self._specs) > _MOST_ASKED:
            del self._specs[next(iter(self._specs))]
        return found

    def _search(self, claims: Sequence[ResourceClaim], node: NodeInfo) -> tuple[Outcome, int, bool]:
        """The outcome, the steps it took, and whether it holds for other pods that ask for the same."""
        inventory = self._inventory
        search: Search | None = None
        try:
            near, anywhere = inventory.slices_for(node.name)
            pools = gather_pools(node.node, (*near, *anywhere), inventory.of_pool)
            search = Search(node.node, claims, pools, inventory.device_class, inventory.use, self._matches)
            found = search.run()
        except Unjudged as cause:
            return unresolvable(cause.reason).by(NAME), _steps(search), True
        except AllocationError as cause:
            return error(str(cause)), _steps(search), False
        if not isinstance(found, Failed):
            return found, _steps(search), True
        return (unresolvable(found.reason).by(NAME) if found.reason else _NOT_ALL), _steps(search), True

    def _matches(self, expression: str, driver: str, device: Device) -> bool:
        selector = self._selectors.get(expression)
        if selector is MISSING:
            selector = _selector(expression)
            self._selectors.put(expression, selector, len(expression) * _BYTES_OF_A_PART)
        if selector is None:
            raise Unjudged(REASON_EXPRESSION)
        try:
            return bool(selector.matches(device_variables(driver, device)))
        except Unsupported:
            raise Unjudged(REASON_EXPRESSION) from None


def _selector(expression: str) -> Selector | None:
    try:
        return Selector(expression)
    except Unsupported:
        return None


def _key(claims: Sequence[ResourceClaim]) -> Hashable:
    """Claims of one template have one spec: it is shared, and kept with what is remembered of it."""
    return tuple(id(it.spec) for it in claims)


def _names(claims: Sequence[ResourceClaim]) -> tuple[str, ...]:
    return tuple(map(str, claims))


def _steps(search: Search | None) -> int:
    return STEPS_OF_A_NODE + (0 if search is None else search.steps)
