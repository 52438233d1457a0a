"""Conditions of pods: only those that are asked for are decoded."""

from __future__ import annotations

import pytest
from msgspec import Raw

from app.kube.conditions import LONGEST_MESSAGE, condition_of, unschedulable
from app.kube.core_decoding import decode_pod
from tests.builders import JsonObject, encoded, pod_object

SINCE = "2026-11-22T10:00:00Z"
REFUSED: JsonObject = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "lastTransitionTime": SINCE,
}


def since(*conditions: JsonObject) -> str:
    return unschedulable(Raw(encoded(list(conditions))))[0]


def test_a_pod_is_unschedulable_its_condition_says_so() -> None:
    assert SINCE == since({"type": "Ready", "status": "False"}, REFUSED)


@pytest.mark.parametrize(
    "conditions",
    [
        pytest.param([{**REFUSED, "status": "True"}], id="scheduled"),
        pytest.param([{**REFUSED, "reason": "SchedulingGated"}], id="not to be tried yet"),
        pytest.param([{**REFUSED, "lastTransitionTime": None}], id="no time"),
        pytest.param([{**REFUSED, "lastTransitionTime": "9" * 10_000}], id="an overlong time"),
        pytest.param([{"type": "Ready", "message": "PodScheduled"}], id="only named"),
    ],
)
def test_otherwise_there_is_no_time(conditions: list[JsonObject]) -> None:
    assert since(*conditions) == ""


def test_the_first_of_a_type_counts() -> None:
    assert condition_of(Raw(encoded([{**REFUSED, "status": "True"}, REFUSED])), "PodScheduled").status == "True"


def test_a_pod_without_a_node_alone_has_it() -> None:
    waiting = {**pod_object(), "status": {"conditions": [REFUSED]}}
    bound = {**pod_object(node="n1"), "status": {"conditions": [REFUSED]}}

    assert [SINCE, ""] == [decode_pod(encoded(it)).unschedulable_since for it in (waiting, bound)]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        pytest.param({**REFUSED, "message": "0/3 nodes"}, "0/3 nodes", id="the scheduler's message"),
        pytest.param({**REFUSED, "message": "x" * 5000}, "x" * LONGEST_MESSAGE, id="a long one is cut"),
        pytest.param(REFUSED, "", id="none"),
        pytest.param({**REFUSED, "status": "True", "message": "fits"}, "", id="of a scheduled pod"),
    ],
)
def test_the_message_of_a_waiting_pod(condition: JsonObject, expected: str) -> None:
    pod = decode_pod(encoded({**pod_object(), "status": {"conditions": [condition]}}))

    assert expected == pod.waiting.message
    assert expected == pod.nominated("n1").waiting.message
