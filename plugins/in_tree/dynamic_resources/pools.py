"""Pools of devices that a node can reach, in the order in which a search tries them.

Source of the rules: ``structured/internal/incubating/pools_incubating.go`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import lru_cache
from itertools import chain
from operator import is_

from msgspec import Struct

from app.kube.core_v1 import Node
from app.kube.node_affinity import NodeMatcher, RequiredNodeAffinity
from app.kube.resource_v1 import Amounts, Device, ResourceSlice
from plugins.in_tree.dynamic_resources.errors import REASON_LONG_OBJECT, REASON_MALFORMED, CannotEvaluate

PoolID = tuple[str, str]
"""(driver, pool)"""


class Pool(Struct, frozen=True):
    """Pool of devices, divided into the slices that one node can and cannot use.

    ``slices``: slices with devices that the node can use. ``other_slices``: the other slices with devices.
    ``counter_sets``: amounts of the pool's counters by counter set. No device is allocated from a pool that is
    ``incomplete`` (its driver has not published all slices) or ``invalid``.
    """

    driver: str
    name: str
    slices: tuple[ResourceSlice, ...] = ()
    other_slices: tuple[ResourceSlice, ...] = ()
    counter_sets: Mapping[str, Amounts] = {}
    incomplete: bool = False
    invalid: bool = False

    def __str__(self) -> str:
        return f"{self.driver}/{self.name}"


@lru_cache(maxsize=1024)
def _matcher(selector: RequiredNodeAffinity) -> NodeMatcher:
    """Compile a node selector. Raises ``CannotEvaluate`` if the API server would reject it."""
    for term in selector.terms or ():
        if not all(it.well_formed for it in term.expressions):
            raise CannotEvaluate(REASON_MALFORMED)
    return selector.compiled()


def node_selected(selector: RequiredNodeAffinity, node: Node) -> bool:
    """Return true if a node selector of a claim, slice or device selects the node. Raises ``CannotEvaluate``."""
    return _matcher(selector).matches(node.name, node.labels)


def node_matches(node: Node, name: str, selector: RequiredNodeAffinity | None, *, all_nodes: bool) -> bool:
    """Return true if the node is selected by name, by selector or by ``all_nodes``. Raises ``CannotEvaluate``."""
    if name:
        return node.name == name
    return all_nodes or (selector is not None and node_selected(selector, node))


def device_matches(node: Node, device: Device) -> bool:
    """Return true if a device that specifies its own nodes can be used on the node. Raises ``CannotEvaluate``."""
    return node_matches(node, device.node_name, device.node_selector, all_nodes=device.all_nodes)


class _SliceFacts:
    """Properties of a slice that do not depend on nodes or other slices, computed once per slice.

    ``conditional``: true if a device has binding conditions. ``counters``: names of consumed counters by counter set.
    """

    __slots__ = ("_every", "_names", "_selectors", "conditional", "counters", "devices", "slice")

    def __init__(self, resource_slice: ResourceSlice) -> None:
        self.slice = resource_slice
        self.devices = frozenset(device.name for device in resource_slice.devices)
        self.conditional = any(device.binding_conditions is not None for device in resource_slice.devices)
        self.counters: dict[str, set[str]] = {}
        """Names of the counters that devices consume, by counter set."""
        self._every = False
        names: set[str] = set()
        selectors: dict[RequiredNodeAffinity, None] = {}
        for device in resource_slice.devices:
            for use in device.consumes:
                self.counters.setdefault(use.counter_set, set()).update(use.counters)
            if device.node_name:
                names.add(device.node_name)
            elif device.all_nodes:
                self._every = True
            elif device.node_selector is not None:
                selectors[device.node_selector] = None
        self._names = frozenset(names)
        self._selectors = tuple(selectors)

    def reach(self, node: Node) -> bool:
        """Return true if the node can use at least one device of the slice. Only for slices that are ``per_device``.

        Raises ``CannotEvaluate``.
        """
        return self._every or node.name in self._names or any(node_selected(it, node) for it in self._selectors)


class _CachedPool(Struct, frozen=True):
    """Pool, and the slices from which it was built. ``conditional``: true if a device has binding conditions."""

    slices: Sequence[ResourceSlice]
    other_slices: Sequence[ResourceSlice]
    pool: Pool
    conditional: bool = False


class PoolBuilder:
    """Builds the pools that a node can reach. Pools shared by several nodes are cached until their slices change."""

    def __init__(self, all_of_pool: Callable[[PoolID], Sequence[ResourceSlice]]) -> None:
        self._all_of_pool = all_of_pool
        self._facts: dict[str, _SliceFacts] = {}
        self._built: dict[PoolID, _CachedPool] = {}

    def prepare(self, resource_slice: ResourceSlice) -> None:
        """Compute the properties of a new or changed slice before searches need them."""
        self._facts_of(resource_slice)

    def forget(self, resource_slice: ResourceSlice) -> None:
        """Drop the data computed from a slice that is removed or replaced."""
        self._facts.pop(resource_slice.name, None)
        self._built.pop(resource_slice.pool_id, None)

    def _facts_of(self, resource_slice: ResourceSlice) -> _SliceFacts:
        known = self._facts.get(resource_slice.name)
        if known is None or known.slice is not resource_slice:
            known = self._facts[resource_slice.name] = _SliceFacts(resource_slice)
        return known

    def pools(
        self, node: Node, own_slices: Iterable[ResourceSlice], shared: Sequence[ResourceSlice] = ()
    ) -> list[Pool]:
        """Return the pools of the slices, sorted by driver and name; pools with binding conditions come last.

        ``own_slices`` are slices of this node only. ``shared`` are slices that several nodes can use, and slices
        with counter sets. A pool that a newer generation replaces is left out. Raises ``CannotEvaluate``.
        """
        by_pool: dict[PoolID, list[ResourceSlice]] = {}
        for resource_slice in chain(own_slices, shared):
            if resource_slice.oversized:
                raise CannotEvaluate(REASON_LONG_OBJECT)
            if self._is_relevant(node, resource_slice):
                _add(by_pool, resource_slice)
        seen_by_many = {resource_slice.pool_id for resource_slice in shared}
        pools: list[Pool] = []
        conditional: list[Pool] = []
        for pool_id in sorted(by_pool):
            built = self._pool(pool_id, by_pool[pool_id], keep=pool_id in seen_by_many)
            if built is not None:
                (conditional if built.conditional else pools).append(built.pool)
        return pools + conditional

    def _is_relevant(self, node: Node, resource_slice: ResourceSlice) -> bool:
        """Return true if the slice matters for the node. Raises ``CannotEvaluate``.

        A slice with counter sets always counts, because it matters for each node that uses a device of the pool.
        """
        if resource_slice.counter_sets:
            return True
        if resource_slice.node_name or resource_slice.all_nodes or resource_slice.node_selector is not None:
            return node_matches(
                node, resource_slice.node_name, resource_slice.node_selector, all_nodes=resource_slice.all_nodes
            )
        return resource_slice.per_device and self._facts_of(resource_slice).reach(node)

    def _pool(self, pool_id: PoolID, slices: list[ResourceSlice], *, keep: bool) -> _CachedPool | None:
        """Return the pool; ``None`` if ``slices`` are not all slices of their generation, and there is a newer one,
        which is about to replace it.
        """
        other_slices: Sequence[ResourceSlice] = ()
        generation, count = slices[0].generation, slices[0].count
        if len(slices) != count:
            all_slices = self._all_of_pool(pool_id)
            if any(it.generation > generation for it in all_slices):
                return None
            current = [it for it in all_slices if it.generation == generation]
            if len(current) != count:
                return _CachedPool((), (), Pool(*pool_id, incomplete=True))
            names = {it.name for it in slices}
            other_slices = [it for it in current if it.name not in names]
        known = self._built.get(pool_id)
        if (
            known is not None
            and _are_identical(known.slices, slices)
            and _are_identical(known.other_slices, other_slices)
        ):
            return known
        built = self._build(pool_id, slices, other_slices)
        if keep:
            self._built[pool_id] = built
        return built

    def _build(
        self, pool_id: PoolID, slices: Sequence[ResourceSlice], other_slices: Sequence[ResourceSlice]
    ) -> _CachedPool:
        ordered = sorted(slices, key=lambda it: it.name)
        with_devices = tuple(it for it in ordered if not it.counter_sets)
        facts = [self._facts_of(it) for it in with_devices]
        names = frozenset[str]().union(*(it.devices for it in facts))
        sets = [it for each in ordered for it in each.counter_sets]
        counters = {it.counter_set: it.counters for it in sets}
        valid = (
            len(names) == sum(len(it.devices) for it in with_devices)
            and len(counters) == len(sets)
            and all(_are_defined(self._facts_of(it).counters, counters) for it in (*ordered, *other_slices))
        )
        if not valid:
            return _CachedPool(slices, other_slices, Pool(*pool_id, invalid=True))
        pool = Pool(*pool_id, with_devices, tuple(other_slices), counters)
        return _CachedPool(slices, other_slices, pool, any(it.conditional for it in facts))


def _are_identical(known: Sequence[ResourceSlice], current: Sequence[ResourceSlice]) -> bool:
    """Return true if each slice of ``known`` is, by identity, the slice of ``current`` at its position."""
    return len(known) == len(current) and all(map(is_, known, current))


def _are_defined(consumed: Mapping[str, Set[str]], counters: Mapping[str, Amounts]) -> bool:
    """Return true if ``counters`` contains all consumed counters."""
    return all(name in counters and counters[name].keys() >= consumed[name] for name in consumed)


def _add(by_pool: dict[PoolID, list[ResourceSlice]], resource_slice: ResourceSlice) -> None:
    """Add the slice to its pool, which keeps only the slices of the newest generation."""
    known = by_pool.setdefault(resource_slice.pool_id, [])
    if known and resource_slice.generation < known[0].generation:
        return
    if known and resource_slice.generation > known[0].generation:
        known.clear()
    known.append(resource_slice)
