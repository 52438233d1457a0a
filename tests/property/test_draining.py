"""Drains of random clusters: no pod goes to a drained node, no node gets too much, and no budget is violated."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from app.whatif.budget import Budget
from app.whatif.drain_plan import DrainRequest, drained
from tests.builders import JsonObject, constraint, controller
from tests.unit.app.whatif.drains import READY, budget, run
from tests.unit.app.whatif.scratches import node, pod, scratch_of

ZONE = "topology.kubernetes.io/zone"


@st.composite
def pods_of(draw: st.DrawFn, nodes: int) -> list[JsonObject]:
    pods = []
    for number in range(draw(st.integers(1, 12))):
        fields: Any = {"labels": {"app": draw(st.sampled_from(["web", "db"]))}, "priority": draw(st.integers(0, 1))}
        if draw(st.booleans()):
            fields["owner"] = controller("ReplicaSet", fields["labels"]["app"])
        if draw(st.booleans()):
            fields["status"] = READY
        if draw(st.booleans()):
            fields["spread"] = [constraint(ZONE, **fields["labels"])]
        if draw(st.booleans()):
            fields["tolerations"] = [{"operator": "Exists"}]
        pods.append(pod(f"pod-{number}", "1", node=f"n{draw(st.integers(1, nodes))}", **fields))
    return pods


@given(
    data=st.data(), nodes=st.integers(1, 4), keep=st.booleans(), allowed=st.integers(0, 3), desired=st.integers(0, 4)
)
@settings(max_examples=60, deadline=None)
def test_a_drain(data: st.DataObject, nodes: int, keep: bool, allowed: int, desired: int) -> None:
    pods = data.draw(pods_of(nodes))
    guarding = budget(allowed=allowed, healthy=desired + allowed, desired=desired)
    scratch = scratch_of(*(node(f"n{it}", "3", zone=f"z{it % 2}") for it in range(1, nodes + 1)), *pods, guarding)
    names = data.draw(st.lists(st.sampled_from([f"n{it}" for it in range(1, nodes + 1)]), min_size=1, unique=True))

    plan = run(drained(scratch, DrainRequest(names, keep), Budget(None)))

    for number, item in enumerate(plan["items"]):
        closed = names if keep else names[number : number + 1]
        outcomes = Counter(it["outcome"] for it in item["pods"])
        assert len(item["pods"]) == item["evicted"] + item["preempted"] == sum(outcomes.values())
        assert outcomes == +Counter({it: item[it] for it in outcomes})
        assert not {it["nodeName"] for it in item["pods"]} & {*closed}
        assert all((it["wave"] == 0) == (it["outcome"] == "blocked") for it in item["pods"] if not it["preempted"])
        for wave in range(1, item["waves"] + 1):
            gone = [it for it in item["pods"] if it["wave"] == wave and it["budgets"]]
            ready = {it["metadata"]["name"] for it in pods if it["status"].get("conditions")}
            assert sum(it["pod"] in ready for it in gone) <= allowed
    for name, info in scratch.cluster.nodes.items():
        cpu = sum(it.spec.resources.requests["cpu"] for it in info.pods.values()) if info.pods else 0
        before = sum(it["spec"]["nodeName"] == name for it in pods) * 1000
        assert cpu <= max(3000, before)
    assert [] == scratch.cluster.check()
