"""Rules of SchedulingGates."""

from typing import Any, Final

import pytest

from app.framework.status import SUCCESS, Status, unresolvable
from app.kube.meta_v1 import LARGEST_PART
from plugins.in_tree.scheduling_gates import SchedulingGates, SchedulingGatesArgs
from tests.harness import World, only

NAME: Final = "SchedulingGates"


@pytest.mark.parametrize(
    ("gates", "expected"),
    [
        pytest.param(None, SUCCESS, id="no gates"),
        pytest.param([], SUCCESS, id="an empty list"),
        pytest.param(
            [{"name": "b.example/x"}, {"name": "a"}],
            unresolvable("waiting for scheduling gates: [b.example/x a]"),
            id="gates, in their order",
        ),
        pytest.param([{}], unresolvable("waiting for scheduling gates: []"), id="a gate without a name"),
        pytest.param(
            [{"name": "x" * LARGEST_PART}],
            unresolvable("waiting for scheduling gates: more than 64 KiB of them"),
            id="more than is read",
        ),
    ],
)
def test_a_pod_waits_as_long_as_it_has_gates(gates: Any, expected: Status) -> None:
    found = World(profile=only(NAME))

    assert SchedulingGatesArgs() == SchedulingGatesArgs.model_validate({})
    assert isinstance(found.framework.plugins[NAME], SchedulingGates)
    answer = found.framework.pre_enqueue(found.pod("pending", more={"schedulingGates": gates}))
    assert (expected.code, expected.reasons) == (answer.code, answer.reasons)


def test_once_it_is_considered_gates_play_no_part() -> None:
    found = World({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}, profile=only(NAME))

    assert {"n1": "Success"} == found.filter(found.pod("pending", gated=True))
