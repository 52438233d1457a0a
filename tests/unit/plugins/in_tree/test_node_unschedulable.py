"""Tolerations that are too long to be read. All other rules: topic ``unschedulable`` of ``tests/conformance``."""

from typing import Any

from app.kube.meta_v1 import LARGEST_PART
from tests.builders import make_node, make_pod, toleration
from tests.harness import World, only


def test_where_tolerations_matter_and_are_not_read_the_node_is_refused() -> None:
    world = World(make_node("open"), make_node("cordoned", unschedulable=True), profile=only("NodeUnschedulable"))
    long: Any = [toleration(), toleration("x" * LARGEST_PART)]

    reason = "node(s) can't be judged: the pod's spec.tolerations is longer than 64 KiB"
    refused = ("UnschedulableAndUnresolvable", "NodeUnschedulable", (reason,))
    assert {"open": "Success", "cordoned": refused} == world.filter(make_pod("pending", tolerations=long))
