"""The options of ``beyond`` by example; ``tests/property`` has their rules on any cluster."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from app.kube.core_v1 import Pod
from app.memory.known_domains import DomainTable
from tests.builders import HOSTNAME, ZONE, JsonObject, constraint, make_node, make_pod, taint, toleration
from tests.fakes import ManualClock
from tests.harness import SPREAD, World, only

WEB = {"app": "web"}
IGNORE: JsonObject = {"untoleratedDomains": "Ignore"}
NOT_WORSE: JsonObject = {"onViolation": "AllowNotWorse"}


def zoned(beyond: JsonObject, *counts: int) -> World:
    """Zones ``a``, ``b``, …, each with one node ``na``, ``nb``, … and so many pods of the app."""
    world = World(profile=only(SPREAD, **{SPREAD: {"beyond": beyond}}))
    for zone, count in zip("abcd", counts, strict=False):
        world.add(make_node(f"n{zone}", zone=zone))
        world.add(*(make_pod(f"{zone}-{number}", node=f"n{zone}", labels=WEB) for number in range(count)))
    return world


def pending(spread: JsonObject | None = None, tolerations: Sequence[JsonObject] = ()) -> Pod:
    return make_pod("pending", labels=WEB, spread=[spread or constraint(app="web")], tolerations=list(tolerations))


def passed(world: World, pod: Pod) -> str:
    return " ".join(name for name, status in world.filter(pod).items() if status == "Success")


def test_a_cordoned_domain_leaves_the_minimum_until_it_is_open_again() -> None:
    world = zoned(IGNORE, 1, 1, 0)
    assert passed(world, pending()) == "nc"

    world.add(make_node("nc", zone="c", unschedulable=True, resource_version="2"))
    assert passed(world, pending()) == "na nb nc"
    assert passed(world, pending(tolerations=[toleration("node.kubernetes.io/unschedulable")])) == "nc"

    world.add(make_node("nc", zone="c", resource_version="3"))
    assert passed(world, pending()) == "nc"


def test_a_tainted_domain_leaves_the_minimum_and_counts_for_min_domains() -> None:
    world = zoned(IGNORE, 1, 1, 0)
    world.add(make_node("nc", zone="c", taints=[taint("x")], resource_version="2"))

    assert passed(world, pending(constraint(min_domains=3, app="web"))) == "na nb nc"
    assert passed(world, pending(constraint(min_domains=4, app="web"))) == "nc"
    assert passed(world, pending(tolerations=[toleration("x")])) == "nc"


def test_a_domain_with_one_open_node_holds_the_minimum() -> None:
    world = zoned(IGNORE, 1, 1, 0)
    world.add(make_node("nc", zone="c", unschedulable=True, resource_version="2"), make_node("nc-2", zone="c"))

    assert passed(world, pending()) == "nc nc-2"


def test_where_no_domain_is_open_all_are_compared() -> None:
    world = zoned(IGNORE, 1, 0)
    for zone in "ab":
        world.add(make_node(f"n{zone}", zone=zone, unschedulable=True, resource_version="2"))

    assert passed(world, pending()) == "nb"


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        pytest.param((5, 4, 0), "nb nc", id="not above the largest domain"),
        pytest.param((5, 5, 0), "nc", id="the largest domains do not grow"),
        pytest.param((2, 1, 1), "nb nc", id="no violation: as in-tree"),
    ],
)
def test_what_does_not_raise_the_skew_passes(counts: tuple[int, ...], expected: str) -> None:
    assert passed(zoned(NOT_WORSE, *counts), pending()) == expected


def test_a_pod_that_the_constraint_does_not_select_passes_everywhere() -> None:
    world = zoned(NOT_WORSE, 5, 4, 0)
    other = make_pod("other", labels={"app": "db"}, spread=[constraint(app="web")])
    assert passed(world, other) == "na nb nc"


def test_explain_names_the_options_and_says_what_would_help() -> None:
    world = zoned(IGNORE | NOT_WORSE, 5, 3, 3, 0)
    world.add(make_node("nd", zone="d", taints=[taint("x")], resource_version="2"))
    explanation = world.framework.explain(pending(), world.candidates())[SPREAD]

    (table,) = explanation.tables
    options = "untoleratedDomains Ignore by profile, onViolation AllowNotWorse by profile"
    assert table.title == f"DoNotSchedule over {ZONE}, maxSkew 1, {options}"
    assert [(row[0], row[2], row[3], row[5]) for row in table.rows] == [
        ("a", 5, 3, False),
        ("b", 3, 3, True),
        ("c", 3, 3, True),
        ("d", 0, 3, True),
    ]
    assert explanation.unblock == (
        f"{ZONE}=a takes the pod with 2 matching pods fewer, or with 2 more in b, 2 more in c",
    )


def test_fields_that_a_constraint_leaves_out_are_the_profiles() -> None:
    world = zoned({"defaults": {"nodeTaintsPolicy": "Honor", "matchLabelKeys": ["rev"]}}, 1, 1, 0)
    world.add(make_node("nc", zone="c", taints=[taint("x")], resource_version="2"))
    world.add(make_pod("new", node="na", labels=WEB | {"rev": "2"}))
    pod = make_pod("pending", labels=WEB | {"rev": "2"}, spread=[constraint(app="web")])

    assert passed(world, pod) == "nb nc"
    own = make_pod("own", labels=WEB, spread=[constraint(taints_policy="Ignore", match_label_keys=["app"], app="web")])
    assert passed(world, own) == "nc"
    (table,) = world.framework.explain(pod, world.candidates())[SPREAD].tables
    filled = "nodeTaintsPolicy Honor by profile, matchLabelKeys rev by profile"
    assert table.title == f"DoNotSchedule over {ZONE}, maxSkew 1, {filled}"


def test_the_defaults_hold_for_soft_constraints_too() -> None:
    world = zoned({"defaults": {"nodeTaintsPolicy": "Honor"}}, 1, 0)
    soft = constraint(HOSTNAME, soft=True, app="web")
    pod = make_pod("pending", labels=WEB, spread=[soft])

    (table,) = world.framework.explain(pod, world.candidates())[SPREAD].tables
    assert table.title == f"ScheduleAnyway over {HOSTNAME}, maxSkew 1, nodeTaintsPolicy Honor by profile"


def test_explain_names_known_domains_without_a_node() -> None:
    """They have no effect on the verdict."""
    domains = {"domains": {ZONE: ["a", "b", "c"]}}
    profile = only(SPREAD, **{SPREAD: {"beyond": domains}})
    world = World(make_node("na", zone="a"), profile=profile, known_domains=DomainTable(ManualClock()).of("p"))
    world.add(make_pod("a-0", node="na", labels=WEB))

    (table,) = world.framework.explain(pending(), world.candidates())[SPREAD].tables
    assert table.title == f"DoNotSchedule over {ZONE}, maxSkew 1, without a node: b, c"
    assert passed(world, pending()) == "na"
