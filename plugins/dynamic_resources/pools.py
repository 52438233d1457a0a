"""The pools of devices that can be reached from a node, in the order in which a search goes through them.

Source of the rules: ``structured/internal/incubating/pools_incubating.go`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from app.kube.core_v1 import Node
from app.kube.node_affinity import NodeMatcher, RequiredNodeAffinity
from app.kube.resource_v1 import Amounts, Device, ResourceSlice
from plugins.dynamic_resources.unjudged import REASON_LONG_OBJECT, REASON_MALFORMED, Unjudged

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


def gather_pools(
    node: Node, slices: Iterable[ResourceSlice], all_of_pool: Callable[[PoolID], Sequence[ResourceSlice]]
) -> list[Pool]:
    """The pools of ``slices``, by driver and name; those whose devices are bound under conditions come last.

    Raises ``Unjudged``.
    """
    found: dict[PoolID, list[ResourceSlice]] = {}
    for it in slices:
        if it.oversized:
            raise Unjudged(REASON_LONG_OBJECT)
        if _is_relevant(node, it):
            _add(found, it)
    pools: list[Pool] = []
    conditional: list[Pool] = []
    for pool_id in sorted(found):
        pool = _pool(pool_id, found[pool_id], all_of_pool)
        if pool is not None:
            (conditional if _has_binding_conditions(pool) else pools).append(pool)
    return pools + conditional


def _is_relevant(node: Node, it: ResourceSlice) -> bool:
    """Counters are needed wherever their pool is used."""
    if it.counter_sets:
        return True
    if it.node_name or it.all_nodes or it.node_selector is not None:
        return node_matches(node, it.node_name, it.node_selector, all_nodes=it.all_nodes)
    return it.per_device and any(device_matches(node, device) for device in it.devices)


def _add(found: dict[PoolID, list[ResourceSlice]], it: ResourceSlice) -> None:
    """Slices of the newest generation replace all others."""
    known = found.setdefault(it.pool_id, [])
    if known and it.generation < known[0].generation:
        return
    if known and it.generation > known[0].generation:
        known.clear()
    known.append(it)


def _pool(
    pool_id: PoolID, slices: list[ResourceSlice], all_of_pool: Callable[[PoolID], Sequence[ResourceSlice]]
) -> Pool | None:
    """``None`` for one that is about to be replaced by a newer generation."""
    generation, count = slices[0].generation, slices[0].count
    if len(slices) == count:
        return _built(pool_id, slices, ())
    everything = all_of_pool(pool_id)
    if any(it.generation > generation for it in everything):
        return None
    current = [it for it in everything if it.generation == generation]
    if len(current) != count:
        return Pool(*pool_id, incomplete=True)
    names = {it.name for it in slices}
    return _built(pool_id, slices, tuple(it for it in current if it.name not in names))


def _built(pool_id: PoolID, slices: list[ResourceSlice], elsewhere: tuple[ResourceSlice, ...]) -> Pool:
    ordered = sorted(slices, key=lambda it: it.name)
    with_devices = tuple(it for it in ordered if not it.counter_sets)
    names = [device.name for it in with_devices for device in it.devices]
    sets = [it for each in ordered for it in each.counter_sets]
    counters = {it.counter_set: it.counters for it in sets}
    valid = (
        len(set(names)) == len(names)
        and len(counters) == len(sets)
        and all(_is_counted(it, counters) for it in (*ordered, *elsewhere))
    )
    if not valid:
        return Pool(*pool_id, invalid=True)
    return Pool(*pool_id, with_devices, elsewhere, counters)


def _is_counted(found: ResourceSlice, counters: Mapping[str, Amounts]) -> bool:
    """Whether there are all the counters that its devices consume."""
    uses = (use for device in found.devices for use in device.consumes)
    return all(it.counter_set in counters and it.counters.keys() <= counters[it.counter_set].keys() for it in uses)


def _has_binding_conditions(pool: Pool) -> bool:
    return any(device.binding_conditions is not None for it in pool.slices for device in it.devices)
