"""Rules of the names of scheduling gates."""

from typing import Any

import pytest
from msgspec import Raw

from app.kube.meta_v1 import LARGEST_PART, Oversized
from app.kube.scheduling_gates import gate_names_of
from tests.builders import encoded


@pytest.mark.parametrize(
    ("gates", "expected"),
    [
        pytest.param(None, (), id="null"),
        pytest.param([{"name": "b"}, {"name": "a"}], ("b", "a"), id="in their order"),
        pytest.param([{"name": None}, {}], ("", ""), id="gates without a name are gates"),
    ],
)
def test_the_names_of_gates(gates: Any, expected: tuple[str, ...]) -> None:
    assert expected == gate_names_of(Raw(encoded(gates)))


def test_more_than_is_read_is_not_read() -> None:
    with pytest.raises(Oversized, match="schedulingGates"):
        gate_names_of(Raw(encoded([{"name": "x" * LARGEST_PART}])))
