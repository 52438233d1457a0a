"""Searching devices for claims: what is found, in which order, and when it ends."""

import re
from typing import Any, Final

import pytest

from app.framework.background import run_to_end
from app.kube.resource_claims import decode_resource_claim
from app.kube.resource_v1 import Device, DeviceClass, ResourceSlice
from plugins.in_tree.dynamic_resources import allocator
from plugins.in_tree.dynamic_resources.allocator import (
    MAX_DEVICES,
    MAX_STEPS,
    NO_ALLOCATIONS,
    AllocationSearch,
    MatchDevice,
    NoSolution,
    PoolAllocations,
    SelectorResult,
    Solution,
)
from plugins.in_tree.dynamic_resources.cel import DeviceSelector
from plugins.in_tree.dynamic_resources.cel_scope import StepBudget, device_variables
from plugins.in_tree.dynamic_resources.cel_syntax import MAX_HEIGHT
from plugins.in_tree.dynamic_resources.errors import (
    REASON_EXPRESSION,
    REASON_LONG_OBJECT,
    REASON_STEPS,
    AllocationError,
    CannotEvaluate,
)
from plugins.in_tree.dynamic_resources.pools import PoolBuilder
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


def is_true(expression: str, _driver: str, _device: Device) -> SelectorResult:
    return SelectorResult(expression == "true")


def search(
    slices: list[ResourceSlice], *claims: Any, use: PoolAllocations = NO_ALLOCATIONS, matches: MatchDevice = is_true
) -> AllocationSearch:
    pools = PoolBuilder(lambda pool: [it for it in slices if it.pool_id == pool]).pools(NODE, slices)
    classes = {"gpu": DeviceClass("gpu", "u")}
    return AllocationSearch(NODE, claims, pools, classes.get, lambda _: use, matches)


def run(found: AllocationSearch) -> Solution | NoSolution:
    return run_to_end(found.run())


SAME_NUMA: Final = {"matchAttribute": "gpu.test/numa"}


def test_a_pool_with_a_name_twice_is_told() -> None:
    slices = [slice_of(*devices(0), name=name, count=2) for name in "ab"]

    assert NoSolution("invalid resource pools were encountered") == run(
        search(slices, claim_of({"exactly": exactly()}))
    )


def test_a_slice_that_is_not_read_is_no_slice_without_devices() -> None:
    with pytest.raises(CannotEvaluate, match=re.escape(REASON_LONG_OBJECT)):
        search([slice_of(oversized=True)], claim_of({"exactly": exactly()}))


def test_more_devices_than_a_claim_can_hold_are_an_error() -> None:
    with pytest.raises(AllocationError, match="number of requested devices 33 exceeds the claim limit of 32"):
        run(search([slice_of(*devices(0))], claim_of({"exactly": exactly(33)})))


def test_a_search_that_would_take_for_ever_ends() -> None:
    """There are devices enough of each sort for each request, but no two of one value for the second."""
    many = tuple(Device(f"d{it}", {"numa": it}) for it in range(40))
    claim = claim_of({"exactly": exactly(8)}, {"exactly": exactly(2)}, constraint=SAME_NUMA | {"requests": ["r1"]})
    found = search([slice_of(*many)], claim)

    with pytest.raises(CannotEvaluate, match=re.escape(REASON_STEPS)):
        run(found)
    assert MAX_STEPS < found.steps < 2 * MAX_STEPS


def selecting(*expressions: str) -> Any:
    return exactly(selectors=[{"cel": {"expression": it}} for it in expressions])


class Asked:
    """Says the same of every device, and notes what it was asked."""

    def __init__(self, said: SelectorResult) -> None:
        self.said = said
        self.each: list[tuple[str, str]] = []

    def __call__(self, expression: str, driver: str, device: Device) -> SelectorResult:
        self.each.append((expression, device.name))
        return self.said


def test_what_selectors_take_is_part_of_the_search() -> None:
    asked = Asked(SelectorResult(False, 1600))
    found = search([slice_of(*devices(*range(600)))], claim_of({"exactly": selecting("heavy")}), matches=asked)

    with pytest.raises(CannotEvaluate, match=re.escape(REASON_STEPS)):
        run(found)
    assert MAX_STEPS // 200 >= len(asked.each) > 0


