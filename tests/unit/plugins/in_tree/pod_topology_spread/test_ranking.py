"""``scaleDown: Spread`` by example: which rank a pod gets at bind, and which pods get none."""

from __future__ import annotations

from typing import Any

import pytest

from app.framework.cycle_state import CycleState
from app.kube.core_v1 import Pod
from app.kube.deletion_cost import DELETION_COST
from plugins.in_tree.pod_topology_spread.plugin import PodTopologySpread
from plugins.in_tree.pod_topology_spread.ranking import MOST_PODS
from tests.builders import HOSTNAME, ZONE, JsonObject, constraint, make_node, make_pod, pod_object
from tests.fakes import RecordingRecorder, Told
from tests.harness import SPREAD, World, only

WEB = {"app": "web"}
SPREAD_DOWN = only(SPREAD, **{SPREAD: {"beyond": {"scaleDown": "Spread"}}})
REGION = "topology.kubernetes.io/region"
BY_ZONE = [constraint(app="web")]


def owner(uid: str = "rs-1", kind: str = "ReplicaSet") -> JsonObject:
    return {"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": uid, "controller": True}


class Ranked:
    """Two zones ``a`` and ``b`` with two nodes each, in a profile with the option."""

    def __init__(self, profile: JsonObject = SPREAD_DOWN) -> None:
        self.events = RecordingRecorder()
        self.world = World(profile=profile, events=self.events)
        for name in ("a1", "a2", "b1", "b2"):
            self.world.add(make_node(name, zone=name[0], labels={REGION: "r"}))

    def pod(self, name: str, node: str = "", cost: str | None = None, **fields: Any) -> Pod:
        """A pod of the ReplicaSet ``rs-1``, in the cluster."""
        annotations = {} if cost is None else {DELETION_COST: cost}
        given: Any = {"labels": WEB, "owner": owner(), "spread": BY_ZONE, "annotations": annotations, **fields}
        found = self.world.pod(pod_object(name, **given, node=node))
        self.world.add(found)
        return found

    def reserved(self, pod: Pod, node: str) -> str | None:
        """The deletion cost that the Binding of the pod has."""
        state = CycleState()
        self.world.cluster.assume(pod, node)
        assert self.world.framework.binding.reserve(state, pod, node).is_success
        assert state.annotations.keys() <= {DELETION_COST}
        return state.annotations.get(DELETION_COST)


def test_only_a_profile_with_the_option_has_the_extension_point() -> None:
    slots = World(profile=only(SPREAD)).framework.slots
    assert slots["reserve"] == ()
    assert type(slots["filter"][0].plugin) is PodTopologySpread
    assert [it.name for it in Ranked().world.framework.slots["reserve"]] == [SPREAD]


def test_a_pod_gets_the_smallest_rank_that_is_free_in_its_zone() -> None:
    ranked = Ranked()
    assert [ranked.reserved(ranked.pod("p0"), "a1"), ranked.reserved(ranked.pod("p1"), "a2")] == ["0", "-1"]
    assert ranked.reserved(ranked.pod("p2"), "b1") == "0"
    ranked.pod("p3", "a1", "-3")
    assert ranked.reserved(ranked.pod("p4"), "a1") == "-2"
    assert ranked.reserved(ranked.pod("p5"), "a1") == "-4"


def test_the_rank_of_a_bind_in_flight_is_taken_until_the_bind_has_failed() -> None:
    ranked = Ranked()
    first, second = ranked.pod("p0"), ranked.pod("p1")
    assert ranked.reserved(first, "a1") == "0"
    assert ranked.reserved(second, "a1") == "-1"

    ranked.world.framework.binding.unreserve(CycleState(), first, "a1")
    ranked.world.cluster.forget(first.uid)
    assert ranked.reserved(ranked.pod("p2"), "a1") == "0"
    assert ranked.reserved(first, "b1") == "0"


def test_a_pod_that_has_gone_or_goes_leaves_its_rank() -> None:
    ranked = Ranked()
    ranked.pod("gone", "a1", "0", phase="Succeeded")
    ranked.pod("going", "a1", "-1", terminating=True)
    ranked.pod("other", "a1", "-2", owner=owner("rs-2"))
    assert ranked.reserved(ranked.pod("p0"), "a1") == "0"


@pytest.mark.parametrize("cost", [None, "100", "none"])
def test_pods_without_a_rank_take_the_lowest_free_ones(cost: str | None) -> None:
    ranked = Ranked()
    for name in ("old-1", "old-2"):
        ranked.pod(name, "a1", cost)
    ranked.pod("p0", "a2", "-1")
    assert ranked.reserved(ranked.pod("p1"), "a1") == "-3"


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"cost": "5"}, id="the pod has a cost"),
        pytest.param({"owner": owner(kind="StatefulSet")}, id="of another controller"),
        pytest.param({"spread": [constraint("rack", app="web")]}, id="no node has the key"),
        pytest.param({"spread": [constraint(REGION, app="web")]}, id="one domain"),
    ],
)
def test_a_pod_that_gets_no_rank(fields: dict[str, Any]) -> None:
    ranked = Ranked()
    assert ranked.reserved(ranked.pod("p0", **fields), "a1") is None


def test_a_pod_without_an_owner_gets_no_rank() -> None:
    ranked = Ranked()
    alone = ranked.world.pod("alone", labels=WEB, spread=BY_ZONE)
    assert ranked.reserved(alone, "a1") is None


def test_a_pod_of_a_very_large_replica_set_gets_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_PODS == 5000
    monkeypatch.setattr("plugins.in_tree.pod_topology_spread.ranking.MOST_PODS", 2)
    ranked = Ranked()
    assert ranked.reserved(ranked.pod("p0"), "a1") == "0"
    assert ranked.reserved(ranked.pod("p1"), "a1") == "-1"
    assert ranked.reserved(ranked.pod("p2"), "a1") is None


