"""Rules of ``preemption: Own``: who can be a victim, and that no budget is violated by either of its two readings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from app.framework.cycle_state import CycleState
from app.framework.status import Status, unresolvable, unschedulable
from app.kube.core_v1 import Pod
from app.runtime.post_filters import advance
from tests.builders import JsonObject, constraint
from tests.harness import World
from tests.unit.app.analysis.test_judging import COMPLETE, WEB, node, pod

REFUSED = unschedulable("node(s) didn't match pod topology spread constraints").by("PodTopologySpread")
NODES = [node("a1", zone="a"), node("a2", zone="a"), node("b1", zone="b", unschedulable=True)]
NOBODY: tuple[str, list[str]] = ("", [])


def low(name: str, at: str = "a1", priority: int = 0, **fields: Any) -> JsonObject:
    return pod(name, labels=WEB, node=at, priority=priority, **fields)


def running(name: str, at: str = "a1", **fields: Any) -> JsonObject:
    """A pod that counts for budgets in the Eviction API."""
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return {**low(name, at, **fields), "status": status}


def budget(name: str = "web", allowed: int = 0, selector: Mapping[str, Any] | None = None, **more: Any) -> JsonObject:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default", "generation": 1, **more.get("metadata", {})},
        "spec": {"selector": {"matchLabels": WEB} if selector is None else selector, "minAvailable": 1},
        "status": {"disruptionsAllowed": allowed, "desiredHealthy": 1, "currentHealthy": 1, "observedGeneration": 1},
    }


def searched(
    *objects: JsonObject,
    rejected: Mapping[str, Status] | None = None,
    stays: Callable[[Pod], str] = lambda _: "",
    **preemptor: Any,
) -> tuple[tuple[str, list[str]], str]:
    """The node and the names of its victims, and the message."""
    world = World(*NODES, *objects, profile=COMPLETE)
    new = world.pod(pod("new", **{"labels": WEB, "spread": [constraint(app="web")], "priority": 10, **preemptor}))
    state = CycleState()
    world.framework.filters.pre_filter(state, new)
    statuses = dict.fromkeys(("a1", "a2"), REFUSED) if rejected is None else rejected
    steps = world.framework.post_filters.for_spread(state, new, statuses, stays)
    over, answer = advance(steps, None)
    while not over:
        over, answer = advance(steps, state)
    result, status = answer
    if result is None or result.victims is None:
        return NOBODY, status.message
    return (result.nominated_node_name, [it.name for it in result.victims.pods]), status.message


def test_the_fewest_victims_on_the_best_node() -> None:
    spread = [constraint(app="web", skew=2)]
    assert ("a2", ["c"]) == searched(low("b", "a1", 5), low("c", "a2", 1), spread=spread)[0]
    assert ("a1", ["b"]) == searched(low("b", "a1"))[0]


def test_only_nodes_that_topology_spread_alone_rejects_are_candidates() -> None:
    other = unschedulable("full").by("NodeResourcesFit")
    final = unresolvable("node(s) didn't match").by("PodTopologySpread")

    assert NOBODY == searched(low("b"), rejected={"a1": other})[0]
    assert NOBODY == searched(low("b"), rejected={"a1": final})[0]


@pytest.mark.parametrize(
    ("victim", "why"),
    [
        pytest.param(low("b", priority=10), "No preemption victims found", id="equal priority"),
        pytest.param(
            low("b", terminating=True),
            "must stay: they are terminating",
            id="terminating",
        ),
        pytest.param(low("b", namespace="other"), "must stay: another namespace", id="another namespace"),
    ],
)
def test_who_is_never_a_victim(victim: JsonObject, why: str) -> None:
    found, message = searched(victim)

    assert (NOBODY, True) == (found, why in message)


def test_a_pod_that_must_stay_is_no_victim_but_others_are() -> None:
    def stays(pod: Pod) -> str:
        return "it has a hard home" if pod.name == "db" else ""

    assert NOBODY == searched(low("db"), stays=stays)[0]
    assert "1 pods of lower priority must stay: it has a hard home" in searched(low("db"), stays=stays)[1]


def test_a_pod_that_never_preempts() -> None:
    found, message = searched(low("b"), more={"preemptionPolicy": "Never"})

    assert (NOBODY, "preemption: not eligible due to preemptionPolicy=Never.") == (found, message)


class TestBudgets:
    @pytest.mark.parametrize(
        ("budgets", "why"),
        [
            pytest.param([budget()], "budget default/web allows no further eviction", id="no eviction left"),
            pytest.param([budget(selector={})], "budget default/web needs 1 healthy pods and has 1", id="everything"),
            pytest.param(
                [budget(allowed=5), budget("other", 5)], "more than one budget guards it", id="two budgets on a pod"
            ),
            pytest.param(
                [budget(allowed=5, metadata={"generation": 2})], "budget default/web is not processed yet", id="stale"
            ),
        ],
    )
    def test_it_forbids_the_eviction(self, budgets: list[JsonObject], why: str) -> None:
        found, message = searched(running("b"), *budgets)

        assert (NOBODY, True) == (found, why in message), message

    @pytest.mark.parametrize(
        "budgets",
        [
            pytest.param([budget(allowed=1)], id="one eviction left"),
            pytest.param([budget(selector={"matchLabels": {"app": "none"}})], id="it selects nothing"),
            pytest.param([], id="no budget"),
        ],
    )
    def test_it_allows_the_eviction(self, budgets: list[JsonObject]) -> None:
        assert ("a1", ["b"]) == searched(running("b"), *budgets)[0]

    def test_evictions_of_one_plan_are_counted_together(self) -> None:
        """Two of the pods must go, and the budget allows one eviction."""
        pods = [running("b"), running("c")]

        assert ("a1", ["c", "b"]) == searched(*pods, budget(allowed=2))[0]
        assert NOBODY == searched(*pods, budget(allowed=1))[0]

    def test_another_node_is_taken_whose_pods_no_budget_guards(self) -> None:
        guarded = budget(selector={"matchLabels": {"guarded": "yes"}})
        first = low("b", "a1")
        first["metadata"]["labels"] = {**WEB, "guarded": "yes"}

        assert ("a2", ["c"]) == searched(first, low("c", "a2", 5), guarded, spread=[constraint(app="web", skew=2)])[0]
