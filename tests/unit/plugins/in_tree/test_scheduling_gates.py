"""Rules of SchedulingGates."""

from typing import Any, Final

import pytest

from app.framework.status import SUCCESS, Status, unresolvable
from app.kube.meta_v1 import LARGEST_PART
from tests.builders import make_node
from tests.harness import World, only

NAME: Final = "SchedulingGates"


@pytest.mark.parametrize(
    ("gates", "expected"),
    [
        pytest.param([], SUCCESS, id="no gates"),
        pytest.param(
            [{"name": "b.example/x"}, {"name": "a"}, {}],
            unresolvable("waiting for scheduling gates: [b.example/x a ]"),
            id="gates, in their order, one without a name",
        ),
        pytest.param(
            [{"name": "x" * LARGEST_PART}],
            unresolvable("waiting for scheduling gates: more than 64 KiB of them"),
            id="more than is read",
        ),
    ],
)
def test_a_pod_waits_as_long_as_it_has_gates(gates: Any, expected: Status) -> None:
    found = World(make_node("n1"), profile=only(NAME))
    pod = found.pod("pending", more={"schedulingGates": gates})
    answer = found.framework.pre_enqueue(pod)

    assert (expected.code, expected.reasons) == (answer.code, answer.reasons)
    assert {"n1": "Success"} == found.filter(pod), "once it is considered, gates play no part"