@pytest.mark.parametrize(
    ("spread", "second"),
    [
        pytest.param([constraint(HOSTNAME, app="web"), constraint(ZONE, app="web")], "-1", id="zone before host"),
        pytest.param([constraint(REGION, app="web"), constraint(HOSTNAME, app="web")], "0", id="only hosts differ"),
        pytest.param([constraint(ZONE, soft=True, app="web")], "-1", id="a soft constraint"),
        pytest.param([], "-1", id="the defaults"),
    ],
)
def test_the_widest_key_with_several_domains_counts(spread: list[JsonObject], second: str) -> None:
    """The second pod is in the zone of the first, on another node."""
    ranked = Ranked()
    assert ranked.reserved(ranked.pod("p0", spread=spread), "a1") == "0"
    assert ranked.reserved(ranked.pod("p1", spread=spread), "a2") == second


def test_domains_are_counted_again_after_a_change_of_nodes() -> None:
    ranked = Ranked()
    both = [constraint(REGION, app="web"), constraint(ZONE, app="web")]
    assert ranked.reserved(ranked.pod("p0", spread=both), "a1") == "0"
    assert ranked.reserved(ranked.pod("p1", spread=both), "b1") == "0"

    ranked.world.add(make_node("c1", zone="c", labels={REGION: "r2"}))
    assert ranked.reserved(ranked.pod("p2", spread=both), "b2") == "-1"


def test_a_text_that_is_no_number_is_ignored_and_reported_once() -> None:
    ranked = Ranked()
    pod = ranked.pod("p0", cost="cheap")
    assert [ranked.reserved(pod, "a1"), ranked.reserved(pod, "a1")] == ["0", "0"]
    assert ranked.events.told == [
        Told(
            "Pod default/p0",
            "",
            "Warning",
            "DeletionCostIgnored",
            "Binding",
            f"the annotation {DELETION_COST} is ignored, because 'cheap' is not a 32-bit integer: "
            "the pod gets its rank among the pods of its ReplicaSet, if it has one",
        )
    ]


def test_explain_says_which_key_the_ranks_are_of() -> None:
    ranked = Ranked()
    pod = ranked.pod("p0", spread=[constraint(HOSTNAME, app="web"), constraint(ZONE, app="web")])
    tables = ranked.world.framework.explain(pod, ranked.world.candidates())[SPREAD].tables
    assert [it.title for it in tables] == [
        f"DoNotSchedule over {HOSTNAME}, maxSkew 1",
        f"DoNotSchedule over {ZONE}, maxSkew 1, scaleDown Spread by profile",
    ]
    alone = make_pod("alone", labels=WEB, spread=BY_ZONE)
    (table,) = ranked.world.framework.explain(alone, ranked.world.candidates())[SPREAD].tables
    assert table.title == f"DoNotSchedule over {ZONE}, maxSkew 1"


class Reranked(Ranked):
    """The same with ``rerank``."""

    def __init__(self) -> None:
        super().__init__(only(SPREAD, **{SPREAD: {"beyond": {"scaleDown": "Spread", "rerank": True}}}))

    def suggested(self) -> dict[str, int]:
        plugin: Any = self.world.framework.plugins[SPREAD]
        assert plugin.reranks
        return {pod.name: cost for it in plugin.misranked() if it is not None for pod, cost in (it,)}


def test_the_highest_rank_of_a_domain_closes_its_lowest_hole() -> None:
    ranked = Reranked()
    for number, (node, cost) in enumerate([("a1", "-1"), ("a2", "-3"), ("a1", "-4"), ("b1", "0"), ("b1", "-1")]):
        ranked.pod(f"p{number}", node, cost)
    assert ranked.suggested() == {"p2": 0}

    ranked.pod("p2", "a1", "0", resource_version="2")
    assert ranked.suggested() == {"p1": -2}

    ranked.pod("p1", "a2", "-2", resource_version="2")
    assert ranked.suggested() == {}


def test_pods_without_a_rank_and_second_holders_of_one_get_a_rank() -> None:
    ranked = Reranked()
    ranked.pod("old", "a1")
    ranked.pod("one", "a1", "0")
    assert ranked.suggested() == {"old": -1}

    ranked.pod("old", "a1", "0", resource_version="2")
    (second,) = ranked.suggested().values()
    assert second == -1


def test_a_cost_above_0_is_kept_and_counts_as_the_lowest_rank() -> None:
    ranked = Reranked()
    ranked.pod("dear", "a1", "7")
    ranked.pod("one", "a1", "-1")
    assert ranked.suggested() == {}

    ranked.pod("one", "a1", "0", resource_version="2")
    assert ranked.suggested() == {"one": -1}


def test_pods_that_are_being_bound_terminate_or_wait_are_not_patched() -> None:
    ranked = Reranked()
    ranked.pod("going", "a1", "-5", terminating=True)
    ranked.pod("waiting")
    ranked.pod("one", "a1", "0")
    ranked.pod("three", "a1", "-1")
    assert ranked.reserved(ranked.pod("new"), "a2") == "-2"
    ranked.world.cluster.delete_pod(("default", "one"))
    assert ranked.suggested() == {}

    ranked.pod("new", "a2", "-2", resource_version="2")
    assert ranked.suggested() == {"new": 0}


def test_pods_of_other_profiles_are_left_alone() -> None:
    ranked = Reranked()
    ranked.world.framework.plugins[SPREAD]._serves = frozenset(("other",)).__contains__
    ranked.pod("one", "a1", "-1")
    assert ranked.suggested() == {}
