"""Rules of terms between pods: what is read of them, whom they mean, and what is too much."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from app.kube.core_decoding import core_v1
from app.kube.extras import Extra, NotDecoded
from app.kube.labels import NO_LABELS, label_set
from app.kube.meta_v1 import Oversized
from app.kube.pod_affinity import (
    MOST_NAMESPACES,
    MOST_TERMS,
    NO_TERMS,
    POD_AFFINITY,
    Newcomer,
    Peers,
    PodAffinity,
    PodAffinityTerm,
    PreferredPodTerm,
    peers_of,
    pod_affinity_of,
)
from app.kube.selectors import DOES_NOT_EXIST, EVERYTHING, Selector, of_labels, requirement
from app.kube.services import decode_namespace
from tests.builders import ZONE, encoded, make_pod, pod_object

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
WEB = of_labels({"app": "web"})
TEAM_A = of_labels({"team": "a"})
WITHOUT_TEAM = Selector((requirement("team", DOES_NOT_EXIST),))
TERM = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "web"}}}


def read(affinity: Any) -> PodAffinity:
    return pod_affinity_of(Raw(encoded(affinity)))


def newcomer(namespace: str = "default", team: str = "", **labels: str) -> Newcomer:
    return Newcomer(namespace, label_set({"team": team}) if team else NO_LABELS, label_set(labels))


class TestReading:
    @pytest.mark.parametrize(
        "affinity", [None, {}, {"nodeAffinity": {}}, {"podAffinity": None}, {"podAntiAffinity": {REQUIRED: []}}]
    )
    def test_no_terms_are_one_object(self, affinity: Any) -> None:
        assert read(affinity) is NO_TERMS

    def test_all_four_lists(self) -> None:
        weighted = {"weight": 3, "podAffinityTerm": TERM}

        found = read(
            {"podAffinity": {REQUIRED: [TERM], PREFERRED: [weighted]}, "podAntiAffinity": {PREFERRED: [weighted]}}
        )

        term = PodAffinityTerm(ZONE, WEB)
        liked, disliked = PreferredPodTerm(term, 3), PreferredPodTerm(term, -3)
        assert PodAffinity((term,), (), (liked, disliked), has_preferred=True) == found
        assert found.has_terms

    def test_namespaces_are_sorted_and_named_once(self) -> None:
        found = read({"podAffinity": {REQUIRED: [TERM | {"namespaces": ["b", "a", "b"], "namespaceSelector": {}}]}})

        assert [PodAffinityTerm(ZONE, WEB, ("a", "b"), EVERYTHING)] == list(found.required)

    def test_a_term_that_says_nothing_means_nobody(self) -> None:
        assert [PodAffinityTerm("")] == list(read({"podAntiAffinity": {REQUIRED: [{}]}}).required_anti)

    def test_a_selector_that_cannot_be_parsed_takes_its_list_along(self) -> None:
        wrong = TERM | {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}
        weighted = {"weight": 1, "podAffinityTerm": wrong}

        one = read({"podAffinity": {REQUIRED: [TERM, wrong]}, "podAntiAffinity": {REQUIRED: [TERM]}})
        two = read({"podAffinity": {REQUIRED: [wrong], PREFERRED: [weighted]}})

        said = '"Is" is not a valid label selector operator'
        assert ((), f"requiredAffinityTerms: {said}") == (one.required, one.invalid)
        assert 1 == len(one.required_anti)
        assert f"[requiredAffinityTerms: {said}, preferredAffinityTerms: {said}]" == two.invalid
        assert (True, False) == (two.has_preferred, two.has_terms)

    @pytest.mark.parametrize(
        "terms",
        [
            pytest.param([TERM] * (MOST_TERMS + 1), id="terms"),
            pytest.param([TERM | {"namespaces": ["a"] * (MOST_NAMESPACES + 1)}], id="namespaces"),
            pytest.param([TERM | {"namespaces": ["a" * (64 << 10)]}], id="bytes"),
        ],
    )
    def test_what_is_too_much_is_not_read(self, terms: list[Any]) -> None:
        with pytest.raises(Oversized) as raised:
            read({"podAffinity": {REQUIRED: terms}})
        pod = core_v1([Extra.POD_AFFINITY]).decode_pod(encoded(pod_object(affinity={"podAffinity": {REQUIRED: terms}})))

        assert POD_AFFINITY == raised.value.field
        assert POD_AFFINITY in pod.spec.oversized
        assert pod.spec.pod_affinity is NO_TERMS

    def test_as_many_as_may_be_are_read(self) -> None:
        assert MOST_TERMS == len(read({"podAffinity": {REQUIRED: [TERM] * MOST_TERMS}}).required)

    def test_they_are_there_only_where_declared(self) -> None:
        with pytest.raises(NotDecoded, match=r"Part\.POD_AFFINITY"):
            _ = make_pod().spec.pod_affinity


class TestTerm:
    def test_without_namespaces_it_means_those_of_its_own(self) -> None:
        term = PodAffinityTerm(ZONE, WEB).within("shop")

        assert term.matches(newcomer("shop", app="web"))
        assert not term.matches(newcomer("shop", app="db"))
        assert not term.matches(newcomer("default", app="web"))

    def test_a_namespace_selector_is_asked_of_the_namespace_of_the_other(self) -> None:
        term = PodAffinityTerm(ZONE, WEB, ("shop",), TEAM_A).within("default")

        assert term.matches(newcomer("shop", app="web"))
        assert term.matches(newcomer("default", "a", app="web"))
        assert not term.matches(newcomer("default", "b", app="web"))

    def test_of_a_namespace_that_is_not_known_there_are_no_labels(self) -> None:
        assert PodAffinityTerm(ZONE, WEB, (), WITHOUT_TEAM).matches(newcomer(app="web"))
        assert not PodAffinityTerm(ZONE, WEB, (), WITHOUT_TEAM).matches(newcomer(team="a", app="web"))

    def test_without_a_selector_it_means_nobody(self) -> None:
        assert not PodAffinityTerm(ZONE, None, (), EVERYTHING).matches(newcomer(app="web"))


class TestPeers:
    @staticmethod
    def of(term: PodAffinityTerm) -> Peers | None:
        return peers_of(term.within("default"), lambda _: ("shop", "bank"))

    @pytest.mark.parametrize(
        ("term", "expected"),
        [
            pytest.param(PodAffinityTerm(ZONE, WEB), Peers(WEB, frozenset({"default"})), id="its own namespace"),
            pytest.param(PodAffinityTerm(ZONE, WEB, ("a",)), Peers(WEB, frozenset({"a"})), id="named ones"),
            pytest.param(
                PodAffinityTerm(ZONE, WEB, ("a",), TEAM_A),
                Peers(WEB, frozenset({"a", "shop", "bank"})),
                id="chosen ones",
            ),
            pytest.param(PodAffinityTerm(ZONE, WEB, (), EVERYTHING), Peers(WEB), id="all"),
            pytest.param(
                PodAffinityTerm(ZONE, WEB, ("a",), WITHOUT_TEAM), Peers(WEB), id="all, as no labels meet the selector"
            ),
            pytest.param(PodAffinityTerm(ZONE, None, ("a",)), None, id="nobody"),
        ],
    )
    def test_whom_a_term_of_a_newcomer_means(self, term: PodAffinityTerm, expected: Peers | None) -> None:
        assert expected == self.of(term)

    def test_a_selector_that_selects_no_namespace_means_nobody(self) -> None:
        assert peers_of(PodAffinityTerm(ZONE, WEB, (), TEAM_A), lambda _: ()) is None

    def test_those_of_both(self) -> None:
        web_in_a, all_db = Peers(WEB, frozenset({"a", "b"})), Peers(of_labels({"tier": "db"}))
        both = Peers(of_labels({"app": "web", "tier": "db"}), frozenset({"a", "b"}))

        assert both == web_in_a & all_db == all_db & web_in_a
        assert Peers(WEB, frozenset({"b"})) == web_in_a & Peers(WEB, frozenset({"b", "c"}))
        assert Peers(WEB) == Peers(WEB) & Peers(WEB)
        assert both.include("a", {"app": "web", "tier": "db"})
        assert not both.include("c", {"app": "web", "tier": "db"})


class TestNamespace:
    def test_its_labels(self) -> None:
        found = decode_namespace(encoded({"metadata": {"name": "shop", "uid": "1", "labels": {"team": "a"}}}))

        assert (("", "shop"), "1", {"team": "a"}) == (found.key, found.uid, found.labels)

    def test_labels_that_are_too_long_are_none(self) -> None:
        labels = {f"label-{number}": "x" * 63 for number in range(1000)}

        assert decode_namespace(encoded({"metadata": {"name": "shop", "labels": labels}})).labels is NO_LABELS
