"""The order in which a scale-down removes pods."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from app.analysis.removal import removal_order, removed_first
from app.kube.core_decoding import core_v1
from app.kube.core_v1 import Pod
from app.kube.deletion_cost import DELETION_COST
from app.kube.extras import Extra
from tests.builders import encoded, make_pod, pod_object

NOW: Final = datetime(2026, 11, 24, 12, tzinfo=UTC)


def pod(name: str, node: str = "", *, age: float = 100.0, uid: str = "") -> Pod:
    created = (NOW - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return make_pod(name, node=node, created=created, uid=uid or f"uid-{name}")


def names(kind: str, *pods: Pod) -> str:
    return " ".join(it.name for it in removal_order(kind, pods, NOW))


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "ReplicationController"])
def test_a_replica_set_removes_pods_without_a_node_then_crowded_ones_then_young_ones(kind: str) -> None:
    old, young, waiting = pod("old", "n2", age=10_000), pod("young", "n1", age=10), pod("waiting", age=20_000)
    crowded = [pod("c1", "n0", age=30_000), pod("c2", "n0", age=90_000)]

    assert "waiting c1 c2 young old" == names(kind, *crowded, old, young, waiting)
    assert "waiting" == removed_first(kind, (old, waiting), NOW)


def test_ages_of_the_same_power_of_two_do_not_differ() -> None:
    """The controller then removes the smallest UID, so that the youngest pods are not always the victims."""
    older, younger = pod("a", "n0", age=1000, uid="1"), pod("b", "n1", age=900, uid="2")

    assert "c a b" == names("ReplicaSet", younger, older, pod("c", "n2", age=3))


def test_a_pod_of_this_second_is_younger_than_all_and_one_without_a_time_is_first() -> None:
    now, without = pod("now", "n0", age=0), make_pod("without", node="n1")

    assert "without now old" == names("ReplicaSet", pod("old", "n2", age=1), now, without)


def test_a_stateful_set_removes_the_highest_ordinal() -> None:
    assert "db-10 db-9 db-2 db" == names("StatefulSet", pod("db-9", "n0"), pod("db", "n0"), pod("db-10"), pod("db-2"))
    assert "db-10" == removed_first("StatefulSet", (pod("db-9"), pod("db-10")), NOW)


def test_a_job_removes_pods_without_a_node_then_the_youngest() -> None:
    assert "w c b" == names("Job", pod("b", "n0", age=9), pod("w", age=99), pod("c", "n1", age=3))
    assert "" == removed_first("Job", [pod("b")], NOW)


def test_a_replica_set_removes_pods_that_do_not_run_then_unready_ones_then_those_of_low_cost() -> None:
    whole = core_v1((Extra.DELETION_COST, Extra.DISRUPTION))

    def made(name: str, node: str, phase: str = "Running", cost: str = "", *, ready: str = "True") -> Pod:
        annotations = {DELETION_COST: cost} if cost else {}
        status = {"conditions": [{"type": "Ready", "status": ready}]}
        found = pod_object(name, node=node, phase=phase, annotations=annotations, status=status)
        return whole.decode_pod(encoded(found))

    pods = [
        made("crowded-1", "n1"),
        made("crowded-2", "n1", cost="none"),
        made("single", "n2", cost="0"),
        made("dear", "n3", cost="7"),
        made("cheap", "n4", cost="-2"),
        made("unready", "n5", cost="9", ready="False"),
        made("pending", "n6", "Pending", "9", ready="False"),
    ]

    assert "pending unready cheap crowded-1 crowded-2 single dear" == names("ReplicaSet", *pods)
    assert "pending" == removed_first("ReplicaSet", pods, NOW)


def test_costs_are_used_also_where_readiness_is_unknown() -> None:
    core = core_v1((Extra.DELETION_COST,))
    pods = [
        core.decode_pod(encoded(pod_object(f"p{it}", node="n", annotations={DELETION_COST: f"-{it}"}))) for it in "021"
    ]

    assert "p2 p1 p0" == names("ReplicaSet", *pods)
