"""The inventory is brought up to date object by object, and is what a new one would be."""

from random import Random
from typing import Any, Final

import pytest

from app.cache.cluster import Cluster
from app.kube.kinds import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from app.kube.resource_v1 import (
    AllocatedDevice,
    Allocation,
    Amounts,
    ClaimSpec,
    CounterUse,
    Device,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)
from plugins.in_tree.dynamic_resources.allocator import NO_ALLOCATIONS, PoolAllocations
from plugins.in_tree.dynamic_resources.inventory import Inventory

NODES: Final = ("n0", "n1", "")
POOLS: Final = (("gpu.test", "p0"), ("gpu.test", "p1"), ("nic.test", "p0"))
PODS: Final = (("a", "uid-a"), ("b", "uid-b"), ("a", "uid-b"))
AMOUNTS: Final[tuple[Amounts | None, ...]] = (None, {}, {"m": 1}, {"m": 2, "n": 0})


def claim(name: str, *devices: AllocatedDevice, **fields: Any) -> ResourceClaim:
    allocation = Allocation(devices) if devices else None
    return ResourceClaim("default", name, f"uid-{name}", False, None, ClaimSpec(), allocation, **fields)


def has(pool: tuple[str, str], device: str, **fields: Any) -> AllocatedDevice:
    return AllocatedDevice("r", (*pool, device), **fields)


def some_claim(random: Random, name: str) -> ResourceClaim:
    devices = [
        has(
            random.choice(POOLS),
            random.choice("xyz"),
            admin_access=random.random() < 0.1,
            shared=random.random() < 0.6,
            consumed=random.choice(AMOUNTS),
        )
        for _ in range(random.randrange(4))
    ]
    return claim(name, *devices, extended_for=tuple(random.sample(PODS, random.randrange(2))))


def some_slice(random: Random, name: str) -> ResourceSlice:
    driver, pool = random.choice(POOLS)
    counters = (CounterUse("c", {}),) if random.random() < 0.2 else ()
    return ResourceSlice(
        name,
        name,
        driver,
        pool,
        generation=random.randrange(3),
        node_name=random.choice(NODES),
        devices=(Device("x"),),
        counter_sets=counters,
    )


def shown(inventory: Inventory) -> object:
    def by_name(slices: Any) -> list[ResourceSlice]:
        return sorted(slices, key=lambda it: it.name)

    return (
        [tuple(map(by_name, inventory.slices_for(node))) for node in NODES],
        [(by_name(inventory.slices_of_pool(it)), inventory.allocations(it)) for it in POOLS],
        {pool: (use, by_name(slices)) for pool, (use, slices) in inventory.shared_pool_states().items()},
        [inventory.class_of_resource(f"example.com/{it}") for it in "ab"],
        [
            (found is not None and pod in found.extended_for)
            for pod in PODS
            for found in [inventory.extended_claim(*pod)]
        ],
    )


@pytest.mark.parametrize("seed", range(12))
def test_whatever_comes_changes_and_goes_it_is_what_a_new_one_would_be(seed: int) -> None:
    random = Random(seed)
    cluster = Cluster()
    inventory = Inventory(cluster)
    for _ in range(120):
        name = random.choice("abcdef")
        kind = random.choice((RESOURCE_CLAIMS, RESOURCE_CLAIMS, RESOURCE_SLICES, DEVICE_CLASSES))
        namespace = "default" if kind is RESOURCE_CLAIMS else ""
        if random.random() < 0.3:
            cluster.others.delete(kind, (namespace, name))
        elif kind is RESOURCE_CLAIMS:
            cluster.others.upsert(kind, some_claim(random, name))
        elif kind is RESOURCE_SLICES:
            cluster.others.upsert(kind, some_slice(random, name))
        else:
            cluster.others.upsert(kind, DeviceClass(name, name, extended_resource="example.com/a"))
        if random.random() < 0.5:
            inventory.refresh()
            fresh = Inventory(cluster)
            fresh.refresh()
            assert shown(fresh) == shown(inventory)


def test_one_claim_that_changes_is_read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    for number in range(50):
        cluster.others.upsert(RESOURCE_CLAIMS, claim(f"c{number}", has(POOLS[0], f"d{number}")))
    inventory = Inventory(cluster)
    inventory.refresh()
    read: list[str] = []
    monkeypatch.setattr(cluster, "every", lambda kind: pytest.fail(f"all {kind} are read"))
    monkeypatch.setattr(inventory, "_put_claim", lambda key, _: read.append(key[1]))

    inventory.refresh()
    cluster.others.upsert(RESOURCE_CLAIMS, claim("c7", has(POOLS[1], "d7")))
    cluster.others.delete(RESOURCE_CLAIMS, ("default", "c8"))
    inventory.refresh()

    assert ["c7", "c8"] == sorted(read)


def test_what_stays_the_same_is_the_same_object() -> None:
    cluster = Cluster()
    cluster.others.upsert(RESOURCE_SLICES, ResourceSlice("s", "s", *POOLS[0], all_nodes=True))
    inventory = Inventory(cluster)
    inventory.refresh()
    before = (inventory.shared_pool_states(), inventory.slices_for("n0")[1])

    cluster.others.upsert(RESOURCE_CLAIMS, claim("c", has(POOLS[1], "d")))
    inventory.refresh()
    after = (inventory.shared_pool_states(), inventory.slices_for("n0")[1])
    cluster.others.upsert(RESOURCE_CLAIMS, claim("c", has(POOLS[0], "d")))
    inventory.refresh()

    assert all(a is b for a, b in zip(before, after, strict=True))
    assert PoolAllocations(frozenset("d")) == inventory.shared_pool_states()[POOLS[0]][0]


def test_a_share_is_given_back() -> None:
    cluster = Cluster()
    inventory = Inventory(cluster)
    said = []
    for number, amount in enumerate(({"m": 3}, None, {"m": 4, "n": 1})):
        cluster.others.upsert(RESOURCE_CLAIMS, claim(f"c{number}", has(POOLS[0], "d", shared=True, consumed=amount)))
    for gone in ("c2", "c0", "c1"):
        inventory.refresh()
        said.append(inventory.allocations(POOLS[0]).shared.get("d"))
        cluster.others.delete(RESOURCE_CLAIMS, ("default", gone))
    inventory.refresh()

    assert [{"m": 7, "n": 1}, {"m": 3}, None] == said
    assert inventory.allocations(POOLS[0]) is NO_ALLOCATIONS