def test_a_selector_of_a_dozen_parts_counts_as_ever() -> None:
    counts = []
    for parts in (0, 12, 64):
        asked = Asked(SelectorResult(False, parts))
        found = search([slice_of(*devices(*range(100)))], claim_of({"exactly": selecting("light")}), matches=asked)
        assert NoSolution() == run(found)
        counts.append(found.steps)

    assert 1 == len(set(counts))


def test_a_device_is_selected_once_however_many_requests_ask() -> None:
    asked = Asked(SelectorResult(True))
    requests = [{"exactly": selecting("a", "b")}] * 4
    found = search([slice_of(*devices(*range(10)))], claim_of(*requests), claim_of(*requests), matches=asked)

    assert (frozenset(), frozenset()) == run(found)
    assert len(set(asked.each)) == len(asked.each)


def test_long_expressions_are_counted_where_they_are_read() -> None:
    long = [{"exactly": selecting("x" * 9000 + name)} for name in "abcdefghi"]
    claims = [claim_of(*long[:3]), claim_of(*long[3:6]), claim_of(*long[6:])]
    asked = Asked(SelectorResult(True))

    with pytest.raises(CannotEvaluate, match=re.escape(REASON_STEPS)):
        run(search([slice_of(*devices(*range(9)))], *claims, matches=asked))
    assert 9 > len({expression for expression, _ in asked.each}) > 0


@pytest.mark.parametrize(
    ("outcome", "raised", "words"),
    [
        pytest.param("no such key: x", AllocationError, "claim ns/c: selector #0: CEL runtime error: no such key: x"),
        pytest.param(None, CannotEvaluate, REASON_EXPRESSION),
    ],
)
def test_what_a_selector_says_beside_true_and_false(outcome: str | None, raised: type[Exception], words: str) -> None:
    found = search(
        [slice_of(*devices(0))], claim_of({"exactly": selecting("x")}), matches=Asked(SelectorResult(outcome))
    )

    with pytest.raises(raised, match=re.escape(words)):
        run(found)


NEVER: Final[Any] = [{"cel": {"expression": "false"}}]
ALL_WITH: Final[Any] = {"deviceClassName": "gpu", "allocationMode": "All"}


def test_to_ask_for_all_devices_is_counted() -> None:
    requests = [{"exactly": ALL_WITH}] * 32
    found = search([slice_of(*devices(*[0] * 1500))], *[claim_of(*requests)] * 32)

    with pytest.raises(CannotEvaluate, match=re.escape(REASON_STEPS)):
        run(found)
    assert found.steps < 2 * MAX_STEPS


def test_the_proof_that_devices_are_too_few_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same search as of those that are too few, and no room to prove it."""
    claims = [claim_of({"exactly": exactly(12)})] * 2
    assert NoSolution() == run(search([slice_of(*devices(*[0] * 20))], *claims))

    monkeypatch.setattr(allocator, "_MAX_DEVICES_IN_PROOF", 30)
    with pytest.raises(CannotEvaluate, match=re.escape(REASON_STEPS)):
        run(search([slice_of(*devices(*[0] * 20))], *claims))


def alternatives(*some: dict[str, Any]) -> dict[str, Any]:
    return {"firstAvailable": [{**it, "name": f"a{number}"} for number, it in enumerate(some)]}


def test_as_many_devices_as_can_be_are_found_whatever_they_are_selected_by() -> None:
    """Each is some calls deep, and so is the selector of the last."""
    tall = "+".join(["1"] * (MAX_HEIGHT - 1)) + " > 0"
    selector = DeviceSelector(tall)

    def matches(_expression: str, driver: str, device: Device) -> SelectorResult:
        return SelectorResult(selector.matches(device_variables(driver, device), StepBudget()))

    claims = [claim_of(*[alternatives(selecting(tall))] * 4) for _ in range(MAX_DEVICES // 4)]
    shared = devices(0, shareable=True)

    assert (frozenset({f"r{it}/a0" for it in range(4)}),) * len(claims) == run(
        search([slice_of(*shared)], *claims, matches=matches)
    )


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(alternatives(exactly(9), exactly()), id="of which a claim needs fewer"),
        pytest.param(alternatives(exactly(), ALL_WITH | {"selectors": NEVER}), id="beside all of none"),
    ],
)
def test_more_devices_than_can_be_are_not_looked_for(request_: dict[str, Any]) -> None:
    found = search([slice_of(*devices(*range(9), shareable=True))], *[claim_of(*[request_] * 5)] * 30)

    with pytest.raises(CannotEvaluate, match=re.escape(REASON_STEPS)):
        run(found)
