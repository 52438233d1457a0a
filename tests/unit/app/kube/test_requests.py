"""Rules of requests: what a pod asks for as a whole, and what a node has to give.

What Go says of thousands of pods is in ``tests/conformance/test_resources.py``.
"""

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from app.kube import requests
from app.kube.meta_v1 import Oversized
from app.kube.requests import (
    DEFAULT_MEMORY,
    DEFAULT_MILLI_CPU,
    LARGEST_REQUESTS,
    MOST_REQUESTED,
    NO_REQUESTS,
    PodRequests,
    Requests,
    allocatable_of,
    resources_of,
)

DEFAULTS = {"cpu": DEFAULT_MILLI_CPU, "memory": DEFAULT_MEMORY}


def of(actuated: dict[str, Any] | None = None, /, **asked: Any) -> Requests:
    status = None if actuated is None else json.dumps(actuated).encode()
    return Requests(json.dumps(asked).encode(), status)


def stays(it: Requests) -> Requests:
    return it._replace(keeps_running=True)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(
            PodRequests((of(cpu="100m"), of(cpu="0.2", memory="1k"))), {"cpu": 300, "memory": 1000}, id="a sum"
        ),
        pytest.param(PodRequests((of(cpu="0.1m"), of(cpu="0.1m"))), {"cpu": 1}, id="rounded once"),
        pytest.param(
            PodRequests((of(cpu=1),), (of(cpu=2), of(cpu=3))), {"cpu": 3000}, id="an init container needs more"
        ),
        pytest.param(
            PodRequests((of(cpu=1),), (stays(of(cpu=2)), of(cpu=3))), {"cpu": 5000}, id="beside one that stays"
        ),
        pytest.param(
            PodRequests((of(cpu=1),), (of(cpu=3), stays(of(cpu=2)))), {"cpu": 3000}, id="before one that stays"
        ),
        pytest.param(
            PodRequests((of(cpu=1, memory=5),), pod=of(cpu=3, **{"example.com/gpu": 1})),
            {"cpu": 3000, "memory": 5},
            id="the pod as a whole",
        ),
        pytest.param(PodRequests((of(cpu=0, storage=1, pods=1),)), {}, id="nothing that counts"),
    ],
)
def test_what_a_pod_asks_for(asked: PodRequests, expected: dict[str, int]) -> None:
    found = resources_of(asked)

    assert (expected, expected) == (found.requests, found.requested)


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("cpu", True),
        ("hugepages-2Mi", True),
        ("example.com/gpu", True),
        ("x.kubernetes.io/anything at all", True),
        ("storage", False),
        ("requests.example.com/gpu", False),
        ("Example.com/gpu", False),
        ("example.com/-gpu", False),
        ("example.com/" + "x" * 64, False),
        ("x" * 400 + ".kubernetes.io/y", False),
    ],
)
def test_what_is_counted(name: str, counts: bool) -> None:
    assert ({name: 1} if counts else {}) == resources_of(
        PodRequests((of(**{name: "1m" if name == "cpu" else "1"}),))
    ).requests


@pytest.mark.parametrize(
    ("asked", "requested"),
    [
        pytest.param(PodRequests((of({"cpu": 3}, cpu=2),)), 3000, id="it holds more"),
        pytest.param(PodRequests((of({"cpu": 1}, cpu=2),), infeasible=True), 1000, id="it will never hold more"),
        pytest.param(PodRequests((of(cpu=2)._replace(allocated=b'{"cpu":3}'),)), 2000, id="it has no status yet"),
        pytest.param(PodRequests((of({}, cpu=2)._replace(allocated=b'{"cpu":3}'),)), 3000, id="more is set aside"),
        pytest.param(PodRequests((of(cpu=1),), (stays(of({"cpu": 9}, cpu=2)),)), 10_000, id="an init container stays"),
        pytest.param(PodRequests((of(cpu=1),), pod=of({"cpu": 4}, cpu=2)), 4000, id="the pod as a whole"),
    ],
)
def test_what_a_pod_takes_of_its_node(asked: PodRequests, requested: int) -> None:
    assert {"cpu": requested} == resources_of(asked).requested


