"""Preferred terms: what both sides weigh, what is left out, and how weights become scores."""

from __future__ import annotations

from typing import Any, Final

import pytest

from app.cache.counters import at_once
from app.framework.cycle_state import CycleState
from app.kube.core_v1 import Pod
from plugins.in_tree.inter_pod_affinity.scoring import normalized
from tests.builders import HOSTNAME, ZONE, JsonObject, encoded, node_object, pod_object
from tests.harness import World, only

NAME: Final = "InterPodAffinity"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
WEB: Final[JsonObject] = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "web"}}}
DB: Final[JsonObject] = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "db"}}}


def likes(term: JsonObject, weight: int = 10) -> JsonObject:
    return {"podAffinity": {PREFERRED: [{"weight": weight, "podAffinityTerm": term}]}}


def dislikes(term: JsonObject, weight: int = 10) -> JsonObject:
    return {"podAntiAffinity": {PREFERRED: [{"weight": weight, "podAffinityTerm": term}]}}


def named(name: str, app: str = "web", affinity: JsonObject | None = None, **fields: Any) -> JsonObject:
    return pod_object(name, labels={"app": app}, affinity=affinity or {}, **fields)


class Cluster(World):
    """Zone a with two nodes, zone b with one, and a node without a zone."""

    def __init__(self, *objects: JsonObject, **args: Any) -> None:
        super().__init__(profile=only(NAME, **{NAME: args}))
        nodes = (node_object(name, zone=name[0]) for name in ("a1", "a2", "b1"))
        self.add(*nodes, node_object("bare"), *objects)

    def slim(self, pod: JsonObject) -> Pod:
        return self.cluster.core.decode_pod(encoded(pod))

    def points(self, pod: JsonObject) -> dict[str, int] | None:
        """By node; ``None`` where the plugin is left out."""
        found = at_once(lambda: self.framework.scoring.score(CycleState(), self.slim(pod), self.candidates()))
        return found.by_plugin.get(NAME)


class TestOwnTerms:
    def test_each_pod_that_is_meant_weighs(self) -> None:
        cluster = Cluster(named("1", "db", node="a1"), named("2", "db", node="a1"), named("3", "db", node="b1"))

        assert {"a1": 100, "a2": 0, "b1": 50, "bare": 0} == cluster.points(named("x", affinity=likes(DB)))
        assert {"a1": 0, "a2": 100, "b1": 50, "bare": 100} == cluster.points(named("x", affinity=dislikes(DB)))

    def test_keys_add_up(self) -> None:
        cluster = Cluster(named("1", node="a1"), named("2", "db", node="a1"))
        affinity = {**likes(WEB, 2), **dislikes(DB, 3)}

        assert {"a1": 0, "a2": 100, "b1": 33, "bare": 33} == cluster.points(named("x", "x", affinity=affinity))

    def test_where_nobody_is_meant_the_plugin_is_left_out(self) -> None:
        assert Cluster(named("1", "x", node="a1")).points(named("y", affinity=likes(DB))) is None
        assert Cluster(named("1", "web", node="bare")).points(named("y", affinity=likes(WEB))) is None


class TestTermsOfOthers:
    def test_preferred_ones_weigh_as_they_say(self) -> None:
        cluster = Cluster(named("1", node="a1", affinity=likes(WEB)), named("2", node="b1", affinity=dislikes(WEB)))

        assert {"a1": 100, "a2": 100, "b1": 0, "bare": 50} == cluster.points(named("x"))
        assert cluster.points(named("x", "db")) is None

    @pytest.mark.parametrize(
        ("weight", "expected"),
        [({}, {"a1": 0, "a2": 100, "b1": 0, "bare": 0}), ({"hardPodAffinityWeight": 0}, None)],
        ids=["as much as configured", "not at all"],
    )
    def test_required_affinity_weighs(self, weight: JsonObject, expected: Any) -> None:
        near = {"podAffinity": {REQUIRED: [WEB | {"topologyKey": HOSTNAME}]}}

        assert expected == Cluster(named("1", node="a2", affinity=near), **weight).points(named("x"))

    def test_what_comes_to_nothing_is_a_score_of_0(self) -> None:
        cluster = Cluster(named("1", node="a1", affinity=likes(WEB)), named("2", node="a1", affinity=dislikes(WEB)))

        assert dict.fromkeys(("a1", "a2", "b1", "bare"), 0) == cluster.points(named("x"))

    def test_they_may_be_ignored_for_pods_without_preferred_terms(self) -> None:
        cluster = Cluster(named("1", node="a1", affinity=likes(WEB)), ignorePreferredTermsOfExistingPods=True)

        assert cluster.points(named("x")) is None
        assert {"a1": 100, "a2": 100, "b1": 0, "bare": 0} == cluster.points(named("x", affinity=likes(DB)))


class TestWhoMatters:
    @pytest.mark.parametrize(
        ("pod", "other", "args", "matters"),
        [
            pytest.param(named("p", affinity=likes(DB)), named("o", "db"), {}, True, id="one it likes"),
            pytest.param(named("p"), named("o", affinity=dislikes(WEB)), {}, True, id="one that dislikes it"),
            pytest.param(named("p", "db"), named("o", affinity=dislikes(WEB)), {}, False, id="one that means others"),
            pytest.param(
                named("p"), named("o", affinity={"podAffinity": {REQUIRED: [WEB]}}), {}, True, id="one that needs it"
            ),
            pytest.param(
                named("p"),
                named("o", affinity={"podAffinity": {REQUIRED: [WEB]}}),
                {"hardPodAffinityWeight": 0},
                False,
                id="one whose need weighs nothing",
            ),
            pytest.param(
                named("p"),
                named("o", affinity=dislikes(WEB)),
                {"ignorePreferredTermsOfExistingPods": True},
                False,
                id="one that is ignored",
            ),
        ],
    )
    def test_by_the_terms_of_both(
        self,
        pod: JsonObject,
        other: JsonObject,
        args: JsonObject,
        matters: bool,
    ) -> None:
        cluster = Cluster(**args)

        assert matters is cluster.framework.scoring.score_depends_on(cluster.slim(pod), cluster.slim(other))


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"a": -3, "b": 0, "c": 4}, {"a": 0, "b": 42, "c": 100}),
        ({"a": 5, "b": 5}, {"a": 0, "b": 0}),
        ({"a": 1, "b": 58, "c": 101}, {"a": 0, "b": 56, "c": 100}),
        ({}, {}),
    ],
    ids=["cut to whole numbers", "no difference", "computed as a fraction first", "no nodes"],
)
def test_scores_lie_between_the_least_and_the_most(raw: dict[str, int], expected: dict[str, int]) -> None:
    """57 of 100 is 56: the fraction is a little less than 0.57, and what it makes is cut, not rounded."""
    assert expected == normalized(raw)
