"""Searching devices for claims: what is found, in which order, and when it ends."""

import re
from typing import Any, Final

import pytest

from app.kube.claims import ContainerRequests
from app.kube.resource_v1 import (
    BILLION,
    Device,
    DeviceClass,
    DeviceTaint,
    ResourceSlice,
    decode_resource_claim,
    decode_slice,
)
from plugins.dynamic_resources.allocator import MOST_STEPS, NO_USE, Failed, Said, Search, Use
from plugins.dynamic_resources.capacity import consumed_of, fits
from plugins.dynamic_resources.extended import device_requests, from_devices
from plugins.dynamic_resources.pools import gather_pools
from plugins.dynamic_resources.unjudged import REASON_LONG_OBJECT, REASON_STEPS, AllocationError, Unjudged
from tests.builders import encoded, make_node

NODE: Final = make_node("n1", zone="z1")


def devices(*numa: int, **fields: Any) -> tuple[Device, ...]:
    return tuple(Device(f"d{it}", {"numa": value}, **fields) for it, value in enumerate(numa))


def slice_of(*found: Device, name: str = "s", **fields: Any) -> ResourceSlice:
    return ResourceSlice(
        name, name, "gpu.test", **{"pool": "p", "count": 1, "node_name": "n1", **fields}, devices=found
    )


def exactly(count: int = 1, **fields: Any) -> dict[str, Any]:
    return {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, **fields}


def claim_of(*requests: dict[str, Any], constraint: dict[str, Any] | None = None) -> Any:
    named = [{"name": f"r{it}", **request} for it, request in enumerate(requests)]
    spec = {"devices": {"requests": named, "constraints": [] if constraint is None else [constraint]}}
    return decode_resource_claim(encoded({"metadata": {"name": "c", "namespace": "ns", "uid": "u"}, "spec": spec}))


def search(slices: list[ResourceSlice], *claims: Any, use: Use = NO_USE) -> Search:
    pools = gather_pools(NODE, slices, lambda pool: [it for it in slices if it.pool_id == pool])
    classes = {"gpu": DeviceClass("gpu", "u")}
    return Search(NODE, claims, pools, classes.get, lambda _: use, lambda expression, *_: Said(expression == "true"))


SAME_NUMA: Final = {"matchAttribute": "gpu.test/numa"}
TWO_ALIKE: Final = claim_of({"exactly": exactly(2)}, constraint=SAME_NUMA)
ALL: Final = claim_of({"exactly": {"deviceClassName": "gpu", "allocationMode": "All"}})
TAINTED: Final = devices(0, taints=(DeviceTaint("bad", "", "NoSchedule"),))


@pytest.mark.parametrize(
    ("found", "claim", "expected"),
    [
        pytest.param(devices(0, 1), claim_of({"exactly": exactly(2)}), (frozenset(),), id="as many as there are"),
        pytest.param(devices(0), claim_of({"exactly": exactly(2)}), Failed(), id="one too many"),
        pytest.param(devices(0, 1, 1), TWO_ALIKE, (frozenset(),), id="alike"),
        pytest.param(devices(0, 1), TWO_ALIKE, Failed(), id="none alike"),
        pytest.param(
            devices(0),
            claim_of({"firstAvailable": [exactly(2) | {"name": "two"}, exactly() | {"name": "one"}]}),
            (frozenset({"r0/one"}),),
            id="the first alternative that can be had",
        ),
        pytest.param(devices(), ALL, Failed(), id="all of none"),
        pytest.param(
            TAINTED, claim_of({"exactly": exactly()}), Failed(), id="tainted"
        ),
        pytest.param(
            TAINTED,
            claim_of({"exactly": exactly(tolerations=[{"key": "bad", "operator": "Exists"}])}),
            (frozenset(),),
            id="tolerated",
        ),
        pytest.param(
            devices(0),
            claim_of({"exactly": exactly()}, {"exactly": exactly(adminAccess=True)}),
            Failed(),
            id="an administrator does not see it twice in a claim",
        ),
    ],
)  # fmt: skip
def test_a_search(found: tuple[Device, ...], claim: Any, expected: object) -> None:
    assert expected == search([slice_of(*found)], claim).run()


def test_what_others_have_is_not_to_be_had() -> None:
    taken = Use(frozenset({"d0"}))

    assert Failed() == search([slice_of(*devices(0))], claim_of({"exactly": exactly()}), use=taken).run()
    admin = claim_of({"exactly": exactly(adminAccess=True)})
    assert (frozenset(),) == search([slice_of(*devices(0))], admin, use=taken).run()


