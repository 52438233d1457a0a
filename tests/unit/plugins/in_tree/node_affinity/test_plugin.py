"""Rules of NodeAffinity."""

from typing import Any, Final

import pytest

from app.framework.cycle_state import CycleState
from app.kube.meta_v1 import LARGEST_PART
from app.runtime.guard import PluginError
from plugins.in_tree.node_affinity import SPEC
from tests.builders import (
    JsonObject,
    expression,
    make_node,
    preferred_affinity,
    required_affinity,
    taint,
    term,
    weighted,
)
from tests.harness import Answer, World, only

NAME: Final = "NodeAffinity"
LONG: Final = {"podAffinity": "x" * LARGEST_PART}
SSD: Final = expression("disk", "In", "ssd")
HDD: Final = expression("disk", "In", "hdd")
NO_NUMBER: Final = expression("gen", "Gt", "x1")


def refused(reason: str) -> Answer:
    return ("UnschedulableAndUnresolvable", NAME, (reason,))


UNMATCHED: Final = refused("node(s) didn't match Pod's node affinity/selector")
UNREAD: Final = refused("node(s) can't be judged: the pod's spec.affinity is longer than 64 KiB")
UNREAD_SELECTOR: Final = refused("node(s) can't be judged: the pod's spec.nodeSelector is longer than 64 KiB")


def world(profile: JsonObject | None = None, **args: Any) -> World:
    nodes = (
        make_node("fast", labels={"disk": "ssd", "gen": "9"}),
        make_node("slow", labels={"disk": "hdd", "gen": "3"}),
        make_node("bare", taints=[taint("spot")]),
    )
    given = {"NodeAffinity": {"addedAffinity": args}} if args else {}
    return World(*nodes, profile=profile or only(NAME, **given))


def names(operator: str, *names: str) -> JsonObject:
    return expression("metadata.name", operator, *names)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, "Success Success Success", id="a pod that asks for nothing"),
        pytest.param({"node_selector": {}}, "Success Success Success", id="an empty selector"),
        pytest.param({"node_selector": {"disk": "ssd"}}, ["Success", UNMATCHED, UNMATCHED], id="nodeSelector"),
        pytest.param({"affinity": required_affinity(term(SSD))}, ["Success", UNMATCHED, UNMATCHED], id="a term"),
        pytest.param(
            {"affinity": required_affinity(term(SSD), term(HDD))}, ["Success", "Success", UNMATCHED], id="two terms"
        ),
        pytest.param(
            {"affinity": required_affinity(term(SSD), term(HDD)), "node_selector": {"gen": "3"}},
            [UNMATCHED, "Success", UNMATCHED],
            id="selector and terms",
        ),
        pytest.param({"affinity": required_affinity()}, [UNMATCHED] * 3, id="no term matches no node"),
        pytest.param({"affinity": preferred_affinity(weighted(1, term(SSD)))}, ["Success"] * 3, id="a wish"),
        pytest.param({"affinity": LONG}, [UNREAD] * 3, id="an affinity that is not read"),
        pytest.param(
            {"affinity": LONG, "node_selector": {"disk": "ssd"}},
            [UNREAD, UNMATCHED, UNMATCHED],
            id="not read, and refused by what is read",
        ),
        pytest.param({"node_selector": {"disk": "x" * LARGEST_PART}}, [UNREAD_SELECTOR] * 3, id="a long selector"),
    ],
)
def test_a_node_must_match_what_the_pod_asks_for(fields: Any, expected: str | list[Answer]) -> None:
    found = world()
    answers = expected.split() if isinstance(expected, str) else expected

    assert answers == list(found.filter(found.pod("pending", **fields)).values())


def test_one_pod_after_another_is_judged_by_its_own_terms() -> None:
    found = world()
    one, other = (found.pod(name, affinity=required_affinity(term(it))) for name, it in (("one", SSD), ("other", HDD)))

    assert ["Success", UNMATCHED] * 2 == [found.filter(pod)["fast"] for pod in (one, other) * 2]


def test_a_node_that_is_relabelled_is_judged_again() -> None:
    found = world()
    pod = found.pod("pending", affinity=required_affinity(term(SSD)))
    assert ["fast"] == list(found.framework.search.find_nodes_that_fit(pod, found.candidates()).passed)

    found.add(make_node("slow", labels={"disk": "ssd"}), make_node("fast"))

    assert ["slow"] == list(found.framework.search.find_nodes_that_fit(pod, found.candidates()).passed)


class TestScores:
    def test_without_prescore_it_does_without(self) -> None:
        profile = only(NAME)
        profile["plugins"]["preScore"] = {"disabled": [{"name": NAME}]}
        found = world(profile)

        def score(*terms: JsonObject) -> dict[str, dict[str, int]]:
            return found.framework.scoring.score(
                CycleState(), found.pod("pending", affinity=preferred_affinity(*terms)), found.candidates()
            ).by_plugin

        assert {NAME: {"fast": 100, "slow": 0, "bare": 0}} == score(weighted(1, term(SSD)))
        assert {NAME: {"fast": 0, "slow": 0, "bare": 0}} == score()
        with pytest.raises(
            PluginError, match=r'plugin "NodeAffinity" failed with: \[0\]\.matchExpressions\[0\]\.values'
        ):
            score(weighted(1, term(NO_NUMBER)))


def test_pods_of_other_labels_share_what_is_kept() -> None:
    """What it reads of a pod is its affinity alone."""
    found = world()
    one, other = (
        found.pod(name, labels={"app": name}, affinity=required_affinity(term(SSD)), node_selector={"gen": "9"})
        for name in ("one", "other")
    )
    assert SPEC.parts is not None

    assert found.framework.search.signatures(one) == found.framework.search.signatures(other)
