"""Rules of a rebalancing: which pods are evicted, which never are, and what stays above maxSkew."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.framework.explanation import DomainLimit
from app.verbs.outcome import VerbFailure
from app.whatif.rebalancing import moves_needed
from tests.api.village import owner
from tests.builders import constraint, controller
from tests.unit.app.whatif.drains import HOMES, budget
from tests.unit.app.whatif.rebalances import HOST, ZONE, evicted, nodes, planned, pod, rebalance
from tests.unit.app.whatif.scratches import node, scratch_of

TWO = nodes("a", "b")
WEB = [pod(f"web-{it}", "n1") for it in range(3)]


def reasons(plan: dict[str, Any]) -> dict[str, int]:
    return {it["reason"]: it["count"] for left in plan["left"] for it in left["why"]}


def test_a_pod_goes_from_the_domain_with_the_most_pods_to_the_one_with_the_fewest() -> None:
    plan = rebalance(*TWO, *WEB)

    (eviction,) = plan["evictions"]
    assert ("web-0", "uid-default-web-0", "n1", "n2") == tuple(
        eviction[it] for it in ("pod", "uid", "nodeName", "goesTo")
    )
    assert [
        {
            "workload": "ReplicaSet/default/web",
            "topologyKey": ZONE,
            "leaves": "a",
            "enters": "b",
            "skewBefore": 3,
            "skewAfter": 1,
        }
    ] == eviction["improves"]
    (spread,) = plan["spread"]
    assert ({"a": 3, "b": 0}, {"a": 2, "b": 1}) == (spread["before"], spread["after"])
    assert (1, [], True) == (plan["above"], plan["left"], plan["known"])


def test_moves_that_do_not_yet_lower_the_skew_are_chosen() -> None:
    pods = [pod(f"web-{it}", f"n{it % 2 + 1}") for it in range(6)]

    plan = rebalance(*nodes("a", "b", "c", "d"), *pods)

    assert ["n3", "n4"] == sorted(evicted(plan).values())
    assert [] == plan["left"]


def uneven(cpu_of_a: str) -> list[Any]:
    """Zones with 1, 3, 5 and 2 pods. kube-scheduler prefers zone d, whose node has the most room, to zone a."""
    cpu = {"a": cpu_of_a, "b": "8", "c": "8", "d": "64"}
    places = [node(f"n-{zone}", cpu[zone], zone=zone) for zone in cpu]
    zones = "a" * 1 + "b" * 3 + "c" * 5 + "d" * 2
    spread = [constraint(ZONE, skew=2, app="web")]
    return [*places, *(pod(f"web-{number}", f"n-{zone}", spread=spread) for number, zone in enumerate(zones))]


def test_an_eviction_that_only_makes_domains_more_even_is_chosen_if_that_helps_later() -> None:
    plan = rebalance(*uneven("4"))

    assert ["n-d", "n-a"] == [*evicted(plan).values()]
    assert [] == plan["left"]
    assert [("c", "d"), ("c", "a")] == [(it["leaves"], it["enters"]) for e in plan["evictions"] for it in e["improves"]]


def test_evictions_that_do_not_help_in_the_end_are_undone() -> None:
    scratch = scratch_of(*uneven("1"), profile=HOMES)
    before = {it.key: it.node_name for it in scratch.cluster.pods()}

    plan = planned(scratch)

    assert ({}, 4) == (evicted(plan), plan["left"][0]["skew"])
    assert before == {it.key: it.node_name for it in scratch.cluster.pods()}
    assert [] == scratch.cluster.check()


def test_one_eviction_can_improve_two_constraints() -> None:
    spread = [constraint(ZONE, app="web"), constraint(HOST, app="web")]
    objects = nodes("a", "b")
    for found in objects:
        found["metadata"]["labels"][HOST] = found["metadata"]["name"]

    plan = rebalance(*objects, *(pod(f"web-{it}", "n1", spread=spread) for it in range(3)))

    (eviction,) = plan["evictions"]
    assert [ZONE, HOST] == [it["topologyKey"] for it in eviction["improves"]]
    assert 2 == plan["above"]


def test_nothing_is_to_do_if_the_constraints_hold() -> None:
    plan = rebalance(*TWO, *WEB[:1])

    assert (0, [], [], []) == tuple(plan[it] for it in ("above", "evictions", "spread", "left"))


def test_soft_constraints_are_improved_only_on_request() -> None:
    pods = [pod(f"web-{it}", "n1", spread=[constraint(ZONE, soft=True, app="web")]) for it in range(4)]

    assert {} == evicted(rebalance(*TWO, *pods))
    assert ["n2"] == [*evicted(rebalance(*TWO, *pods, soft=True)).values()][:1]


def test_at_most_so_many_evictions() -> None:
    pods = [pod(f"web-{it}", "n1") for it in range(6)]

    plan = rebalance(*TWO, *pods, most=1)

    assert 1 == len(plan["evictions"])
    (left,) = plan["left"]
    assert 4 == left["skew"]
    assert "at most 1 evictions were allowed" in reasons(plan)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"owner": controller("DaemonSet", "web")}, "a DaemonSet's pod stays on its node"),
        ({"owner": controller("Node", "n1")}, "a static pod stays on its node"),
        ({"owner": controller("VirtualMachineInstance", "web")}, "a virtual machine is not evicted"),
        ({"labels": {"app": "web", "kubevirt.io": "virt-launcher"}}, "a virtual machine is not evicted"),
        ({"owner": None}, "no controller would create the pod again"),
        (
            {"annotations": {"homeport.dev/never-evict": ""}},
            "the annotation homeport.dev/never-evict forbids it",
        ),
    ],
)
def test_some_pods_are_never_evicted(fields: dict[str, Any], reason: str) -> None:
    first = pod("web-9", "n2", spread=[constraint(ZONE, app="web")])
    other = [pod(f"web-{it}", "n1", **fields) for it in range(4)]
    if fields.get("owner", ...) is None:
        for found in other:
            del found["metadata"]["ownerReferences"]

    plan = rebalance(*TWO, first, *other)

    assert {} == evicted(plan)
    assert 4 == reasons(plan)[reason]


def test_never_evict_false_has_no_effect() -> None:
    pods = [pod(f"web-{it}", "n1", annotations={"homeport.dev/never-evict": "false"}) for it in range(3)]

    assert ["n2"] == [*evicted(rebalance(*TWO, *pods)).values()]


def test_a_pod_with_a_hard_home_is_not_evicted() -> None:
    keeper = owner("StatefulSet", "db", "apps/v1", home_0="n1", home_1="n1", home_2="n1")
    by = {**controller("StatefulSet", "db"), "uid": keeper["metadata"]["uid"]}

    plan = rebalance(*TWO, keeper, *(pod(f"db-{it}", "n1", owner=by) for it in range(3)))

    assert {} == evicted(plan)
    assert {"it has a hard home": 3} == reasons(plan)


def test_a_budget_that_allows_no_eviction_is_respected() -> None:
    plan = rebalance(*TWO, *WEB, budget(healthy=3, desired=3))

    assert {} == evicted(plan)
    assert {"budget default/web needs 3 healthy pods and has 3": 3} == reasons(plan)
    assert plan["budgetsJudged"]


def test_a_budget_allows_one_eviction_after_the_other() -> None:
    pods = [pod(f"web-{it}", "n1") for it in range(5)]

    assert 2 == len(evicted(rebalance(*TWO, *pods, budget(allowed=1, healthy=5, desired=4))))


def test_a_pod_whose_new_pod_would_wait_is_not_evicted() -> None:
    plan = rebalance(*nodes("a"), *nodes("a", "b", cpu="500m")[1:], *WEB)

    assert {} == evicted(plan)
    (reason,) = reasons(plan)
    assert reason.startswith("the new pod would wait: ")


def test_a_pod_of_another_workload_that_a_constraint_counts_is_evicted() -> None:
    other = [pod(f"other-{it}", "n1", owner=controller("ReplicaSet", "other")) for it in range(2)]
    fixed = pod("web-1", "n1", annotations={"homeport.dev/never-evict": "true"})

    plan = rebalance(*TWO, fixed, *other, kind="ReplicaSet", name="web", namespace="default")

    assert ["n2"] == [*evicted(plan).values()]


def test_only_the_workload_of_the_request_is_rebalanced() -> None:
    spread = [constraint(ZONE, app="db")]
    fields: Any = {"labels": {"app": "db"}, "spread": spread, "owner": controller("ReplicaSet", "db")}
    pods = [pod(f"db-{it}", "n1", **fields) for it in range(3)]

    plan = rebalance(*TWO, *WEB, *pods, kind="ReplicaSet", name="db", namespace="default")

    assert 1 == len(plan["evictions"])
    assert plan["evictions"][0]["workload"] == "ReplicaSet/default/db"


@pytest.mark.parametrize(
    ("fields", "offered"),
    [
        ({"namespace": "defualt"}, "default"),
        ({"namespace": "default", "kind": "ReplicaSet", "name": "webb"}, "web"),
    ],
)
def test_unknown_names_are_answered_with_similar_ones(fields: dict[str, str], offered: str) -> None:
    plan = rebalance(*TWO, *WEB, **fields)

    assert not plan["known"]
    assert offered in plan["suggestion"]


def test_without_time_nothing_is_chosen_and_the_answer_says_so() -> None:
    plan = planned(scratch_of(*TWO, *WEB), seconds=-1.0)

    assert {} == evicted(plan)
    assert plan["incomplete"]


def limit(counts: list[int], skew: int, *, lacks_domains: bool = False) -> DomainLimit:
    pods = {str(number): count for number, count in enumerate(counts)}
    minimum = 0 if lacks_domains else min(counts)
    return DomainLimit(ZONE, (), pods, frozenset(), max_skew=skew, minimum=minimum, lacks_domains=lacks_domains)


def shortest(counts: tuple[int, ...], skew: int) -> int:
    """Number of moves of the shortest sequence, found by trying all."""
    level, moves = {tuple(sorted(counts))}, 0
    while all(it[-1] - it[0] > skew for it in level):
        following = set()
        for at in level:
            for source in range(len(at)):
                for target in range(len(at)):
                    if source != target and at[source]:
                        moved = [*at]
                        moved[source] -= 1
                        moved[target] += 1
                        following.add(tuple(sorted(moved)))
        level, moves = following, moves + 1
    return moves


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(1, 3))
def test_the_number_of_moves_is_that_of_the_shortest_sequence(counts: list[int], skew: int) -> None:
    assert shortest(tuple(counts), skew) == moves_needed(limit(counts, skew))


@pytest.mark.parametrize("counts", [[3, 2], [4, 1, 0]])
def test_with_too_few_domains_the_pods_above_max_skew_are_counted(counts: list[int]) -> None:
    assert 3 == moves_needed(limit(counts, 1, lacks_domains=True))


def test_an_empty_domain_takes_pods_though_there_are_too_few_domains() -> None:
    """The first pod in it raises the fewest pods of a domain, but the minimum stays 0."""
    spread = [constraint(ZONE, skew=3, min_domains=5, app="web")]
    pods = [pod(f"web-{it}", "n1" if it < 5 else "n2", spread=spread) for it in range(9)]

    plan = rebalance(*nodes("a", "b", "c"), *pods)

    assert (["n3"] * 3, []) == ([*evicted(plan).values()], plan["left"])


def test_revisions_are_apart_even_if_their_selectors_are_equal() -> None:
    """Older API servers do not merge matchLabelKeys into the selector. Here only the older revision is uneven."""
    spread = [constraint(ZONE, match_label_keys=["pod-template-hash"], app="web")]

    def revision(name: str, number: int, at: str, created: str) -> dict[str, Any]:
        owner, labels = controller("ReplicaSet", f"web-{name}"), {"app": "web", "pod-template-hash": name}
        return pod(f"{name}-{number}", at, spread=spread, owner=owner, labels=labels, created=created)

    old = [revision("old", it, "n1", "2026-01-01T00:00:00Z") for it in range(3)]
    new = [revision("new", it, f"n{it + 1}", "2026-02-01T00:00:00Z") for it in range(2)]

    plan = rebalance(*TWO, *old, *new)

    assert {"old-0": "n2"} == evicted(plan)


def test_pods_of_jobs_stay() -> None:
    """The Job controller counts a deleted pod as failed."""
    pods = [pod(f"web-{it}", "n1", owner=controller("Job", "web")) for it in range(3)]

    plan = rebalance(*TWO, *pods)

    assert {} == evicted(plan)
    assert {"its Job would count the eviction as a failure": 3} == reasons(plan)


def test_a_plan_without_topology_spread_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was judged, so the answer must not be that nothing is to do."""
    monkeypatch.setattr("app.whatif.rebalance_plan.SPREAD", "NotInTheProfile")

    with pytest.raises(VerbFailure, match="no profile judges PodTopologySpread"):
        rebalance(*TWO, *WEB)
