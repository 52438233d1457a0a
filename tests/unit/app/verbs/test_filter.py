"""Filter: what is answered, what is never asked of a plugin, and what a failure is told as. The forms: tests/api."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.feeds.sinks import sink_for
from app.framework.cycle_state import CycleState
from app.framework.interface import FilterPlugin
from app.framework.node_info import NodeInfo
from app.framework.status import Status, unschedulable
from app.kube.core_v1 import Pod, decode_pod
from app.kube.kinds import NODES as NODE_KIND
from app.verbs.filter import by_lot
from app.verbs.outcome import VerbFailure
from tests.api.small import (
    FOREIGN,
    NAMES,
    NEW,
    NODES,
    PODS,
    TOO_MANY,
    UNKNOWN_NODE,
    by_name,
    by_object,
    filtered,
)
from tests.builders import JsonObject, encoded, make_pod, node_object, pod_object
from tests.fakes import FromSpec, spec_of
from tests.filtering import Filter
from tests.harness import World, only

UNREADABLE = "node(s) could not be read by Homeport"
BODY = encoded(by_name())


class Fails(FromSpec, FilterPlugin):
    """Filter that has a fault."""

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        raise ZeroDivisionError("a screw is loose")


class RefusesAll(FromSpec, FilterPlugin):
    """Filter that lets nothing pass."""

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return unschedulable("no")


def world(*objects: JsonObject, plugin: type[FromSpec] | None = None) -> World:
    """The small cluster; with a plugin, that one alone judges."""
    if plugin is None:
        return World(*NODES, *PODS, *objects)
    return World(*NODES, *PODS, *objects, profile=only(plugin.__name__), specs=[spec_of(plugin)])


async def ask(asked: Filter, request: JsonObject) -> tuple[Any, str]:
    """The answer, read, and its outcome."""
    answer = await asked.verb(encoded(request))
    body = answer.body
    return json.loads(body if isinstance(body, bytes) else b"".join(map(bytes, body.pieces))), answer.outcome


@pytest.fixture
def asked() -> Filter:
    return Filter(world())


@pytest.mark.parametrize(
    ("request_", "answer", "outcome"),
    [
        pytest.param(by_name(), filtered(["n2", "n3"], {"n1": TOO_MANY}), "feasible", id="the reasons of the others"),
        pytest.param(
            by_name(names=["n3", "n9", "n2"]),
            filtered(["n3", "n2"], {"n9": UNKNOWN_NODE}),
            "feasible",
            id="in the order asked",
        ),
        pytest.param(
            by_name(names=["n1", "n9"]), filtered([], {"n1": TOO_MANY, "n9": UNKNOWN_NODE}), "no_fit", id="none"
        ),
        pytest.param(by_name(names=[]), filtered([]), "nothing_to_do", id="nothing asked"),
        pytest.param(
            by_object(nodes=NODES[:2]), filtered(None, {"n1": TOO_MANY}, nodes=[NODES[1]]), "feasible", id="whole"
        ),
        pytest.param(by_name(FOREIGN, ["n9"]), filtered(["n9"]), "nothing_to_do", id="a pod of no profile passes"),
    ],
)
async def test_what_is_answered(asked: Filter, request_: JsonObject, answer: JsonObject, outcome: str) -> None:
    assert (answer, outcome) == await ask(asked, request_)


async def test_a_pod_is_not_its_own_peer() -> None:
    """It may stand in the picture already, nominated or assumed; the answer is that of one that does not."""
    there = Filter(world(pod_object("web-new", labels={"app": "web"}, node="n2")))

    assert (filtered(["n2", "n3"], {"n1": TOO_MANY}), "feasible") == await ask(there, by_name())


async def test_a_node_that_is_left_out_is_refused_and_no_plugin_is_asked_about_it() -> None:
    found = world(plugin=Fails)
    sink_for(found.cluster, NODE_KIND).leave_out(("", "n1"), "odd")

    assert (filtered([], {"n1": UNREADABLE}), "no_fit") == await ask(Filter(found), by_name(names=["n1"]))


async def test_a_whole_node_is_judged_by_what_was_sent_and_sent_back_as_it_came(asked: Filter) -> None:
    moved = node_object("n2", zone="z1", resource_version="9")
    fresh = {**node_object("n9", zone="z9"), "status": {"unknown": ["to", "us"]}}

    assert (filtered(None, {"n2": TOO_MANY}, nodes=[fresh]), "feasible") == await ask(
        asked, by_object(nodes=[moved, fresh])
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param(b"", "homeport: malformed filter request: ", id="nothing"),
        pytest.param(b'{"Pod":5}', "homeport: malformed filter request: ", id="no pod"),
        pytest.param(
            encoded(by_object(nodes=[{"metadata": {"name": 5}}])),
            "homeport: malformed filter request: Nodes.items: ",
            id="a whole node that makes no sense",
        ),
    ],
)
async def test_what_cannot_be_read_is_told(asked: Filter, body: bytes, said: str) -> None:
    with pytest.raises(VerbFailure) as failed:
        await asked.verb(body)

    assert ("bad_request", said) == (failed.value.outcome, failed.value.message[: len(said)])


@pytest.mark.parametrize("levels", [1_200, 9_000])
async def test_a_request_is_read_however_deep(asked: Filter, levels: int) -> None:
    deep = encoded(NEW)[:-1] + b',"x":' + b"[" * levels + b"]" * levels + b"}"
    answer = await asked.verb(BODY.replace(encoded(NEW), deep))

    assert isinstance(answer.body, bytes)
    assert filtered(["n2", "n3"], {"n1": TOO_MANY}) == json.loads(answer.body)


async def test_a_plugin_s_fault_names_it() -> None:
    with pytest.raises(VerbFailure) as failed:
        await Filter(world(plugin=Fails)).verb(BODY)

    assert ("fault", True) == (failed.value.outcome, "Fails" in failed.value.message)


class TestWithoutAPicture:
    async def test_nothing_is_decided(self, asked: Filter) -> None:
        asked.problem = "nothing heard of v1 Pod"
        with pytest.raises(VerbFailure) as failed:
            await asked.verb(BODY)

        assert ("not_ready", "homeport: nothing heard of v1 Pod") == (failed.value.outcome, failed.value.message)

    async def test_nor_is_what_is_remembered_repeated(self, asked: Filter) -> None:
        await ask(asked, by_name(names=["n1"]))
        asked.problem = "nothing heard of v1 Pod"

        with pytest.raises(VerbFailure, match="nothing heard"):
            await ask(asked, by_name(names=["n1"]))

    async def test_pods_of_others_pass_all_the_same(self, asked: Filter) -> None:
        asked.problem = "nothing heard of v1 Pod"

        assert (filtered(NAMES), "nothing_to_do") == await ask(asked, by_name(FOREIGN))


class TestRemembering:
    async def test_a_refusal_of_all_nodes_is(self, asked: Filter) -> None:
        first = await ask(asked, by_name(names=["n1"]))

        assert first == await ask(asked, by_name(names=["n1"]))
        assert (1, 1) == (asked.computed.count, asked.remembered.count)

    async def test_until_something_changes_that_it_rests_on(self) -> None:
        """Here the peer on n1 goes."""
        found = world()
        asked = Filter(found)
        await ask(asked, by_name(names=["n1"]))
        found.cluster.delete_pod(("default", "web-1"), "uid-default-web-1")

        assert (filtered(["n1"]), "feasible") == await ask(asked, by_name(names=["n1"]))

    async def test_an_answer_with_a_node_in_it_is_not(self, asked: Filter) -> None:
        await ask(asked, by_name())
        await ask(asked, by_name())

        assert 0 == asked.remembered.count


class TestBindsToCome:
    @pytest.fixture
    def asked(self) -> Filter:
        return Filter(world(), due_wait=1.0)

    async def test_a_pod_that_got_nodes_is_expected_to_be_bound(self, asked: Filter) -> None:
        """Whoever asks next and depends on it may wait for that."""
        next_one = make_pod("web-next", labels={"app": "web"}, spread=NEW["spec"]["topologySpreadConstraints"])
        depends = asked.framework.depends
        assert not asked.due.expects(depends, next_one)

        await ask(asked, by_name())

        assert asked.due.expects(depends, next_one)
        assert not asked.due.expects(depends, decode_pod(encoded(NEW)))

    @pytest.mark.parametrize(
        "request_",
        [
            pytest.param(by_name(names=["n1"]), id="without a node"),
            pytest.param(by_name(FOREIGN), id="of no profile"),
            pytest.param(by_name(names=[]), id="about which nothing was asked"),
        ],
    )
    async def test_one(self, asked: Filter, request_: JsonObject) -> None:
        """Such a one is not."""
        await ask(asked, request_)

        assert not asked.due.expects(lambda *_: True, make_pod("any"))


async def test_where_nothing_passes_every_reason_is_told_in_the_words_of_its_plugin() -> None:
    expected = filtered([], dict.fromkeys(NAMES, "no"))

    assert (expected, "no_fit") == await ask(Filter(world(plugin=RefusesAll)), by_name())


@pytest.mark.parametrize("items", [[], ["n1"], NAMES])
def test_a_lot_only_turns_and_flips(items: list[str]) -> None:
    turned = {(*items[start:], *items[:start]) for start in range(len(items) or 1)}
    orders = turned | {it[::-1] for it in turned}

    found = {tuple(by_lot(items)) for _ in range(50 * len(orders))}

    assert orders == found
