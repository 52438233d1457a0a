"""Tolerations that are too long to be read. All other rules: topic ``taints`` of ``tests/conformance``."""

from typing import Any, Final

from app.kube.meta_v1 import LARGEST_PART
from tests.builders import make_node, make_pod, taint, toleration
from tests.harness import World, only

TAINTS: Final = "TaintToleration"
LONG: Final[Any] = [toleration(), toleration("x" * LARGEST_PART)]
UNREAD: Final = "node(s) can't be judged: the pod's spec.tolerations is longer than 64 KiB"


def test_tolerations_that_are_not_read_matter_only_beside_a_taint_that_keeps_out() -> None:
    taints = {"plain": [], "hard": [taint("a")], "soft": [taint("a", "PreferNoSchedule")]}
    world = World(*(make_node(name, taints=it) for name, it in taints.items()), profile=only(TAINTS))
    pod = make_pod("pending", tolerations=LONG)

    refused = ("UnschedulableAndUnresolvable", TAINTS, (UNREAD,))
    assert {"plain": "Success", "hard": refused, "soft": "Success"} == world.filter(pod)
    assert {} == world.score(pod)
