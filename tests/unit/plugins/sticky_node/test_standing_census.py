"""Homes are counted by what their nodes are like; nodes by how many homes they keep from their pods."""

from __future__ import annotations

from app.framework.interface import Figure
from app.kube.kinds import NAMESPACES, NODES
from plugins.sticky_node.standing_census import MOST_NODES, NO_NODE, OTHERS
from plugins.sticky_node.table import Policy
from tests.api.virtual import virtual_time
from tests.builders import JsonObject
from tests.unit.plugins.sticky_node.machines import DATABASE, HOME, MACHINE
from tests.unit.plugins.sticky_node.watched import Watched, make_node

BY_ORDINAL: JsonObject = {"owners": [{"apiVersion": "example.com/v1", "kind": "Database", "perOrdinal": True}]}


def figures(machines: Watched, name: str) -> list[Figure]:
    return [it for it in machines.plugin.figures() if it is not None and it.name == name]


def counted(machines: Watched) -> dict[tuple[str, str], float]:
    """By standing and policy, where there are some."""
    found = figures(machines, "homes_by_standing")
    assert 5 * len(Policy) == len(found)
    return {(it.labels["standing"], it.labels["policy"]): it.value for it in found if it.value}


def unusable(machines: Watched) -> dict[str, float]:
    return {it.labels["node"]: it.value for it in figures(machines, "homes_unusable")}


@virtual_time
async def test_each_home_counts_once_by_its_node_and_its_policy() -> None:
    machines = Watched()
    machines.cordon("n1")
    machines.leaves("n2")
    for name, home, policy in (
        ("a", "n1", "hard"),
        ("b", "n1", "grace"),
        ("c", "n2", "soft"),
        ("d", "n3", "off"),
        ("e", "N 9", "grace"),
        ("f", "n3", "nonsense"),
    ):
        machines.machine(name, home=home, policy=policy)
    machines.machine("none")

    assert {
        ("away", "hard"): 1,
        ("away", "grace"): 1,
        ("leaving", "soft"): 1,
        ("usable", "off"): 1,
        ("gone", "grace"): 1,
        ("usable", "grace"): 1,
    } == counted(machines)
    assert {"n1": 2, "n2": 1, OTHERS: 0, NO_NODE: 1} == unusable(machines)


@virtual_time
async def test_each_ordinal_has_a_home_of_its_own() -> None:
    machines = Watched(BY_ORDINAL)
    machines.cordon("n1")
    machines.change(
        DATABASE, {"homeport.dev/home.0": "n1", "homeport.dev/home.1": "n2", "homeport.dev/home-pod.0": "u"}
    )

    assert {("away", "grace"): 1, ("usable", "grace"): 1} == counted(machines)


@virtual_time
async def test_nodes_are_bounded_and_what_a_tenant_wrote_is_no_label() -> None:
    machines = Watched()
    for number in range(MOST_NODES + 5):
        machines.cluster.upsert_node(make_node(f"node-{number:02}", unschedulable=True))
        for copy in range(2 if number < MOST_NODES else 1):
            machines.add(MACHINE, f"vm-{number}-{copy}", home=f"node-{number:02}")
        machines.add(MACHINE, f"lost-{number}", home=f"written-by-{number}")

    found = unusable(machines)

    assert {f"node-{number:02}" for number in range(MOST_NODES)} | {OTHERS, NO_NODE} == set(found)
    assert (5, MOST_NODES + 5) == (found[OTHERS], found[NO_NODE])


@virtual_time
async def test_without_any_home_there_is_nothing_by_name() -> None:
    assert {OTHERS: 0, NO_NODE: 0} == unusable(Watched())


@virtual_time
async def test_a_namespace_that_cannot_be_read_hides_its_homes() -> None:
    rule = {"namespaceSelector": {"matchLabels": {"homes": "on"}}, "policy": "hard"}
    machines = Watched({"namespaces": [rule]})
    machines.machine(home="n1")
    machines.cluster.leave_out(NAMESPACES, ("", "default"), "odd")

    assert {} == counted(machines)


@virtual_time
async def test_a_node_that_cannot_be_read_is_away() -> None:
    machines = Watched()
    machines.machine(home="n9")
    machines.cluster.leave_out(NODES, ("", "n9"), "odd")

    assert {("away", "grace"): 1} == counted(machines)


@virtual_time
async def test_others_get_their_turn() -> None:
    machines = Watched()
    for number in range(200):
        machines.add(MACHINE, f"vm-{number}", home="n1")

    assert list(machines.plugin._standing_census.figures()).count(None) >= 4


@virtual_time
async def test_where_a_kind_tells_no_ordinals_apart_there_is_one_home() -> None:
    machines = Watched()
    machines.change(MACHINE, {HOME: "n1", f"{HOME}.1": "n2", f"{HOME}.2": "nowhere"})

    assert {("usable", "grace"): 1} == counted(machines)
    assert {OTHERS: 0, NO_NODE: 0} == unusable(machines)
