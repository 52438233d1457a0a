"""Which nodes beyond the shown ones would do, and when one may be tried."""

from __future__ import annotations

from typing import Any

import pytest

from app.controllers.attempts import MOST_MISSES, REST_SECONDS, Attempts, best, elsewhere, workload_of
from tests.builders import (
    constraint,
    controller,
    expression,
    make_node,
    make_pod,
    required_affinity,
    taint,
    term,
    toleration,
)
from tests.harness import World

WEB = {"app": "web"}
CORDON = "node.kubernetes.io/unschedulable"


class TestElsewhere:
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
    async def test_what_in_tree_filters_refuse_for_sure_is_left_out(self, fields: Any, expected: list[str]) -> None:
        world = World(
            make_node("plain"),
            make_node("tainted", taints=[taint("dedicated")], labels={"disk": "ssd"}),
            make_node("cordoned", unschedulable=True),
        )

        assert expected == await elsewhere(world.cluster, world.framework, make_pod("late", **fields))

    async def test_what_our_filters_refuse_is_left_out(self) -> None:
        world = World(make_node("n1", zone="z1"), make_node("n2", zone="z2"), make_pod("web-1", labels=WEB, node="n1"))
        pod = make_pod("late", labels=WEB, spread=[constraint(app="web")])

        assert ["n2"] == await elsewhere(world.cluster, world.framework, pod)

    @pytest.mark.parametrize(
        "part",
        [
            pytest.param({"affinity": {"podAffinity": {"x": "y" * (64 << 10)}}}, id="the affinity"),
            pytest.param({"node_selector": {"disk": "y" * (64 << 10)}}, id="the node selector"),
            pytest.param({"tolerations": [{"key": "y" * (64 << 10), "operator": "Exists"}]}, id="the tolerations"),
        ],
    )
    async def test_no_node_is_open_to_a_pod_that_cannot_be_read(self, part: Any) -> None:
        world = World(make_node("n1"), make_node("n2"))

        assert [] == await elsewhere(world.cluster, world.framework, make_pod("late", **part))

    def test_our_scores_choose_among_them(self) -> None:
        pods = [make_pod(f"web-{number}", labels=WEB, node=f"n{number}") for number in (1, 3)]
        world = World(*(make_node(f"n{number}", zone=f"z{number}") for number in (1, 2, 3)), *pods)
        pod = make_pod("late", labels=WEB, spread=[constraint(soft=True, app="web")])

        assert ["n2"] == best(world.framework, pod, world.candidates())


class TestAttempts:
    def test_the_back_off_doubles_and_ends_in_a_rest(self) -> None:
        attempts, now, pauses = Attempts(), 1000.0, []
        for _ in range(MOST_MISSES + 1):
            attempts.missed("n1", now, in_tree=True)
            pauses.append(attempts.not_before - now)
            now = attempts.not_before

        assert [0.25, 0.5, 1.0, 2.0, 4.0, REST_SECONDS, 0.25] == pauses

    def test_a_node_is_out_for_longer_each_time_it_is_refused(self) -> None:
        attempts, now, pauses = Attempts(), 1000.0, []
        for _ in range(7):
            attempts.missed("n1", now, in_tree=True)
            until = attempts.refused_at(now)["n1"]
            pauses.append(until - now)
            assert {} == attempts.refused_at(until)
            now = until

        assert [10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0] == pauses

    def test_what_replicas_miss_at_the_same_time_is_one_miss(self) -> None:
        attempts = Attempts()
        for node in ("n1", "n2", "n3"):
            attempts.missed(node, 1000.0, in_tree=True)

        assert (1, 1000.25, {"n1", "n2", "n3"}) == (
            attempts.misses,
            attempts.not_before,
            set(attempts.refused_at(1000.0)),
        )

    def test_a_hit_ends_the_back_off_and_opens_the_node(self) -> None:
        attempts = Attempts()
        attempts.missed("n1", 1000.0, in_tree=True)
        attempts.missed("n2", 1001.0, in_tree=True)
        attempts.hit("n1")

        assert (0, 0.0, {"n2": 1011.0}) == (attempts.misses, attempts.not_before, attempts.refused_at(1001.0))

    def test_what_was_refused_long_ago_is_forgotten(self) -> None:
        attempts = Attempts()
        attempts.missed("n1", 1000.0, in_tree=True)
        attempts.hit("n2")
        attempts.forget(1309.0)
        before = attempts.repeats
        attempts.forget(1310.0)

        assert (True, False) == (before, attempts.repeats)

    def test_a_miss_that_is_no_fault_of_the_node_leaves_it_open(self) -> None:
        attempts = Attempts()
        attempts.missed("n1", 1000.0, in_tree=False)

        assert ({}, 1000.25, True) == (attempts.refused_at(1000.0), attempts.not_before, attempts.repeats)

    def test_only_so_many_nodes_are_remembered(self) -> None:
        attempts = Attempts()
        for number in range(65):
            attempts.missed(f"n{number}", 1000.0, in_tree=True)

        assert [f"n{number}" for number in range(1, 65)] == list(attempts.refused_at(1000.0))


def test_replicas_share_their_attempts() -> None:
    web = [make_pod(f"web-{number}", owner=controller("ReplicaSet", "web")) for number in (1, 2)]

    assert ("uid-web", "uid-web", "uid-default-alone") == (*map(workload_of, web), workload_of(make_pod("alone")))


def test_a_uid_that_is_none_is_not_remembered() -> None:
    owner = controller("ReplicaSet", "web" * 100)

    assert "uid-default-web" == workload_of(make_pod("web", owner=owner))
