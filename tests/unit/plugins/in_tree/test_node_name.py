"""Rules of NodeName."""

from typing import Any

import pytest

from plugins.in_tree.node_name import NodeName, NodeNameArgs
from tests.builders import make_node, make_pod
from tests.harness import Answer, World, only

OTHER: Answer = ("UnschedulableAndUnresolvable", "NodeName", ("node(s) didn't match the requested node name",))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, {"n1": "Success", "n2": "Success"}, id="a pod that names no node may use any"),
        pytest.param({"node": "n1"}, {"n1": "Success", "n2": OTHER}, id="one that names a node may use that one"),
        pytest.param({"node": "gone"}, {"n1": OTHER, "n2": OTHER}, id="one that names no node of the cluster, none"),
        pytest.param({"node": "N1"}, {"n1": OTHER, "n2": OTHER}, id="names are compared exactly"),
        pytest.param({"nominated": "n1"}, {"n1": "Success", "n2": "Success"}, id="a nomination is no such name"),
    ],
)
def test_a_pod_keeps_to_the_node_it_names(fields: Any, expected: dict[str, Answer]) -> None:
    """By the node's name: what its labels say of a host name plays no part."""
    world = World(make_node("n1", hostname="n2"), make_node("n2", hostname=None), profile=only("NodeName"))

    assert NodeNameArgs() == NodeNameArgs.model_validate({})
    assert isinstance(world.framework.plugins["NodeName"], NodeName)
    assert expected == world.filter(make_pod("pending", **fields))


def test_it_has_no_part_in_scores() -> None:
    """As of every profile without a score plugin, the total is 1."""
    world = World(make_node("n1"), make_node("n2"), profile=only("NodeName"))

    assert {"n1": 1, "n2": 1} == world.scores(make_pod("pending", node="n1")).totals