@pytest.mark.parametrize(
    ("asked", "requests", "requested"),
    [
        pytest.param(PodRequests((of(),)), DEFAULTS, DEFAULTS, id="nothing said"),
        pytest.param(
            PodRequests((of(cpu=0, memory=7), of())),
            {"cpu": DEFAULT_MILLI_CPU, "memory": 7 + DEFAULT_MEMORY},
            {"cpu": DEFAULT_MILLI_CPU, "memory": 7 + DEFAULT_MEMORY},
            id="nothing said by one of two",
        ),
        pytest.param(
            PodRequests((of(memory=7), of()), pod=of(cpu=1)),
            {"cpu": 2 * DEFAULT_MILLI_CPU, "memory": 7 + DEFAULT_MEMORY},
            {"cpu": 1000, "memory": 7},
            id="the pod as a whole says one",
        ),
    ],
)
def test_who_does_not_say_is_taken_to_ask_for_something(
    asked: PodRequests, requests: dict[str, int], requested: dict[str, int]
) -> None:
    found = resources_of(asked)

    assert (requests, requested) == (found.non_zero_requests, found.non_zero_requested)


def test_pods_that_ask_for_the_same_share_it() -> None:
    assert resources_of(PodRequests((of(cpu="1"),))) is resources_of(PodRequests((of(cpu="1000m"),)))


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(PodRequests((of(cpu="1e1000"),)), id="a large exponent"),
        pytest.param(
            PodRequests((of(**{f"example.com/r{number}": 1 for number in range(MOST_REQUESTED + 1)}),)),
            id="many of them",
        ),
        pytest.param(PodRequests((of(), of(**{"x" * LARGEST_REQUESTS: 1}))), id="a long list"),
        pytest.param(PodRequests((of(),), overhead=b"{" + b" " * LARGEST_REQUESTS + b"}"), id="a long overhead"),
    ],
)
def test_what_would_cost_too_much_is_oversized(asked: PodRequests) -> None:
    with pytest.raises(Oversized, match=r"spec\.containers\.resources"):
        resources_of(asked)


def test_as_many_resources_as_are_read_are_read() -> None:
    asked = {f"example.com/r{number}": 1 for number in range(MOST_REQUESTED)}

    assert asked == resources_of(PodRequests((of(**asked),))).requests


def test_an_amount_that_is_none_is_an_error_that_names_its_place() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"spec\.containers\.resources: not a quantity: 'one'"):
        resources_of(PodRequests((of(cpu="one"),)))


def test_nothing_is_kept_beyond_the_memory_of_it() -> None:
    for number in range(30_000):
        resources_of(PodRequests((of(cpu=f"{number}m"),)))

    assert len(requests._MEMO) < 4_000


def test_nobody_asks_for_nothing() -> None:
    assert ({}, {}, {}, {}, {}) == tuple(getattr(NO_REQUESTS, field) for field in NO_REQUESTS.__struct_fields__)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(
            {"cpu": "3920m", "memory": "15Gi", "pods": "110", "example.com/gpu": 2, "storage": "1"},
            {"cpu": 3920, "memory": 15 << 30, "pods": 110, "example.com/gpu": 2},
            id="a node",
        ),
        pytest.param({"cpu": "1", "pods": "0"}, {"cpu": 1000}, id="none at all"),
        pytest.param(None, {}, id="null"),
    ],
)
def test_what_a_node_has_to_give(raw: Any, expected: dict[str, int]) -> None:
    assert expected == allocatable_of(Raw(msgspec.json.encode(raw)))


def test_an_amount_of_a_node_that_is_not_read_is_oversized() -> None:
    with pytest.raises(Oversized, match=r"status\.allocatable"):
        allocatable_of(Raw(msgspec.json.encode({"cpu": "1" * 100})))
