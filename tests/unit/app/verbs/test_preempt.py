"""Preempt: a node stays where our filters pass once its victims are gone; nothing is added, nothing reordered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.feeds.saved import NullReader
from app.feeds.stores import store_for
from app.framework.cycle_state import CycleState
from app.framework.node_info import NodeInfo
from app.framework.points import FilterPlugin, PreFilterPlugin
from app.framework.status import SUCCESS, Status, unschedulable
from app.kube.core_v1 import Pod
from app.kube.kinds import NODES as NODE_KIND
from app.memory.expected_binds import ExpectedBinds
from app.verbs.context import VerbContext
from app.verbs.outcome import VerbFailure
from app.verbs.preempt import PreemptVerb
from tests.api.small import FOREIGN, NODES, PODS, VICTIMS, WEB, evicted, eviction
from tests.builders import JsonObject, encoded, node_object, pod_object
from tests.fakes import FromSpec, spec_of
from tests.harness import World, only

PEER = {"Pods": [{"UID": "uid-default-web-1"}], "NumPDBViolations": 0}
BOTH = {"Pods": [{"UID": "uid-batch"}, {"UID": "uid-default-web-1"}], "NumPDBViolations": 3}
NONE: JsonObject = {"Pods": [], "NumPDBViolations": 0}
MANY = 40
"""More than are tried at a time."""


class Empty(FromSpec, FilterPlugin):
    """Lets only nodes pass on which no pod is left."""

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return unschedulable("not empty") if node.pods else SUCCESS


class OnlyOn(FromSpec, PreFilterPlugin, FilterPlugin):
    """PreFilter leaves n2 alone."""

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, frozenset[str] | None]:
        return SUCCESS, frozenset({"n2"})

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return SUCCESS


class Hopeless(OnlyOn):
    """PreFilter refuses the pod."""

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, frozenset[str] | None]:
        return unschedulable("never"), None


class Preempt:
    """The verb on the small cluster; with a plugin, that one alone judges."""

    def __init__(self, *objects: JsonObject, plugin: type[FromSpec] | None = None) -> None:
        judges = {} if plugin is None else {"profile": only(plugin.__name__), "specs": [spec_of(plugin)]}
        self.world = World(*NODES, *PODS, *objects, **judges)  # type: ignore[arg-type]  # of either kind
        framework = self.world.framework
        due = ExpectedBinds(self.world.clock, wait_seconds=0, observe=lambda _: None)
        profiles = {framework.scheduler_name: framework}
        self.verb = PreemptVerb(VerbContext(self.world.cluster, profiles, NullReader(), str, due))

    async def ask(self, request: JsonObject) -> tuple[Any, str]:
        answer = await self.verb(encoded(request))
        assert isinstance(answer.body, bytes)
        return json.loads(answer.body), answer.outcome


@pytest.mark.parametrize(
    ("request_", "answer", "outcome"),
    [
        pytest.param(eviction(n1=VICTIMS), evicted(), "no_fit", id="the peer stays, so does the refusal"),
        pytest.param(eviction(n1=PEER), evicted(n1=PEER), "candidates", id="the peer goes"),
        pytest.param(
            eviction(n1=BOTH), evicted(n1=BOTH), "candidates", id="victims, their order and count as they came"
        ),
        pytest.param(
            eviction(n3=VICTIMS, n1=PEER, n2=VICTIMS),
            evicted(n3=VICTIMS, n1=PEER, n2=VICTIMS),
            "candidates",
            id="every node by itself: that another's victims go helps nobody",
        ),
        pytest.param(eviction(n9=PEER, n1=PEER), evicted(n1=PEER), "candidates", id="a node that is not known"),
        pytest.param(eviction(n2=NONE), evicted(), "nothing_to_do", id="no victims, no node"),
        pytest.param(eviction(FOREIGN, n9=VICTIMS), evicted(n9=VICTIMS), "nothing_to_do", id="a pod of no profile"),
    ],
)
async def test_what_is_answered(request_: JsonObject, answer: JsonObject, outcome: str) -> None:
    assert (answer, outcome) == await Preempt().ask(request_)


async def test_filters_see_the_node_without_its_victims_and_with_everybody_else() -> None:
    found = Preempt(pod_object("alone", node="n2"), plugin=Empty)
    alone = {"Pods": [{"UID": "uid-default-alone"}], "NumPDBViolations": 0}

    assert (evicted(n2=alone), "candidates") == await found.ask(eviction(n1=VICTIMS, n2=alone))


async def test_however_many_candidates_each_is_tried() -> None:
    nodes = [node_object(f"m{number}", zone=f"y{number}") for number in range(MANY)]
    victims = {f"m{number}": VICTIMS for number in range(MANY)}

    assert (evicted(**victims), "candidates") == await Preempt(*nodes).ask(eviction(**victims, n1=VICTIMS))


async def test_a_node_that_is_left_out_is_no_candidate() -> None:
    found = Preempt()
    store_for(found.world.cluster, NODE_KIND).mark_unreadable(("", "n2"), "odd")

    assert (evicted(n3=VICTIMS), "candidates") == await found.ask(eviction(n2=VICTIMS, n3=VICTIMS))


async def test_what_prefilter_leaves_out_is_no_candidate() -> None:
    expected = (evicted(n2=VICTIMS), "candidates")

    assert expected == await Preempt(plugin=OnlyOn).ask(eviction(n1=VICTIMS, n2=VICTIMS, n3=VICTIMS))


async def test_a_pod_that_prefilter_refuses_is_helped_by_no_eviction() -> None:
    assert (evicted(), "no_fit") == await Preempt(plugin=Hopeless).ask(eviction(n1=PEER))


@pytest.mark.parametrize("body", [encoded({**eviction(n1=PEER), "Pod": 5}), encoded(eviction(n1={"Pods": "all"}))])
async def test_what_cannot_be_read_is_told(body: bytes) -> None:
    with pytest.raises(VerbFailure) as failed:
        await Preempt().verb(body)

    assert "bad_request" == failed.value.outcome
    assert failed.value.message.startswith("homeport: malformed preempt request: ")


async def test_a_pod_is_not_in_its_own_way() -> None:
    """It may stand in the picture already, as one that was nominated or is assumed does."""
    found = Preempt(pod_object("web-new", labels=WEB, node="n2"))

    assert (evicted(n2=VICTIMS), "candidates") == await found.ask(eviction(n2=VICTIMS))
