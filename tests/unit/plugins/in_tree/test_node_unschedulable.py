"""Rules of NodeUnschedulable."""

from typing import Any, Final

import pytest

from app.kube.meta_v1 import LARGEST_PART
from plugins.in_tree.node_unschedulable import NodeUnschedulable, NodeUnschedulableArgs
from tests.builders import JsonObject, make_node, make_pod, taint, toleration
from tests.harness import Answer, World, only

CORDON: Final = "node.kubernetes.io/unschedulable"


def refused(reason: str) -> Answer:
    return ("UnschedulableAndUnresolvable", "NodeUnschedulable", (reason,))


CORDONED: Final = refused("node(s) were unschedulable")
UNREAD: Final = refused("node(s) can't be judged: the pod's spec.tolerations is longer than 64 KiB")


def world() -> World:
    return World(
        make_node("open", taints=[taint(CORDON)]),
        make_node("uncordoned", unschedulable=False),
        make_node("cordoned", unschedulable=True),
        profile=only("NodeUnschedulable"),
    )


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [
        pytest.param([], CORDONED, id="no toleration"),
        pytest.param([toleration(CORDON, effect="NoSchedule")], "Success", id="the taint of a cordon is tolerated"),
        pytest.param([toleration(CORDON)], "Success", id="with every effect"),
        pytest.param([toleration()], "Success", id="everything is tolerated"),
        pytest.param([toleration(CORDON, "Equal")], "Success", id="its value is empty"),
        pytest.param([toleration(CORDON, "Equal", "true")], CORDONED, id="another value"),
        pytest.param([toleration(CORDON, effect="NoExecute")], CORDONED, id="another effect"),
        pytest.param([toleration("dedicated"), toleration(CORDON)], "Success", id="one of several"),
        pytest.param([toleration(CORDON, "Gt", "0")], CORDONED, id="an operator behind a gate"),
    ],
)
def test_a_cordoned_node_takes_who_tolerates_the_taint_of_a_cordon(
    tolerations: list[JsonObject], expected: Answer
) -> None:
    """Whether the node has that taint plays no part: TaintToleration looks at taints."""
    found = world()

    assert NodeUnschedulableArgs() == NodeUnschedulableArgs.model_validate({})
    assert isinstance(found.framework.plugins["NodeUnschedulable"], NodeUnschedulable)
    assert {"open": "Success", "uncordoned": "Success", "cordoned": expected} == found.filter(
        make_pod("pending", tolerations=tolerations)
    )


def test_where_tolerations_matter_and_are_not_read_the_node_is_refused() -> None:
    long: Any = [toleration(), toleration("x" * LARGEST_PART)]

    assert {"open": "Success", "uncordoned": "Success", "cordoned": UNREAD} == world().filter(
        make_pod("pending", tolerations=long)
    )
