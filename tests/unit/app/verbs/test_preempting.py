"""What filter and preempt answer for a pod for which Homeport evicts others, and what they report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

import pytest

from app.feeds.saved import NullReader
from app.kube.core_v1 import Pod
from app.memory.expected_binds import ExpectedBinds
from app.memory.filter_results import FilterResultCache
from app.memory.picks import Picks
from app.memory.refusal_cache import RefusalCache
from app.verbs.context import VerbContext
from app.verbs.preempting import PreemptingFilterVerb, PreemptingPreemptVerb
from tests.builders import JsonObject, constraint, encoded, node_object, pod_object
from tests.filtering import Tally, request
from tests.harness import World
from tests.unit.app.verbs.bench import WEB

NODES: Final = ("a1", "a2")
REASON: Final = "node(s) didn't match pod topology spread constraints"
HIGH: Final = pod_object("high", labels=WEB, priority=10, spread=[constraint(app="web")])


class Tracker:
    """Has a plan for every pod on the node ``plan``, and keeps what it hears."""

    def __init__(self, plan: str = "", evicting: bool = False) -> None:
        self.plan = plan
        self.evicting = evicting
        self.heard: list[Any] = []

    def planned(self, uid: str) -> str:
        return self.plan

    def is_evicting(self, uid: str) -> bool:
        return self.evicting

    def refused(self, pod: Pod, names: Callable[[], Iterable[str]]) -> None:
        self.heard.append(("refused", *names()))

    def passed(self, pod: Pod) -> None:
        self.heard.append("passed")

    def preempt_begins(self, pod: Pod) -> None:
        self.heard.append("preempt begins")

    def preempt_ends(self, pod: Pod, helped: bool) -> None:
        self.heard.append(("preempt ends", helped))


def world(preemption: str = "Own", full: bool = True) -> World:
    nodes = [*(node_object(name, zone="a") for name in NODES), node_object("b1", zone="b", unschedulable=True)]
    low = [pod_object("low", labels=WEB, node="a1", priority=0)] if full else []
    return World(*nodes, *low, profile={"schedulerName": "default-scheduler", "preemption": preemption})


def context(judges: World) -> VerbContext:
    due = ExpectedBinds(judges.clock, wait_seconds=0, observe=lambda _: None)
    return VerbContext(judges.cluster, {"default-scheduler": judges.framework}, NullReader(), str, due)


def filter_verb(judges: World, tracker: Tracker) -> PreemptingFilterVerb:
    refusals = RefusalCache(judges.cluster, remembered=Tally(), computed=Tally())
    picks = Picks(made=Tally(), failed=Tally())
    parts = (context(judges), refusals, FilterResultCache(), lambda *_: None, picks)
    return PreemptingFilterVerb(*parts, tracker=tracker)


async def filtered(verb: PreemptingFilterVerb, body: bytes | None = None) -> Any:
    answer = await verb(body or request(HIGH, NODES))
    assert isinstance(answer.body, bytes)
    return json.loads(answer.body)


def refusal(failed: dict[str, str], final: dict[str, str]) -> JsonObject:
    lists = {"FailedNodes": failed, "FailedAndUnresolvableNodes": final}
    return {"Nodes": None, "NodeNames": [], **lists, "Error": ""}


@pytest.mark.parametrize("times", [1, 2])
async def test_without_a_plan_each_node_is_rejected_for_good(times: int) -> None:
    tracker = Tracker()
    verb = filter_verb(world(), tracker)

    answers = [await filtered(verb) for _ in range(times)]

    assert [refusal({}, dict.fromkeys(NODES, REASON))] * times == answers
    assert [("refused", *NODES)] * times == tracker.heard


async def test_a_plan_puts_its_node_into_failed_nodes_also_after_an_earlier_refusal() -> None:
    tracker = Tracker()
    verb = filter_verb(world(), tracker)
    await filtered(verb)
    tracker.plan = "a1"

    assert refusal({"a1": REASON}, {"a2": REASON}) == await filtered(verb)


async def test_a_node_that_was_not_requested_is_not_named() -> None:
    verb = filter_verb(world(), Tracker("b1"))

    assert refusal({}, dict.fromkeys(NODES, REASON)) == await filtered(verb)


async def test_whole_nodes() -> None:
    tracker = Tracker("a1")
    items = [node_object(name, zone="a") for name in NODES]
    body = encoded({"Pod": HIGH, "Nodes": {"items": items}, "NodeNames": None})

    answer = await filtered(filter_verb(world(), tracker), body)

    assert (["a1"], ["a2"], None) == (
        list(answer["FailedNodes"]),
        list(answer["FailedAndUnresolvableNodes"]),
        answer["NodeNames"],
    )
    assert [("refused", *NODES)] == tracker.heard


@pytest.mark.parametrize(("plan", "passed"), [("", [*NODES]), ("a1", ["a1"])])
async def test_nodes_that_pass_are_reported_and_with_a_plan_only_its_node_passes(plan: str, passed: list[str]) -> None:
    tracker = Tracker(plan)

    answer = await filtered(filter_verb(world(full=False), tracker))

    assert (passed, ["passed"]) == (answer["NodeNames"], tracker.heard)


async def test_no_other_node_passes_while_a_plan_is_in_hand() -> None:
    answer = await filtered(filter_verb(world(full=False), Tracker("a1")), request(HIGH, ["a1", "a2"]))

    assert ["a2"] == list(answer["FailedAndUnresolvableNodes"])


@pytest.mark.parametrize(("names", "failed"), [(NODES, ["a1"]), (("a2",), [])])
async def test_no_node_passes_until_the_last_eviction_was_sent(names: tuple[str, ...], failed: list[str]) -> None:
    """Otherwise a pod that leaves by itself lets the pod in, and an eviction follows the bind."""
    tracker = Tracker("a1", evicting=True)

    answer = await filtered(filter_verb(world(full=False), tracker), request(HIGH, names))

    assert (failed, ["a2"], []) == (
        list(answer["FailedNodes"]),
        list(answer["FailedAndUnresolvableNodes"]),
        tracker.heard,
    )


async def test_other_profiles_are_not_reported() -> None:
    tracker = Tracker("a1")

    answer = await filtered(filter_verb(world("Never"), tracker))

    assert (refusal({}, dict.fromkeys(NODES, REASON)), []) == (answer, tracker.heard)


@pytest.mark.parametrize(
    ("plan", "nodes", "helped"),
    [
        pytest.param("", ["a1"], True, id="no plan: the victim helps"),
        pytest.param("a2", [], False, id="a plan: no node helps"),
    ],
)
async def test_preempt(plan: str, nodes: list[str], helped: bool) -> None:
    tracker = Tracker(plan)
    victims = {"a1": {"Pods": [{"UID": "uid-default-low"}], "NumPDBViolations": 0}}
    body = encoded({"Pod": HIGH, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims})

    answer = await PreemptingPreemptVerb(context(world()), tracker)(body)

    assert isinstance(answer.body, bytes)
    assert nodes == list(json.loads(answer.body)["NodeNameToMetaVictims"])
    assert ["preempt begins", ("preempt ends", helped)] == tracker.heard
