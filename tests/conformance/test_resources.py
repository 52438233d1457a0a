"""Amounts, requests and patterns are read as kube-scheduler's own Go code reads them: see ``vectors/PROVENANCE.md``."""

import json
import re
from functools import reduce
from operator import add
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from app.framework.node_info import NodeInfo
from app.kube.core_decoding import core_v1
from app.kube.extras import ANY_IP, Extra, HostPort
from app.kube.quantity import MalformedQuantity, Quantity, quantity_of
from plugins.in_tree.dynamic_resources.cel_syntax import Unsupported
from plugins.in_tree.dynamic_resources.patterns import matches
from tests.conformance.resources import TOPICS, questions, recorded

Json = dict[str, Any]

CORE = core_v1(list(Extra))


def vectors(topic: str) -> list[tuple[bytes, Json]]:
    return list(zip(recorded(topic, "asked"), map(json.loads, recorded(topic, "said")), strict=True))


class Question(msgspec.Struct):
    quantity: Raw = Raw()
    sum: list[Raw] | None = None


def told(found: Quantity) -> Json:
    return {"value": found.value(), "milli": found.milli_value()}


def ours(asked: bytes) -> Json:
    it = msgspec.json.decode(asked, type=Question)
    try:
        if it.sum is None:
            return told(quantity_of(it.quantity))
        each = [quantity_of(raw) for raw in it.sum]
    except MalformedQuantity:
        return {"error": True}
    return {**told(reduce(add, each)), "more": each[0].exceeds(each[1])}


@pytest.mark.parametrize("topic", ["quantities", "sums"])
def test_amounts_are_what_go_says(topic: str) -> None:
    assert [] == [(asked, said, found) for asked, said in vectors(topic) if said != (found := ours(asked))]


def aggregated(asked: bytes) -> Json:
    it = json.loads(asked)
    pods = [CORE.decode_pod(msgspec.json.encode(pod)) for pod in it["pods"]]
    info = NodeInfo(CORE.decode_node(msgspec.json.encode(it["node"])), {pod.uid: pod for pod in pods})
    ports = [HostPort(port["ip"] or ANY_IP, port["protocol"] or "TCP", port["port"]) for port in it["ports"]]
    each = [pod.spec.resources for pod in pods]
    return {
        "allocatable": info.allocatable,
        "requested": info.requested,
        "nonZeroRequested": info.non_zero_requested,
        "ports": {(port.ip, port.protocol, port.port) for port in info.ports},
        "conflicts": [info.ports.conflicts([port]) for port in ports],
        "incoming": [{"requests": it.requests, "nonZero": it.non_zero_requests} for it in each],
    }


def test_what_pods_ask_for_and_nodes_have_left_is_what_go_says() -> None:
    for asked, said in vectors("nodes"):
        said["ports"] = {(port["ip"], port["protocol"], port["port"]) for port in said["ports"]}

        assert said == aggregated(asked), asked


GO_ALONE = re.compile(r"\\p\{(LC|Letter|greek)}|\{1000}|\{30}|(\\[pP]L.*){2}|\\[pP]\w?.*\{2}")
"""Names of Unicode classes that Go knows since 1.25; programs beyond our bound of memory."""


def found(asked: Json) -> Json:
    try:
        return {"found": [matches(text, asked["pattern"], lambda _steps: None) for text in asked["texts"]]}
    except Unsupported:
        return {"error": True}


def test_a_pattern_finds_what_go_finds_or_is_refused() -> None:
    answers = [(it := json.loads(asked), said, found(it)) for asked, said in vectors("patterns")]
    refused = [it["pattern"] for it, said, ours in answers if said != ours and "error" in ours]

    assert [] == [(it, said, ours) for it, said, ours in answers if said != ours and "error" not in ours]
    assert [] == [pattern for pattern in refused if not GO_ALONE.search(pattern)]
    assert len(refused) < len(answers) // 20 < sum("found" in said for _, said, _ in answers)


@pytest.mark.parametrize("topic", TOPICS)
def test_the_vectors_are_those_that_are_generated(topic: str) -> None:
    assert recorded(topic, "asked") == list(questions(topic))
