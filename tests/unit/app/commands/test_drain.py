"""The plan of a drain, as a person at a terminal reads it."""

from __future__ import annotations

from typing import Any

import pytest

from app.commands.drain import rendered, unknown, waits
from tests.builders import JsonObject

OUTCOMES = ("placed", "waiting", "lost", "blocked", "notJudged", "notReached")


def pod(name: str, then: str, outcome: str = "placed", **more: Any) -> JsonObject:
    given = {"namespace": "shop", "workload": "Deployment/shop/web", "wave": 1, "preempted": False, "victims": []}
    home = {"home": None, "couldRunOn": None, "couldRunOnCount": 0, "placedLater": ""}
    return {"pod": name, "then": then, "outcome": outcome, **given, **home, **more}


def node(*pods: JsonObject, **more: Any) -> JsonObject:
    counts = {it: sum(pod["outcome"] == it for pod in pods) for it in OUTCOMES}
    lists: JsonObject = {key: [] for key in ("apart", "budgets", "homes", "waitingGroups", "spread")}
    return {"node": "n1", "known": True, "suggestion": "", "pods": [*pods], **counts, **lists, "moreHomes": 0, **more}


def plan(*items: JsonObject, **more: Any) -> JsonObject:
    head = {"stale": "", "notJudged": [], "incomplete": False, "budgetsJudged": True, "keepCordoned": False}
    return {**head, "items": [*items], **more}


def home(node: str, policy: str = "hard") -> JsonObject:
    owner = {"kind": "VirtualMachine", "namespace": "machines", "name": "db01", "slot": "", "apiVersion": "v1"}
    return {"node": node, "policy": policy, "owner": owner}


def test_pods_that_do_not_go_come_first() -> None:
    item = node(
        pod("web-1", "starts on n2", victims=["shop/low"]),
        pod("low", "starts on n3", preempted=True, wave=0),
        pod("db", "waits for n1", "waiting", home=home("n1"), couldRunOn=["n2", "n3", "n4", "n5"], couldRunOnCount=9),
        apart=[{"why": "DaemonSet"}, {"why": "static pod"}, {"why": "DaemonSet"}],
    )

    assert """\
n1: 2 of 3 pods would be placed, 1 would wait

NAMESPACE  POD    WAVE  HOME       THEN
shop       db     1     n1 (hard)  waits for n1
shop       web-1  1     -          starts on n2; evicts shop/low
shop       low    -     -          is evicted by preemption; starts on n3

left alone: 2 DaemonSet, 1 static pod""" == rendered(plan(item), "table")
    assert "n2 n3 n4 and 6 more" in rendered(plan(item), "wide")
    assert "pod/web-1\npod/low\npod/db" == rendered(plan(item), "name")


def test_budgets_that_block_or_need_several_waves() -> None:
    numbers = {"namespace": "shop", "disruptionsAllowed": 1, "currentHealthy": 4, "waves": [1, 2], "blocked": 0}
    budgets = [
        {**numbers, "name": "web"},
        {**numbers, "name": "calm", "waves": [1]},
        {**numbers, "name": "strict", "disruptionsAllowed": 0, "waves": [], "blocked": 2},
    ]

    assert [
        "budget shop/web: 1 of its 4 healthy pods can go at once; its pods leave in the waves 1, 2",
        "budget shop/strict: 0 of its 4 healthy pods can go at once; 2 are never evicted",
    ] == rendered(plan(node(budgets=budgets)), "table").splitlines()[2:]


def test_many_pods_are_listed_only_in_wide_output() -> None:
    item = node(*(pod(f"web-{number}", "starts on n2") for number in range(25)))

    assert "and 5 more pods (-o wide lists all)" == rendered(plan(item), "table").splitlines()[-1]
    assert "more pods" not in rendered(plan(item), "wide")


def test_homes_without_a_pod_there() -> None:
    homes = [{**home("n1"), "then": "waits for n1"}]

    assert """\
homes on n1 whose pod does not run there:
NAMESPACE  OWNER                POLICY  THEN
machines   VirtualMachine/db01  hard    waits for n1
and 7 more homes""" in rendered(plan(node(homes=homes, moreHomes=7)), "table")


def test_several_nodes() -> None:
    one = node(pod("web", "waits: 1 of 1: Fit: no cpu", "waiting", placedLater="n1"))
    items = one, {**node(), "node": "n2"}

    both = rendered(plan(*items), "table")

    assert "n1 is uncordoned before the next node is drained\npods that waited are then placed: web on n1\n" in both
    assert "uncordoned" not in rendered(plan(*items, keepCordoned=True), "table")


def test_what_was_not_checked_is_said() -> None:
    not_judged = [{"plugin": "NodeResourcesFit", "why": "explain: profile"}]

    assert [
        "disruption budgets were not checked, because no profile reads them",
        "",
        "not judged: NodeResourcesFit",
    ] == rendered(plan(node(), budgetsJudged=False, notJudged=not_judged), "table").splitlines()[-3:]


def test_nodes_that_do_not_exist() -> None:
    item = node(known=False, node="n9", suggestion="; did you mean n1?")

    assert "there is no node 'n9'; did you mean n1?" == unknown(plan(node(), item))
    assert "n9: there is no such node; homes on it: 0" == rendered(plan(item), "table")


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_the_exit_code_follows_the_outcomes(outcome: str) -> None:
    """A lost pod does not wait: a controller that would create it again does not exist."""
    assert waits(plan(node(pod("web", "", outcome)))) == (outcome not in ("placed", "lost"))
