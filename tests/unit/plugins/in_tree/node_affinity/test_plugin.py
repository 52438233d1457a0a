"""Rules of NodeAffinity."""

from typing import Any, Final

import pytest

from app.framework.cycle_state import CycleState
from app.kube.meta_v1 import LARGEST_PART
from app.runtime.filters import Judged
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
ENFORCED: Final = refused("node(s) didn't match scheduler-enforced node affinity")
UNREAD: Final = refused("node(s) can't be judged: the pod's spec.affinity is longer than 64 KiB")
UNREAD_SELECTOR: Final = refused("node(s) can't be judged: the pod's spec.nodeSelector is longer than 64 KiB")
OUTSIDE: Final[Answer] = (
    "UnschedulableAndUnresolvable",
    "",
    ("node(s) didn't satisfy plugin(s) [NodeAffinity]",),
)


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


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        pytest.param([term(fields=[names("In", "fast")])], ["Success", OUTSIDE, OUTSIDE], id="a name"),
        pytest.param(
            [term(SSD, fields=[names("In", "slow")])], [OUTSIDE, UNMATCHED, OUTSIDE], id="a name that does not match"
        ),
        pytest.param(
            [term(fields=[names("In", "fast")]), term(fields=[names("In", "gone")])],
            ["Success", OUTSIDE, OUTSIDE],
            id="names, one of no node",
        ),
        pytest.param(
            [term(fields=[names("In", "fast")]), term(HDD)],
            ["Success", "Success", UNMATCHED],
            id="a term that names none",
        ),
        pytest.param([term(fields=[names("NotIn", "fast")])], [UNMATCHED, "Success", "Success"], id="NotIn"),
        pytest.param(
            [term(fields=[names("In", "fast", "slow")])],
            [UNMATCHED, UNMATCHED, OUTSIDE],
            id="two names in one field narrow, and match nothing",
        ),
    ],
)
def test_terms_that_name_nodes_leave_the_others_out(terms: list[JsonObject], expected: list[Answer]) -> None:
    found = world()

    assert expected == list(found.filter(found.pod("pending", affinity=required_affinity(*terms))).values())


@pytest.mark.parametrize(
    "terms",
    [
        pytest.param([term(fields=[names("In", "fast"), names("In", "slow")])], id="two names at once"),
        pytest.param([term(fields=[names("In")])] * 2, id="no name at all"),
    ],
)
def test_terms_that_contradict_themselves_refuse_every_node(terms: list[JsonObject]) -> None:
    found = world()
    judged = found.verdict(found.pod("pending", affinity=required_affinity(*terms)))

    assert ("UnschedulableAndUnresolvable", NAME, "pod affinity terms conflict") == said(judged)


def said(judged: Judged) -> tuple[str, str, str]:
    return judged.pre_filter.code.word, judged.pre_filter.plugin, judged.pre_filter.message


def test_what_is_added_holds_for_every_pod_and_comes_first() -> None:
    found = world(**required_affinity(term(HDD))["nodeAffinity"])

    assert [ENFORCED, "Success", ENFORCED] == list(found.filter(found.pod("any")).values())
    assert [ENFORCED, UNMATCHED, ENFORCED] == list(found.filter(found.pod("b", node_selector={"disk": "ssd"})).values())


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
    @pytest.mark.parametrize(
        ("terms", "expected"),
        [
            pytest.param([weighted(3, term(SSD))], [100, 0, 0], id="a term"),
            pytest.param([weighted(1, term(SSD)), weighted(4, term(HDD))], [25, 100, 0], id="the heavier the better"),
            pytest.param(
                [weighted(1, term(SSD)), weighted(1, term(SSD)), weighted(4, term(HDD))], [50, 100, 0], id="twice"
            ),
            pytest.param([weighted(2, term(fields=[names("In", "bare")]))], [0, 0, 100], id="a name"),
            pytest.param([weighted(2, term(expression("gen", "Gt", "5")))], [100, 0, 0], id="a number"),
            pytest.param([], [0, 0, 0], id="an empty list"),
            pytest.param([weighted(2, term())], [0, 0, 0], id="an empty term matches nothing"),
        ],
    )
    def test_weights_of_the_terms_that_match_are_added_up(self, terms: list[JsonObject], expected: list[int]) -> None:
        found = world()

        assert {NAME: dict(zip(found.cluster.nodes, expected, strict=True))} == found.score(
            found.pod("pending", affinity=preferred_affinity(*terms))
        )

    def test_what_is_added_is_liked_too(self) -> None:
        found = world(**preferred_affinity(weighted(1, term(SSD)))["nodeAffinity"])
        wishing = found.pod("wishing", affinity=preferred_affinity(weighted(3, term(HDD))))

        assert {NAME: {"fast": 100, "slow": 0, "bare": 0}} == found.score(found.pod("any"))
        assert {NAME: {"fast": 33, "slow": 100, "bare": 0}} == found.score(wishing)

    @pytest.mark.parametrize("fields", [{}, {"affinity": required_affinity(term(SSD))}, {"affinity": LONG}])
    def test_nothing_is_said_of_a_pod_without_wishes_that_are_read(self, fields: Any) -> None:
        found = world()

        assert {} == found.score(found.pod("pending", **fields))

    def test_a_wish_that_cannot_be_parsed_is_an_error_in_the_words_of_kube_scheduler(self) -> None:
        found = world()
        pod = found.pod("pending", affinity=preferred_affinity(weighted(1, term(NO_NUMBER))))

        with pytest.raises(PluginError) as raised:
            found.score(pod)

        assert (
            'running PreScore plugin "NodeAffinity": [0].matchExpressions[0].values[0]: Invalid value: "x1": '
            "for 'Gt', 'Lt' operators, the value must be an integer"
        ) == raised.value.status.message

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
