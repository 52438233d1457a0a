"""Loss of a zone: the three variants side by side, and all zones, the worst first."""

from __future__ import annotations

import pytest

from app.verbs.outcome import VerbFailure
from app.whatif.budget import Budget
from app.whatif.losing import LossRequest, lost
from tests.builders import ZONE, constraint, controller
from tests.unit.app.whatif.losses import (
    VARIANTS,
    ZONES,
    ended,
    lose,
    numbers,
    replicas,
    row,
    web,
)
from tests.unit.app.whatif.scratches import node, pod, scratch_of


def test_the_three_variants_differ() -> None:
    """A zone that is gone does not count. A tainted zone and a full zone count, and their minimum of 0 pods stays."""
    found = row(scratch_of(*ZONES, *replicas(spread=[constraint(ZONE, app="web")])))

    assert (3, {"a": 1, "b": 1, "c": 1}) == (found["running"], found["runningIn"])
    assert {"gone": (1, 1, 0), "tainted": (1, 0, 1), "full": (1, 0, 1)} == {it: numbers(found[it]) for it in VARIANTS}
    assert [("PodTopologySpread", 2)] == [(it["plugin"], it["count"]) for it in found["tainted"]["reasons"]]


def test_victims_of_preemption_are_counted() -> None:
    """A pod of the zone takes the room of another workload, whose pod comes back and waits."""
    low = pod("low-a", node="a1", cpu="4", owner=controller("ReplicaSet", "low"))
    nodes = [node("a1", zone="a"), node("c1", zone="c")]

    scratch = scratch_of(*nodes, low, web("web-c", "c1", cpu="4", priority=10))

    assert (1, 1, 0) == numbers(row(scratch)["gone"])
    outcome = row(scratch, "low")["gone"]
    assert (0, 1, 0, 1) == (outcome["lost"], outcome["evicted"], outcome["placed"], outcome["waiting"])


def test_all_zones_worst_first() -> None:
    """Zone b has two of the pods, and no other zone has room for them."""
    small = [node("a1", zone="a", cpu="1"), node("b1", zone="b", cpu="2"), node("c1", zone="c", cpu="1")]
    pods = [web(f"web-{number}", where) for number, where in enumerate(("a1", "b1", "b1", "c1"))]

    domains = lose(scratch_of(*small, *pods), value=None)["domains"]

    assert [("b", 2), ("a", 1), ("c", 1)] == [(it["value"], it["gone"]["waiting"]) for it in domains]
    assert ["web"] == [it["name"] for it in domains[0]["workloads"]]


def test_without_time_the_rest_is_left_out() -> None:
    steps = lost(scratch_of(*ZONES, *replicas()), LossRequest(ZONE, "c"), Budget(0.0, iter(range(100)).__next__))

    (domain,) = ended(steps)["domains"]
    assert [None, None, None] == [domain[it] for it in VARIANTS]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        pytest.param(
            "topology.kubernetes.io/zones",
            None,
            'no node has the label "topology.kubernetes.io/zones"; did you mean label topology.kubernetes.io/zone?',
            id="key",
        ),
        pytest.param(
            ZONE,
            "eu-1d",
            'no node has the label "topology.kubernetes.io/zone=eu-1d"; did you mean eu-1b or eu-1a?',
            id="value",
        ),
    ],
)
def test_what_no_node_has(key: str, value: str | None, message: str) -> None:
    with pytest.raises(VerbFailure) as failed:
        lose(scratch_of(*(node(f"n{zone}", zone=f"eu-1{zone}") for zone in "ab")), value, key)

    assert ("nothing_to_do", message) == (failed.value.outcome, failed.value.message)
