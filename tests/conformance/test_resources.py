"""Amounts and requests are read as kube-scheduler's own Go code reads them: see ``vectors/PROVENANCE.md``."""

import json
from functools import reduce
from operator import add
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from app.kube.quantity import MalformedQuantity, Quantity, quantity_of
from tests.conformance.resources import TOPICS, questions, recorded

Json = dict[str, Any]


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


@pytest.mark.parametrize("topic", TOPICS)
def test_the_vectors_are_those_that_are_generated(topic: str) -> None:
    assert recorded(topic, "asked") == list(questions(topic))
