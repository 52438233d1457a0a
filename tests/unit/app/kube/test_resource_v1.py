"""Claims, slices and classes of devices, made slim."""

from typing import Any, Final

import pytest

from app.kube.meta_v1 import LARGEST_PART
from app.kube.resource_claims import decode_resource_claim
from app.kube.resource_slices import decode_device_class, decode_slice
from app.kube.resource_v1 import (
    BILLION,
    LARGEST_SLICE,
    MOST_REQUESTS,
    AllocatedDevice,
    ClaimSpec,
    DeviceStatus,
    RequestPolicy,
    Version,
)
from tests.builders import encoded

META: Final = {"name": "it", "namespace": "team-a", "uid": "u", "resourceVersion": "7"}


def claim(spec: Any = None, status: Any = None, **metadata: Any) -> Any:
    return decode_resource_claim(encoded({"metadata": META | metadata, "spec": {"devices": spec}, "status": status}))


def device(**fields: Any) -> Any:
    return decode_slice(encoded({"metadata": META, "spec": {"devices": [{"name": "d", **fields}]}})).devices[0]


def test_a_claim_with_all_that_is_read_of_it() -> None:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2, "adminAccess": False}
    found = claim(
        {
            "requests": [
                {"name": "a", "exactly": exactly | {"capacity": {"requests": {"memory": "1500m", "cores": "0e-12"}}}},
                {"name": "b", "firstAvailable": [{"name": "s", "selectors": [{"cel": {"expression": "true"}}, {}]}]},
            ],
            "constraints": [{"matchAttribute": "x/y", "requests": ["a"]}],
        },
        deletionTimestamp="2026-01-01T00:00:00Z",
    )

    (a, b), (constraint,) = found.spec.requests, found.spec.constraints
    assert ("gpu", "ExactCount", 2, False, {"memory": 1500 * 10**6, "cores": 0}) == (
        a.exactly.device_class,
        a.exactly.mode,
        a.exactly.count,
        a.exactly.admin_access,
        a.exactly.capacity,
    )
    assert all(isinstance(amount, int) for amount in a.exactly.capacity.values())
    assert [("s", ("true", None), None)] == [(it.name, it.selectors, it.capacity) for it in b.first_available]
    assert ("x/y", None, ("a",)) == (constraint.match_attribute, constraint.distinct_attribute, constraint.requests)
    assert (True, "team-a/it", "7") == (found.terminating, str(found), found.resource_version)


def test_what_a_claim_has_got() -> None:
    result = {"request": "a/s", "driver": "d", "pool": "p", "device": "x"}
    shared = result | {"shareID": "s", "consumedCapacity": {"memory": "1"}, "bindingConditions": ["ready"]}
    conditions = [{"type": "ready", "status": "True"}, {"type": "ready", "status": "False"}, {"type": "failed"}]
    found = claim(
        status={
            "allocation": {"devices": {"results": [result, shared]}, "allocationTimestamp": "2026-01-01T00:00:00Z"},
            "reservedFor": [{"uid": "p1"}],
            "devices": [{"driver": "d", "pool": "p", "device": "x", "conditions": conditions}],
        }
    )

    assert (
        AllocatedDevice("a/s", ("d", "p", "x")),
        AllocatedDevice("a/s", ("d", "p", "x"), False, True, {"memory": BILLION}, ("ready",)),
    ) == found.allocation.devices
    assert frozenset({"p1"}) == found.reserved_for
    assert (DeviceStatus(("d", "p", "x"), frozenset({"ready"})),) == found.devices


def test_a_claim_of_a_scheduler_names_its_pod() -> None:
    owners = [{"name": "web", "uid": "p1", "controller": True}, {"name": "other", "uid": "p2"}]
    made = {"resource.kubernetes.io/extended-resource-claim": "true"}

    assert (("web", "p1"),) == claim(ownerReferences=owners, annotations=made).extended_for
    assert () == claim(ownerReferences=owners).extended_for


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"requests": [{"name": "x" * LARGEST_PART}]}, id="long"),
        pytest.param({"requests": [{"name": "r"}] * (MOST_REQUESTS + 1)}, id="many requests"),
        pytest.param({"requests": [{"exactly": {"capacity": {"requests": {"m": "1" * 99}}}}]}, id="a long quantity"),
    ],
)
def test_of_a_claim_that_is_too_much_nothing_is_read(spec: Any) -> None:
    assert ClaimSpec(oversized=True) == claim(spec).spec


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        pytest.param({"int": 0}, 0, id="a number"),
        pytest.param({"bool": False}, False, id="a truth"),
        pytest.param({"string": ""}, "", id="a text"),
        pytest.param({"version": "1.0.0"}, Version("1.0.0"), id="a version"),
        pytest.param({"strings": ["a"]}, None, id="of another type"),
    ],
)
def test_an_attribute(attribute: Any, expected: object) -> None:
    found = device(attributes={"a": attribute}).attributes["a"]

    assert (type(expected), expected) == (type(found), found)


def test_a_device_with_shared_capacity_and_counters() -> None:
    policy = {"default": "1", "validRange": {"min": "1", "max": "4", "step": "1"}}
    found = device(
        capacity={"m": {"value": "8", "requestPolicy": policy}},
        consumesCounters=[{"counterSet": "c", "counters": {"slots": {"value": "2"}}}],
        allowMultipleAllocations=True,
    )

    capacity = found.capacity["m"]
    assert (8 * BILLION, True) == (capacity.value, found.shareable)
    assert RequestPolicy(BILLION, None, True, BILLION, 4 * BILLION, BILLION) == capacity.policy
    assert [("c", {"slots": 2 * BILLION})] == [(it.counter_set, it.counters) for it in found.consumes]


def test_of_a_slice_that_is_too_long_no_device_is_read() -> None:
    found = decode_slice(encoded({"metadata": META, "spec": {"devices": [{"name": "x" * LARGEST_SLICE}]}}))

    assert ((), True) == (found.devices, found.oversized)


def test_a_class() -> None:
    spec = {"selectors": [{"cel": {"expression": "true"}}], "extendedResourceName": "example.com/gpu"}
    found = decode_device_class(encoded({"metadata": META, "spec": spec}))

    assert ("it", ("true",), "example.com/gpu", ("", "it")) == (
        found.name,
        found.selectors,
        found.extended_resource,
        found.key,
    )
