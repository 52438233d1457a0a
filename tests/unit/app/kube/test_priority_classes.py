"""Decoding of PriorityClasses."""

from __future__ import annotations

import msgspec
import pytest

from app.kube.priority_classes import PriorityClass, decode_priority_class
from tests.builders import encoded


def test_the_fields_of_a_class() -> None:
    metadata = {"name": "high", "uid": "u", "resourceVersion": "3"}
    whole = {"metadata": metadata, "value": -7, "globalDefault": True, "preemptionPolicy": "Never"}

    assert PriorityClass("high", "u", "3", -7, True, "Never") == decode_priority_class(encoded(whole))
    assert PriorityClass("low", "", "", 0, False, "") == decode_priority_class(encoded({"metadata": {"name": "low"}}))


@pytest.mark.parametrize("wrong", [{"metadata": {}}, {"metadata": {"name": "x"}, "value": 2**31}, {}])
def test_an_object_that_is_not_a_class(wrong: object) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_priority_class(encoded(wrong))