def test_of_an_incomplete_pool_nothing_is_taken_and_not_all_can_be() -> None:
    slices = [slice_of(*devices(0), count=2)]

    assert Failed() == search(slices, claim_of({"exactly": exactly()})).run()
    with pytest.raises(AllocationError, match=r"resource pool gpu\.test/p is currently being updated"):
        search(slices, ALL).run()


def test_a_pool_with_a_name_twice_is_told() -> None:
    slices = [slice_of(*devices(0), name=name, count=2) for name in "ab"]

    assert Failed("invalid resource pools were encountered") == search(slices, claim_of({"exactly": exactly()})).run()


def test_a_newer_generation_replaces_the_older() -> None:
    slices = [slice_of(*devices(0, 1), name="old"), slice_of(*devices(0), name="new", generation=2)]

    assert Failed() == search(slices, claim_of({"exactly": exactly(2)})).run()


def test_a_slice_that_is_not_read_is_no_slice_without_devices() -> None:
    with pytest.raises(Unjudged, match=re.escape(REASON_LONG_OBJECT)):
        search([slice_of(oversized=True)], claim_of({"exactly": exactly()}))


def test_more_devices_than_a_claim_can_hold_are_an_error() -> None:
    with pytest.raises(AllocationError, match="number of requested devices 33 exceeds the claim limit of 32"):
        search([slice_of(*devices(0))], claim_of({"exactly": exactly(33)})).run()


def test_a_search_that_would_take_for_ever_ends() -> None:
    """There are devices enough of each sort for each request, but no two of one value for the second."""
    many = tuple(Device(f"d{it}", {"numa": it}) for it in range(40))
    claim = claim_of({"exactly": exactly(8)}, {"exactly": exactly(2)}, constraint=SAME_NUMA | {"requests": ["r1"]})
    found = search([slice_of(*many)], claim)

    with pytest.raises(Unjudged, match=re.escape(REASON_STEPS)):
        found.run()
    assert MOST_STEPS < found.steps < 2 * MOST_STEPS


def test_too_few_devices_are_too_few_however_many_ways_there_are() -> None:
    found = search(
        [slice_of(*devices(*[0] * 20))], claim_of({"exactly": exactly(12)}), claim_of({"exactly": exactly(12)})
    )

    assert Failed() == found.run()


@pytest.mark.parametrize(("used", "expected"), [(3, (frozenset(),)), (4, Failed())])
def test_shared_capacity(used: int, expected: object) -> None:
    device = {"name": "d0", "capacity": {"m": {"value": "8"}}, "allowMultipleAllocations": True}

    spec = {"driver": "gpu.test", "pool": {"name": "p", "resourceSliceCount": 1}, "nodeName": "n1", "devices": [device]}
    found = decode_slice(encoded({"metadata": {"name": "s"}, "spec": spec}))
    claim = claim_of({"exactly": exactly(capacity={"requests": {"m": "5"}})})

    assert expected == search([found], claim, use=Use(shared={"d0": {"m": used * BILLION}})).run()
    assert fits({"m": 5 * BILLION}, found.devices[0].capacity, {"m": used * BILLION}, {}) is (expected != Failed())
    assert 8 * BILLION == consumed_of(None, found.devices[0].capacity["m"])
    assert not fits({"other": 1}, found.devices[0].capacity, {}, {})


def test_extended_resources_become_requests() -> None:

    classes = {"x.com/gpu": DeviceClass("gpu", "u")}
    containers = [
        ContainerRequests(0, False, (("x.com/gpu", 5, 0),)),
        ContainerRequests(1, True, (("x.com/gpu", 2, 0),)),
        ContainerRequests(2, True, (("x.com/gpu", 1, 1),)),
    ]
    found = device_requests(containers, ["x.com/gpu"], classes.get)

    assert [("container-0-request-0", 2), ("container-1-request-0", 2), ("container-2-request-1", 1)] == [
        (it.name, it.exactly.count) for it in found if it.exactly
    ]
    assert ["x.com/gpu"] == from_devices({"x.com/gpu": 1}, {}, classes.get)
    assert [] == from_devices({"x.com/gpu": 1}, {"x.com/gpu": 4}, classes.get)
    assert from_devices({"x.com/other": 1}, {}, classes.get) is None
