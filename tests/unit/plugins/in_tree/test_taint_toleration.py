"""Rules of TaintToleration."""

from typing import Any, Final

import pytest

from app.framework.cycle_state import CycleState
from app.kube.meta_v1 import LARGEST_PART
from app.runtime.guard import PluginError
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


def test_a_cordon_alone_is_none_of_its_business() -> None:
    found = World(make_node("n1", unschedulable=True), profile=only(TAINTS))

    assert {"n1": "Success"} == found.filter(make_pod("pending"))


def test_one_pod_after_another_is_judged_by_its_own_tolerations() -> None:
    found = world(n1=[taint("a")], n2=[taint("b", PREFER)], n3=[])
    plain, tolerant = make_pod("plain"), make_pod("tolerant", tolerations=[toleration()])

    assert [UNTOLERATED, "Success"] * 2 == [found.filter(pod)["n1"] for pod in (plain, tolerant) * 2]
    assert [0, 100] * 2 == [found.score(pod)[TAINTS]["n2"] for pod in (plain, tolerant) * 2]


class TestScores:
    NODES: Final[dict[str, list[JsonObject]]] = {
        "none": [],
        "one": [taint("a", PREFER)],
        "three": [taint("a", PREFER), taint("b", PREFER), taint("c", PREFER)],
    }

    @pytest.mark.parametrize(
        ("tolerations", "expected"),
        [
            pytest.param([], {"none": 100, "one": 67, "three": 0}, id="the fewer the better"),
            pytest.param([toleration("a")], {"none": 100, "one": 100, "three": 0}, id="tolerated ones do not count"),
            pytest.param([toleration()], {"none": 100, "one": 100, "three": 100}, id="everything is tolerated"),
            pytest.param(
                [toleration("a", effect="NoSchedule")],
                {"none": 100, "one": 67, "three": 0},
                id="a toleration of another effect",
            ),
        ],
    )
    def test_wishes_that_are_not_tolerated_count_against_a_node(
        self, tolerations: list[JsonObject], expected: dict[str, int]
    ) -> None:
        assert {TAINTS: expected} == world(**self.NODES).score(make_pod("pending", tolerations=tolerations))

    def test_a_node_is_measured_by_the_worst_of_those_that_are_left(self) -> None:
        assert {TAINTS: {"none": 100, "one": 0}} == world(**self.NODES).score(make_pod("pending"), ["none", "one"])

    def test_what_keeps_out_does_not_count(self) -> None:
        found = world(n1=[taint("a"), taint("b", "NoExecute")], n2=[taint("a", PREFER)])

        assert {TAINTS: {"n1": 100, "n2": 0}} == found.score(make_pod("pending"))

    def test_of_tolerations_that_are_not_read_nothing_is_said(self) -> None:
        assert {} == world(**self.NODES).score(make_pod("pending", tolerations=LONG))

    def test_without_prescore_it_fails_in_the_words_of_kube_scheduler(self) -> None:
        profile = only(TAINTS)
        profile["plugins"]["preScore"] = {"disabled": [{"name": TAINTS}]}
        found = World(make_node("n1"), profile=profile)

        with pytest.raises(PluginError, match='failed to read "PreScoreTaintToleration" from cycleState: not found'):
            found.framework.scoring.score(CycleState(), make_pod("pending"), found.candidates())
