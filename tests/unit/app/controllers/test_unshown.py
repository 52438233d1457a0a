"""Which nodes beyond the shown ones would do."""

from __future__ import annotations

from typing import Any

import pytest

from app.controllers.unshown import best, candidate_nodes
from tests.builders import constraint, expression, make_node, make_pod, required_affinity, taint, term, toleration
from tests.harness import World

WEB = {"app": "web"}
CORDON = "node.kubernetes.io/unschedulable"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, ["plain"], id="neither cordoned nor tainted"),
        pytest.param({"tolerations": [toleration("dedicated")]}, ["plain", "tainted"], id="a taint is tolerated"),
        pytest.param({"tolerations": [toleration(CORDON)]}, ["plain", "cordoned"], id="a cordon is tolerated"),
        pytest.param({"node_selector": {"disk": "ssd"}}, [], id="a node selector that no open node has"),
        pytest.param(
            {"affinity": required_affinity(term(expression("zone", "In", "z1")))}, [], id="an affinity to none"
        ),
    ],
)
async def test_what_in_tree_filters_reject_for_sure_is_left_out(fields: Any, expected: list[str]) -> None:
    world = World(
        make_node("plain"),
        make_node("tainted", taints=[taint("dedicated")], labels={"disk": "ssd"}),
        make_node("cordoned", unschedulable=True),
    )

    assert expected == await candidate_nodes(world.cluster, world.framework, make_pod("late", **fields))


async def test_what_our_filters_reject_is_left_out() -> None:
    world = World(make_node("n1", zone="z1"), make_node("n2", zone="z2"), make_pod("web-1", labels=WEB, node="n1"))
    pod = make_pod("late", labels=WEB, spread=[constraint(app="web")])

    assert ["n2"] == await candidate_nodes(world.cluster, world.framework, pod)


@pytest.mark.parametrize(
    "part",
    [
        pytest.param({"affinity": {"podAffinity": {"x": "y" * (64 << 10)}}}, id="the affinity"),
        pytest.param({"node_selector": {"disk": "y" * (64 << 10)}}, id="the node selector"),
        pytest.param({"tolerations": [{"key": "y" * (64 << 10), "operator": "Exists"}]}, id="the tolerations"),
    ],
)
async def test_no_node_is_open_to_a_pod_that_cannot_be_read(part: Any) -> None:
    world = World(make_node("n1"), make_node("n2"))

    assert [] == await candidate_nodes(world.cluster, world.framework, make_pod("late", **part))


def test_our_scores_choose_among_them() -> None:
    pods = [make_pod(f"web-{number}", labels=WEB, node=f"n{number}") for number in (1, 3)]
    world = World(*(make_node(f"n{number}", zone=f"z{number}") for number in (1, 2, 3)), *pods)
    pod = make_pod("late", labels=WEB, spread=[constraint(soft=True, app="web")])

    assert ["n2"] == best(world.framework, pod, world.candidates())
