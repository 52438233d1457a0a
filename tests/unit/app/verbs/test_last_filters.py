"""Whoever looks for nodes hears the last word: filter, cycle, explain, evaluate and the sampling guard."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import pytest
from msgspec.structs import replace

from app.analysis.evaluate import Evaluator
from app.analysis.judging import Judge, Judgement
from app.controllers.unshown import candidate_nodes
from app.feeds.saved import NullReader
from app.framework.cycle_state import CycleState
from app.framework.filter_result import FilterResult
from app.framework.node_info import Candidates, NodeInfo
from app.framework.points import FilterPlugin
from app.framework.spec import Reads
from app.framework.status import SUCCESS, Status
from app.kube.core_v1 import Pod
from app.memory.expected_binds import ExpectedBinds
from app.runtime.guard import Guard
from app.runtime.registry import KUBE_SCHEDULER_DEFAULTS, Registry
from app.telemetry.metrics import Metrics
from app.verbs.context import VerbContext
from app.verbs.cycle import CycleVerb
from app.verbs.outcome import VerbFailure
from plugins import SHIPPED
from tests.builders import JsonObject, constraint, make_node, make_pod, node_object, pod_object
from tests.fakes import NO, NOT_ASKED, NOT_WANTED, WANTS, FromSpec, Soft, spec_of
from tests.filtering import Filter
from tests.harness import SPREAD, World, only

NODES: Final = tuple(f"n{number:02}" for number in range(40))
"""More than an explanation judges in its first step."""

FIRST: Final = NODES[0]
NOT_FIRST: Final = [name for number, name in enumerate(NODES) if number % 4]
FULL: Final = "node(s) didn't match pod topology spread constraints"


class Breaks(FromSpec, FilterPlugin):
    """Has no last word, but a fault."""

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return SUCCESS

    def filter_last(self, state: CycleState, pod: Pod, nodes: Candidates, passed: Sequence[str]) -> FilterResult:
        raise OSError("a screw is loose")


class FailsAtOne(FromSpec, FilterPlugin):
    """Cannot judge n2."""

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        if node.name == "n2":
            raise OSError("a screw is loose")
        return NO if node.name == "n1" else SUCCESS


SOFT: Final = spec_of(Soft, reads=Reads.NODE)
SPECS: Final = (SOFT, spec_of(Breaks), spec_of(FailsAtOne))


def world(last: str = "Soft") -> World:
    """Ten nodes in each of four zones, of which the first is full."""
    nodes = [make_node(name, zone=f"z{number % 4}") for number, name in enumerate(NODES)]
    return World(*nodes, make_pod("web-1", labels={"app": "web"}, node=FIRST), profile=only(SPREAD, last), specs=SPECS)


def wanting(name: str) -> JsonObject:
    return pod_object("web-2", labels={"app": "web", WANTS: name}, spread=[constraint(app="web")])


def verb(found: World) -> CycleVerb:
    due = ExpectedBinds(found.clock, wait_seconds=0.0, observe=lambda _: None)
    frameworks = {found.framework.scheduler_name: found.framework}
    return CycleVerb(VerbContext(found.cluster, frameworks, NullReader(), lambda: "", due), lambda _: "")


def judged(found: World, pod: Pod) -> Judgement:
    judgement = Judgement()
    for _ in Judge(found.framework, found.cluster).steps(pod, judgement):
        pass
    return judgement


def evaluated(pod: JsonObject, *plugins: str) -> Any:
    case = {"pod": pod, "config": only(*plugins), "objects": [node_object(name) for name in ("n1", "n2", "n3")]}
    judge = Evaluator(Registry([*SHIPPED, *SPECS], KUBE_SCHEDULER_DEFAULTS), Guard(Metrics()))
    return json.loads(judge.evaluate(json.dumps(case).encode()))


@pytest.mark.parametrize(
    ("wanted", "names", "expected"),
    [
        pytest.param("n07", NODES, ["n07"], id="what is wanted"),
        pytest.param("n04", NODES, NOT_FIRST, id="any, as what is wanted is full"),
        pytest.param("n07", NODES[:3], [], id="none, as nobody asked about it"),
        pytest.param("", NODES[:3], ["n01", "n02"], id="any"),
    ],
)
async def test_filter_and_cycle(wanted: str, names: Sequence[str], expected: list[str]) -> None:
    found, pod = world(), wanting(wanted)

    passed = Filter(found).answer(pod, names)["NodeNames"]
    cycle = await verb(found).run(found.pod(pod), names)

    assert expected == passed == [name for name, status in cycle.statuses.items() if status.is_success]
    assert (cycle.node in expected) if expected else not cycle.node


@pytest.mark.parametrize(
    ("wanted", "expected", "said"),
    [
        pytest.param("n07", ["n07"], NOT_WANTED.by("Soft"), id="what is wanted"),
        pytest.param("n04", NOT_FIRST, SUCCESS.by("Soft"), id="any, as what is wanted is full"),
        pytest.param("gone", [], NOT_ASKED.by("Soft"), id="none, as it is gone"),
    ],
)
async def test_explain_asks_once_after_all_steps(wanted: str, expected: list[str], said: Status) -> None:
    found = world()

    judgement = judged(found, found.pod(wanting(wanted)))

    assert expected == judgement.feasible
    assert (() if said.is_success else (said,)) == judgement.rejected.get("n01", ())
    assert [FULL] == [status.message for status in judgement.rejected["n04"]]
    assert [NOT_FIRST] == found.framework.plugins["Soft"].asked


async def test_explain_shows_no_node_that_went_meanwhile() -> None:
    found = world()

    class Goes(Soft):
        def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
            found.cluster.delete_node("n01")
            return SUCCESS

    explaining = World(profile=only("Goes"), specs=[spec_of(Goes)], cluster=found.cluster)
    judgement = judged(explaining, make_pod("new", labels={WANTS: "n01"}))

    assert [] == judgement.feasible
    assert (NOT_ASKED.by("Goes"),) == judgement.rejected["n03"]
    assert [[*NODES[:1], *NODES[2:]]] == explaining.framework.plugins["Goes"].asked


class WantsEmpty(Soft):
    """Has the last word against nodes with pods and cordoned nodes."""

    def filter_last(self, state: CycleState, pod: Pod, nodes: Candidates, passed: Sequence[str]) -> FilterResult:
        empty = [it for it in passed if not nodes.info(it).pods and not nodes.info(it).node.unschedulable]
        return FilterResult(empty, {it: NOT_WANTED for it in passed if it not in empty})


async def test_explain_shows_it_changed_nodes_and_no_deleted_pods() -> None:
    running = make_pod("running", node="full")
    cordoned = replace(make_node("cordoned"), unschedulable=True)
    found = World(make_node("full"), cordoned, running, profile=only("WantsEmpty"), specs=[spec_of(WantsEmpty)])
    judge, asked, changed = Judge(found.framework, found.cluster), make_pod("new"), Judgement()

    for _ in judge.steps(asked, changed, without=[running], nodes=[make_node("cordoned")]):
        pass

    assert ([], ["cordoned", "full"]) == (judged(found, asked).feasible, sorted(changed.feasible))


async def test_a_fault_ends_a_cycle_and_is_named_by_explain() -> None:
    found = world("Breaks")
    pod = found.pod(wanting(""))

    with pytest.raises(VerbFailure, match='running "Breaks" filter plugin: a screw is loose') as raised:
        await verb(found).run(pod)

    assert "fault" == raised.value.outcome
    assert {"Breaks": 'running "Breaks" filter plugin: a screw is loose'} == judged(found, pod).faults


async def test_the_guard_nominates_what_is_wanted() -> None:
    found = world()

    assert ["n07"] == await candidate_nodes(found.cluster, found.framework, found.pod(wanting("n07")))
    assert NOT_FIRST == await candidate_nodes(found.cluster, found.framework, found.pod(wanting("n04")))


SUCCEEDS: Final = {"code": "Success", "plugin": "", "reasons": []}


def said(status: Status, plugin: str) -> JsonObject:
    return {"code": status.code.word, "plugin": plugin, "reasons": [*status.reasons]}


def failed(plugin: str) -> JsonObject:
    return {"code": "Error", "plugin": plugin, "reasons": [f'running "{plugin}" filter plugin: a screw is loose']}


def test_evaluate() -> None:
    found = evaluated(wanting("n2"), "Soft")

    assert {"n1": said(NOT_WANTED, "Soft"), "n2": SUCCEEDS, "n3": said(NOT_WANTED, "Soft")} == found["filter"]
    assert ["n2"] == [*found["total"]]


def test_evaluate_tells_a_fault_of_each_node_that_passed() -> None:
    found = evaluated(wanting(""), "Breaks")

    assert dict.fromkeys(("n1", "n2", "n3"), failed("Breaks")) == found["filter"]
    assert {} == found["total"]


def test_evaluate_asks_nothing_more_where_a_filter_failed() -> None:
    found = evaluated(wanting("n3"), "FailsAtOne", "Soft")

    assert {"n1": said(NO, "FailsAtOne"), "n2": failed("FailsAtOne"), "n3": SUCCEEDS} == found["filter"]
