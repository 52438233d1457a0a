"""The pools of devices that can be reached from a node, in the order in which a search goes through them.

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
from plugins.in_tree.dynamic_resources.unjudged import REASON_LONG_OBJECT, REASON_MALFORMED, Unjudged

PoolID = tuple[str, str]
"""(driver, pool)"""


class Pool(Struct, frozen=True):
    """A pool as it is seen from a node. ``slices`` have the devices that can be used there, ``elsewhere`` the others.

    Of one that is incomplete (its driver is about to publish it) or invalid no device is allocated.
    """

    driver: str
    name: str
    slices: tuple[ResourceSlice, ...] = ()
    elsewhere: tuple[ResourceSlice, ...] = ()
    counter_sets: Mapping[str, Amounts] = {}
    incomplete: bool = False
    invalid: bool = False

    def __str__(self) -> str:
        return f"{self.driver}/{self.name}"


@lru_cache(maxsize=1024)
def _matcher(selector: RequiredNodeAffinity) -> NodeMatcher:
    """Raises ``Unjudged`` for what the API server does not take."""
    for term in selector.terms or ():
        if not all(it.well_formed for it in term.expressions):
            raise Unjudged(REASON_MALFORMED)
    return selector.compiled()


def node_selected(selector: RequiredNodeAffinity, node: Node) -> bool:
    """Whether a claim or a device can be used on a node. Raises ``Unjudged``."""
    return _matcher(selector).matches(node.name, node.labels)


def node_matches(node: Node, name: str, selector: RequiredNodeAffinity | None, *, all_nodes: bool) -> bool:
    """The same of whatever says where devices are. Raises ``Unjudged``."""
    if name:
        return node.name == name
    return all_nodes or (selector is not None and node_selected(selector, node))


def device_matches(node: Node, device: Device) -> bool:
    """The same of a device that says so itself."""
    return node_matches(node, device.node_name, device.node_selector, all_nodes=device.all_nodes)


class _Facts:
    """What of a slice does not depend on nodes, nor on other slices: looked into once, and not for each node."""

    __slots__ = ("_every", "_names", "_selectors", "conditional", "counters", "devices", "slice")

    def __init__(self, resource_slice: ResourceSlice) -> None:
        self.slice = resource_slice
        self.devices = frozenset(device.name for device in resource_slice.devices)
        self.conditional = any(device.binding_conditions is not None for device in resource_slice.devices)
        self.counters: dict[str, set[str]] = {}
        """Counters that devices consume, by their set."""
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
        """Whether any of the devices can be used on a node, by what they say themselves. Raises ``Unjudged``."""
        return self._every or node.name in self._names or any(node_selected(it, node) for it in self._selectors)


class _Built(Struct, frozen=True):
    """A pool as it was made of these slices. ``conditional``: some of its devices have binding conditions."""

    slices: Sequence[ResourceSlice]
    elsewhere: Sequence[ResourceSlice]
    pool: Pool
    conditional: bool = False


class Gathering:
    """Gathers the pools that a node can reach. A pool that several nodes see is made once, while its slices stay."""

    def __init__(self, all_of_pool: Callable[[PoolID], Sequence[ResourceSlice]]) -> None:
        self._all_of_pool = all_of_pool
        self._facts: dict[str, _Facts] = {}
        self._built: dict[PoolID, _Built] = {}

    def take_in(self, resource_slice: ResourceSlice) -> None:
        """Look into a slice that came or changed, ahead of the searches."""
        self._facts_of(resource_slice)

    def forget(self, resource_slice: ResourceSlice) -> None:
        """A slice is gone."""
        self._facts.pop(resource_slice.name, None)
        self._built.pop(resource_slice.pool_id, None)

    def _facts_of(self, resource_slice: ResourceSlice) -> _Facts:
        known = self._facts.get(resource_slice.name)
        if known is None or known.slice is not resource_slice:
            known = self._facts[resource_slice.name] = _Facts(resource_slice)
        return known

    def pools(self, node: Node, near: Iterable[ResourceSlice], shared: Sequence[ResourceSlice] = ()) -> list[Pool]:
        """The pools of slices, by driver and name; those whose devices are bound under conditions come last.

        ``near`` are slices of the node alone. Raises ``Unjudged``.
        """
        by_pool: dict[PoolID, list[ResourceSlice]] = {}
        for resource_slice in chain(near, shared):
            if resource_slice.oversized:
                raise Unjudged(REASON_LONG_OBJECT)
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
        """Counters are needed wherever their pool is used."""
        if resource_slice.counter_sets:
            return True
        if resource_slice.node_name or resource_slice.all_nodes or resource_slice.node_selector is not None:
            return node_matches(
                node, resource_slice.node_name, resource_slice.node_selector, all_nodes=resource_slice.all_nodes
            )
        return resource_slice.per_device and self._facts_of(resource_slice).reach(node)

    def _pool(self, pool_id: PoolID, slices: list[ResourceSlice], *, keep: bool) -> _Built | None:
        """``None`` for one that is about to be replaced by a newer generation."""
        elsewhere: Sequence[ResourceSlice] = ()
        generation, count = slices[0].generation, slices[0].count
        if len(slices) != count:
            everything = self._all_of_pool(pool_id)
            if any(it.generation > generation for it in everything):
                return None
            current = [it for it in everything if it.generation == generation]
            if len(current) != count:
                return _Built((), (), Pool(*pool_id, incomplete=True))
            names = {it.name for it in slices}
            elsewhere = [it for it in current if it.name not in names]
        known = self._built.get(pool_id)
        if known is not None and _are(known.slices, slices) and _are(known.elsewhere, elsewhere):
            return known
        built = self._made(pool_id, slices, elsewhere)
        if keep:
            self._built[pool_id] = built
        return built

    def _made(self, pool_id: PoolID, slices: Sequence[ResourceSlice], elsewhere: Sequence[ResourceSlice]) -> _Built:
        ordered = sorted(slices, key=lambda it: it.name)
        with_devices = tuple(it for it in ordered if not it.counter_sets)
        facts = [self._facts_of(it) for it in with_devices]
        names = frozenset[str]().union(*(it.devices for it in facts))
        sets = [it for each in ordered for it in each.counter_sets]
        counters = {it.counter_set: it.counters for it in sets}
        valid = (
            len(names) == sum(len(it.devices) for it in with_devices)
            and len(counters) == len(sets)
            and all(_are_counted(self._facts_of(it).counters, counters) for it in (*ordered, *elsewhere))
        )
        if not valid:
            return _Built(slices, elsewhere, Pool(*pool_id, invalid=True))
        pool = Pool(*pool_id, with_devices, tuple(elsewhere), counters)
        return _Built(slices, elsewhere, pool, any(it.conditional for it in facts))


def _are(known: Sequence[ResourceSlice], current: Sequence[ResourceSlice]) -> bool:
    return len(known) == len(current) and all(map(is_, known, current))


def _are_counted(consumed: Mapping[str, Set[str]], counters: Mapping[str, Amounts]) -> bool:
    """Whether there are all the counters that devices consume."""
    return all(name in counters and counters[name].keys() >= consumed[name] for name in consumed)


def _add(by_pool: dict[PoolID, list[ResourceSlice]], resource_slice: ResourceSlice) -> None:
    """Slices of the newest generation replace all others."""
    known = by_pool.setdefault(resource_slice.pool_id, [])
    if known and resource_slice.generation < known[0].generation:
        return
    if known and resource_slice.generation > known[0].generation:
        known.clear()
    known.append(resource_slice)
