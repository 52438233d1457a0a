"""Rules of TaintToleration."""

from typing import Any, Final

import pytest

from app.kube.meta_v1 import LARGEST_PART
from plugins.in_tree.taint_toleration import TaintToleration, TaintTolerationArgs
from tests.builders import JsonObject, make_node, make_pod, taint, toleration
from tests.harness import Answer, World, only

TAINTS: Final = "TaintToleration"
LONG: Final[Any] = [toleration(), toleration("x" * LARGEST_PART)]
PREFER: Final = "PreferNoSchedule"


def refused(reason: str) -> Answer:
    return ("UnschedulableAndUnresolvable", TAINTS, (reason,))


UNTOLERATED: Final = refused("node(s) had untolerated taint(s)")
UNREAD: Final = refused("node(s) can't be judged: the pod's spec.tolerations is longer than 64 KiB")


def world(**taints: list[JsonObject]) -> World:
    return World(*(make_node(name, taints=of_node) for name, of_node in taints.items()), profile=only(TAINTS))


@pytest.mark.parametrize(
    ("taints", "tolerations", "expected"),
    [
        pytest.param([], [], "Success", id="a node without taints"),
        pytest.param([taint("a")], [], UNTOLERATED, id="NoSchedule"),
        pytest.param([taint("a", "NoExecute")], [], UNTOLERATED, id="NoExecute"),
        pytest.param([taint("a", PREFER)], [], "Success", id="a wish refuses nobody"),
        pytest.param([taint("a"), taint("a", "NoExecute")], [toleration("a")], "Success", id="one toleration for two"),
        pytest.param([taint("a"), taint("b")], [toleration("a")], UNTOLERATED, id="one of two"),
        pytest.param([taint("a"), taint("b", PREFER)], [toleration("a")], "Success", id="beside a wish"),
        pytest.param([taint("a")], [toleration("a", "Gt", "1")], UNTOLERATED, id="an operator behind a gate"),
        pytest.param([taint("a")], LONG, UNREAD, id="tolerations that are not read"),
        pytest.param([taint("a", PREFER)], LONG, "Success", id="not read, and not needed"),
    ],
)
def test_a_node_takes_who_tolerates_all_that_keeps_out(
    taints: list[JsonObject], tolerations: list[JsonObject], expected: Answer
) -> None:
    found = world(plain=[], n1=taints)

    assert TaintTolerationArgs() == TaintTolerationArgs.model_validate({})
    assert isinstance(found.framework.plugins[TAINTS], TaintToleration)
    assert {"plain": "Success", "n1": expected} == found.filter(make_pod("pending", tolerations=tolerations))


class TestScores:
    NODES: Final[dict[str, list[JsonObject]]] = {
        "none": [],
        "one": [taint("a", PREFER)],
        "three": [taint("a", PREFER), taint("b", PREFER), taint("c", PREFER)],
    }

    def test_of_tolerations_that_are_not_read_nothing_is_said(self) -> None:
        assert {} == world(**self.NODES).score(make_pod("pending", tolerations=LONG))
